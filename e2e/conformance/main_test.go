package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestCommittedCasesMatchUpstream(t *testing.T) {
	for name, expected := range generate(1, 150) {
		committed, err := os.ReadFile(filepath.Join("cases", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(committed, expected) {
			t.Errorf("cases/%s differs from upstream's answers; `go run .` rewrites it", name)
		}
	}
}
