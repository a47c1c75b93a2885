// Command platforms prints, for each digest in the directory of a registry, the platforms for which containerd finds an image
// to run. Its output is JSON.
//
//	containerd-platforms DIRECTORY linux/amd64,linux/arm64 sha256:... sha256:...
package main

import (
	"bytes"
	"context"
	_ "crypto/sha256" // digests
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// blobs is the directory of distribution's storage.
type blobs string

type blob struct{ *bytes.Reader }

func (blob) Close() error { return nil }

func (b blobs) read(hash digest.Digest) ([]byte, error) {
	hex := hash.Encoded()
	return os.ReadFile(filepath.Join(string(b), "docker/registry/v2/blobs", hash.Algorithm().String(), hex[:2], hex, "data"))
}

func (b blobs) ReaderAt(_ context.Context, descriptor ocispec.Descriptor) (content.ReaderAt, error) {
	text, err := b.read(descriptor.Digest)
	if err != nil {
		return nil, err
	}
	return blob{bytes.NewReader(text)}, nil
}

// descriptor returns the descriptor of a manifest as the registry has it, with the manifest's own media type.
func (b blobs) descriptor(hash digest.Digest) (ocispec.Descriptor, error) {
	text, err := b.read(hash)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var own struct {
		MediaType string `json:"mediaType"`
	}
	err = json.Unmarshal(text, &own)
	return ocispec.Descriptor{MediaType: own.MediaType, Digest: hash, Size: int64(len(text))}, err
}

// runs returns whether a node pulls an image that is for its platform.
func (b blobs) runs(image ocispec.Descriptor, node platforms.Platform) bool {
	ctx, matcher := context.Background(), platforms.Only(node)
	manifest, err := images.Manifest(ctx, b, image, matcher)
	if err != nil {
		return false
	}
	platform, err := images.ConfigPlatform(ctx, b, manifest.Config)
	return err == nil && matcher.Match(platform)
}

func run(directory, nodes string, digests []string) (map[string][]string, error) {
	found := map[string][]string{}
	for _, text := range digests {
		hash, err := digest.Parse(text)
		if err != nil {
			return nil, err
		}
		image, err := blobs(directory).descriptor(hash)
		if err != nil {
			return nil, err
		}
		found[text] = []string{}
		for _, name := range strings.Split(nodes, ",") {
			node, err := platforms.Parse(name)
			if err != nil {
				return nil, err
			}
			if blobs(directory).runs(image, node) {
				found[text] = append(found[text], name)
			}
		}
	}
	return found, nil
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: containerd-platforms DIRECTORY NODES DIGEST...")
		os.Exit(2)
	}
	found, err := run(os.Args[1], os.Args[2], os.Args[3:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
