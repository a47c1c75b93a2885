// Package chart renders the Helm chart with the real helm, and generates files from it.
package chart

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// Repository is the root of this repository.
var Repository = func() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../..")
}()

// Directory is the path of the chart in the repository.
const Directory = "manifests/helm/tolerarch"

// helm returns the path of helm: $HELM if it is set, or else a build of the version in go.mod.
var helm = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("HELM"); path != "" {
		return path, nil
	}
	command := exec.Command("go", "tool", "-n", "helm")
	command.Dir = filepath.Join(Repository, "e2e/manifests")
	out, err := output(command)
	return strings.TrimSpace(out), err
})

// Template renders the chart with `helm template`.
func Template(release, namespace string, arguments ...string) (string, error) {
	return TemplateChart(filepath.Join(Repository, Directory), release, namespace, arguments...)
}

// TemplateChart renders the chart in a directory with `helm template`.
func TemplateChart(directory, release, namespace string, arguments ...string) (string, error) {
	// A helm from `go install` assumes a cluster of version 1.20.
	return run(append([]string{"template", release, directory, "--namespace", namespace, "--kube-version", "1.37.0"}, arguments...))
}

// Lint runs `helm lint` on the chart. Warnings count as errors.
func Lint(arguments ...string) error {
	_, err := run(append([]string{"lint", "--strict", "--kube-version", "1.37.0", filepath.Join(Repository, Directory)}, arguments...))
	return err
}

// run runs helm, and returns its standard output.
func run(arguments []string) (string, error) {
	program, err := helm()
	if err != nil {
		return "", err
	}
	return output(exec.Command(program, arguments...))
}

// output returns the standard output of a command. Its error contains all output.
func output(command *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%v: %w: %s%s", command.Args, err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

// Documents splits a rendering into the documents of the chart's own templates.
func Documents(rendering string) []Document {
	var documents []Document
	for _, text := range strings.Split("\n"+rendering, "\n---\n") {
		text = strings.TrimSpace(text)
		source, body, _ := strings.Cut(text, "\n")
		template, ok := strings.CutPrefix(source, "# Source: tolerarch/templates/")
		if ok && strings.TrimSpace(body) != "" {
			documents = append(documents, Document{Template: template, Text: strings.TrimSpace(body) + "\n"})
		}
	}
	return documents
}

// Document is one object of a rendering, with the comments around it.
type Document struct{ Template, Text string }
