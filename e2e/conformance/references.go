package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/containerd/containerd/v2/pkg/reference"
	distribution "github.com/distribution/reference"
)

// A Reference is the image of a container, with the reference that a node requests from a registry.
type Reference struct {
	Image string `json:"image"`
	// Reference that the node requests. Absent if the node refuses the name.
	Asked string `json:"asked,omitempty"`
	// Whether the host is neither an address nor a name that Go's resolver accepts, so that the node opens no connection.
	Nowhere bool `json:"nowhere,omitempty"`
}

// isUnresolvable returns whether the host of a reference is neither an address nor a name that Go's resolver looks up.
func isUnresolvable(reference string) bool {
	address, _, ok := strings.Cut(reference, "/")
	if !ok {
		return false
	}
	target := url.URL{Host: address}
	if _, err := netip.ParseAddr(target.Hostname()); err == nil {
		return false
	}
	isQueried := false
	resolver := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		isQueried = true
		return nil, errors.New("this resolver has no name server")
	}}
	_, err := resolver.LookupHost(context.Background(), target.Hostname())
	return err != nil && !isQueried
}

// requestedReference returns the reference that a node requests for an image, or an empty text if the node refuses its name.
func requestedReference(image string) string {
	// containerd's CRI plugin does the same.
	named, err := distribution.ParseDockerRef(image)
	if err != nil {
		return ""
	}
	// containerd's resolver does the same with the result.
	spec, err := reference.Parse(named.String())
	if err != nil {
		return ""
	}
	if digest := spec.Digest(); digest != "" && digest.Validate() != nil {
		return ""
	}
	return spec.String()
}

var (
	sha256 = "sha256:" + strings.Repeat("0123456789abcdef", 4)
	sha384 = "sha384:" + strings.Repeat("0123456789abcdef", 6)
	sha512 = "sha512:" + strings.Repeat("0123456789abcdef", 8)
)

func references(r *rand.Rand, random int) []Reference {
	images := fixedImages()
	for range random {
		images = append(images, randomImage(r))
	}
	cases := make([]Reference, 0, len(images))
	for _, image := range images {
		requested := requestedReference(image)
		cases = append(cases, Reference{Image: image, Asked: requested, Nowhere: isUnresolvable(requested)})
	}
	return cases
}

// fixedImages returns names of images as users write them, and names on which parsers differ.
func fixedImages() []string {
	long := func(count int) string { return strings.Repeat("a", count) }
	return []string{
		"", " ", "nginx", " nginx", "nginx ", "nginx:1", "nginx:", "nginx@", "nginx:1@" + sha256, "nginx@" + sha256,
		"nginx@" + sha384, "nginx@" + sha512, "nginx@" + sha512[:80], "nginx@md5:" + sha256[7:39],
		"nginx@" + strings.ToUpper(sha256), "nginx@sha256:" + strings.ToUpper(sha256[7:]), "nginx@x+y.z:" + sha256[7:],
		"nginx@" + sha256 + "@" + sha256, "nginx@" + sha256 + ":1", sha256, sha256[7:], sha256[7:] + ":1", sha256[8:],
		"library/nginx", "docker.io/nginx", "docker.io/library/nginx", "docker.io/a/b/c", "index.docker.io/nginx",
		"index.docker.io/a/b", "registry-1.docker.io/nginx", "registry-1.docker.io/library/nginx", "Docker.io/nginx",
		"DOCKER.IO/a/b", "Index.docker.io/nginx", "INDEX.docker.io/library/nginx", "index.docker.io:443/nginx",
		"docker.io:443/nginx", "docker.io:443/library/nginx", "docker.io", "docker.io/", "docker.io:1", "a.b", "a.b:1",
		"quay.io/a/b", "Quay.IO/a/b", "quay.io/A/b", "quay.io/a/B:1", "quay.io//a", "quay.io/a//b", "quay.io/a/",
		"/a/b", "/", "//", "a/", "a//b", "A/b", "Ab/c", "A/B", "aB/c", "UPPER/a", "UPPER/a/b", "A.b/c", "A:1/c", "LOCALHOST/a",
		"localhost/a", "localhost/a/b", "localhost:5000/a", "localhost", "localhost:5000", "localhost.localdomain/a",
		"a.b:5000/c", "a.b:0/c", "a.b:05000/c", "a.b:65535/c", "a.b:65536/c", "a.b:99999999999/c", "a.b:/c", "a.b:x/c",
		"a.b:-1/c", "a.b:5000", "a.b:5000:1/c", "a.b:5000/c:1:2", "a:5000/b", "5000:5000/b", "1.2.3.4/a", "1.2.3.4:5000/a",
		"1.2.3/a", "0x7f.1/a", "127.1/a", "127.1:80/a", "0x7f000001:80/a", "2130706433:80/a", "127.0.0.01/a", "0177.0.0.1/a", "1.2.3.4.5/a",
		"256.0.0.1/a", "1.2.3.4.a/b", "a.1/b", "a.0x/b", "0x1.a/b", "a.1a/b", "1.0xg/a", "[0::1]/a", "[::0001]/a", "[::FFFF:102:304]/a", "[1::2:0:0:0:3]/a",
		"[0:0:0:0:0:0:0:1]:80/a", "[::1]/a", "[::1]:5000/a", "[::1]a/b", "[::1/a", "::1/a", "[]/a", "[:]/a", "[fe80::1%25lo]/a",
		"[FE80::1]/a", "[::1]:/a", "[::ffff:1.2.3.4]/a", "[1::2::3]/a", "[12345::]/a", "[::]:5000/a", "[1:2:3:4:5:6:7:8]/a",
		"a_b/c", "a_b.corp/c", "my_registry.corp/app", "my__registry.corp/app", "my___registry.corp/app",
		"my_registry.corp/app/more:1", "my_registry.corp:5000/app", "my_registry:5000/app", "_registry.corp/app",
		"registry_.corp/app", "My_registry.corp/app", "my-_registry.corp/app", "my_registry.corp/App",
		"my_registry.corp/app@" + sha256, "a_b.c", "a_b.c:1", "a_b.c/", "a..b/c", ".a/b", "a./b", "a.b./c", "a.-b/c", "a-.b/c",
		"-a.b/c", "a.b-/c", "a--b.c/d", "a.b/.c", "a.b/c.", "a.b/c..d", "a.b/c._d", "a.b/c-d", "a.b/c--d", "a.b/c---d",
		"a.b/c_d", "a.b/c__d", "a.b/c___d", "a.b/-c", "a.b/c-", "a.b/_c", "a.b/c_", "a.b/c-_d", "a.b/../d", "a.b/./d", "../a",
		"a.b/c%20d", "a.b/c%2fd", "%61.b/c", "a.b/c?d", "a.b/c#d", "a.b/c d", "a.b/c\td", "a.b/c\nd", "a.b/c\x00d", "a.b/\u00e9",
		"\u00e9.b/c", "a.b/c:\u00e9", "a.b/\u0130", "\u212a.b/c", "https://a.b/c", "http://a.b/c", "docker://a.b/c", "//a.b/c",
		"user@a.b/c", "user:word@a.b/c", "a.b/c@d", "a.b/c:1@d", "a.b/c@sha256", "a.b/c@sha256:", "a.b/c@:" + sha256[7:],
		"a.b/c:1/d", "a:b/c:1", "a:b", "a:b:c", ":a", "@a", "@" + sha256, ":", "@", "a:_b", "a:.b", "a:-b", "a:b.", "a:b-_.c", "a:B",
		"a:" + long(128), "a:" + long(129), long(255), long(256), long(247), long(248), "a/" + long(245), "a/" + long(246),
		"a.b/" + long(250), "a.b/" + long(251), "a.b/" + long(252), "a.b/" + long(255), "a.b/" + long(256),
		"docker.io/" + long(247), "docker.io/" + long(248), "docker.io/a/" + long(253), "docker.io/a/" + long(254),
		long(200) + ".b/" + long(54), long(200) + ".b/" + long(255), long(300) + ".b/c", "a_b.c/" + long(249), "a_b.c/" + long(250),
	}
}

func randomImage(r *rand.Rand) string {
	hosts := []string{
		"", "", "", "library/", "docker.io/", "index.docker.io/", "Docker.io/", "quay.io/", "Quay.io/", "localhost/", "localhost:80/",
		"a_b.corp/", "a_b.corp:5000/", "REG/", "reg:5000/", "reg/", "1.2.3.4:5000/", "[::1]:5000/", "[::1]/", "a.b:0443/", "a.b:443/",
		"a.b:80/", "-a.b/", "a..b/", "[::g]/", "a.b:99999/",
	}
	pieces := []string{
		"a", "b", "app", "nginx", "0", "9z", ".", "-", "--", "_", "__", "___", "/", "/", "//", "A", ":", "@", "%", "\u00fc", "x-y", "x.y", "x_y",
	}
	ends := []string{
		"", "", "", ":1", ":v1.2", ":latest", ":_", ":.", ":-x", ":", ":a:b", ":A_b-c.d", "@" + sha256, "@" + sha512, ":1@" + sha256,
		"@" + sha256[:70], ":@" + sha256, "@sha1:" + sha256[7:47],
	}
	image := pick(r, hosts...) + pick(r, "app", "a", "team", "nginx")
	for range r.IntN(4) {
		image += pick(r, pieces...)
		if chance(r, 60) {
			image += pick(r, "app", "a", "b7")
		}
	}
	return image + pick(r, ends...)
}
