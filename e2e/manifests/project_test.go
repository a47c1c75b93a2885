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
	command   = regexp.MustCompile("`tolerarch ([^`]+)`")
	ownPage   = regexp.MustCompile(`https://github\.com/tolerarch/tolerarch/blob/main/([^\s)#]+)(?:#([a-z0-9-]+))?`)
	needs     = regexp.MustCompile(`(?i)needs Kubernetes (\d+\.\d+) or later`)
	rustImage = regexp.MustCompile(`\brust:(\d+\.\d+(?:\.\d+)?)-`)
	from      = regexp.MustCompile(`(?m)^FROM (?:--\S+ )?(\S+)`)
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

// Commands and flags in forms, SCOPE and SUPPORT also occur in the documentation. Tests of the program parse the commands there.
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
				t.Errorf("%s: no page has `tolerarch %s`", file, words[0])
			}
			for _, word := range words[1:] {
				if strings.HasPrefix(word, "-") && !strings.Contains(documentation.String(), word) {
					t.Errorf("%s: no page has the flag %s", file, word)
				}
			}
			checked++
		}
	}
	if checked < 10 {
		t.Errorf("%d commands", checked)
	}
}

// Absolute links in forms and in pages on Artifact Hub lead to existing pages and headings of the repository.
func TestAbsoluteLinks(t *testing.T) {
	pages := pages(t)
	files := append(matching(t, ".github/ISSUE_TEMPLATE/*.yml"), ".github/PULL_REQUEST_TEMPLATE.md", chart.Directory+"/Chart.yaml")
	for _, file := range files {
		for _, match := range ownPage.FindAllStringSubmatch(readFile(t, file), -1) {
			text, ok := pages[match[1]]
			if !ok {
				t.Errorf("%s: there is no %s", file, match[1])
			} else if match[2] != "" && !slugs(text)[match[2]] {
				t.Errorf("%s: %s has no heading %s", file, match[1], match[2])
			}
		}
	}
}

// Artifact Hub's annotations name the image that the chart installs, and say whether the version is a prerelease.
func TestArtifactHub(t *testing.T) {
	var metadata struct {
		AppVersion  string
		Annotations map[string]string
	}
	var values struct {
		Image struct{ Registry, Repository string }
	}
	for file, into := range map[string]any{"Chart.yaml": &metadata, "values.yaml": &values} {
		if err := yaml.Unmarshal([]byte(readFile(t, chart.Directory, file)), into); err != nil {
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
	} else if built := "platforms=" + strings.Join(images[0].Platforms, ","); !strings.Contains(readFile(t, "release/image"), built+"\n") {
		t.Errorf("release/image does not have %s", built)
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

// Pages that say which Kubernetes is needed name the oldest that the chart accepts.
func TestOldestKubernetesInPages(t *testing.T) {
	named := 0
	for page, text := range pages(t) {
		for _, match := range needs.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(readFile(t, chart.Directory, "Chart.yaml"), `kubeVersion: ">=`+match[1]+`.0-0"`) {
				t.Errorf("%s names Kubernetes %s", page, match[1])
			}
			named++
		}
	}
	if named < 2 {
		t.Errorf("%d pages", named)
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
		directories := append(update.Directories, update.Directory)
		followed[update.PackageEcosystem] = append(followed[update.PackageEcosystem], slices.DeleteFunc(directories, func(name string) bool { return name == "" })...)
	}
	there := map[string][]string{"github-actions": {"/"}}
	add := func(ecosystem, file string) {
		directory := filepath.Join("/", filepath.Dir(file))
		if !slices.Contains(there[ecosystem], directory) {
			there[ecosystem] = append(there[ecosystem], directory)
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
	for ecosystem, directories := range there {
		slices.Sort(directories)
		slices.Sort(followed[ecosystem])
		if !slices.Equal(directories, followed[ecosystem]) {
			t.Errorf("%s is in %v, and dependabot.yml has %v", ecosystem, directories, followed[ecosystem])
		}
	}
	if len(there) != len(followed) {
		t.Errorf("%v, and dependabot.yml has %v", there, followed)
	}
}

// pullsImages returns whether a Dockerfile names images of a container registry. Stages and images of kind/offline do not count.
func pullsImages(dockerfile string) bool {
	for _, match := range from.FindAllStringSubmatch(dockerfile, -1) {
		if strings.Contains(match[1], ":") {
			return true
		}
	}
	return false
}

// Image and workflows use the toolchain of rust-toolchain.toml.
func TestOneToolchain(t *testing.T) {
	channel := regexp.MustCompile(`(?m)^channel = "(.+)"$`).FindStringSubmatch(readFile(t, "rust-toolchain.toml"))
	if channel == nil {
		t.Fatal("rust-toolchain.toml has no channel")
	}
	named := 0
	for _, file := range append(matching(t, ".github/workflows/*.yaml"), "Dockerfile") {
		for _, match := range rustImage.FindAllStringSubmatch(readFile(t, file), -1) {
			if match[1] != channel[1] && !strings.HasPrefix(channel[1], match[1]+".") {
				t.Errorf("%s has Rust %s, not %s", file, match[1], channel[1])
			}
			named++
		}
	}
	if named < 3 {
		t.Errorf("%d images", named)
	}
}
