package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"tolerarch.io/e2e/manifests/chart"
)

// krew's manifest names each archive of a release with its SHA-256. The workflow makes those for macOS, and release/image those for
// Linux.
func TestKrewManifestNamesEveryArchive(t *testing.T) {
	archives := t.TempDir()
	workflow := readFile(t, ".github/workflows/release.yaml")
	for _, platform := range []string{"darwin_amd64", "darwin_arm64"} {
		if !strings.Contains(workflow, "- {name: "+platform+", ") {
			t.Errorf("the workflow makes no archive for %s", platform)
		}
	}
	for _, platform := range []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"} {
		if err := os.WriteFile(filepath.Join(archives, "tolerarch_1.2.3_"+platform+".tar.gz"), []byte("abc"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(filepath.Join(chart.Repository, "release/krew-manifest"), "1.2.3", "https://example.com/a/b", archives).Output()
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []struct {
				Selector    struct{ MatchLabels map[string]string }
				URI, Sha256 string
			}
		}
	}
	if err := yaml.Unmarshal(out, &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Spec.Platforms) != 4 || manifest.Spec.Version != "v1.2.3" {
		t.Fatalf("%s", out)
	}
	for _, p := range manifest.Spec.Platforms {
		labels := p.Selector.MatchLabels
		want := "https://example.com/a/b/releases/download/v1.2.3/tolerarch_1.2.3_" + labels["os"] + "_" + labels["arch"] + ".tar.gz"
		const sha256OfABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
		if p.URI != want || p.Sha256 != sha256OfABC {
			t.Errorf("%+v", p)
		}
	}
}
