package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes/docker/auth"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/docker-credential-helpers/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider"
	"k8s.io/kubelet/pkg/apis/credentialprovider/install"
	"k8s.io/kubernetes/pkg/credentialprovider"
)

// A Document is JSON with members that are usual, in another case, doubled, null, unknown or of wrong types, with the result of the Go
// program that reads such documents on a node or for Docker.
type Document struct {
	Kind string `json:"kind"`
	// The document in base64, as it may not be UTF-8.
	JSON string `json:"json"`
	// Whether the program refuses it.
	Refused bool `json:"refused,omitempty"`
	// What the program reads from it: credentials, a token, or the platforms of the nodes that run an image.
	Gives []string `json:"gives,omitempty"`
	// Whether it has the list of an index more than once. Go mixes the entries of all.
	Mixed bool `json:"mixed,omitempty"`
}

// member is a member of an object. Its value is JSON text, more members, or a list of objects.
type member struct {
	name  string
	value any
}

// readDocument reads a document as a Go program does.
type readDocument func(document []byte) (gives []string, refused bool)

// documentKind is a kind of documents: a usual document, and how it is read.
type documentKind struct {
	usual []member
	read  readDocument
}

func documentKinds() map[string]documentKind {
	basic := func(plain string) string { return jsonString(base64Of(plain)) }
	entry := []member{{"username", `"u"`}, {"password", `"p"`}, {"email", `"e"`}}
	descriptor := func(digest, mediaType, architecture string) []member {
		return []member{
			{"mediaType", jsonString(mediaType)}, {"digest", jsonString(digest)}, {"size", "$size"},
			{"platform", []member{{"architecture", jsonString(architecture)}, {"os", `"linux"`}}},
		}
	}
	return map[string]documentKind{
		"dockerconfigjson": {[]member{{"auths", []member{{"quay.io", entry}, {"quay.io/team", []member{{"auth", basic("v:q")}}}}}}, readConfig},
		"dockercfg":        {[]member{{"quay.io", entry}, {"quay.io/team", []member{{"auth", basic("v:q")}}}}, readOlderConfig},
		"docker": {[]member{
			{"auths", []member{{"quay.io", []member{{"auth", basic("v:q")}, {"identitytoken", `"i"`}, {"registrytoken", `"r"`}}}}},
			{"credHelpers", []member{{"a.b", `"one"`}}}, {"credsStore", `"two"`},
		}, readDocker},
		"helper": {[]member{{"ServerURL", `"quay.io"`}, {"Username", `"u"`}, {"Secret", `"p"`}}, readHelper},
		"token":  {[]member{{"token", `"t"`}, {"access_token", `"a"`}, {"expires_in", `300`}}, readToken},
		"plugin": {[]member{
			{"kind", `"CredentialProviderResponse"`}, {"apiVersion", `"credentialprovider.kubelet.k8s.io/v1"`},
			{"cacheKeyType", `"Image"`}, {"cacheDuration", `"1m0s"`},
			{"auth", []member{{"quay.io", []member{{"username", `"u"`}, {"password", `"p"`}}}}},
		}, readPlugin},
		"index": {[]member{
			{"schemaVersion", "2"}, {"mediaType", jsonString(ocispec.MediaTypeImageIndex)},
			{"manifests", [][]member{
				descriptor("$amd64", ocispec.MediaTypeImageManifest, "amd64"),
				descriptor("$arm64", ocispec.MediaTypeImageManifest, "arm64"),
			}},
		}, func(document []byte) ([]string, bool) { return readImage(document, ocispec.MediaTypeImageIndex) }},
		"manifest": {[]member{
			{"schemaVersion", "2"}, {"mediaType", jsonString(ocispec.MediaTypeImageManifest)},
			{"config", []member{{"mediaType", jsonString(ocispec.MediaTypeImageConfig)}, {"digest", `"$config"`}, {"size", "$size"}}},
			{"layers", "[]"},
		}, func(document []byte) ([]string, bool) { return readImage(document, ocispec.MediaTypeImageManifest) }},
		"platform": {[]member{{"architecture", `"arm64"`}, {"os", `"linux"`}, {"variant", `"v8"`}}, readImagePlatform},
	}
}

// readConfig reads a .dockerconfigjson as kubelet does.
func readConfig(document []byte) ([]string, bool) {
	var config credentialprovider.DockerConfigJSON
	if json.Unmarshal(document, &config) != nil {
		return nil, true
	}
	return lookupIn(config.Auths), false
}

// readOlderConfig reads a .dockercfg as kubelet does.
func readOlderConfig(document []byte) ([]string, bool) {
	config, err := credentialprovider.ReadDockerConfigFileFromBytes(document)
	return lookupIn(config), err != nil
}

// lookupIn returns the credentials that kubelet finds for quay.io/team/app.
func lookupIn(auths credentialprovider.DockerConfig) []string {
	var ring credentialprovider.BasicDockerKeyring
	addSorted(&ring, auths)
	return lookup(&ring, "quay.io/team/app")
}

// readDocker returns the members of a config.json that only Docker reads.
func readDocker(document []byte) (gives []string, refused bool) {
	config := configfile.New("")
	// Docker accepts data after the first value, but kubelet refuses it.
	if !json.Valid(document) || config.LoadFromReader(bytes.NewReader(document)) != nil {
		return nil, true
	}
	entry := config.AuthConfigs["quay.io"]
	gives = append(gives, "registrytoken="+entry.RegistryToken, "identitytoken="+entry.IdentityToken, "credsStore="+config.CredentialsStore)
	for _, host := range slices.Sorted(maps.Keys(config.CredentialHelpers)) {
		gives = append(gives, host+"="+config.CredentialHelpers[host])
	}
	return gives, false
}

// program is a credential helper that prints this output.
type program []byte

func (p program) Output() ([]byte, error) { return p, nil }
func (program) Input(io.Reader)           {}

// readHelper reads the output of a credential helper as Docker does.
func readHelper(document []byte) ([]string, bool) {
	credentials, err := client.Get(func(...string) client.Program { return program(document) }, "quay.io")
	if err != nil {
		return nil, true
	}
	return []string{credentials.Username + ":" + credentials.Secret}, false
}

// server is a token server that answers with this document.
type server []byte

func (s server) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(bytes.NewReader(s)), Request: request}, nil
}

// readToken reads the answer of a token server as containerd does.
func readToken(document []byte) ([]string, bool) {
	token, err := auth.FetchToken(context.Background(), &http.Client{Transport: server(document)}, nil, auth.TokenOptions{Realm: "http://a.b/"})
	if err != nil {
		return nil, true
	}
	return []string{token.Token, fmt.Sprint(token.ExpiresInSeconds)}, false
}

var pluginCodecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict)
}()

// readPlugin reads the output of a credential provider. It copies ExecPlugin and decodeResponse of kubelet
// (pkg/credentialprovider/plugin/plugin.go), which are not exported.
func readPlugin(document []byte) (gives []string, refused bool) {
	kind, err := kubejson.DefaultMetaFactory.Interpret(document)
	if err != nil || kind.GroupVersion().String() != "credentialprovider.kubelet.k8s.io/v1" {
		return nil, true
	}
	object, _, err := pluginCodecs.UniversalDecoder().Decode(document, nil, nil)
	response, ok := object.(*pluginapi.CredentialProviderResponse)
	if err != nil || !ok || !slices.Contains([]string{"Image", "Registry", "Global"}, string(response.CacheKeyType)) {
		return nil, true
	}
	for _, key := range slices.Sorted(maps.Keys(response.Auth)) {
		if entry := response.Auth[key]; entry.Username != "" || entry.Password != "" {
			gives = append(gives, key+"="+entry.Username+":"+entry.Password)
		}
	}
	if response.CacheDuration != nil {
		gives = append(gives, response.CacheDuration.Duration.String())
	}
	return gives, false
}

// readImage returns the platforms of the nodes that run an image with this index or manifest. It replaces $amd64, $arm64 and $config by
// the digests of its parts.
func readImage(document []byte, mediaType string) ([]string, bool) {
	content := store{}
	replacements := []string{"$size", "0"}
	for _, architecture := range []string{"amd64", "arm64"} {
		part := content.image(image(linux(architecture, "")))
		replacements = append(replacements, "$"+architecture, part.Digest.String())
	}
	config := content.put(ocispec.MediaTypeImageConfig, linux("arm64", ""))
	replacements = append(replacements, "$config", config.Digest.String())
	text := strings.NewReplacer(replacements...).Replace(string(document))
	return content.nodes(content.putText(mediaType, []byte(text))), false
}

// readImagePlatform returns the platforms of the nodes that run an image with this config.
func readImagePlatform(document []byte) ([]string, bool) {
	content := store{}
	config := content.putText(ocispec.MediaTypeImageConfig, document)
	manifest := map[string]any{"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest, "config": config, "layers": []any{}}
	// The index has no platforms, so the platform of the config counts.
	part := content.put(ocispec.MediaTypeImageManifest, manifest)
	index := content.put(ocispec.MediaTypeImageIndex, map[string]any{
		"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageIndex, "manifests": []any{part},
	})
	return content.nodes(index), false
}

// encoded returns the value of a member as JSON.
func encoded(value any) string {
	switch value := value.(type) {
	case []member:
		var parts []string
		for _, m := range value {
			parts = append(parts, jsonString(m.name)+":"+encoded(m.value))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case [][]member:
		var parts []string
		for _, object := range value {
			parts = append(parts, encoded(object))
		}
		return "[" + strings.Join(parts, ",") + "]"
	default:
		return value.(string)
	}
}

// recased returns a name in a random case. It does not change the name of a registry, which is the key of a map.
func recased(r *rand.Rand, name string) string {
	if name == "" || strings.Contains(name, ".") {
		return name
	}
	switch r.IntN(6) {
	case 0:
		return strings.ToUpper(name)
	case 1:
		return strings.ToUpper(name[:1]) + name[1:]
	case 2:
		return strings.ToLower(name)
	case 3:
		return strings.NewReplacer("s", "\u017f", "k", "\u212a").Replace(name)
	case 4:
		letters := []byte(name)
		i := r.IntN(len(letters))
		letters[i] = bytes.ToUpper(letters[i : i+1])[0]
		return string(letters)
	default:
		return name
	}
}

// changed returns the members with some of them in another case, doubled, replaced or removed, with unknown members, and in another order.
func changed(r *rand.Rand, members []member, percent int) []member {
	var all []member
	other := func() any {
		return pick[any](r, "null", "null", `""`, `"x"`, "1", "true", "[]", "{}", "1.0", `{"x":[{}]}`, `["x"]`, `"\ud800"`)
	}
	for _, m := range members {
		switch value := m.value.(type) {
		case []member:
			m.value = changed(r, value, percent)
		case [][]member:
			entries := make([][]member, len(value))
			for i, entry := range value {
				entries[i] = changed(r, entry, percent/2)
			}
			m.value = entries
		}
		if chance(r, percent) {
			m.name = recased(r, m.name)
		}
		if chance(r, percent/3) {
			duplicate := member{recased(r, m.name), pick[any](r, m.value, m.value, `"y"`, other())}
			if value, ok := m.value.([]member); ok && chance(r, 50) {
				duplicate.value = changed(r, value, percent)
			}
			all = append(all, duplicate)
		}
		if chance(r, percent/16) {
			m.value = other()
		}
		if chance(r, percent/12) {
			continue
		}
		all = append(all, m)
		if chance(r, percent/4) {
			all = append(all, member{recased(r, m.name), pick[any](r, m.value, "null", `"y"`)})
		}
		if chance(r, percent/8) {
			all = append(all, member{pick(r, "more", "Auth ", "x", "", "\u00e4", "password2", "fslayers", "os"), other()})
		}
	}
	if chance(r, percent/4) {
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	return all
}

// broken returns a damaged document, which may still be JSON.
func broken(r *rand.Rand, document string) string {
	cut := r.IntN(len(document) + 1)
	switch r.IntN(12) {
	case 0:
		return "\ufeff" + document
	case 1:
		return document + pick(r, "x", "{}", "\n", "\x00", " \t\r\n", ",")
	case 2:
		return document[:cut]
	case 3:
		return document[:cut] + "\xff" + document[cut:]
	case 4:
		return strings.Replace(document, "{", `{"deep":`+strings.Repeat("[", 300)+strings.Repeat("]", 300)+",", 1)
	case 5:
		return strings.ReplaceAll(document, ":", " :\r\n\t")
	case 6:
		return document[:cut] + pick(r, `\ud83d`, `\u0041`, `\`, "\t", "\x01") + document[cut:]
	case 7:
		return strings.Replace(document, "a", `\u0061`, 1)
	case 8:
		return "{}" + document
	case 9:
		return pick(r, "null", "", " ", "[]", `""`, "{}", "{", "1")
	default:
		return document
	}
}

// hasTwoLists returns whether an index has its list more than once, in any case.
func hasTwoLists(document string) bool {
	return strings.Count(strings.ToLower(strings.ReplaceAll(document, "\u017f", "s")), `"manifests"`) > 1
}

func documents(r *rand.Rand, random int) []Document {
	kinds := documentKinds()
	var cases []Document
	add := func(kind, document string) {
		gives, refused := kinds[kind].read([]byte(document))
		cases = append(cases, Document{
			Kind: kind, JSON: base64.StdEncoding.EncodeToString([]byte(document)),
			Gives: gives, Refused: refused, Mixed: hasTwoLists(document),
		})
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		usual := kinds[kind].usual
		add(kind, encoded(usual))
		for range cmp.Or(random/4, 1) {
			document := encoded(changed(r, usual, pick(r, 10, 25, 50, 80)))
			if chance(r, 15) {
				document = broken(r, document)
			}
			add(kind, document)
		}
	}
	return cases
}
