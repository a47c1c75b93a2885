package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"tolerarch.io/e2e/manifests/chart"
)

var (
	command          = regexp.MustCompile("`tolerarch ([^`]+)`")
	repositoryLink   = regexp.MustCompile(`https://github\.com/tolerarch/tolerarch/blob/main/([^\s)#]+)(?:#([a-z0-9-]+))?`)
	neededKubernetes = regexp.MustCompile(`(?i)needs Kubernetes (\d+\.\d+) or later`)
	rustImage        = regexp.MustCompile(`\brust:(\d+\.\d+(?:\.\d+)?)-`)
	fromLine         = regexp.MustCompile(`(?m)^FROM (?:--\S+ )?(\S+)`)
)

// matching returns the paths of the files in the repository that match a pattern.
func matching(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(chart.Repository, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatal(pattern, paths, err)
	}
	var files []string
	for _, path := range paths {
		file, err := filepath.Rel(chart.Repository, path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// The documentation contains every command and flag of the issue forms, SCOPE.md and SUPPORT.md. Tests of the program parse the
// commands in the documentation.
func TestCommandsInFormsExist(t *testing.T) {
	var documentation strings.Builder
	for _, page := range append(matching(t, "docs/*.md"), "README.md") {
		documentation.WriteString(readFile(t, page))
	}
	files := append(matching(t, ".github/ISSUE_TEMPLATE/*.yml"), "SCOPE.md", "SUPPORT.md")
	checked := 0
	for _, file := range files {
		for _, match := range command.FindAllStringSubmatch(readFile(t, file), -1) {
			words := strings.Fields(match[1])
			if !strings.Contains(documentation.String(), "tolerarch "+words[0]) {
				t.Errorf("%s: no page contains `tolerarch %s`", file, words[0])
			}
			for _, word := range words[1:] {
				if strings.HasPrefix(word, "-") && !strings.Contains(documentation.String(), word) {
					t.Errorf("%s: no page contains the flag %s", file, word)
				}
			}
			checked++
		}
	}
	if checked < 10 {
		t.Errorf("only %d commands", checked)
	}
}

// Absolute links to the repository in GitHub's forms and in Chart.yaml lead to existing pages and headings.
func TestAbsoluteLinks(t *testing.T) {
	pages := pages(t)
	files := append(matching(t, ".github/ISSUE_TEMPLATE/*.yml"), ".github/PULL_REQUEST_TEMPLATE.md", chart.Directory+"/Chart.yaml")
	for _, file := range files {
		for _, match := range repositoryLink.FindAllStringSubmatch(readFile(t, file), -1) {
			text, ok := pages[match[1]]
			if !ok {
				t.Errorf("%s: there is no %s", file, match[1])
			} else if match[2] != "" && !slugs(text)[match[2]] {
				t.Errorf("%s: %s has no heading %s", file, match[1], match[2])
			}
		}
	}
}

// The annotations for Artifact Hub name the image that the chart installs, and whether the version is a prerelease.
func TestArtifactHubAnnotationsMatchTheChart(t *testing.T) {
	var metadata struct {
		AppVersion  string
		Annotations map[string]string
	}
	var values struct {
		Image struct{ Registry, Repository string }
	}
	for file, value := range map[string]any{"Chart.yaml": &metadata, "values.yaml": &values} {
		if err := yaml.Unmarshal([]byte(readFile(t, chart.Directory, file)), value); err != nil {
			t.Fatal(err)
		}
	}
	var images []struct {
		Image     string
		Platforms []string
	}
	if err := yaml.Unmarshal([]byte(metadata.Annotations["artifacthub.io/images"]), &images); err != nil {
		t.Fatal(err)
	}
	want := values.Image.Registry + "/" + values.Image.Repository + ":" + metadata.AppVersion
	if len(images) != 1 || images[0].Image != want {
		t.Errorf("%v, not %s", images, want)
	} else if platforms := "platforms=" + strings.Join(images[0].Platforms, ","); !strings.Contains(readFile(t, "release/image"), platforms+"\n") {
		t.Errorf("release/image does not contain %s", platforms)
	}
	prerelease := strconv.FormatBool(strings.Contains(metadata.AppVersion, "-"))
	if got := metadata.Annotations["artifacthub.io/prerelease"]; got != prerelease {
		t.Errorf("prerelease of %s: %q", metadata.AppVersion, got)
	}
	var links []struct{ Name, URL string }
	if err := yaml.Unmarshal([]byte(metadata.Annotations["artifacthub.io/links"]), &links); err != nil || len(links) == 0 {
		t.Error(links, err)
	}
}

// Pages that say which Kubernetes is needed name the oldest version that the chart accepts.
func TestOldestKubernetesInPages(t *testing.T) {
	checked := 0
	for page, text := range pages(t) {
		for _, match := range neededKubernetes.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(readFile(t, chart.Directory, "Chart.yaml"), `kubeVersion: ">=`+match[1]+`.0-0"`) {
				t.Errorf("%s names Kubernetes %s", page, match[1])
			}
			checked++
		}
	}
	if checked < 2 {
		t.Errorf("only %d versions", checked)
	}
}

// Dependabot follows every go.mod, every Cargo workspace, every list of Python packages, and the images of container registries.
func TestDependabotFollowsAllDependencies(t *testing.T) {
	var dependabot struct {
		Updates []struct {
			PackageEcosystem string `json:"package-ecosystem"`
			Directory        string
			Directories      []string
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, ".github/dependabot.yml")), &dependabot); err != nil {
		t.Fatal(err)
	}
	followed := map[string][]string{}
	for _, update := range dependabot.Updates {
		directories := slices.DeleteFunc(append(update.Directories, update.Directory), func(name string) bool { return name == "" })
		followed[update.PackageEcosystem] = append(followed[update.PackageEcosystem], directories...)
	}
	wanted := map[string][]string{"github-actions": {"/"}}
	add := func(ecosystem, file string) {
		directory := filepath.Join("/", filepath.Dir(file))
		if !slices.Contains(wanted[ecosystem], directory) {
			wanted[ecosystem] = append(wanted[ecosystem], directory)
		}
	}
	for _, file := range repositoryFiles(t) {
		switch name := filepath.Base(file); {
		case name == "go.mod":
			add("gomod", file)
		case name == "Cargo.lock":
			add("cargo", file)
		case strings.HasPrefix(name, "requirements") && strings.HasSuffix(name, ".txt"):
			add("pip", file)
		case strings.HasSuffix(name, "Dockerfile") && pullsImages(readFile(t, file)):
			add("docker", file)
		}
	}
	for ecosystem, directories := range wanted {
		slices.Sort(directories)
		slices.Sort(followed[ecosystem])
		if !slices.Equal(directories, followed[ecosystem]) {
			t.Errorf("%s is in %v, and dependabot.yml has %v", ecosystem, directories, followed[ecosystem])
		}
	}
	if len(wanted) != len(followed) {
		t.Errorf("the repository needs %v, and dependabot.yml has %v", wanted, followed)
	}
}

// pullsImages returns whether a Dockerfile names an image with a tag or digest, and so in a registry. Names of stages and of images
// that kind/offline builds have neither.
func pullsImages(dockerfile string) bool {
	for _, match := range fromLine.FindAllStringSubmatch(dockerfile, -1) {
		if strings.Contains(match[1], ":") {
			return true
		}
	}
	return false
}

// The Dockerfile and the workflows use the Rust version of rust-toolchain.toml.
func TestImagesHaveTheRustVersionOfTheToolchain(t *testing.T) {
	channel := regexp.MustCompile(`(?m)^channel = "(.+)"$`).FindStringSubmatch(readFile(t, "rust-toolchain.toml"))
	if channel == nil {
		t.Fatal("rust-toolchain.toml has no channel")
	}
	checked := 0
	for _, file := range append(matching(t, ".github/workflows/*.yaml"), "Dockerfile") {
		for _, match := range rustImage.FindAllStringSubmatch(readFile(t, file), -1) {
			if match[1] != channel[1] && !strings.HasPrefix(channel[1], match[1]+".") {
				t.Errorf("%s has Rust %s, not %s", file, match[1], channel[1])
			}
			checked++
		}
	}
	if checked < 3 {
		t.Errorf("only %d images", checked)
	}
}
