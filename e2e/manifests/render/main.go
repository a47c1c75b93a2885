// Command render generates files from the chart: the files for kustomize in manifests/, the chart's schema and table of values, and
// the expected renderings of the tests.
//
//	cd e2e/manifests && go run ./render
//
// With -check it writes nothing, and fails if a file is out of date.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"tolerarch.io/e2e/manifests/chart"
)

func main() {
	check := flag.Bool("check", false, "write nothing, and fail if something is out of date")
	flag.Parse()
	if err := render(*check); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

// render prints the paths of outdated files, and writes these files unless check is set.
func render(check bool) error {
	outdated := 0
	for _, generate := range chart.Generators {
		stale, err := chart.Stale(generate)
		if err != nil {
			return err
		}
		outdated += len(stale)
		for path, text := range stale {
			fmt.Println(path)
			if check {
				continue
			}
			file := filepath.Join(chart.Repository, path)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	if check && outdated > 0 {
		return fmt.Errorf("%d files are out of date: cd e2e/manifests && go run ./render", outdated)
	}
	return nil
}
