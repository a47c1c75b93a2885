package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
)

// A Head is a raw HTTP response, with the status, headers and body that Go's client reads from it.
type Head struct {
	// Answer is the raw response, in base64 as it may not be UTF-8.
	Answer string `json:"answer"`
	// Absent if the client refuses the response.
	Status int `json:"status,omitempty"`
	// Headers that matter to a client of registries, as "name: value" with the name in lower case.
	Headers []string `json:"headers,omitempty"`
	// Body in base64.
	Body string `json:"body,omitempty"`
}

// readHeaders are the headers that matter to a client of registries.
var readHeaders = []string{
	"Content-Type", "Docker-Content-Digest", "Location", "Ratelimit-Limit", "Ratelimit-Remaining", "Retry-After", "Www-Authenticate",
}

// responder is a connection that sends a response after the request, and then ends.
type responder struct {
	net.Conn
	response  *bytes.Reader
	requested chan struct{} // closed at the first write
	closed    chan struct{}
	once      *sync.Once
}

func (c responder) Read(into []byte) (int, error) {
	select {
	case <-c.requested:
		return c.response.Read(into)
	case <-c.closed:
		return 0, io.EOF
	}
}

func (c responder) Write(request []byte) (int, error) {
	select {
	case <-c.requested:
	default:
		close(c.requested)
	}
	return len(request), nil
}

func (c responder) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// head returns a case with the answer of Go's client.
func head(wire string) Head {
	result := Head{Answer: base64.StdEncoding.EncodeToString([]byte(wire))}
	dial := func(context.Context, string, string) (net.Conn, error) {
		response := bytes.NewReader([]byte(wire))
		return responder{response: response, requested: make(chan struct{}), closed: make(chan struct{}), once: &sync.Once{}}, nil
	}
	// containerd disables compression as well. So the client decodes no body.
	transport := &http.Transport{DialContext: dial, DisableCompression: true, DisableKeepAlives: true}
	request, err := http.NewRequest("GET", "http://a.b/v2/", nil)
	must(err)
	response, err := transport.RoundTrip(request)
	if err != nil {
		return result
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return result
	}
	result.Status, result.Body = response.StatusCode, base64.StdEncoding.EncodeToString(body)
	for _, name := range readHeaders {
		for _, value := range response.Header[name] {
			result.Headers = append(result.Headers, strings.ToLower(name)+": "+value)
		}
	}
	return result
}

func heads(r *rand.Rand, random int) []Head {
	const usual = "Content-Type: application/json\r\n"
	var cases []Head
	for _, wire := range []string{
		"HTTP/1.1 200 OK\r\n" + usual + "Content-Length: 2\r\n\r\n{}", "HTTP/1.0 200 OK\r\n" + usual + "\r\n{}", "HTTP/1.1 200\r\n\r\n{}",
		"HTTP/1.1 200 \r\n\r\n{}", "HTTP/1.1 200 OK\n" + "Content-Length: 2\n\n{}", "HTTP/1.1  200 OK\r\n\r\n{}", "HTTP/1.1\t200 OK\r\n\r\n{}",
		"HTTP/1.1 200 \xc4\xff\r\n\r\n{}", "HTTP/1.1 99 x\r\n\r\n{}", "HTTP/1.1 099 x\r\n\r\n{}", "HTTP/1.1 600 x\r\n\r\n{}", "HTTP/1.1 999 x\r\n\r\n{}",
		"HTTP/1.1 1000 x\r\n\r\n{}", "HTTP/1.1 +20 x\r\n\r\n{}", "HTTP/1.2 200 OK\r\n\r\n{}", "HTTP/2.0 200 OK\r\n\r\n{}", "HTTP/1.01 200 OK\r\n\r\n{}",
		"http/1.1 200 OK\r\n\r\n{}", "HTTP/0.9 200 OK\r\n\r\n{}", "\r\nHTTP/1.1 200 OK\r\n\r\n{}", "{}", "", "HTTP/1.1 200 OK\r\n", "ICY 200 OK\r\n\r\n{}",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{}",
		strings.Repeat("HTTP/1.1 102 x\r\n\r\n", 30) + "HTTP/1.1 200 OK\r\n\r\n{}", "HTTP/1.1 204 x\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 304 x\r\n\r\n{}", "HTTP/1.1 401 x\r\nWWW-Authenticate: Bearer realm=\"a\"\r\nWww-authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 307 x\r\nLocation:\r\n /other\r\n\r\n", "HTTP/1.1 307 x\r\nLocation: \xc3\xa4\xff\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 429 x\r\nRetry-After:7\r\nContent-Length: 1\r\n\r\nx",
	} {
		cases = append(cases, head(wire))
	}
	for _, lines := range []string{
		"Content-Type: a/b\r\n ;c=d", "Content-Type: a/b\r\n\t;c=d\r\n  e", "Content-Type:\r\n a/b", "Content-Type: a/b\r\n \r\n", "X: y\r\n z\r\nContent-Type: a/b",
		"WWW-Authenticate: Bearer realm=\"a\",\r\n  service=\"b\"", "WWW-Authenticate: Bearer realm=\"a\",\n\tservice=\"b\"\n x", " Content-Type: a/b",
		"Content-Type : a/b", "Content-Type\t: a/b", "X : y\r\nContent-Type: a/b", "Content Type: a/b", "Content-Type:a/b", "Content-Type:   a/b   ",
		"content-type: a/b", "CONTENT-TYPE: a/b", "Content-Type: a/b\r\nContent-Type: c/d", "Content-Type:", ": a/b", "Content-Type", "Content-Type a/b",
		"X-\xc3\xa4: y\r\nContent-Type: a/b", "X(y): z\r\nContent-Type: a/b", "X@y: z\r\nContent-Type: a/b", "X: \x01\r\nContent-Type: a/b", "X: \x7f\r\nContent-Type: a/b",
		"X: y\rz\r\nContent-Type: a/b", "X: \x00", "Content-Type: a/b\x00", "Content-Type: \xe4/\xff", "X!#$%&'*+-.^_`|~9: z\r\nContent-Type: a/b", "X: y\r\r\nContent-Type: a/b",
		"Content-Length: 2\r\nContent-Length: 2", "Content-Length: 2\r\nContent-Length: 3", "Content-Length: 2, 2", "Content-Length: +2", "Content-Length: -2", "Content-Length: 02",
		"Content-Length:", "Content-Length: x", "Content-Length: 3", "Content-Length: 1", "Content-Length:  2 ", "Content-Length: 0x2", "Content-Length:\r\n 2", "Content-Length: 99999999999999999999",
		"Transfer-Encoding: identity", "Transfer-Encoding: gzip", "Connection: close", "Connection: keep-alive", "Connection: upgrade\r\nUpgrade: h2c", "Keep-Alive: timeout=5",
		strings.Repeat("X: y\r\n", 99) + "Content-Type: a/b", strings.Repeat("X: y\r\n", 100) + "Content-Type: a/b", strings.Repeat("X: y\r\n", 1000) + "Content-Type: a/b",
		"X: " + strings.Repeat("y", 20_000) + "\r\nContent-Type: a/b",
	} {
		cases = append(cases, head("HTTP/1.1 200 OK\r\n"+lines+"\r\n\r\n{}"))
	}
	for _, chunks := range []string{
		"2\r\n{}\r\n0\r\n\r\n", "1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", "2;x=y\r\n{}\r\n0;z\r\n\r\n", "2 \r\n{}\r\n0\r\n\r\n", "2\t;x\r\n{}\r\n0\r\n\r\n", "02\r\n{}\r\n000\r\n\r\n",
		"2\r\n{}\r\n0\r\nX: y\r\n\r\n", "2\r\n{}\r\n0\r\nX: y\r\nContent-Type: c/d\r\n\r\n", "2\r\n{}\r\n0\r\n", "2\r\n{}\r\n", "2\r\n{}", "2\n{}\n0\n\n", "2\r\n{}0\r\n\r\n", "A\r\n0123456789\r\n0\r\n\r\n",
		"a\r\n0123456789\r\n0\r\n\r\n", "0xa\r\n0123456789\r\n0\r\n\r\n", "-1\r\n\r\n", "x\r\n\r\n", "\r\n0\r\n\r\n", "2;x=\"\r\n\"\r\n{}\r\n0\r\n\r\n", "11111111111111111\r\n{}\r\n0\r\n\r\n",
	} {
		cases = append(cases, head("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunks))
	}
	for _, lines := range []string{
		"Transfer-Encoding: Chunked", "Transfer-Encoding:  chunked ", "Transfer-Encoding: chunked\r\nContent-Length: 2", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, identity", "Transfer-Encoding:\r\n chunked", "transfer-encoding: CHUNKED", "Transfer-Encoding: chunked;q=1",
	} {
		cases = append(cases, head("HTTP/1.1 200 OK\r\n"+lines+"\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), head("HTTP/1.0 200 OK\r\n"+lines+"\r\n\r\n2\r\n{}\r\n0\r\n\r\n"))
	}
	for range random {
		cases = append(cases, head(randomResponse(r)))
	}
	return cases
}

// randomResponse returns a raw response with usual and unusual spelling.
func randomResponse(r *rand.Rand) string {
	end := func() string { return pick(r, "\r\n", "\r\n", "\r\n", "\r\n", "\n") }
	blank := func() string { return pick(r, "", "", " ", " ", "  ", "\t") }
	status := pick(r, 200, 200, 200, 201, 307, 401, 403, 404, 429, 500, 503)
	wire := fmt.Sprintf("HTTP/1.%d %d%s%s", pick(r, 1, 1, 1, 0), status, pick(r, " OK", " ", "", " N\xf6", " a b"), end())
	if chance(r, 10) {
		wire = "HTTP/1.1 103 x\r\nContent-Type: x/y\r\n\r\n" + wire
	}
	name := func() string {
		usual := pick(r, append(readHeaders, "X-More", "Server", "Vary")...)
		return pick(r, usual, usual, strings.ToLower(usual), strings.ToUpper(usual))
	}
	for range r.IntN(6) {
		value := pick(r, "", "a/b", "a/b; charset=utf-8", "sha256:0", "\"x\"", "7", "\xe4", "Bearer realm=\"https://a.b/t\",service=\"s\"", "a , b", "/other")
		if chance(r, 15) {
			value += end() + pick(r, " ", "\t", "  ") + pick(r, "c", "", "d: e", "\"f\"")
		}
		wire += name() + ":" + blank() + value + blank() + end()
	}
	if chance(r, 5) {
		wire += pick(r, "X y: z", "X: \x02", "X", "X-\xe4: y") + end()
	}
	body := pick(r, "", "{}", "{\"token\":\"t\"}")
	switch r.IntN(4) {
	case 0:
		return wire + end() + body
	case 1:
		wire += pick(r, "Transfer-Encoding", "transfer-encoding") + ":" + blank() + pick(r, "chunked", "Chunked") + blank() + end() + end()
		if body != "" {
			wire += fmt.Sprintf("%x%s\r\n%s\r\n", len(body), pick(r, "", ";a", ";a=b", " "), body)
		}
		return wire + "0\r\n" + pick(r, "", "X-Trailer: y\r\n") + "\r\n"
	default:
		return wire + fmt.Sprintf("Content-Length:%s%d", blank(), len(body)) + end() + end() + body
	}
}
