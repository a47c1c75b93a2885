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

// allFeatures are values that switch on what is off by default, so that every template renders an object.
const allFeatures = `
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

// keysOf returns the paths of all sections and keys. Each begins with the section.
func keysOf(values map[string]any, section ...string) [][]string {
	var paths [][]string
	for key, value := range values {
		path := append(slices.Clone(section), key)
		paths = append(paths, path)
		if inner, ok := value.(map[string]any); ok {
			paths = append(paths, keysOf(inner, path...)...)
		}
	}
	return paths
}

// keysOfSchema returns the paths of all sections and keys that a schema names. Each begins with the section.
func keysOfSchema(schema map[string]any, section ...string) [][]string {
	var paths [][]string
	properties, _ := schema["properties"].(map[string]any)
	for key, value := range properties {
		path := append(slices.Clone(section), key)
		paths = append(paths, path)
		paths = append(paths, keysOfSchema(value.(map[string]any), path...)...)
	}
	return paths
}

// decodeChartFile decodes a file of the chart.
func decodeChartFile(t *testing.T, file string, unmarshal func([]byte, any) error) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart.Repository, chart.Directory, file))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// nested returns values that have only this value, at this path.
func nested(path []string, value any) map[string]any {
	for _, key := range slices.Backward(path) {
		value = map[string]any{key: value}
	}
	return value.(map[string]any)
}

// valueAt returns the value at a path, or nil.
func valueAt(values any, path []string) any {
	for _, key := range path {
		inner, _ := values.(map[string]any)
		values = inner[key]
	}
	return values
}

// writeValues writes values to a temporary file, and returns its path.
func writeValues(t *testing.T, values any) string {
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

// writeParent makes a parent chart with tolerarch as its subchart, and returns its directory. dependency is appended to the entry of the
// subchart.
func writeParent(t *testing.T, dependency, values string) string {
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

// An empty key gets its default, or the schema refuses it by its name. This holds for the key alone, with all features, and in a parent
// chart. The parent chart is tested only with a helm that HELM names.
func TestEmptyValues(t *testing.T) {
	base := filepath.Join(t.TempDir(), "all-features.yaml")
	if err := os.WriteFile(base, []byte(allFeatures), 0o644); err != nil {
		t.Fatal(err)
	}
	defaultRendering, err := chart.Template("arm", "platform")
	if err != nil {
		t.Fatal(err)
	}
	defaults := decodeChartFile(t, "values.yaml", yaml.Unmarshal)
	schemaKeys := keysOfSchema(decodeChartFile(t, "values.schema.json", json.Unmarshal))
	paths := append(keysOf(defaults), schemaKeys...)
	slices.SortFunc(paths, slices.Compare)
	paths = slices.CompactFunc(paths, slices.Equal)
	if len(paths) < 200 {
		t.Fatalf("only %d keys", len(paths))
	}
	parent := writeParent(t, "", "")
	for _, path := range paths {
		t.Run(strings.Join(path, "."), func(t *testing.T) {
			t.Parallel()
			defaultValue := valueAt(defaults, path)
			isInSchema := slices.ContainsFunc(schemaKeys, func(key []string) bool { return slices.Equal(key, path) })
			// For a map of arbitrary keys, null is the only way to remove its defaults.
			_, isMap := defaultValue.(map[string]any)
			nullIsDefault := isInSchema && !isMap && path[0] != "config"
			for _, empty := range emptyValues(defaultValue) {
				values := nested(path, empty)
				file := writeValues(t, values)
				_, err := chart.Template("arm", "platform", "--values", base, "--values", file)
				checkRefusal(t, path, err)
				if defaultValue == nil {
					continue
				}
				rendering, err := chart.Template("arm", "platform", "--values", file)
				checkRefusal(t, path, err)
				if err == nil && empty == nil && nullIsDefault && rendering != defaultRendering {
					t.Error("null is not the default")
				}
				if os.Getenv("HELM") != "" {
					checkInParent(t, parent, path, values)
				}
			}
		})
	}
}

// emptyValues returns the empty values of a key: null, and an empty value of the type of its default.
func emptyValues(defaultValue any) []any {
	switch defaultValue.(type) {
	case map[string]any:
		return []any{nil, map[string]any{}}
	case []any:
		return []any{nil, []any{}}
	case string:
		return []any{nil, ""}
	default:
		return []any{nil}
	}
}

// checkRefusal reports an error of helm that does not name the key, or that comes from a template.
func checkRefusal(t *testing.T, path []string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	text := err.Error()
	isOfTemplate := strings.Contains(text, "nil pointer") || strings.Contains(text, "error calling")
	if isOfTemplate || !strings.Contains(text, path[len(path)-1]) {
		t.Error(text)
	}
}

// checkInParent renders a parent chart with values for the subchart, once in a file of values and once in the chart's own.
func checkInParent(t *testing.T, parent string, path []string, values map[string]any) {
	parentValues := map[string]any{"tolerarch": values}
	_, err := chart.TemplateChart(parent, "arm", "platform", "--values", writeValues(t, parentValues))
	checkRefusal(t, path, err)
	text, err := yaml.Marshal(parentValues)
	if err != nil {
		t.Fatal(err)
	}
	_, err = chart.TemplateChart(writeParent(t, "", string(text)), "arm", "platform")
	checkRefusal(t, path, err)
}

// A section whose keys are all commented out gets its defaults, so its policies and rights stay.
func TestEmptySectionsHaveTheirDefaults(t *testing.T) {
	defaultRendering, err := chart.Template("arm", "platform")
	if err != nil {
		t.Fatal(err)
	}
	withoutResources := func(text string) string {
		for _, line := range []string{"cpu: 5m", "memory: 16Mi", "memory: 64Mi"} {
			text = strings.ReplaceAll(text, line, "")
		}
		return strings.Join(strings.Fields(text), " ")
	}
	for _, section := range []string{
		"certificates", "image", "networkPolicy", "podDisruptionBudget", "proxy", "serviceAccount", "tls", "webhook",
		"webhook.excludedNamespaces", "global", "global.imagePullSecrets",
	} {
		rendering, err := chart.Template("arm", "platform", "--values", writeValues(t, nested(strings.Split(section, "."), nil)))
		isSame := rendering == defaultRendering
		switch section {
		case "certificates", "webhook": // They contain maps of arbitrary keys, which are empty then.
			isSame = len(withoutResources(rendering)) > len(withoutResources(defaultRendering))*98/100
		}
		if err != nil || !isSame {
			t.Errorf("%s: %v", section, err)
		}
	}
}

// Empty values of a parent chart get the defaults.
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
		rendering, err := chart.TemplateChart(writeParent(t, c.dependency, c.values), "arm", "platform")
		// Older versions of Helm refuse a section without a value.
		if c.values == "tolerarch:\n" && err != nil && strings.Contains(err.Error(), "type mismatch on tolerarch") {
			continue
		}
		if err != nil || !strings.Contains(rendering, "kind: MutatingWebhookConfiguration") {
			t.Errorf("%s %q: %v", c.dependency, c.values, err)
		}
	}
}

// Pull secrets are names or objects, and global may contain some of them.
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
	if count := strings.Count(inOneLine, want); count != 4 {
		t.Errorf("%d lists of pull secrets, not 4", count)
	}
	for _, wrong := range []string{"image.pullSecrets[0].nmae=a", "image.pullSecrets[0]=", "global.imagePullSecrets=a"} {
		if _, err := chart.Template("arm", "platform", "--set", wrong); err == nil || !strings.Contains(strings.ToLower(err.Error()), "pullsecrets") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// Numbers and booleans keep their meaning, although Helm reads numbers as floats and YAML reads some words as booleans.
func TestNumbersAndBooleansKeepTheirMeaning(t *testing.T) {
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
	for _, line := range []string{
		"capacity: 2000000", "require: false", "replicas: 1000000", "terminationGracePeriodSeconds: 1000000", "replicas: 2000000",
		`interval: "30"`,
	} {
		if !strings.Contains(rendering, line+"\n") && !strings.Contains(rendering, line+" #") {
			t.Errorf("the rendering has no line %s", line)
		}
	}
	if strings.Contains(rendering, "e+06") {
		t.Error("the rendering has a number in scientific notation")
	}
	for _, set := range []string{"podLabels.a=true", "podAnnotations.a=1", "nodeSelector.a=false", "commonLabels.a=7"} {
		if _, err := chart.Template("arm", "platform", "--set", set); err == nil || !strings.Contains(err.Error(), "want string") {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// Helm may render any template first, so each template starts by filling in the defaults.
func TestTemplatesStartWithTheDefaults(t *testing.T) {
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
