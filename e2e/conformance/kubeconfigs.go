package main

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

// A Kubeconfig is a kubeconfig, the files beside it and the environment, with what kubectl's library reads from them.
type Kubeconfig struct {
	Text        string            `json:"text"`
	Files       map[string]string `json:"files,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
	Refused     bool              `json:"refused,omitempty"`
	Server      string            `json:"server,omitempty"`
	Proxy       string            `json:"proxy,omitempty"`
	ServerName  string            `json:"serverName,omitempty"`
	Insecure    bool              `json:"insecure,omitempty"`
	// Number of trusted authorities. Zero means that the client trusts those of the system.
	Authorities int `json:"authorities,omitempty"`
	// Number of certificates that the client presents.
	Chain     int               `json:"chain,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
}

var proxyVariables = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"}

// headerRecorder records the headers of a request that authenticate the client.
type headerRecorder struct{ headers map[string]string }

func (r *headerRecorder) RoundTrip(request *http.Request) (*http.Response, error) {
	for name, values := range request.Header {
		if name == "Authorization" || strings.HasPrefix(name, "Impersonate-") {
			r.headers[strings.ToLower(name)] = strings.Join(values, ",")
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// kubeconfig returns a case with the answer of client-go. Only files that the text names are written beside it.
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
		if value, ok := environment[name]; ok {
			must(os.Setenv(name, value))
		}
	}
	if err := result.load(file); err != nil {
		return Kubeconfig{Text: text, Environment: environment, Files: result.Files, Refused: true}
	}
	return result
}

// load fills in what client-go reads from a file, or returns an error if client-go refuses it.
func (k *Kubeconfig) load(file string) error {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, &clientcmd.ConfigOverrides{})
	config, err := loader.ClientConfig()
	if err != nil {
		return err
	}
	if k.Namespace, _, err = loader.Namespace(); err != nil {
		return err
	}
	server, err := k.loadServer(config)
	if err != nil {
		return err
	}
	settings, err := config.TransportConfig()
	if err != nil {
		return err
	}
	if err := k.loadTLS(settings, server); err != nil {
		return err
	}
	return k.loadHeaders(settings, server)
}

// loadServer fills in the server and its proxy, and returns the server.
func (k *Kubeconfig) loadServer(config *rest.Config) (*url.URL, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	if server.Scheme != "http" && server.Scheme != "https" {
		return nil, fmt.Errorf("scheme %q", server.Scheme)
	}
	if server.Hostname() == "" {
		return nil, fmt.Errorf("no host")
	}
	if k.Proxy, err = proxyFor(config, server); err != nil {
		return nil, err
	}
	if server.Port() == map[string]string{"http": "80", "https": "443"}[server.Scheme] {
		server.Host = strings.TrimSuffix(server.Host, ":"+server.Port())
	}
	server.Host = strings.ToLower(server.Host)
	// rest.NewRESTClient does the same for each request.
	server.RawQuery, server.Fragment = "", ""
	k.Server = strings.TrimRight(server.String(), "/")
	return server, nil
}

// loadTLS fills in how the client verifies the server, and the certificates that it presents.
func (k *Kubeconfig) loadTLS(settings *transport.Config, server *url.URL) error {
	tls, err := transport.TLSConfigFor(settings)
	if err != nil {
		return err
	}
	if tls == nil || server.Scheme != "https" {
		return nil
	}
	k.ServerName, k.Insecure = tls.ServerName, tls.InsecureSkipVerify
	if tls.RootCAs != nil {
		k.Authorities = len(tls.RootCAs.Subjects()) //nolint:staticcheck // not a system pool
	}
	if tls.GetClientCertificate != nil {
		certificate, err := tls.GetClientCertificate(nil)
		if err != nil {
			return err
		}
		k.Chain = len(certificate.Certificate)
	}
	return nil
}

// loadHeaders fills in the headers of a request that authenticate the client.
func (k *Kubeconfig) loadHeaders(settings *transport.Config, server *url.URL) error {
	recorder := &headerRecorder{headers: map[string]string{}}
	wrapped, err := transport.HTTPWrappersForConfig(settings, recorder)
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
	k.Headers = recorder.headers
	return nil
}

// proxyFor returns the proxy for a server. It replaces the transport's function, which reads the environment only once in a process.
func proxyFor(config *rest.Config, server *url.URL) (string, error) {
	request := &http.Request{URL: server}
	proxyOf := config.Proxy
	if proxyOf == nil {
		variable := func(name string) string {
			if value := os.Getenv(name); value != "" {
				return value
			}
			return os.Getenv(strings.ToLower(name))
		}
		environment := httpproxy.Config{
			HTTPProxy: variable("HTTP_PROXY"), HTTPSProxy: variable("HTTPS_PROXY"), NoProxy: variable("NO_PROXY"),
		}
		proxyOfURL := environment.ProxyFunc()
		proxyOf = utilnet.NewProxierWithNoProxyCIDR(func(request *http.Request) (*url.URL, error) { return proxyOfURL(request.URL) })
	}
	proxy, err := proxyOf(request)
	if err != nil || proxy == nil {
		return "", err
	}
	switch proxy.Scheme {
	case "http", "https", "socks5", "socks5h":
	default:
		return "", fmt.Errorf("scheme %q", proxy.Scheme)
	}
	return strings.TrimRight(proxy.String(), "/"), nil
}

// members are the members of an object in JSON.
type members map[string]any

// clientCertificate returns an authority, and a client certificate that it has signed, with its key. All are in PEM.
func clientCertificate() (authority, certificate, key string) {
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	signed := chain(link{name: "client"}).Certificates
	der, err := x509.MarshalPKCS8PrivateKey(keyOf(0))
	must(err)
	return encode("CERTIFICATE", signed[len(signed)-1]), encode("CERTIFICATE", signed[0]), encode("PRIVATE KEY", der)
}

func base64Of(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// inLines returns base64 in lines with this end, as tools wrap it.
func inLines(text, end string) string {
	encoded := base64Of(text)
	var lines []string
	for len(encoded) > 76 {
		lines, encoded = append(lines, encoded[:76]), encoded[76:]
	}
	return strings.Join(append(lines, encoded), end)
}

// kubeconfigOf returns a kubeconfig with one cluster and one user.
func kubeconfigOf(cluster, user members) string {
	text, err := json.Marshal(members{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []members{{"name": "c", "cluster": cluster}}, "users": []members{{"name": "u", "user": user}},
		"contexts": []members{{"name": "c", "context": members{"cluster": "c", "user": "u"}}},
	})
	must(err)
	return string(text)
}

// testServer is the server of a kubeconfig whose other parts are tested.
const testServer = "https://a.test:6443"

func kubeconfigs(r *rand.Rand, random int) []Kubeconfig {
	authority, certificate, key := clientCertificate()
	files := map[string]string{
		"ca.pem": authority, "client.crt": certificate, "client.key": key, "token.txt": "of-file\n", "empty.txt": "", "both.pem": key + certificate,
		"junk.pem": "# of the company\n" + authority + "\nand more\n-----BEGIN NOTHING-----\nAAAA\n-----END NOTHING-----\n" + authority,
	}
	var cases []Kubeconfig
	for _, text := range slices.Concat(
		kubeconfigTexts(),
		kubeconfigsOfStyles(authority),
		kubeconfigsOfClusters(authority),
		kubeconfigsOfServers(),
		kubeconfigsOfUsers(r, certificate, key),
	) {
		cases = append(cases, kubeconfig(text, files, nil))
	}
	for range random / 2 {
		text, environment := randomProxies(r)
		cases = append(cases, kubeconfig(text, files, environment))
	}
	return cases
}

// kubeconfigTexts returns texts that are incomplete, or that a strict parser would refuse.
func kubeconfigTexts() []string {
	small := "current-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://a.test'}}]\n"
	return []string{
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
	}
}

// kubeconfigsOfStyles returns kubeconfigs with an authority as YAML of several styles.
func kubeconfigsOfStyles(authority string) []string {
	indented := func(text string) string { return "      " + strings.ReplaceAll(text, "\n", "\n      ") + "\n" }
	wrapped := inLines(authority, "\n")
	var texts []string
	for _, data := range []string{
		"|\n" + indented(wrapped), ">-\n" + indented(wrapped), "!!binary |\n" + indented(inLines(wrapped, "\n")), "!!binary |\n" + indented(wrapped),
		"\n" + indented(wrapped), "'" + strings.ReplaceAll(wrapped, "\n", "\n\n      ") + "'\n", "[\n    ]\n",
	} {
		texts = append(texts, "current-context:\tc\ncontexts: [{name: c, context: {cluster: c\n}}\n]\nclusters:\n- name: c\n  cluster:\n    server: https://a.test # ours\n    certificate-authority-data: "+data)
	}
	return texts
}

// kubeconfigsOfClusters returns kubeconfigs with several settings of the cluster.
func kubeconfigsOfClusters(authority string) []string {
	var texts []string
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
		cluster["server"] = testServer
		texts = append(texts, kubeconfigOf(cluster, members{"token": "t"}))
	}
	return texts
}

// kubeconfigsOfServers returns kubeconfigs with several addresses of the server.
func kubeconfigsOfServers() []string {
	var texts []string
	for _, address := range []any{
		"https://a.test", "https://a.test:443", "http://a.test:8080", "a.test:6443", "a.test", "10.0.0.1:6443", "https://[fd00::1]:6443", "https://a.test/k8s/clusters/c-1",
		"https://a.test/k8s/", "https://A.Test/", "", nil, "https://a.test:6443/?x=1#y", "https://a.test/p?x=1#y", "localhost:8080", "ftp://a.test", "https://", "https://a.test:port", "a.test/path", "https:a.test",
	} {
		texts = append(texts,
			kubeconfigOf(members{"server": address}, members{"token": "t"}),
			kubeconfigOf(members{"server": address, "certificate-authority": "ca.pem"}, members{"token": "t"}),
		)
	}
	return texts
}

// kubeconfigsOfUsers returns kubeconfigs with several kinds of credentials.
func kubeconfigsOfUsers(r *rand.Rand, certificate, key string) []string {
	pair := members{"client-certificate": "client.crt", "client-key": "client.key"}
	data := members{"client-certificate-data": base64Of(certificate), "client-key-data": base64Of(key)}
	plugin := func(more, status members) members {
		output, err := json.Marshal(members{"kind": "ExecCredential", "apiVersion": pick(r, "client.authentication.k8s.io/v1"), "status": status})
		must(err)
		program := members{"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never", "args": []string{"-c", "printf '%s' \"$OUT\""},
			"env": []members{{"name": "OUT", "value": string(output)}}}
		maps.Copy(program, more)
		return members{"exec": program}
	}
	token := members{"token": "of-program"}
	presented := members{"clientCertificateData": certificate, "clientKeyData": key}
	joined := func(all ...members) members {
		result := members{}
		for _, part := range all {
			maps.Copy(result, part)
		}
		return result
	}
	var texts []string
	for _, user := range []members{
		{}, {"token": "t"}, {"token": ""}, {"token": nil}, {"token": 7}, {"tokenFile": "token.txt"}, {"tokenFile": "token.txt", "token": "t"}, {"tokenFile": ""}, {"tokenFile": "", "token": "t"},
		{"tokenFile": "gone.txt"}, {"tokenFile": "gone.txt", "token": "t"}, {"tokenFile": "empty.txt"}, {"username": "u", "password": "p"}, {"username": "u"}, {"password": "p"}, {"username": "", "password": ""},
		{"username": "", "password": "", "token": "t"}, {"username": "u", "password": "p", "token": "t"}, {"username": "u", "password": "p", "tokenFile": "token.txt"}, pair, data,
		joined(pair, members{"client-certificate-data": "", "client-key-data": ""}), joined(data, members{"client-certificate": "", "client-key": ""}), joined(data, members{"token": "t"}),
		joined(data, members{"token": ""}), joined(pair, members{"username": "u", "password": "p"}), {"client-certificate": "client.crt"}, {"client-key": "client.key"}, {"client-certificate": "gone.crt", "client-key": "client.key"},
		{"client-certificate": "both.pem", "client-key": "both.pem"}, {"client-certificate": "client.crt", "client-key-data": base64Of(key)}, joined(pair, members{"client-certificate": "token.txt"}), joined(pair, members{"client-key": "token.txt"}),
		{"as": "jane"}, {"as": "jane", "as-uid": "7", "as-groups": []string{"a", "b"}, "as-user-extra": members{"Scopes/x": []string{"v"}}}, {"as": ""}, {"as-groups": []string{"a"}}, {"as-uid": "7"}, {"as-groups": nil, "as": "jane", "token": "t"},
		{"exec": nil, "token": "t"}, {"auth-provider": nil, "token": "t"}, plugin(nil, token), plugin(nil, presented), plugin(nil, joined(token, presented)), plugin(nil, members{}), plugin(nil, members{"token": ""}),
		plugin(nil, members{"clientKeyData": key}), plugin(members{"interactiveMode": ""}, token), plugin(members{"interactiveMode": "Sometimes"}, token), plugin(members{"interactiveMode": "IfAvailable"}, token),
		plugin(members{"apiVersion": "client.authentication.k8s.io/v1beta1"}, token), plugin(members{"apiVersion": ""}, token), plugin(members{"apiVersion": "v1"}, token), plugin(members{"command": ""}, token),
		plugin(members{"command": "nonesuch-login", "installHint": "get it"}, token), plugin(members{"args": []string{"-c", "exit 1"}}, token), plugin(members{"args": []string{"-c", "echo '{}'"}}, token),
		plugin(members{"env": nil, "args": []string{"-c", "printf 'kind: ExecCredential\\napiVersion: client.authentication.k8s.io/v1\\nstatus: {token: yaml}\\n'"}}, token),
		joined(plugin(nil, token), members{"token": "t"}), joined(plugin(nil, token), members{"token": ""}), joined(plugin(nil, token), pair), joined(plugin(nil, token), members{"username": "u"}), plugin(members{"provideClusterInfo": true}, token),
		plugin(nil, members{"token": "t", "expirationTimestamp": "2999-01-01T00:00:00Z"}), plugin(nil, members{"token": "t", "expirationTimestamp": "2999-01-01T00:00:00+02:00"}), plugin(nil, members{"token": "t", "expirationTimestamp": nil}),
		plugin(nil, members{"token": "t", "expirationTimestamp": "soon"}),
	} {
		texts = append(texts, kubeconfigOf(members{"server": testServer}, user))
	}
	return texts
}

// randomProxies returns a kubeconfig that may name a proxy, and an environment that may name others.
func randomProxies(r *rand.Rand) (text string, environment map[string]string) {
	proxies := []string{"", "http://p.test:3128", "https://p.test:8443", "p.test:3128", "socks5://p.test:1080", "socks5h://p.test", "http://u:w@p.test:3128", "::::"}
	exempt := []string{"", "*", "a.test", ".a.test", "*.a.test", "b.a.test", "test", "a.test:6443", "a.test:443", "10.0.0.0/8", "10.1.2.3", "10.1.2.3:6443", "fd00::/8", "[fd00::1]:6443", " a.test ", "A.TEST", ",", "x.y,10.0.0.0/8", "a.test.", "localhost", "a.*", "10.*", "2.3"}
	hosts := []string{"a.test:6443", "b.a.test", "A.test", "10.1.2.3:6443", "11.0.0.1", "[fd00::1]:6443", "localhost:6443", "127.0.0.1:6443", "[::1]", "a.test.:6443", "xa.test"}
	cluster := members{"server": pick(r, "https://", "https://", "https://", "http://") + pick(r, hosts...)}
	if chance(r, 15) {
		cluster["proxy-url"] = pick(r, append([]string{"ftp://p.test"}, proxies...)...)
	}
	environment = map[string]string{}
	for _, name := range proxyVariables {
		choices := proxies
		if strings.EqualFold(name, "no_proxy") {
			choices = exempt
		}
		if chance(r, 50) {
			environment[name] = pick(r, choices...)
		}
	}
	return kubeconfigOf(cluster, members{"token": "t"}), environment
}
