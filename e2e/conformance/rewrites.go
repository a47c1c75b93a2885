package main

import (
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
)

// Rewrites are an image and the rewrite rules of a host, with the repositories that nodes of k3s and RKE2 request from the host.
type Rewrites struct {
	Rules      map[string]string `json:"rules"`
	Repository string            `json:"repository"`
	// Several if it depends on the order of the rules: Go iterates over a map in random order.
	Names []string `json:"names"`
}

// rewrite does the same as withRewritesFromHost in core/remotes/docker/resolver.go of github.com/k3s-io/containerd, once with each rule
// as the first.
func rewrite(repository string, rules map[string]string) Rewrites {
	names := map[string]bool{}
	for pattern, template := range rules {
		expression, err := regexp.Compile(pattern)
		if err != nil {
			continue
		}
		if name := expression.ReplaceAllString(repository, template); name != repository {
			names[name] = true
		}
	}
	if len(names) == 0 {
		names[repository] = true
	}
	return Rewrites{Rules: rules, Repository: repository, Names: slices.Sorted(maps.Keys(names))}
}

func rewrites(r *rand.Rand, random int) []Rewrites {
	repositories := []string{"library/nginx", "rancher/mirrored-pause", "team/app", "a", "a/b/c", "x1.y_z/q--r/library", "library", "aaa/aa"}
	rules := [][2]string{
		// From the documentation and the issues of k3s and RKE2.
		{"^rancher/(.*)", "mirrorproject/rancher-images/$1"}, {"^library/alpine$", "my-org/alpine"}, {"^library/(.*)", "my-org/$1"},
		{"^(.*)$", "dockerhub/$1"}, {"(.*)", "dockerhub/$1"}, {"^(?:library|)(.*)", "rke-test/docker.io/$1"}, {"cp/se-data/(.*)", "local/$1"},
		{"^(.*)$", "dockerhub/${1}"}, {"(.+)", "proxy/${1}"}, {"^(.+)/(.+)$", "$2/$1"}, {"/", "-"}, {"^", "hub/"}, {"$", "/x"}, {"", "x"},
		{"a", "b"}, {"[^/]+$", "app"}, {"^[a-z0-9]+/", ""}, {"^([^/]+)$", "library/$1"}, {"^(?:library/)?(.*)$", "hub/$1"}, {"library", "$0/$0"},
		// k3s ignores an invalid expression, and copies an invalid template literally.
		{"(", "x"}, {"a**", "b"}, {"*", "b"}, {"(.*)", "$1x"}, {"(.*)", "$1_x/$1"}, {"(.*)", "x/$2"}, {"(.*)", "x$$1"}, {"(.*)", "x/$"}, {"(.*)", "x/$01"},
		{"(.*)", "x/${1"}, {"(.*)", "x/${01}"}, {"(?P<name>.*)", "x/$name"}, {"(.*)", "/x/$1"}, {"(.*)", "x//$1"}, {"(.*)", "../$1"}, {"(.*)", "X/$1"}, {"(.*)", ""},
		{"a+*", "b"}, {"a*?", "b"}, {"a??", "b"}, {"(a|aa)*", "b"}, {"(a*)+", "b$1"}, {"(|a)*", "b"}, {"(|a)+", "b"}, {"(a*|b)*", "x$1"}, {"x*", "-"}, {"\\b", "-"}, {"\\<a", "b"},
		{"[a[b]]", "x"}, {"[]a[b]]", "x"}, {"[a&&b]", "x"}, {"[a--b]", "x"}, {"[a~~b]", "x"}, {"[[:alpha:]]+", "x"}, {"[a-b-c]", "x"}, {"[a-]", "x"}, {"\\d+", "0"}, {"\\w", "w"},
		{"\\Qa\\E", "x"}, {"\\u0061", "x"}, {"\\x61", "x"}, {"a{2}", "x"}, {"a{,2}", "x"}, {"(?i)A", "x"}, {"(?U)a+", "x"}, {"(?x) a", "x"}, {"(?-u)a", "x"}, {"\u00e9", "x"}, {"^*a", "x"},
	}
	cases := []Rewrites{}
	for _, rule := range rules {
		for _, repository := range repositories {
			cases = append(cases, rewrite(repository, map[string]string{rule[0]: rule[1]}))
		}
	}
	for _, rules := range []map[string]string{
		{}, {"^library/(.*)": "hub/$1", "^rancher/(.*)": "ranch/$1"}, {"^library/": "hub/", "^(library)/": "hub/"}, {"a": "b", "a+": "b"}, {"a": "b", "(": "x"},
	} {
		for _, repository := range repositories {
			cases = append(cases, rewrite(repository, rules))
		}
	}
	for range 4 * random {
		rules := map[string]string{}
		for range 1 + r.IntN(2) {
			pattern, template := "", ""
			for range 1 + r.IntN(5) {
				pattern += pick(r, "a", "b", "library", "/", "/", "^", "$", "(.*)", "(.+)", "[^/]+", "([^/]*)", "(?:a|b)", "(a|ab|)", "(a|b)*", "(a*)*", "()", "|", "*", "+", "?", "*?",
					"+?", ".", "\\.", "\\d", "\\w+", "\\-", "\\/", "\\b", "[ab]", "[^ab/]", "[a-c_.-]*", "(", ")", "[", "]", "-", "(?:", "{2}", "\\A", "\\z", "(?i)", "&&", "[[:alpha:]]")
			}
			for range 1 + r.IntN(3) {
				template += pick(r, "hub/", "x", "/", "$1", "$1", "${1}", "$2", "${2}", "$0", "$1x", "$", "$$", "-", "$10", "${11}", "$x", "_", ".")
			}
			rules[pattern] = template
		}
		cases = append(cases, rewrite(pick(r, repositories...), rules))
	}
	return cases
}
