package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// An Index is the index of an image, or a single image, with the platforms of the nodes that run it in their own architecture.
type Index struct {
	Entries []Entry `json:"entries"`
	// Whether the only entry is an image without an index.
	Single bool `json:"single,omitempty"`
	// Media types, if they are not the usual ones.
	Types *Types `json:"types,omitempty"`
	// Platforms of nodes.
	Runs []string `json:"runs"`
}

// An Entry is a single image, or a nested index if it has entries.
type Entry struct {
	// Members of its descriptor, apart from the digest, the size and the usual media type.
	Descriptor map[string]any `json:"descriptor,omitempty"`
	// Platform in the image's config. If absent, the config has the platform of the descriptor.
	Config *Platform `json:"config,omitempty"`
	// Media type of its config, if it is not the config of an image.
	ConfigType string `json:"configType,omitempty"`
	// Artifact type in its manifest.
	ArtifactType string  `json:"artifactType,omitempty"`
	Entries      []Entry `json:"entries,omitzero"`
}

// A Platform is a platform in a descriptor or a config.
type Platform struct {
	OS           string   `json:"os"`
	Architecture string   `json:"architecture"`
	Variant      string   `json:"variant,omitempty"`
	OSVersion    string   `json:"os.version,omitempty"`
	OSFeatures   []string `json:"os.features,omitempty"`
}

// nodePlatforms are the platforms of nodes that tolerarch supports, by containerd's names.
var nodePlatforms = []string{
	"linux/amd64", "linux/arm64/v8", "linux/arm/v5", "linux/arm/v6", "linux/arm/v7", "linux/386", "linux/loong64", "linux/mips64le",
	"linux/ppc64le", "linux/riscv64", "linux/s390x", "linux/mips64",
}

// A store contains documents by their digests.
type store map[digest.Digest][]byte

type blob struct{ *bytes.Reader }

func (blob) Close() error { return nil }

func (s store) ReaderAt(_ context.Context, descriptor ocispec.Descriptor) (content.ReaderAt, error) {
	text, ok := s[descriptor.Digest]
	if !ok {
		return nil, errdefs.ErrNotFound
	}
	return blob{bytes.NewReader(text)}, nil
}

// put adds a document as JSON.
func (s store) put(mediaType string, document any) ocispec.Descriptor {
	text, err := json.Marshal(document)
	must(err)
	return s.putText(mediaType, text)
}

// putText adds a document.
func (s store) putText(mediaType string, text []byte) ocispec.Descriptor {
	hash := digest.FromBytes(text)
	s[hash] = text
	return ocispec.Descriptor{MediaType: mediaType, Digest: hash, Size: int64(len(text))}
}

// image adds the documents of an entry.
func (s store) image(entry Entry) ocispec.Descriptor {
	if entry.Entries != nil {
		return s.index(entry.Entries)
	}
	platform := entry.Descriptor["platform"]
	if entry.Config != nil {
		platform = entry.Config
	}
	config := s.put(cmp.Or(entry.ConfigType, ocispec.MediaTypeImageConfig), platform)
	manifest := map[string]any{
		"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest, "config": config, "layers": []any{},
	}
	if entry.ArtifactType != "" {
		manifest["artifactType"] = entry.ArtifactType
	}
	return s.put(ocispec.MediaTypeImageManifest, manifest)
}

// index adds an index with these entries.
func (s store) index(entries []Entry) ocispec.Descriptor {
	manifests := []any{}
	for _, entry := range entries {
		descriptor := s.image(entry)
		members := map[string]any{"mediaType": descriptor.MediaType, "digest": descriptor.Digest, "size": descriptor.Size}
		maps.Copy(members, entry.Descriptor)
		manifests = append(manifests, members)
	}
	return s.put(ocispec.MediaTypeImageIndex, map[string]any{
		"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageIndex, "manifests": manifests,
	})
}

// runs returns whether a node runs the image in its own architecture. containerd on amd64 also accepts 386, and on arm64 also arm, but
// these do not count here.
func (s store) runs(image ocispec.Descriptor, node platforms.Platform) bool {
	ctx, matcher := context.Background(), platforms.Only(node)
	pulled := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(s), matcher), matcher, 1)
	if images.Dispatch(ctx, pulled, nil, image) != nil {
		return false
	}
	manifest, err := images.Manifest(ctx, s, image, matcher)
	if err != nil {
		return false
	}
	// client.WithImageConfigLabels and oci.WithImageConfig refuse other configs, so no container can be created.
	if !images.IsConfigType(manifest.Config.MediaType) {
		return false
	}
	platform, err := images.ConfigPlatform(ctx, s, manifest.Config)
	if err != nil {
		return false
	}
	platform = platforms.Normalize(platform)
	return platform.OS == node.OS && platform.Architecture == node.Architecture
}

// index returns a case for an index with these entries.
func index(entries ...Entry) Index {
	result := Index{Entries: append([]Entry{}, entries...)}
	content := store{}
	result.Runs = content.nodes(content.index(entries))
	return result
}

// single returns a case for an image without an index.
func single(entry Entry) Index {
	content := store{}
	return Index{Entries: []Entry{entry}, Single: true, Runs: content.nodes(content.image(entry))}
}

// withTypes returns the case with other media types of its document.
func (i Index) withTypes(types Types) Index {
	content := store{}
	descriptor := content.index(i.Entries)
	if i.Single {
		descriptor = content.image(i.Entries[0])
	}
	var document map[string]any
	must(json.Unmarshal(content[descriptor.Digest], &document))
	document["mediaType"] = types.Document
	descriptor = content.put(types.Announced, document)
	return Index{Entries: i.Entries, Single: i.Single, Types: &types, Runs: content.nodes(descriptor)}
}

// nodes returns the platforms of the nodes that run the image.
func (s store) nodes(image ocispec.Descriptor) []string {
	names := []string{}
	for _, name := range nodePlatforms {
		if s.runs(image, platforms.MustParse(name)) {
			names = append(names, name)
		}
	}
	return names
}

// image returns an entry with this platform in its descriptor.
func image(platform Platform) Entry {
	return Entry{Descriptor: map[string]any{"platform": platform}}
}

func linux(architecture, variant string) Platform {
	return Platform{OS: "linux", Architecture: architecture, Variant: variant}
}

// bare returns the entry without its descriptor's members. The platform of an image is then in its config.
func (e Entry) bare() Entry {
	if platform, ok := e.Descriptor["platform"].(Platform); ok && e.Entries == nil {
		return Entry{Config: &platform, ConfigType: e.ConfigType, ArtifactType: e.ArtifactType}
	}
	return Entry{Entries: e.Entries}
}

// with returns the entry with a member of its descriptor added or replaced.
func (e Entry) with(key string, value any) Entry {
	descriptor := maps.Clone(e.Descriptor)
	if descriptor == nil {
		descriptor = map[string]any{}
	}
	descriptor[key] = value
	e.Descriptor = descriptor
	return e
}

// withPlatform returns the image with another platform in its descriptor than in its config.
func (e Entry) withPlatform(platform any) Entry {
	return e.bare().with("platform", platform)
}

// nested returns an index as an entry.
func nested(entries ...Entry) Entry {
	return Entry{Entries: append([]Entry{}, entries...)}
}

// attestation returns BuildKit's attestation.
func attestation() Entry {
	return image(Platform{OS: "unknown", Architecture: "unknown"}).with("annotations", map[string]string{
		"vnd.docker.reference.type": "attestation-manifest",
	})
}

func indexes(r *rand.Rand, random int) []Index {
	amd64, arm64 := image(linux("amd64", "")), image(linux("arm64", ""))
	features := func(platform Platform, features ...string) Entry {
		platform.OSFeatures = features
		return image(platform)
	}
	cases := []Index{
		index(amd64, arm64), index(arm64, amd64), index(amd64), index(), index(amd64, attestation(), arm64, attestation()),
		index(attestation()), index(amd64, amd64), index(amd64.bare()), index(arm64.bare()), index(amd64.bare(), arm64.bare()),
		index(arm64.bare(), amd64.bare()), index(amd64.bare(), arm64), index(arm64, amd64.bare()), index(amd64.bare(), amd64, arm64),
		index(arm64.bare(), amd64, arm64), index(nested(amd64), nested(arm64)), index(nested(amd64, arm64)),
		index(nested(amd64), amd64, arm64), index(amd64, nested(arm64)), index(amd64, nested(amd64, arm64)),
		index(nested(amd64, arm64), amd64), index(nested(nested(amd64, arm64))), index(nested(nested(amd64)), arm64),
		index(nested(arm64).with("platform", linux("amd64", "")), amd64, arm64),
		index(nested(amd64).with("platform", linux("amd64", "")), nested(arm64).with("platform", linux("arm64", ""))),
		index(nested(amd64).with("platform", linux("amd64", "")), amd64, arm64),
		index(nested(amd64, arm64).with("platform", linux("arm64", "")), amd64),
		index(nested().with("platform", linux("amd64", "")), amd64, arm64), index(nested(), amd64, arm64), index(amd64, arm64, nested()),
		index(nested(), amd64.bare()), index(amd64.bare(), nested()),
		index(nested(amd64.bare(), arm64.bare()), arm64), index(nested(nested(amd64).with("platform", linux("amd64", "")), arm64)),
		index(features(linux("amd64", ""), "erofs"), arm64), index(features(linux("amd64", ""), "erofs"), amd64, arm64),
		index(amd64, features(linux("amd64", ""), "erofs"), arm64), index(features(linux("amd64", ""), ""), arm64),
		index(features(linux("amd64", ""), "erofs").bare(), arm64), index(nested(amd64, arm64).with("platform", map[string]any{
			"os": "linux", "architecture": "amd64", "os.features": []string{"erofs"},
		})),
		index(image(Platform{OS: "linux", Architecture: "amd64", OSVersion: "1.2"}), arm64),
		index(image(Platform{OS: "Linux", Architecture: "AMD64"}), image(Platform{OS: "LINUX", Architecture: "Arm64", Variant: "V8"})),
		index(image(linux("amd64", "v1")), image(linux("arm64", "v8"))), index(image(linux("amd64", "v2")), image(linux("arm64", "v9"))),
		index(image(linux("amd64", "v2")), amd64, image(linux("arm64", "v8.1")), arm64), index(image(linux("amd64", "V1"))),
		index(image(linux("arm64", "8")), image(linux("amd64", "1"))), index(image(linux("arm64", "v8.0"))), index(image(linux("arm64", "v8.2"))),
		index(image(linux("aarch64", "")), image(linux("x86_64", ""))), index(image(linux("x86-64", "v1")), image(linux("aarch64", "v8"))),
		index(image(linux("386", "")), amd64), index(image(linux("386", "")), arm64), index(image(linux("i386", ""))),
		index(image(linux("arm", "v7")), arm64), index(image(linux("arm", "v7")), image(linux("arm", "v6"))), index(image(linux("arm", "v8")), amd64),
		index(image(linux("arm", "v6")), image(linux("arm", "v7"))), index(image(linux("arm", ""))), index(image(linux("arm", "v5"))),
		index(image(linux("armhf", "")), image(linux("armel", ""))), index(image(linux("arm", "6"))), index(image(linux("arm", "v6")).bare()),
		index(image(linux("386", "")).bare(), amd64.bare()), index(image(linux("arm", "v7")).bare(), arm64),
		index(amd64.with("artifactType", "application/vnd.example"), arm64), index(amd64.with("artifactType", "application/vnd.example"), amd64, arm64),
		index(amd64.with("artifactType", "")), index(amd64.with("mediaType", "application/vnd.example+json"), arm64),
		index(amd64.with("mediaType", "application/vnd.example+json"), amd64, arm64), index(amd64, amd64.with("mediaType", "application/vnd.example+json")),
		index(amd64.bare().with("mediaType", "application/vnd.example+json"), arm64), index(amd64.bare().with("mediaType", "application/vnd.example+json")),
		index(amd64.with("mediaType", ""), arm64), index(amd64.with("mediaType", "application/vnd.docker.distribution.manifest.v2+json"), arm64),
		index(amd64.with("annotations", map[string]string{"vnd.docker.reference.type": "attestation-manifest"}), amd64, arm64),
		index(amd64.with("annotations", map[string]string{"vnd.docker.reference.type": "other"}), arm64),
		index(amd64.withPlatform(nil), arm64), index(arm64.withPlatform(map[string]any{}), amd64), index(amd64.withPlatform(map[string]any{"os": "linux"})),
		index(amd64.withPlatform(map[string]any{"architecture": "amd64"}), arm64),
		index(image(Platform{OS: "windows", Architecture: "amd64", OSVersion: "10.0.20348.1"}), amd64, arm64), index(image(Platform{OS: "windows", Architecture: "amd64"})),
		index(image(Platform{OS: "darwin", Architecture: "arm64"}), amd64), index(image(Platform{OS: "wasip1", Architecture: "wasm"}), amd64, arm64),
		index(image(Platform{OS: "unknown", Architecture: "amd64"}), amd64), index(image(linux("unknown", "")), arm64),
		index(image(Platform{OS: "", Architecture: "amd64"}), arm64), index(image(linux("", ""))), index(image(linux("s390x", "")), image(linux("ppc64le", "")), image(linux("riscv64", ""))),
		index(image(linux("mips64le", "")), image(linux("mips64", "")), image(linux("loong64", "")), image(linux("riscv64", "rva23u64"))),
		index(image(linux("s390x", "z13")), image(linux("ppc64le", "power9"))), index(image(linux("loongarch64", "")), image(linux("mipsel", ""))),
	}
	cases = slices.Concat(cases, indexesOfTools(), indexesOfAllTypes())
	for range random {
		cases = append(cases, index(randomEntries(r, 0)...))
	}
	return cases
}

func randomEntries(r *rand.Rand, depth int) []Entry {
	entries := []Entry{}
	for range 1 + r.IntN(4) {
		entries = append(entries, randomEntry(r, depth))
	}
	return entries
}

func randomEntry(r *rand.Rand, depth int) Entry {
	platform := linux("amd64", "")
	switch {
	case chance(r, 40):
		platform = linux("arm64", pick(r, "", "", "v8", "8", "v8.0", "v8.1", "v9"))
	case chance(r, 30):
		platform = linux(pick(r, "x86_64", "aarch64", "386", "i386", "s390x", "AMD64"), "")
	case chance(r, 30):
		platform = linux("arm", pick(r, "", "v5", "v6", "v7", "v8", "7"))
	case chance(r, 30):
		platform.Variant = pick(r, "v1", "v2", "v3")
	case chance(r, 20):
		platform.OS = pick(r, "windows", "Linux", "", "freebsd")
	}
	if chance(r, 7) {
		platform.OSFeatures = []string{pick(r, "erofs", "sse4", "")}
	}
	if chance(r, 10) {
		return attestation()
	}
	entry := image(platform)
	if depth < 2 && chance(r, 20) {
		entry = nested(randomEntries(r, depth+1)...).with("platform", platform)
	}
	switch {
	case chance(r, 30):
		entry = entry.bare()
	case chance(r, 15):
		entry = entry.with("artifactType", pick(r, artifact, ocispec.MediaTypeImageConfig, images.MediaTypeDockerSchema2Config))
	case chance(r, 7):
		entry = entry.artifact(artifact)
	case chance(r, 5):
		entry = entry.with("mediaType", "application/vnd.example+json")
	}
	return entry
}
