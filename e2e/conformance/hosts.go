package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
)

// A Hosts is the hosts.toml of a registry, with the URLs at which containerd looks for the image team/app.
type Hosts struct {
	Host string `json:"host"`
	TOML string `json:"toml"`
	// URLs for the tag v1 in order, each followed by the headers of the request that begin with x-.
	Tag []string `json:"tag"`
	// URLs for a digest, with v1 in place of the digest. Absent if they are the same as for the tag.
	Digest []string `json:"digest,omitempty"`
}

// urlRecorder records the URLs of requests, each followed by its headers that begin with x-. Its servers have no TLS, and lack the image.
type urlRecorder struct{ urls []string }

func (r *urlRecorder) RoundTrip(request *http.Request) (*http.Response, error) {
	var headers []string
	for name, values := range request.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-") && len(values) > 0 {
			headers = append(headers, " "+name+"="+strings.Join(values, ","))
		}
	}
	slices.Sort(headers)
	r.urls = append(r.urls, request.URL.String()+strings.Join(headers, ""))
	if request.URL.Scheme == "https" {
		return nil, tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake", RecordHeader: [5]byte([]byte("HTTP/"))}
	}
	return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: request}, nil
}

// requestedURLs returns the URLs of containerd's requests for an image with the hosts.toml in this directory.
func requestedURLs(directory, image string) []string {
	recorder := &urlRecorder{urls: []string{}}
	ctx := context.Background()
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: config.ConfigureHosts(ctx, config.HostOptions{
		HostDir:      func(string) (string, error) { return directory, nil },
		UpdateClient: func(client *http.Client) error { client.Transport = recorder; return nil },
	})})
	// Every host answers with 404, so that the next one gets a request.
	_, _, _ = resolver.Resolve(ctx, image)
	urls := slices.DeleteFunc(recorder.urls, func(url string) bool { return strings.Contains(url, "/blobs/") })
	for i := range urls {
		urls[i] = strings.Replace(urls[i], sha256, "v1", 1)
	}
	return urls
}

func hosts(r *rand.Rand, random int) []Hosts {
	directory, err := os.MkdirTemp("", "hosts")
	must(err)
	defer os.RemoveAll(directory)
	must(os.WriteFile(filepath.Join(directory, "ca.pem"), authority(), 0o600))
	host := func(host, text string) Hosts {
		must(os.WriteFile(filepath.Join(directory, "hosts.toml"), []byte(text), 0o600))
		image := host + "/team/app"
		result := Hosts{Host: host, TOML: text, Tag: requestedURLs(directory, image+":v1")}
		result.Digest = requestedURLs(directory, image+"@"+sha256)
		if slices.Equal(result.Digest, result.Tag) {
			result.Digest = nil
		}
		return result
	}
	cases := []Hosts{host("docker.io", ""), host("docker.io", "# nothing\n"), host("a.b:5000", "\n")}
	for _, server := range servers {
		cases = append(cases, host("a.b", "server = '"+server+"'\n"))
	}
	for _, server := range servers[:12] {
		for _, more := range []string{"override_path = true", "skip_verify = false", "ca = 'ca.pem'\noverride_path = true"} {
			cases = append(cases, host("docker.io", "[host.'"+server+"']\n"+more+"\n"))
		}
	}
	for _, line := range []string{
		"capabilities = []", "capabilities = ['pull']", "capabilities = ['resolve']", "capabilities = ['pull', 'resolve']", "capabilities = ['push']",
		"capabilities = ['Pull', 'RESOLVE']", "capabilities = ['steal']", "capabilities = 'pull'", "capabilities = [1]", "capabilities = ['referrers', 'pull']",
		"override_path = 'true'", "skip_verify = 1", "skip_verify = true", "ca = ['ca.pem']", "ca = []", "ca = 1", "client = 1", "client = []", "client = [['x']]",
		"dial_timeout = '1s'", "unknown = 1", "server = 1", "header = {x-a = '1'}", "header = {x-a = ['1', '2']}",
		"header = {x-a = 1}", "header = {x-a = [1]}", "header = {X-A = '1', x-b = '2'}", "header = {}", "[header]\nx-a = '1'", "capabilities = ['pull'",
		"Capabilities = ['pull']", "CAPABILITIES = ['push']", "Override_Path = true", "SKIP_VERIFY = true",
	} {
		cases = append(cases, host("a.b", "server = 'http://c.d/p'\n"+line+"\n"), host("a.b", "[host.'http://c.d/p']\n"+line+"\n"))
	}
	cases = append(cases,
		host("a.b", "[host.'https://z.z']\n[host.'https://y.y']\n[host.'https://x.x']\n"),
		host("a.b", "[host]\n[host.'https://z.z']\n[host.'https://y.y'.header]\nx-a = '1'\n[host.'https://x.x']\n"),
		host("a.b", "[host.'https://z.z'.header]\nx-a = '1'\n[host.'https://z.z']\nskip_verify = true\n"),
		host("a.b", "[host.'https://z.z']\n[host.'https://z.z']\n"),
		host("a.b", "server = 'https://c.d'\nserver = 'https://e.f'\n"), host("a.b", "[[host]]\n"), host("a.b", "host = 1\n"), host("a.b", "[host.z]\n[hosts.y]\n"),
		host("a.b", "[Host.'https://z.z']\n"), host("a.b", "Server = 'https://c.d'\n"), host("a.b", "server = 'https://c.d'\r\n"),
		host("a.b", "[host.'https://z.z']\ncapabilities = ['resolve']\n[host.'https://y.y']\ncapabilities = ['pull']\n"),
		host("a.b:5000", "server = 'http://a.b:5000'\n"), host("docker.io", "server = 'https://registry-1.docker.io'\n"),
		host("a.b", "server = ''\n"), host("a.b", "server = ''\nskip_verify = true\nheader = {x-a = '1'}\ncapabilities = ['push']\n"),
	)
	for range random {
		text := randomHostsTOML(r)
		cases = append(cases, host(pick(r, "docker.io", "a.b", "a.b:5000"), text))
	}
	return cases
}

// randomHostsTOML returns a hosts.toml with up to three hosts.
func randomHostsTOML(r *rand.Rand) string {
	var text strings.Builder
	writeSettings := func() {
		for _, line := range []string{
			"capabilities = " + pick(r, "['pull']", "['resolve']", "['pull', 'resolve']", "['push', 'pull', 'resolve']"),
			"override_path = " + pick(r, "true", "false"), "skip_verify = " + pick(r, "true", "false"), "ca = 'ca.pem'",
			"header = {x-" + pick(r, "a", "b") + " = " + pick(r, "'1'", "['1', '2']", "[]", "''") + "}",
		} {
			if chance(r, 25) {
				text.WriteString(line + "\n")
			}
		}
	}
	if chance(r, 60) {
		fmt.Fprintf(&text, "server = '%s'\n", randomServer(r))
	}
	writeSettings()
	seen := map[string]bool{}
	for range r.IntN(4) {
		if server := randomServer(r); !seen[server] {
			seen[server] = true
			fmt.Fprintf(&text, "[host.'%s']\n", server)
			writeSettings()
		}
	}
	return text.String()
}

// servers are URLs of servers as users write them, and URLs that parsers read differently.
var servers = []string{
	"https://c.d", "https://c.d/", "http://c.d", "http://c.d:80", "http://c.d:5000", "https://c.d/v2", "https://c.d/v2/", "https://c.d/p", "https://c.d/p/",
	"https://c.d/v2/p", "http://c.d/p/v2", "c.d:5000/p", "c.d", "c.d/", "C.D", "https://c.d//p", "https://c.d/p//q", "https://c.d/p/../q",
	"https://c.d/./p", "https://c.d/..", "https://c.d/p%2Fq", "https://c.d/p%20q", "https://c.d/%70", "https://c.d/p/v2x", "https://c.d/xv2", "https://c.d/p?q=1", "https://c.d/p#q",
	"https://c.d:443", "https://c.d:80", "http://c.d:443", "https://c.d:", "https://[::1]:5000", "[::1]:5000", "https://1.2.3.4:5000/p",
	"https://registry-1.docker.io", "https://c.d/p/v2/", "https://c.d/%76%32", "https://c.d/p/%2e%2e/q", "https://c.d/p+q", "https://c.d/~p", "https://c.d/p:q", "https://c.d/p@q",
	"https://c.d/\u00fc", "https://c.d/p;q", "https://c.d/p,q", "https://c.d/p=q&r", "https://c.d/p\"q", "https://c.d/[p]", "https://c.d/p q", "https://c.d/V2",
	"https://", "https://c_d/p", "localhost:5000", "http://localhost:5000", "https://c.d/v2//",
}

func randomServer(r *rand.Rand) string {
	server := pick(r, "https://", "https://", "http://", "") + pick(r, "c.d", "e.f:5000", "g.h:80", "i.j:443")
	for range r.IntN(3) {
		server += "/" + pick(r, "p", "q", "v2", "", "..", "%2F", "x.y", "%41", "")
	}
	return server
}

// authority returns the certificate of an authority in PEM.
func authority() []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	must(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(cryptorand.Reader, template, template, &key.PublicKey, key)
	must(err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}
