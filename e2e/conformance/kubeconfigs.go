package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/net/http/httpproxy"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

// A Kubeconfig is a file, the files beside it and the environment, with the result of kubectl's library.
type Kubeconfig struct {
	Text        string            `json:"text"`
	Files       map[string]string `json:"files,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
	Refused     bool              `json:"refused,omitempty"`
	Server      string            `json:"server,omitempty"`
	Proxy       string            `json:"proxy,omitempty"`
	ServerName  string            `json:"serverName,omitempty"`
	Insecure    bool              `json:"insecure,omitempty"`
	// Number of trusted authorities. If zero, those of the system are trusted.
	Authorities int `json:"authorities,omitempty"`
	// Number of certificates that the client presents.
	Chain     int               `json:"chain,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
}

var proxyVariables = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"}

// headerRecorder records the headers of a request.
type headerRecorder struct{ headers map[string]string }

func (r *headerRecorder) RoundTrip(request *http.Request) (*http.Response, error) {
	for name, values := range request.Header {
		if name == "Authorization" || strings.HasPrefix(name, "Impersonate-") {
			r.headers[strings.ToLower(name)] = strings.Join(values, ",")
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// kubeconfig returns a case with the result of client-go.
func kubeconfig(text string, files, environment map[string]string) Kubeconfig {
	result := Kubeconfig{Text: text, Environment: environment, Files: map[string]string{}}
	for name, content := range files {
		if strings.Contains(text, name) {
			result.Files[name] = content
		}
	}
	directory, err := os.MkdirTemp("", "kubeconfig")
	must(err)
	defer os.RemoveAll(directory)
	for name, content := range result.Files {
		must(os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600))
	}
	file := filepath.Join(directory, "config")
	must(os.WriteFile(file, []byte(text), 0o600))
	for _, name := range proxyVariables {
		must(os.Unsetenv(name))
		if value, is := environment[name]; is {
			must(os.Setenv(name, value))
		}
	}
	if err := result.ask(file); err != nil {
		return Kubeconfig{Text: text, Environment: environment, Files: result.Files, Refused: true}
	}
	return result
}

func (k *Kubeconfig) ask(file string) error {
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, &clientcmd.ConfigOverrides{})
	config, err := loaded.ClientConfig()
	if err != nil {
		return err
	}
	if k.Namespace, _, err = loaded.Namespace(); err != nil {
		return err
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	if server.Scheme != "http" && server.Scheme != "https" {
		return fmt.Errorf("scheme %q", server.Scheme)
	}
	if server.Hostname() == "" {
		return fmt.Errorf("no host")
	}
	if k.Proxy, err = proxyFor(config, server); err != nil {
		return err
	}
	if server.Port() == map[string]string{"http": "80", "https": "443"}[server.Scheme] {
		server.Host = strings.TrimSuffix(server.Host, ":"+server.Port())
	}
	server.Host = strings.ToLower(server.Host)
	// rest.NewRESTClient does the same for each request.
	server.RawQuery, server.Fragment = "", ""
	k.Server = strings.TrimRight(server.String(), "/")
	settings, err := config.TransportConfig()
	if err != nil {
		return err
	}
	tls, err := transport.TLSConfigFor(settings)
	if err != nil {
		return err
	}
	if tls != nil && server.Scheme == "https" {
		k.ServerName, k.Insecure = tls.ServerName, tls.InsecureSkipVerify
		if tls.RootCAs != nil {
			k.Authorities = len(tls.RootCAs.Subjects()) //nolint:staticcheck // a pool of our own
		}
		if tls.GetClientCertificate != nil {
			shown, err := tls.GetClientCertificate(nil)
			if err != nil {
				return err
			}
			k.Chain = len(shown.Certificate)
		}
	}
	seen := &headerRecorder{headers: map[string]string{}}
	wrapped, err := transport.HTTPWrappersForConfig(settings, seen)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodGet, server.String(), nil)
	if err != nil {
		return err
	}
	if _, err := wrapped.RoundTrip(request); err != nil {
		return err
	}
	k.Headers = seen.headers
	return nil
}

// proxyFor stands in for the transport's function, which reads the environment of the process only once.
func proxyFor(config *rest.Config, server *url.URL) (string, error) {
	request := &http.Request{URL: server}
	find := config.Proxy
	if find == nil {
		variable := func(name string) string {
			if value := os.Getenv(name); value != "" {
				return value
			}
			return os.Getenv(strings.ToLower(name))
		}
		environment := httpproxy.Config{
			HTTPProxy: variable("HTTP_PROXY"), HTTPSProxy: variable("HTTPS_PROXY"), NoProxy: variable("NO_PROXY"),
		}
		of := environment.ProxyFunc()
		find = utilnet.NewProxierWithNoProxyCIDR(func(request *http.Request) (*url.URL, error) { return of(request.URL) })
	}
	found, err := find(request)
	if err != nil || found == nil {
		return "", err
	}
	switch found.Scheme {
	case "http", "https", "socks5", "socks5h":
	default:
		return "", fmt.Errorf("scheme %q", found.Scheme)
	}
	return strings.TrimRight(found.String(), "/"), nil
}

type members map[string]any

// selfSigned returns an authority, and a client certificate of this authority with its key.
func selfSigned() (authority, certificate, key string) {
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	signed := chain(link{name: "client"}).Certificates
	der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("a seed of thirty-two bytes, no %2d", 0))[:ed25519.SeedSize]))
	must(err)
	return encode("CERTIFICATE", signed[len(signed)-1]), encode("CERTIFICATE", signed[0]), encode("PRIVATE KEY", der)
}

func base64Of(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// inLines returns base64 in lines, as tools wrap it.
func inLines(text, end string) string {
	encoded := base64Of(text)
	var lines []string
	for len(encoded) > 76 {
		lines, encoded = append(lines, encoded[:76]), encoded[76:]
	}
	return strings.Join(append(lines, encoded), end)
}

func kubeconfigOf(cluster, user members) string {
	text, err := json.Marshal(members{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []members{{"name": "c", "cluster": cluster}}, "users": []members{{"name": "u", "user": user}},
		"contexts": []members{{"name": "c", "context": members{"cluster": "c", "user": "u"}}},
	})
	must(err)
	return string(text)
}

func kubeconfigs(r *rand.Rand, random int) []Kubeconfig {
	authority, certificate, key := selfSigned()
	files := map[string]string{
		"ca.pem": authority, "client.crt": certificate, "client.key": key, "token.txt": "of-file\n", "empty.txt": "", "both.pem": key + certificate,
		"junk.pem": "# of the company\n" + authority + "\nand more\n-----BEGIN NOTHING-----\nAAAA\n-----END NOTHING-----\n" + authority,
	}
	const server = "https://a.test:6443"
	var cases []Kubeconfig
	add := func(text string) { cases = append(cases, kubeconfig(text, files, nil)) }
	small := "current-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://a.test'}}]\n"
	for _, text := range []string{
		"", "{}", "null", "# nothing\n", "[]", "text", "a: [", "kind: Config", "apiVersion: v2\nkind: Config", "current-context: c\n",
		"current-context: c\nclusters: null\n", "current-context: ''\ncontexts: []\n", "current-context: c\ncontexts: [{name: c}]\n",
		"current-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://a.test'}}]\n",
		"current-context: c\ncontexts: [{name: c, context: {cluster: c, user: gone, namespace: team}}]\nclusters: [{name: c, cluster: {server: 'https://a.test'}}]\n",
		"current-context: c\ncontexts: [{name: c, context: {cluster: gone}}]\nclusters: [{name: c, cluster: {server: 'https://a.test'}}]\n",
		"current-context: c\ncontexts: [{name: c, context: {cluster: c, namespace: ''}}]\nclusters: [{name: c, cluster: {server: 'https://a.test'}}]\nusers:\nextensions: []\npreferences: {}\n",
		"Current-Context: c\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, Namespace: other}}]\nclusters: [{name: c, cluster: {server: 'https://a.test', unknown: [1]}}]\n",
		"current-context: c\ncontexts: [{name: c, context: {cluster: c, namespace: n}}]\nclusters: [{name: c, cluster: {server: 'https://a.test'}}]\n",
		"current-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://a.test', insecure-skip-tls-verify: yes}}]\n",
		"current-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://a.test'}}, {name: c, cluster: {server: 'https://b.test'}}]\n",
		small + "---\na: [", small + "...\n'b", small + "@", small + "---\nkind: List\n", " current-context: c\n" + strings.TrimPrefix(small, "current-context: c\n"),
	} {
		add(text)
	}
	indented := func(text string) string { return "      " + strings.ReplaceAll(text, "\n", "\n      ") + "\n" }
	wrapped := inLines(authority, "\n")
	for _, data := range []string{
		"|\n" + indented(wrapped), ">-\n" + indented(wrapped), "!!binary |\n" + indented(inLines(wrapped, "\n")), "!!binary |\n" + indented(wrapped),
		"\n" + indented(wrapped), "'" + strings.ReplaceAll(wrapped, "\n", "\n\n      ") + "'\n", "[\n    ]\n",
	} {
		add("current-context:\tc\ncontexts: [{name: c, context: {cluster: c\n}}\n]\nclusters:\n- name: c\n  cluster:\n    server: https://a.test # ours\n    certificate-authority-data: " + data)
	}
	for _, cluster := range []members{
		{"certificate-authority": "ca.pem"}, {"certificate-authority": "ca.pem", "certificate-authority-data": ""},
		{"certificate-authority": "ca.pem", "certificate-authority-data": nil}, {"certificate-authority-data": base64Of(authority)},
		{"certificate-authority-data": inLines(authority, "\n")}, {"certificate-authority-data": inLines(authority, "\r\n")},
		{"certificate-authority-data": inLines(authority, "\n  ")}, {"certificate-authority-data": base64Of(authority) + "\n"}, {"certificate-authority-data": "%"},
		{"certificate-authority-data": strings.TrimRight(base64Of(authority+"1"), "=")}, {"certificate-authority-data": 7}, {"certificate-authority": "junk.pem"},
		{"certificate-authority": "gone.pem"}, {"certificate-authority": "token.txt"}, {"certificate-authority-data": base64Of(authority + authority)},
		{"certificate-authority-data": base64Of("text")}, {"certificate-authority": "both.pem"}, {"tls-server-name": "b.test"}, {"tls-server-name": ""},
		{"insecure-skip-tls-verify": true}, {"insecure-skip-tls-verify": "true"}, {"insecure-skip-tls-verify": nil}, {"disable-compression": true}, {"extensions": nil},
		{"proxy-url": ""}, {"proxy-url": "http://p.test:3128"}, {"proxy-url": "https://p.test"}, {"proxy-url": "socks5://p.test:1080"}, {"proxy-url": "socks5h://p.test:1080"},
		{"proxy-url": "p.test:3128"}, {"proxy-url": "ftp://p.test"}, {"proxy-url": "http://u:p%40ss@p.test:3128/"}, {"proxy-url": nil},
	} {
		cluster["server"] = server
		add(kubeconfigOf(cluster, members{"token": "t"}))
	}
	for _, address := range []any{
		"https://a.test", "https://a.test:443", "http://a.test:8080", "a.test:6443", "a.test", "10.0.0.1:6443", "https://[fd00::1]:6443", "https://a.test/k8s/clusters/c-1",
		"https://a.test/k8s/", "https://A.Test/", "", nil, "https://a.test:6443/?x=1#y", "https://a.test/p?x=1#y", "localhost:8080", "ftp://a.test", "https://", "https://a.test:port", "a.test/path", "https:a.test",
	} {
		add(kubeconfigOf(members{"server": address}, members{"token": "t"}))
		add(kubeconfigOf(members{"server": address, "certificate-authority": "ca.pem"}, members{"token": "t"}))
	}
	pair := members{"client-certificate": "client.crt", "client-key": "client.key"}
	data := members{"client-certificate-data": base64Of(certificate), "client-key-data": base64Of(key)}
	plugin := func(more, status members) members {
		output, err := json.Marshal(members{"kind": "ExecCredential", "apiVersion": one(r, "client.authentication.k8s.io/v1"), "status": status})
		must(err)
		program := members{"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never", "args": []string{"-c", "printf '%s' \"$OUT\""},
			"env": []members{{"name": "OUT", "value": string(output)}}}
		for name, value := range more {
			program[name] = value
		}
		return members{"exec": program}
	}
	token := members{"token": "of-program"}
	shown := members{"clientCertificateData": certificate, "clientKeyData": key}
	joined := func(all ...members) members {
		result := members{}
		for _, some := range all {
			for name, value := range some {
				result[name] = value
			}
		}
		return result
	}
	for _, user := range []members{
		{}, {"token": "t"}, {"token": ""}, {"token": nil}, {"token": 7}, {"tokenFile": "token.txt"}, {"tokenFile": "token.txt", "token": "t"}, {"tokenFile": ""}, {"tokenFile": "", "token": "t"},
		{"tokenFile": "gone.txt"}, {"tokenFile": "gone.txt", "token": "t"}, {"tokenFile": "empty.txt"}, {"username": "u", "password": "p"}, {"username": "u"}, {"password": "p"}, {"username": "", "password": ""},
		{"username": "", "password": "", "token": "t"}, {"username": "u", "password": "p", "token": "t"}, {"username": "u", "password": "p", "tokenFile": "token.txt"}, pair, data,
		joined(pair, members{"client-certificate-data": "", "client-key-data": ""}), joined(data, members{"client-certificate": "", "client-key": ""}), joined(data, members{"token": "t"}),
		joined(data, members{"token": ""}), joined(pair, members{"username": "u", "password": "p"}), {"client-certificate": "client.crt"}, {"client-key": "client.key"}, {"client-certificate": "gone.crt", "client-key": "client.key"},
		{"client-certificate": "both.pem", "client-key": "both.pem"}, {"client-certificate": "client.crt", "client-key-data": base64Of(key)}, joined(pair, members{"client-certificate": "token.txt"}), joined(pair, members{"client-key": "token.txt"}),
		{"as": "jane"}, {"as": "jane", "as-uid": "7", "as-groups": []string{"a", "b"}, "as-user-extra": members{"Scopes/x": []string{"v"}}}, {"as": ""}, {"as-groups": []string{"a"}}, {"as-uid": "7"}, {"as-groups": nil, "as": "jane", "token": "t"},
		{"exec": nil, "token": "t"}, {"auth-provider": nil, "token": "t"}, plugin(nil, token), plugin(nil, shown), plugin(nil, joined(token, shown)), plugin(nil, members{}), plugin(nil, members{"token": ""}),
		plugin(nil, members{"clientKeyData": key}), plugin(members{"interactiveMode": ""}, token), plugin(members{"interactiveMode": "Sometimes"}, token), plugin(members{"interactiveMode": "IfAvailable"}, token),
		plugin(members{"apiVersion": "client.authentication.k8s.io/v1beta1"}, token), plugin(members{"apiVersion": ""}, token), plugin(members{"apiVersion": "v1"}, token), plugin(members{"command": ""}, token),
		plugin(members{"command": "nonesuch-login", "installHint": "get it"}, token), plugin(members{"args": []string{"-c", "exit 1"}}, token), plugin(members{"args": []string{"-c", "echo '{}'"}}, token),
		plugin(members{"env": nil, "args": []string{"-c", "printf 'kind: ExecCredential\\napiVersion: client.authentication.k8s.io/v1\\nstatus: {token: yaml}\\n'"}}, token),
		joined(plugin(nil, token), members{"token": "t"}), joined(plugin(nil, token), members{"token": ""}), joined(plugin(nil, token), pair), joined(plugin(nil, token), members{"username": "u"}), plugin(members{"provideClusterInfo": true}, token),
		plugin(nil, members{"token": "t", "expirationTimestamp": "2999-01-01T00:00:00Z"}), plugin(nil, members{"token": "t", "expirationTimestamp": "2999-01-01T00:00:00+02:00"}), plugin(nil, members{"token": "t", "expirationTimestamp": nil}),
		plugin(nil, members{"token": "t", "expirationTimestamp": "soon"}),
	} {
		add(kubeconfigOf(members{"server": server}, user))
	}
	proxies := []string{"", "http://p.test:3128", "https://p.test:8443", "p.test:3128", "socks5://p.test:1080", "socks5h://p.test", "http://u:w@p.test:3128", "::::"}
	exempt := []string{"", "*", "a.test", ".a.test", "*.a.test", "b.a.test", "test", "a.test:6443", "a.test:443", "10.0.0.0/8", "10.1.2.3", "10.1.2.3:6443", "fd00::/8", "[fd00::1]:6443", " a.test ", "A.TEST", ",", "x.y,10.0.0.0/8", "a.test.", "localhost", "a.*", "10.*", "2.3"}
	hosts := []string{"a.test:6443", "b.a.test", "A.test", "10.1.2.3:6443", "11.0.0.1", "[fd00::1]:6443", "localhost:6443", "127.0.0.1:6443", "[::1]", "a.test.:6443", "xa.test"}
	for range random / 2 {
		cluster := members{"server": one(r, "https://", "https://", "https://", "http://") + one(r, hosts...)}
		if chance(r, 15) {
			cluster["proxy-url"] = one(r, append([]string{"ftp://p.test"}, proxies...)...)
		}
		environment := map[string]string{}
		for _, name := range proxyVariables {
			choices := proxies
			if strings.EqualFold(name, "no_proxy") {
				choices = exempt
			}
			if chance(r, 50) {
				environment[name] = one(r, choices...)
			}
		}
		cases = append(cases, kubeconfig(kubeconfigOf(cluster, members{"token": "t"}), files, environment))
	}
	return cases
}
