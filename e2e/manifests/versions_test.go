package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tolerarch.io/e2e/manifests/chart"
)

const controlPlane = "e2e/scenarios/controlplane/"

// versionsTable is the table of the README that names the versions on which the scenarios run.
var versionsTable = regexp.MustCompile(`(?m)^\| Kubernetes \| Karpenter \|.*\n(?:\|.*\n)*`)

// The README's table has the versions of the module files from which `.ci/run` and `.ci/full versions` build the control plane and
// Karpenter. `UPDATE=1 go test -run TestVersionsOfReadme .` writes the table.
func TestVersionsOfReadme(t *testing.T) {
	var table strings.Builder
	row := func(kubernetes, karpenter, tested string) {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", kubernetes, karpenter, tested)
	}
	row("Kubernetes", "Karpenter", "tested")
	row("---", "---", "---")
	newestKubernetes := requiredVersion(t, "go.mod", "k8s.io/kubernetes")
	newestKarpenter := requiredVersion(t, "go.mod", "sigs.k8s.io/karpenter")
	row(newestKubernetes, newestKarpenter, "for every change, and before every release")
	olderKarpenter := requiredVersion(t, moduleFiles(t, "karpenter")[0], "sigs.k8s.io/karpenter")
	for _, file := range moduleFiles(t, "kubernetes") {
		row(requiredVersion(t, file, "k8s.io/kubernetes"), olderKarpenter, "before every release")
	}

	readme := readFile(t, "README.md")
	if !versionsTable.MatchString(readme) {
		t.Fatal("the README has no table of versions")
	}
	updated := versionsTable.ReplaceAllLiteralString(readme, table.String())
	if updated == readme {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Fatalf("the README differs from the module files; UPDATE=1 writes:\n%s", table.String())
	}
	if err := os.WriteFile(filepath.Join(chart.Repository, "README.md"), []byte(updated), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The oldest Kubernetes with a module file is the oldest that the chart accepts.
func TestOldestModuleFileMatchesTheChart(t *testing.T) {
	files := moduleFiles(t, "kubernetes")
	oldest := strings.TrimSuffix(strings.TrimPrefix(files[len(files)-1], "kubernetes-"), ".mod")
	if !strings.Contains(readFile(t, "manifests/helm/tolerarch/Chart.yaml"), fmt.Sprintf(`kubeVersion: ">=%s.0-0"`, oldest)) {
		t.Errorf("the oldest Kubernetes that the chart accepts is not that of %s", files[len(files)-1])
	}
}

// moduleFiles returns the names of the module files of older versions, such as kubernetes-1.36.mod, newest first. It reports a file that
// requires another minor version than its name says.
func moduleFiles(t *testing.T, program string) []string {
	paths, err := filepath.Glob(filepath.Join(chart.Repository, controlPlane, program+"-*.mod"))
	if err != nil || len(paths) == 0 {
		t.Fatal(program, paths, err)
	}
	minors := map[string]int{}
	var files []string
	for _, path := range paths {
		file := filepath.Base(path)
		name := strings.TrimSuffix(strings.TrimPrefix(file, program+"-"), ".mod")
		_, minor, _ := strings.Cut(name, ".")
		number, err := strconv.Atoi(minor)
		if err != nil {
			t.Fatal(file, err)
		}
		minors[file] = number
		files = append(files, file)
		module := map[string]string{"kubernetes": "k8s.io/kubernetes", "karpenter": "sigs.k8s.io/karpenter"}[program]
		if version := requiredVersion(t, file, module); !strings.HasPrefix(version, name+".") {
			t.Errorf("%s requires %s %s", file, module, version)
		}
	}
	slices.SortFunc(files, func(a, b string) int { return minors[b] - minors[a] })
	return files
}

// requiredVersion returns the version of a module that a module file requires, without its leading v.
func requiredVersion(t *testing.T, file, module string) string {
	line := regexp.MustCompile(`(?m)^(?:\t|require )` + regexp.QuoteMeta(module) + ` v(\S+)`)
	match := line.FindStringSubmatch(readFile(t, controlPlane+file))
	if match == nil {
		t.Fatalf("%s does not require %s", file, module)
	}
	return match[1]
}
