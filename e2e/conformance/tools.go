package main

import (
	"github.com/containerd/containerd/v2/core/images"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const artifact = "application/vnd.example"

// artifact returns the entry as an artifact of this type instead of an image, as tools for artifacts write it. Its config is empty, and
// the index names the type as well.
func (e Entry) artifact(kind string) Entry {
	if e.Entries == nil {
		e.ConfigType, e.ArtifactType = ocispec.MediaTypeEmptyJSON, kind
	}
	return e.with("artifactType", kind)
}

// indexesOfTools returns indexes as the usual tools write them.
func indexesOfTools() []Index {
	amd64, arm64 := image(linux("amd64", "")), image(linux("arm64", ""))
	// go-containerregistry, and so ko and crane, writes the media type of the config, or the artifactType of the manifest
	// (partial.Descriptor in pkg/v1/partial/with.go).
	ggcr := func(e Entry) Entry { return e.with("artifactType", ocispec.MediaTypeImageConfig) }
	docker := func(e Entry) Entry {
		return e.with("artifactType", images.MediaTypeDockerSchema2Config).with("mediaType", images.MediaTypeDockerSchema2Manifest)
	}
	// nydusify adds an image of another type beside the image that it converts. Some versions write no os.features.
	nydus := func(e Entry) Entry {
		e.ArtifactType = "application/vnd.nydus.image.manifest.v1+json"
		return e.with("artifactType", e.ArtifactType)
	}
	remote := func(architecture string) Entry {
		platform := linux(architecture, "")
		platform.OSFeatures = []string{"nydus.remoteimage.v1"}
		return nydus(image(platform))
	}
	// soci convert adds an entry for each platform after the images.
	soci := func(e Entry) Entry {
		e.ConfigType = "application/vnd.amazon.soci.index.v2+json"
		return e.with("artifactType", e.ConfigType).with("annotations", map[string]string{"com.amazon.soci.image-manifest-digest": sha256})
	}
	// podman adds an image for each further compression (containers/common, manifests). Older nodes must choose the first of a pair.
	zstd := func(e Entry) Entry {
		return e.with("annotations", map[string]string{"io.github.containers.compression.zstd": "true"})
	}
	// BuildKit marks an attestation with this annotation. These entries differ from images only by the annotation.
	annotatedAsAttestation := func(e Entry) Entry {
		return e.with("annotations", map[string]string{"vnd.docker.reference.type": "attestation-manifest"})
	}
	unknown := Platform{OS: "unknown", Architecture: "unknown"}
	signature := "application/vnd.dev.sigstore.bundle.v0.3+json"
	withType := func(e Entry) Entry { e.ArtifactType = artifact; return e }
	return []Index{
		index(ggcr(amd64), ggcr(arm64)), index(docker(amd64), docker(arm64)), index(ggcr(amd64.bare()), ggcr(arm64)), index(ggcr(amd64)),
		index(ggcr(amd64), ggcr(attestation()), ggcr(arm64), ggcr(attestation())), index(nested(ggcr(amd64), ggcr(arm64))),
		index(ggcr(nested(amd64)), ggcr(arm64)), index(ggcr(image(unknown)), ggcr(amd64)), index(ggcr(amd64.bare()), amd64.bare()),
		index(withType(amd64).with("artifactType", artifact), withType(arm64).with("artifactType", artifact)),
		index(amd64, arm64, remote("amd64"), remote("arm64")), index(remote("amd64"), remote("arm64"), amd64, arm64), index(remote("amd64"), remote("arm64")),
		index(nydus(amd64), nydus(arm64)), index(nydus(amd64), amd64, arm64), index(amd64, nydus(amd64), arm64, nydus(arm64)),
		index(amd64, arm64, soci(amd64), soci(arm64)), index(soci(amd64), soci(arm64), amd64, arm64), index(amd64, soci(arm64)), index(soci(amd64.bare()), arm64),
		index(amd64, zstd(amd64), arm64, zstd(arm64)), index(zstd(amd64), zstd(arm64), amd64, arm64), index(amd64, arm64, zstd(amd64)),
		index(amd64.artifact(artifact), arm64), index(amd64.artifact(artifact), amd64, arm64), index(amd64, amd64.artifact(artifact), arm64),
		index(amd64.bare().artifact(artifact), amd64, arm64), index(amd64.bare().artifact(artifact), arm64.bare()), index(amd64, arm64.bare().artifact(artifact)),
		index(amd64.artifact(artifact), arm64.artifact(artifact)), index(nested(amd64.artifact(artifact)), arm64), index(nested(amd64).artifact(artifact), arm64),
		index(image(unknown).artifact(artifact), amd64, arm64), index(amd64.bare().artifact(signature), arm64.bare().artifact(signature)),
		index(annotatedAsAttestation(amd64), amd64, arm64), index(amd64, annotatedAsAttestation(amd64), arm64), index(annotatedAsAttestation(amd64.bare()), arm64),
		index(annotatedAsAttestation(Entry{Config: &unknown}).with("platform", linux("amd64", "")), amd64, arm64),
		index(Entry{Config: &unknown}.with("platform", linux("amd64", "")).with("artifactType", artifact), amd64, arm64),
		single(amd64.bare()), single(withType(amd64.bare())), single(withType(arm64.bare())), single(amd64.bare().artifact(artifact)),
		single(nydus(amd64.bare())), single(soci(amd64.bare())),
	}
}
