// Command platforms prints as JSON, for each digest, those of the given platforms for which containerd finds an image. The images are in
// the directory in which distribution stores a registry.
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

// blobs is the root directory of distribution's storage.
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

// descriptor returns the descriptor of a manifest, with the media type that the manifest itself names.
func (b blobs) descriptor(hash digest.Digest) (ocispec.Descriptor, error) {
	text, err := b.read(hash)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var manifest struct {
		MediaType string `json:"mediaType"`
	}
	err = json.Unmarshal(text, &manifest)
	return ocispec.Descriptor{MediaType: manifest.MediaType, Digest: hash, Size: int64(len(text))}, err
}

// runs returns whether a node of this platform finds an image to run.
func (b blobs) runs(image ocispec.Descriptor, node platforms.Platform) bool {
	ctx, matcher := context.Background(), platforms.Only(node)
	manifest, err := images.Manifest(ctx, b, image, matcher)
	if err != nil {
		return false
	}
	platform, err := images.ConfigPlatform(ctx, b, manifest.Config)
	return err == nil && matcher.Match(platform)
}

// run returns by each digest the platforms in nodes that find an image to run.
func run(directory, nodes string, digests []string) (map[string][]string, error) {
	runnable := map[string][]string{}
	for _, text := range digests {
		hash, err := digest.Parse(text)
		if err != nil {
			return nil, err
		}
		image, err := blobs(directory).descriptor(hash)
		if err != nil {
			return nil, err
		}
		runnable[text] = []string{}
		for _, name := range strings.Split(nodes, ",") {
			node, err := platforms.Parse(name)
			if err != nil {
				return nil, err
			}
			if blobs(directory).runs(image, node) {
				runnable[text] = append(runnable[text], name)
			}
		}
	}
	return runnable, nil
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: containerd-platforms DIRECTORY NODES DIGEST...")
		os.Exit(2)
	}
	runnable, err := run(os.Args[1], os.Args[2], os.Args[3:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(runnable)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
