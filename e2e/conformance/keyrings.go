package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/kubernetes/pkg/credentialprovider"
)

// A Pattern is an entry of matchImages and the name of an image without tag and digest, with whether kubelet calls the plugin for it.
type Pattern struct {
	Pattern string `json:"pattern"`
	Image   string `json:"image"`
	Matches bool   `json:"matches,omitempty"`
}

// pattern returns a case with the answer of kubelet.
func pattern(text, image string) Pattern {
	matches, err := credentialprovider.URLsMatchStr(text, image)
	return Pattern{Pattern: text, Image: image, Matches: matches && err == nil}
}

// imageNames are names of images without tag and digest.
var imageNames = []string{
	"docker.io/library/nginx", "docker.io/team/app", "quay.io/team/app", "quay.io/teamwork/app", "quay.io:443/team/app",
	"123.dkr.ecr.eu-west-1.amazonaws.com/team/app", "a.b.registry.example.com/x", "registry.example.com:5000/team/app/more",
	"localhost:5000/app", "[::1]:5000/app", "mixed.case.com/app", "Mixed.Case.com/app", "10.0.0.1:5000/v1/app", "a.b/v2/app",
}

// registryKeys are keys of credentials and patterns as users write them, and some that parsers read differently.
var registryKeys = []string{
	"docker.io", "docker.io/library", "index.docker.io", "index.docker.io/v1/", "https://index.docker.io/v1/", "https://index.docker.io/v1",
	"https://index.docker.io/v2/", "registry-1.docker.io", "quay.io", "quay.io/", "quay.io/team", "quay.io/team/", "quay.io/team/app",
	"quay.io/v1/team", "https://quay.io", "http://quay.io/v2/team", "HTTPS://quay.io", "Quay.io", "quay.io:443", "https://quay.io:443/team",
	"quay.io:", "quay.io:/team", "quay.io//team", "quay.io/./team", "quay.io/%74eam", "quay.io/te%2fam", "quay.io?x", "quay.io/team?x",
	"quay.io#x", "user@quay.io", "user:word@quay.io/team", "*.io", "*", "*.*", "*.*.*", "q*.io", "qu?y.io", "[q]uay.io", "qu[a-b]y.io",
	"qu[^b]y.io", "qu[ay.io", "qua\\y.io", "quay.[i-k]o", "*.dkr.ecr.*.amazonaws.com", "*.dkr.ecr.*.amazonaws.com/team", "*.amazonaws.com",
	"*.*.registry.example.com", "registry.example.com", "registry.example.com:5000", "registry.example.com:5000/team/app",
	"registry.example.com:*", "localhost:5000", "localhost", "[::1]:5000", "[::1]", "::1", "mixed.case.com", "Mixed.Case.com",
	"*.Case.com", "Mixed.Case.com/app", "10.0.0.1:5000", "10.0.0.1:5000/v1/", "10.0.0.*:5000", "a.b/v2/", "a.b/v2", "a.b/v1/app", "a.b/v2/app",
	"a.b/v2/v2/app", "", "/", "https://", "https:///v1/", "/v1/", " ", "quay .io", "quay.io /team", "ftp://quay.io", "q\u00fcay.io", "quay.io/t\u00e9am",
	"%71uay.io", "quay%2eio", "quay.io:port", "quay.io:99999", "quay.io\\team", "quay.io/team\\app", "quay.io/*", "quay.io/te*m",
	"docker.io/library/", "library", "library/nginx", "nginx", ":5000", "[::1", "quay.io:443:443", "https://https://quay.io", "quay.io/\u0001",
}

func patterns(r *rand.Rand, random int) []Pattern {
	var cases []Pattern
	// For credential helpers and mirrors, the name is only a host.
	images := append([]string{"quay.io", "docker.io", "registry.example.com:5000"}, imageNames...)
	for number, key := range registryKeys {
		cases = append(cases, pattern(key, images[number%len(images)]))
		if host, _, _ := strings.Cut(key, "/"); !strings.Contains(key, "://") {
			for _, image := range images {
				if strings.HasPrefix(image, host) {
					cases = append(cases, pattern(key, image))
				}
			}
		}
	}
	parts := []string{"*", "?", "a", "b", "ab", "[ab]", "[^a]", "[a-c]", "[b-a]", "[]a]", "[a", "\\a", "\\", "a*", "*b", "a*b*", "**", "[a-]", "[\\]]", "A", ""}
	words := []string{"a", "b", "ab", "abab", "c", "ba", "aab", "abb", "-a", "A"}
	for range random {
		text, image := pick(r, parts...)+pick(r, append([]string{""}, parts...)...), pick(r, words...)
		for range r.IntN(3) {
			text, image = text+"."+pick(r, parts...), image+"."+pick(r, words...)
		}
		image += pick(r, "", "", ":80", ":81")
		text += pick(r, "", "", ":80", ":", ":8*")
		cases = append(cases, pattern(text+pick(r, "", "", "/t", "/team", "/team/", "/*"), image+pick(r, "/team/x", "/t/x", "/x")))
	}
	return cases
}

// A Keyring is the `.dockerconfigjson` of pull secrets and the name of an image, with the credentials that kubelet tries.
type Keyring struct {
	Configs []string `json:"configs"`
	Image   string   `json:"image"`
	// Credentials as user:password, in the order in which kubelet tries them. Those with neither are left out, as they have no effect.
	Found []string `json:"found,omitempty"`
	// Whether kubelet refuses one of the secrets, so that it uses none.
	Refused bool `json:"refused,omitempty"`
}

// keyring returns a case with the answer of kubelet.
func keyring(image string, configs ...string) Keyring {
	result := Keyring{Configs: configs, Image: image}
	var ring credentialprovider.BasicDockerKeyring
	for _, config := range configs {
		var decoded credentialprovider.DockerConfigJSON
		if json.Unmarshal([]byte(config), &decoded) != nil {
			result.Refused = true
			return result
		}
		addSorted(&ring, decoded.Auths)
	}
	result.Found = lookup(&ring, image)
	return result
}

// addSorted adds the entries one by one by their keys, because the order within a map is random.
func addSorted(ring *credentialprovider.BasicDockerKeyring, auths credentialprovider.DockerConfig) {
	for _, key := range slices.Sorted(maps.Keys(auths)) {
		ring.Add(nil, credentialprovider.DockerConfig{key: auths[key]})
	}
}

// lookup returns the credentials for an image as user:password, in the order in which kubelet tries them.
func lookup(ring *credentialprovider.BasicDockerKeyring, image string) []string {
	var credentials []string
	entries, _ := ring.Lookup(image)
	for _, entry := range entries {
		if entry.Username != "" || entry.Password != "" {
			credentials = append(credentials, entry.Username+":"+entry.Password)
		}
	}
	return credentials
}

// jsonString returns a text as a string of JSON.
func jsonString(value string) string {
	quoted, err := json.Marshal(value)
	must(err)
	return string(quoted)
}

func keyrings(r *rand.Rand, random int) []Keyring {
	auth := base64Of
	raw := func(plain string) string { return base64.RawStdEncoding.EncodeToString([]byte(plain)) }
	var cases []Keyring
	for number, entry := range []string{
		`{"auth":"` + auth("u:p") + `"}`, `{"auth":"` + auth("u:pw") + `"}`, `{"auth":"` + raw("u:pw") + `"}`, `{"auth":"` + raw("u:pwd") + `"}`,
		`{"auth":"` + auth("u:p:q") + `"}`, `{"auth":"` + auth("u") + `"}`, `{"auth":"` + auth("u:") + `"}`, `{"auth":"` + auth(":p") + `"}`,
		`{"auth":"` + auth(":") + `"}`, `{"auth":"` + auth("u:pw") + `="}`, `{"auth":"` + raw("u:pw") + `="}`, `{"auth":"dTpw\n"}`, `{"auth":"dTpw\r\ncHc="}`,
		`{"auth":" dTpw"}`, `{"auth":"dTpw "}`, `{"auth":"dTpw\t"}`, `{"auth":"dT pw"}`, `{"auth":"dTpwcHc= "}`, `{"auth":"dTpwcHc=\n"}`, `{"auth":"dTo_"}`,
		`{"auth":"dTo/"}`, `{"auth":"dTpwcHd="}`, `{"auth":"dTpwcH"}`, `{"auth":"%"}`, `{"auth":"="}`, `{"auth":"\n"}`, `{"auth":"/zo="}`, `{"auth":""}`, `{"auth":null}`, `{"auth":1}`,
		`{"username":"u","password":"p"}`, `{"username":"u"}`, `{"password":"p"}`, `{"username":"","password":""}`, `{}`, `null`, `[]`, `""`, `1`,
		`{"username":"u","password":"p","auth":"` + auth("v:q") + `"}`, `{"username":"u","password":"p","auth":""}`, `{"username":null,"password":"p"}`,
		`{"username":1,"password":"p"}`, `{"u\u0073ername":"u","password":"p"}`,
		`{"username":"u","password":"p","email":1}`, `{"username":"u","password":"p","email":"e"}`, `{"username":"u","password":"p","more":[{}]}`,
		`{"username":"u","password":"p","identitytoken":1}`, `{"username":"\ud800","password":"p"}`, `{"username":"u\u0000","password":"p"}`,
	} {
		config := `{"auths":{"quay.io":` + entry + `}}`
		if number%7 == 6 {
			config = `{"auths":{"other.io":` + entry + `,"quay.io":{"auth":"` + auth("w:r") + `"}}}`
		}
		cases = append(cases, keyring("quay.io/team/app", config))
	}
	good := `{"auth":"` + auth("u:p") + `"}`
	for _, config := range []string{
		``, ` `, `{`, `{}`, `[]`, `null`, `""`, `{}x`, ` {} `, "\ufeff{}", `{"auths":null}`, `{"auths":{}}`, `{"auths":[]}`, `{"auths":""}`,
		`{"auth\u0073":{"quay.io":` + good + `}}`,
		`{"auths":{"quay.io":` + good + `,"quay.io":{"auth":"` + auth("v:q") + `"}}}`, `{"auths":{"quay.io":` + good + `,"quay.io":null}}`,
		`{"auths":{"quay.io":` + good + `,"quay.io":{}}}`, `{"auths":{"quay.io":` + good + `,"quay.io":{"username":"x"}}}`,
		`{"auths":{"quay.io":` + good + `},"HttpHeaders":{"a":"b"}}`, `{"auths":{"quay.io":` + good + `},"HttpHeaders":1}`,
		`{"auths":{"quay.io":` + good + `},"HttpHeaders":{"a":1}}`, `{"auths":{"quay.io":` + good + `},"credsStore":1,"credHelpers":[]}`,
		`{"auths":{"quay.io":` + good + `},"credsStore":null,"more":[1]}`, `{"quay.io":` + good + `}`, `{"auths":{"quay.io":` + good + `}} `,
		`{"auths":{"quay.io":` + good + `}}{}`, `{"auths":{"quay.io":` + good + `,}}`, `{"auths":{"QUAY.io":` + good + `}}`,
		`{"auths":{"quay.io:":` + good + `,"quay.io/team":{"auth":"` + auth("v:q") + `"}}}`,
	} {
		cases = append(cases, keyring("quay.io/team/app", config))
	}
	for _, key := range registryKeys {
		for _, image := range []string{"quay.io/team/app", "docker.io/library/nginx", pick(r, imageNames...)} {
			result := keyring(image, `{"auths":{`+jsonString(key)+`:`+good+`}}`)
			if len(result.Found) > 0 || image[0] == 'q' {
				cases = append(cases, result)
			}
		}
	}
	for range random {
		cases = append(cases, randomKeyring(r))
	}
	return cases
}

// randomKeyring returns a case with one or two pull secrets. Many of their keys belong to the image's registry.
func randomKeyring(r *rand.Rand) Keyring {
	image := pick(r, imageNames...)
	host, _, _ := strings.Cut(image, "/")
	encodings := []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding}
	var configs []string
	for range 1 + r.IntN(2) {
		var entries []string
		seen := map[string]bool{}
		for number := range 1 + r.IntN(4) {
			key := pick(r, registryKeys...)
			if chance(r, 40) {
				key = pick(r, "", "https://") + host + pick(r, "", "/", "/v1/", "/v2/", "/team", "/library/nginx", "/team/app")
			}
			if seen[key] {
				continue
			}
			seen[key] = true
			plain := fmt.Sprintf("u%d%d:p", len(configs), number)
			entries = append(entries, jsonString(key)+`:{"auth":"`+pick(r, encodings...).EncodeToString([]byte(plain))+`"}`)
		}
		configs = append(configs, `{"auths":{`+strings.Join(entries, ",")+`}}`)
	}
	return keyring(image, configs...)
}
