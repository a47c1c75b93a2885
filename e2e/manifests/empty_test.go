package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"tolerarch.io/e2e/manifests/chart"
)

// everything switches on all that is off by default, so that each template is rendered.
const everything = `
controller: {enabled: true}
tls: {mode: cert-manager}
test: {enabled: true}
podMonitor: {enabled: true}
serviceMonitor: {enabled: true}
prometheusRule: {enabled: true}
dashboards: {enabled: true}
flowSchema: {enabled: true}
pullSecrets: {namespaces: [shop]}
hostMounts: {containerdCertsDir: /etc/containerd/certs.d}
extraCAs: {configMap: company-ca}
config:
  credentials: {pullSecrets: true}
  discover: {nodePools: true}
  cache: {warm: {fromPods: true}}
  controller:
    nodeTaints: [{selector: {kubernetes.io/arch: arm64}, taint: {key: tolerarch.io/multi-arch, effect: NoSchedule}}]
`

// keysOf returns the paths of all keys, sections before their keys.
func keysOf(values map[string]any, below ...string) [][]string {
	var all [][]string
	for key, value := range values {
		path := append(slices.Clone(below), key)
		all = append(all, path)
		if inner, ok := value.(map[string]any); ok {
			all = append(all, keysOf(inner, path...)...)
		}
	}
	return all
}

// keysOfSchema returns the paths of all keys that the schema has.
func keysOfSchema(schema map[string]any, below ...string) [][]string {
	var all [][]string
	properties, _ := schema["properties"].(map[string]any)
	for key, value := range properties {
		path := append(slices.Clone(below), key)
		all = append(append(all, path), keysOfSchema(value.(map[string]any), path...)...)
	}
	return all
}

func document(t *testing.T, file string, read func([]byte, any) error) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart.Repository, chart.Directory, file))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := read(text, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func nested(path []string, value any) map[string]any {
	for _, key := range slices.Backward(path) {
		value = map[string]any{key: value}
	}
	return value.(map[string]any)
}

func valueAt(values any, path []string) any {
	for _, key := range path {
		inner, _ := values.(map[string]any)
		values = inner[key]
	}
	return values
}

func fileOf(t *testing.T, values any) string {
	t.Helper()
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// parentOf makes a parent chart of this one, and returns its directory.
func parentOf(t *testing.T, dependency, values string) string {
	t.Helper()
	parent := t.TempDir()
	if err := os.CopyFS(filepath.Join(parent, "charts/tolerarch"), os.DirFS(filepath.Join(chart.Repository, chart.Directory))); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: parent\nversion: 1.0.0\ndependencies: [{name: tolerarch, version: 0.x" + dependency + "}]\n",
		"values.yaml": values,
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(parent, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return parent
}

// An empty key has its default, or the schema refuses it by its name. This holds for the key alone, with everything switched on,
// and in a parent chart, which is tested only with a helm that HELM names.
func TestEmptyValues(t *testing.T) {
	base := filepath.Join(t.TempDir(), "everything.yaml")
	if err := os.WriteFile(base, []byte(everything), 0o644); err != nil {
		t.Fatal(err)
	}
	plain, err := chart.Template("arm", "platform")
	if err != nil {
		t.Fatal(err)
	}
	defaults := document(t, "values.yaml", yaml.Unmarshal)
	schema := document(t, "values.schema.json", json.Unmarshal)
	known := keysOfSchema(schema)
	paths := append(keysOf(defaults), known...)
	slices.SortFunc(paths, slices.Compare)
	paths = slices.CompactFunc(paths, slices.Equal)
	if len(paths) < 200 {
		t.Fatalf("only %d keys", len(paths))
	}
	parent := parentOf(t, "", "")
	for _, path := range paths {
		t.Run(strings.Join(path, "."), func(t *testing.T) {
			t.Parallel()
			check := func(rendering string, err error) bool {
				if err == nil {
					return true
				}
				text := err.Error()
				if strings.Contains(text, "nil pointer") || strings.Contains(text, "error calling") || !strings.Contains(text, path[len(path)-1]) {
					t.Error(text)
				}
				return false
			}
			fallback := valueAt(defaults, path)
			empties := []any{nil}
			switch fallback.(type) {
			case map[string]any:
				empties = append(empties, map[string]any{})
			case []any:
				empties = append(empties, []any{})
			case string:
				empties = append(empties, "")
			}
			for _, empty := range empties {
				own := fileOf(t, nested(path, empty))
				check(chart.Template("arm", "platform", "--values", base, "--values", own))
				if fallback == nil {
					continue
				}
				alone, err := chart.Template("arm", "platform", "--values", own)
				// For a map of arbitrary keys, null is the only way to remove its defaults.
				_, isMap := fallback.(map[string]any)
				isKnown := slices.ContainsFunc(known, func(one []string) bool { return slices.Equal(one, path) })
				if check(alone, err) && empty == nil && isKnown && !isMap && path[0] != "config" && alone != plain {
					t.Error("null is not the default")
				}
				if os.Getenv("HELM") == "" {
					continue
				}
				below := map[string]any{"tolerarch": nested(path, empty)}
				check(chart.TemplateChart(parent, "arm", "platform", "--values", fileOf(t, below)))
				text, err := yaml.Marshal(below)
				if err != nil {
					t.Fatal(err)
				}
				check(chart.TemplateChart(parentOf(t, "", string(text)), "arm", "platform"))
			}
		})
	}
}

// A section whose keys are all commented out has the defaults, so its policies and rights stay.
func TestEmptySectionsHaveTheirDefaults(t *testing.T) {
	plain, err := chart.Template("arm", "platform")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range []string{"certificates", "image", "networkPolicy", "podDisruptionBudget", "proxy", "serviceAccount", "tls", "webhook", "webhook.excludedNamespaces", "global", "global.imagePullSecrets"} {
		rendering, err := chart.Template("arm", "platform", "--values", fileOf(t, nested(strings.Split(section, "."), nil)))
		without := func(text string) string {
			for _, resources := range []string{"cpu: 5m", "memory: 16Mi", "memory: 64Mi"} {
				text = strings.ReplaceAll(text, resources, "")
			}
			return strings.Join(strings.Fields(text), " ")
		}
		isSame := rendering == plain
		switch section {
		case "certificates", "webhook": // with maps of anything, which are empty then
			isSame = len(without(rendering)) > len(without(plain))*98/100
		}
		if err != nil || !isSame {
			t.Errorf("%s: %v", section, err)
		}
	}
}

// Empty values in a parent chart have their defaults.
func TestEmptyValuesOfAParent(t *testing.T) {
	for _, c := range []struct{ dependency, values string }{
		{"", "tolerarch:\n"},
		{"", "tolerarch: {}\n"},
		{"", "global:\n"},
		{"", "global: {imageRegistry: null, imagePullSecrets: null}\n"},
		{"", "global: {}\ntags: {}\n"},
		{", condition: tolerarch.enabled", "tolerarch: {enabled: null}\n"},
		{", condition: tolerarch.enabled", "tolerarch:\n"},
		{", condition: tolerarch.enabled", "tolerarch: {enabled: true}\ntags:\n"},
		{", tags: [arm]", "tags: {arm: true}\ntolerarch: {config: null, webhook: null}\n"},
	} {
		rendering, err := chart.TemplateChart(parentOf(t, c.dependency, c.values), "arm", "platform")
		// Older versions of Helm refuse a section without a value themselves.
		if c.values == "tolerarch:\n" && err != nil && strings.Contains(err.Error(), "type mismatch on tolerarch") {
			continue
		}
		if err != nil || !strings.Contains(rendering, "kind: MutatingWebhookConfiguration") {
			t.Errorf("%s %q: %v", c.dependency, c.values, err)
		}
	}
}

// Pull secrets may be names or objects, and may come from global.
func TestPullSecretsInBothForms(t *testing.T) {
	values := "{global: {imagePullSecrets: [a, {name: b}]}, image: {pullSecrets: [{name: c}, a, {name: d, other: e}]}, controller: {enabled: true}, test: {enabled: true}}"
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o644); err != nil {
		t.Fatal(err)
	}
	rendering, err := chart.Template("arm", "platform", "--values", file)
	if err != nil {
		t.Fatal(err)
	}
	inOneLine := strings.Join(strings.Fields(rendering), " ")
	want := `imagePullSecrets: - name: "c" - name: "a" - name: "d" - name: "b"`
	if found := strings.Count(inOneLine, want); found != 4 {
		t.Errorf("%d times", found)
	}
	for _, wrong := range []string{"image.pullSecrets[0].nmae=a", "image.pullSecrets[0]=", "global.imagePullSecrets=a"} {
		if _, err := chart.Template("arm", "platform", "--set", wrong); err == nil || !strings.Contains(strings.ToLower(err.Error()), "pullsecrets") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// Helm reads numbers as floats, and YAML reads some words as booleans.
func TestNumbersAndBooleansAsTheyAreMeant(t *testing.T) {
	values := `
config: {cache: {capacity: 2000000}, placement: {require: off}}
replicas: 1000000
terminationGracePeriodSeconds: 1000000
controller: {enabled: true, replicas: 2000000}
podMonitor: {enabled: true, interval: "30"}
`
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o644); err != nil {
		t.Fatal(err)
	}
	rendering, err := chart.Template("arm", "platform", "--values", file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"capacity: 2000000", "require: false", "replicas: 1000000", "terminationGracePeriodSeconds: 1000000", "replicas: 2000000", `interval: "30"`} {
		if !strings.Contains(rendering, line+"\n") && !strings.Contains(rendering, line+" #") {
			t.Errorf("no %s", line)
		}
	}
	if strings.Contains(rendering, "e+06") {
		t.Error("a number is written as a float")
	}
	for _, set := range []string{"podLabels.a=true", "podAnnotations.a=1", "nodeSelector.a=false", "commonLabels.a=7"} {
		if _, err := chart.Template("arm", "platform", "--set", set); err == nil || !strings.Contains(err.Error(), "want string") {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// Helm may render any template first, so each template fills in the defaults.
func TestTemplatesBeginWithTheDefaults(t *testing.T) {
	templates, err := filepath.Glob(filepath.Join(chart.Repository, chart.Directory, "templates/[^_]*.*"))
	nested, _ := filepath.Glob(filepath.Join(chart.Repository, chart.Directory, "templates/*/*"))
	templates = append(templates, nested...)
	if err != nil || len(templates) < 20 {
		t.Fatal(templates, err)
	}
	for _, template := range templates {
		text, err := os.ReadFile(template)
		if err != nil || !strings.HasPrefix(string(text), "{{- include \"tolerarch.values\" . -}}\n") {
			t.Errorf("%s: %v", template, err)
		}
	}
}
