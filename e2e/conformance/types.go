package main

import (
	"github.com/containerd/containerd/v2/core/images"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Types are the media types of a document: in the registry's header, and in the document itself.
type Types struct {
	Announced string `json:"announced"`
	Document  string `json:"document"`
}

// indexesOfAllTypes returns an index and an image with each pair of media types.
func indexesOfAllTypes() []Index {
	amd64, arm64 := image(linux("amd64", "")), image(linux("arm64", ""))
	types := []string{
		ocispec.MediaTypeImageIndex, images.MediaTypeDockerSchema2ManifestList, ocispec.MediaTypeImageManifest,
		images.MediaTypeDockerSchema2Manifest, images.MediaTypeDockerSchema1Manifest, artifact,
	}
	var all []Index
	for _, announced := range types {
		for _, document := range append(types, "") {
			types := Types{Announced: announced, Document: document}
			all = append(all, index(amd64, arm64).withTypes(types), single(amd64.bare()).withTypes(types))
		}
	}
	return all
}
