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
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider"
	"k8s.io/kubelet/pkg/apis/credentialprovider/install"
	"k8s.io/kubernetes/pkg/credentialprovider"
)

// A Document is JSON with members that are capitalized, doubled, null, unknown or of wrong types. It has the result of the Go
// program that reads it on a node or beside Docker.
type Document struct {
	Kind string `json:"kind"`
	// In base64, as it may not be UTF-8.
	JSON string `json:"json"`
	// Whether the reader refuses it.
	Refused bool `json:"refused,omitempty"`
	// Its result: credentials, a token, or the nodes on which an image runs.
	Gives []string `json:"gives,omitempty"`
	// Whether it has the list of an index twice. Go mixes the entries of both.
	Mixed bool `json:"mixed,omitempty"`
}

// member is a member of an object. Its value is JSON text, or more members.
type member struct {
	name  string
	value any
}

type readDocument func(document []byte) (gives []string, refused bool)

// documentKinds returns the kinds of documents: for each a usual one, and its reader.
func documentKinds() map[string]struct {
	usual []member
	read  readDocument
} {
	basic := func(plain string) string { return text(base64.StdEncoding.EncodeToString([]byte(plain))) }
	entry := []member{{"username", `"u"`}, {"password", `"p"`}, {"email", `"e"`}}
	descriptor := func(place, mediaType, architecture string) []member {
		return []member{
			{"mediaType", text(mediaType)}, {"digest", text(place)}, {"size", "$size"},
			{"platform", []member{{"architecture", text(architecture)}, {"os", `"linux"`}}},
		}
	}
	type kind = struct {
		usual []member
		read  readDocument
	}
	return map[string]kind{
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
			{"schemaVersion", "2"}, {"mediaType", text(ocispec.MediaTypeImageIndex)},
			{"manifests", [][]member{
				descriptor("$amd64", ocispec.MediaTypeImageManifest, "amd64"),
				descriptor("$arm64", ocispec.MediaTypeImageManifest, "arm64"),
			}},
		}, func(document []byte) ([]string, bool) { return readImage(document, ocispec.MediaTypeImageIndex) }},
		"manifest": {[]member{
			{"schemaVersion", "2"}, {"mediaType", text(ocispec.MediaTypeImageManifest)},
			{"config", []member{{"mediaType", text(ocispec.MediaTypeImageConfig)}, {"digest", `"$config"`}, {"size", "$size"}}},
			{"layers", "[]"},
		}, func(document []byte) ([]string, bool) { return readImage(document, ocispec.MediaTypeImageManifest) }},
		"platform": {[]member{{"architecture", `"arm64"`}, {"os", `"linux"`}, {"variant", `"v8"`}}, readImagePlatform},
	}
}

func readConfig(document []byte) ([]string, bool) {
	var config credentialprovider.DockerConfigJSON
	if json.Unmarshal(document, &config) != nil {
		return nil, true
	}
	return ring(config.Auths), false
}

func readOlderConfig(document []byte) ([]string, bool) {
	config, err := credentialprovider.ReadDockerConfigFileFromBytes(document)
	return ring(config), err != nil
}

func ring(auths credentialprovider.DockerConfig) (found []string) {
	var keyring credentialprovider.BasicDockerKeyring
	for _, key := range sorted(auths) {
		keyring.Add(nil, credentialprovider.DockerConfig{key: auths[key]})
	}
	credentials, _ := keyring.Lookup("quay.io/team/app")
	for _, one := range credentials {
		if one.Username != "" || one.Password != "" {
			found = append(found, one.Username+":"+one.Password)
		}
	}
	return found
}

// readDocker returns the members that only Docker reads.
func readDocker(document []byte) (found []string, refused bool) {
	config := configfile.New("")
	// Kubelet, and not Docker, refuses data after the first value.
	if !json.Valid(document) || config.LoadFromReader(bytes.NewReader(document)) != nil {
		return nil, true
	}
	entry := config.AuthConfigs["quay.io"]
	found = append(found, "registrytoken="+entry.RegistryToken, "identitytoken="+entry.IdentityToken, "credsStore="+config.CredentialsStore)
	for _, host := range slices.Sorted(maps.Keys(config.CredentialHelpers)) {
		found = append(found, host+"="+config.CredentialHelpers[host])
	}
	return found, false
}

// program is a credential helper with this output.
type program []byte

func (p program) Output() ([]byte, error) { return p, nil }
func (program) Input(io.Reader)           {}

func readHelper(document []byte) ([]string, bool) {
	found, err := client.Get(func(...string) client.Program { return program(document) }, "quay.io")
	if err != nil {
		return nil, true
	}
	return []string{found.Username + ":" + found.Secret}, false
}

// server is a token server with this answer.
type server []byte

func (s server) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(bytes.NewReader(s)), Request: request}, nil
}

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

// readPlugin is a copy of `ExecPlugin` and `decodeResponse` of kubelet (pkg/credentialprovider/plugin/plugin.go), which cannot
// be called from here.
func readPlugin(document []byte) (found []string, refused bool) {
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
		if one := response.Auth[key]; one.Username != "" || one.Password != "" {
			found = append(found, key+"="+one.Username+":"+one.Password)
		}
	}
	if response.CacheDuration != nil {
		found = append(found, response.CacheDuration.Duration.String())
	}
	return found, false
}

func (s store) raw(mediaType string, text []byte) ocispec.Descriptor {
	hash := digest.FromBytes(text)
	s[hash] = text
	return ocispec.Descriptor{MediaType: mediaType, Digest: hash, Size: int64(len(text))}
}

// readImage returns the nodes that run an image with this index or manifest. The digests of its parts are filled in first.
func readImage(document []byte, mediaType string) ([]string, bool) {
	content := store{}
	replace := []string{"$size", "0"}
	for _, architecture := range []string{"amd64", "arm64"} {
		part := content.image(image(linux(architecture, "")))
		replace = append(replace, "$"+architecture, part.Digest.String())
	}
	config := content.put(ocispec.MediaTypeImageConfig, linux("arm64", ""))
	replace = append(replace, "$config", config.Digest.String())
	whole := strings.NewReplacer(replace...).Replace(string(document))
	return content.nodes(content.raw(mediaType, []byte(whole))), false
}

// readImagePlatform returns the nodes that run an image with this config.
func readImagePlatform(document []byte) ([]string, bool) {
	content := store{}
	config := content.raw(ocispec.MediaTypeImageConfig, document)
	manifest := map[string]any{"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest, "config": config, "layers": []any{}}
	// The index has no platforms, so that the platform of the config counts.
	part := content.put(ocispec.MediaTypeImageManifest, manifest)
	index := content.put(ocispec.MediaTypeImageIndex, map[string]any{
		"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageIndex, "manifests": []any{part},
	})
	return content.nodes(index), false
}

// write returns a value as JSON.
func write(value any) string {
	switch value := value.(type) {
	case []member:
		var parts []string
		for _, one := range value {
			parts = append(parts, text(one.name)+":"+write(one.value))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case [][]member:
		var parts []string
		for _, one := range value {
			parts = append(parts, write(one))
		}
		return "[" + strings.Join(parts, ",") + "]"
	default:
		return value.(string)
	}
}

// recased returns a name in another case. The name of a registry stays, as it is the key of a map.
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
		place := r.IntN(len(letters))
		letters[place] = bytes.ToUpper(letters[place : place+1])[0]
		return string(letters)
	default:
		return name
	}
}

// changed returns the members with some of them in another case, doubled, null, of another type, or unknown.
func changed(r *rand.Rand, members []member, percent int) []member {
	var all []member
	other := func() any {
		return one[any](r, "null", "null", `""`, `"x"`, "1", "true", "[]", "{}", "1.0", `{"x":[{}]}`, `["x"]`, `"\ud800"`)
	}
	for _, own := range members {
		switch value := own.value.(type) {
		case []member:
			own.value = changed(r, value, percent)
		case [][]member:
			entries := make([][]member, len(value))
			for place, entry := range value {
				entries[place] = changed(r, entry, percent/2)
			}
			own.value = entries
		}
		if chance(r, percent) {
			own.name = recased(r, own.name)
		}
		if chance(r, percent/3) {
			before := member{recased(r, own.name), one[any](r, own.value, own.value, `"y"`, other())}
			if value, ok := own.value.([]member); ok && chance(r, 50) {
				before.value = changed(r, value, percent)
			}
			all = append(all, before)
		}
		if chance(r, percent/16) {
			own.value = other()
		}
		if chance(r, percent/12) {
			continue
		}
		all = append(all, own)
		if chance(r, percent/4) {
			all = append(all, member{recased(r, own.name), one[any](r, own.value, "null", `"y"`)})
		}
		if chance(r, percent/8) {
			all = append(all, member{one(r, "more", "Auth ", "x", "", "\u00e4", "password2", "fslayers", "os"), other()})
		}
	}
	if chance(r, percent/4) {
		r.Shuffle(len(all), func(one, other int) { all[one], all[other] = all[other], all[one] })
	}
	return all
}

// broken returns a damaged text that may not be JSON any more.
func broken(r *rand.Rand, document string) string {
	cut := r.IntN(len(document) + 1)
	switch r.IntN(12) {
	case 0:
		return "\ufeff" + document
	case 1:
		return document + one(r, "x", "{}", "\n", "\x00", " \t\r\n", ",")
	case 2:
		return document[:cut]
	case 3:
		return document[:cut] + "\xff" + document[cut:]
	case 4:
		return strings.Replace(document, "{", `{"deep":`+strings.Repeat("[", 300)+strings.Repeat("]", 300)+",", 1)
	case 5:
		return strings.ReplaceAll(document, ":", " :\r\n\t")
	case 6:
		return document[:cut] + one(r, `\ud83d`, `\u0041`, `\`, "\t", "\x01") + document[cut:]
	case 7:
		return strings.Replace(document, "a", `\u0061`, 1)
	case 8:
		return "{}" + document
	case 9:
		return one(r, "null", "", " ", "[]", `""`, "{}", "{", "1")
	default:
		return document
	}
}

// hasTwoLists returns whether an index has its list more than once, in upper or lower case.
func hasTwoLists(document string) bool {
	return strings.Count(strings.ToLower(strings.ReplaceAll(document, "\u017f", "s")), `"manifests"`) > 1
}

func documents(r *rand.Rand, random int) []Document {
	all := documentKinds()
	var cases []Document
	add := func(kind, document string) {
		gives, refused := all[kind].read([]byte(document))
		cases = append(cases, Document{
			Kind: kind, JSON: base64.StdEncoding.EncodeToString([]byte(document)),
			Gives: gives, Refused: refused, Mixed: hasTwoLists(document),
		})
	}
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		usual := all[kind].usual
		add(kind, write(usual))
		for range cmp.Or(random/4, 1) {
			document := write(changed(r, usual, one(r, 10, 25, 50, 80)))
			if chance(r, 15) {
				document = broken(r, document)
			}
			add(kind, document)
		}
	}
	return cases
}
