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

// Hosts is the hosts.toml of a registry, with the URLs at which containerd looks for the image team/app.
type Hosts struct {
	Host string `json:"host"`
	TOML string `json:"toml"`
	// URLs for the tag v1 in order, each with the headers of the file whose names begin with x-.
	Tag []string `json:"tag"`
	// URLs for a digest, which is written as v1. Absent if they are the same.
	Digest []string `json:"digest,omitempty"`
}

// A recorder is a network without TLS, where no registry has the image.
type recorder struct{ asked []string }

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	var sent []string
	for name, values := range request.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-") && len(values) > 0 {
			sent = append(sent, " "+name+"="+strings.Join(values, ","))
		}
	}
	slices.Sort(sent)
	r.asked = append(r.asked, request.URL.String()+strings.Join(sent, ""))
	if request.URL.Scheme == "https" {
		return nil, tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake", RecordHeader: [5]byte([]byte("HTTP/"))}
	}
	return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: request}, nil
}

func asks(directory, image string) []string {
	recorder := &recorder{asked: []string{}}
	ctx := context.Background()
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: config.ConfigureHosts(ctx, config.HostOptions{
		HostDir:      func(string) (string, error) { return directory, nil },
		UpdateClient: func(client *http.Client) error { client.Transport = recorder; return nil },
	})})
	// Every host answers 404, so that all hosts get a request.
	_, _, _ = resolver.Resolve(ctx, image)
	asked := slices.DeleteFunc(recorder.asked, func(url string) bool { return strings.Contains(url, "/blobs/") })
	for place := range asked {
		asked[place] = strings.Replace(asked[place], sha256, "v1", 1)
	}
	return asked
}

func hosts(r *rand.Rand, random int) []Hosts {
	directory, err := os.MkdirTemp("", "hosts")
	must(err)
	defer os.RemoveAll(directory)
	must(os.WriteFile(filepath.Join(directory, "ca.pem"), authority(), 0o600))
	host := func(host, text string) Hosts {
		must(os.WriteFile(filepath.Join(directory, "hosts.toml"), []byte(text), 0o600))
		image := host + "/team/app"
		result := Hosts{Host: host, TOML: text, Tag: asks(directory, image+":v1")}
		result.Digest = asks(directory, image+"@"+sha256)
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
		var text strings.Builder
		section := func() {
			for _, line := range []string{
				"capabilities = " + one(r, "['pull']", "['resolve']", "['pull', 'resolve']", "['push', 'pull', 'resolve']"),
				"override_path = " + one(r, "true", "false"), "skip_verify = " + one(r, "true", "false"), "ca = 'ca.pem'",
				"header = {x-" + one(r, "a", "b") + " = " + one(r, "'1'", "['1', '2']", "[]", "''") + "}",
			} {
				if chance(r, 25) {
					text.WriteString(line + "\n")
				}
			}
		}
		if chance(r, 60) {
			fmt.Fprintf(&text, "server = '%s'\n", someServer(r))
		}
		section()
		seen := map[string]bool{}
		for range r.IntN(4) {
			if server := someServer(r); !seen[server] {
				seen[server] = true
				fmt.Fprintf(&text, "[host.'%s']\n", server)
				section()
			}
		}
		cases = append(cases, host(one(r, "docker.io", "a.b", "a.b:5000"), text.String()))
	}
	return cases
}

var servers = []string{
	"https://c.d", "https://c.d/", "http://c.d", "http://c.d:80", "http://c.d:5000", "https://c.d/v2", "https://c.d/v2/", "https://c.d/p", "https://c.d/p/",
	"https://c.d/v2/p", "http://c.d/p/v2", "c.d:5000/p", "c.d", "c.d/", "C.D", "https://c.d//p", "https://c.d/p//q", "https://c.d/p/../q",
	"https://c.d/./p", "https://c.d/..", "https://c.d/p%2Fq", "https://c.d/p%20q", "https://c.d/%70", "https://c.d/p/v2x", "https://c.d/xv2", "https://c.d/p?q=1", "https://c.d/p#q",
	"https://c.d:443", "https://c.d:80", "http://c.d:443", "https://c.d:", "https://[::1]:5000", "[::1]:5000", "https://1.2.3.4:5000/p",
	"https://registry-1.docker.io", "https://c.d/p/v2/", "https://c.d/%76%32", "https://c.d/p/%2e%2e/q", "https://c.d/p+q", "https://c.d/~p", "https://c.d/p:q", "https://c.d/p@q",
	"https://c.d/\u00fc", "https://c.d/p;q", "https://c.d/p,q", "https://c.d/p=q&r", "https://c.d/p\"q", "https://c.d/[p]", "https://c.d/p q", "https://c.d/V2",
	"https://", "https://c_d/p", "localhost:5000", "http://localhost:5000", "https://c.d/v2//",
}

func someServer(r *rand.Rand) string {
	server := one(r, "https://", "https://", "http://", "") + one(r, "c.d", "e.f:5000", "g.h:80", "i.j:443")
	for range r.IntN(3) {
		server += "/" + one(r, "p", "q", "v2", "", "..", "%2F", "x.y", "%41", "")
	}
	return server
}

// authority returns a certificate authority that has signed nothing.
func authority() []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	must(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(cryptorand.Reader, template, template, &key.PublicKey, key)
	must(err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}
