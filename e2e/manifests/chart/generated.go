package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	tableBegin = "<!-- values: made from values.yaml by e2e/manifests/render -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// Generators make files from the chart, by their paths in the repository. A generator needs the files of those before it.
var Generators = []func(map[string]string) error{schemaAndTable, kustomization, goldens}

func read(path ...string) (string, error) {
	text, err := os.ReadFile(filepath.Join(append([]string{Repository}, path...)...))
	return string(text), err
}

// schemaAndTable makes the schema and the table of the values, and the defaults of values that are null. The schema of config is that
// of the program.
func schemaAndTable(files map[string]string) error {
	text, err := read(Directory, "values.yaml")
	if err != nil {
		return err
	}
	values, err := readValues([]byte(text))
	if err != nil {
		return err
	}
	configText, err := read("manifests/config.schema.json")
	if err != nil {
		return err
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(configText), &config); err != nil {
		return err
	}
	defaults, err := json.MarshalIndent(values.defaults(), "", "  ")
	if err != nil {
		return err
	}
	files[Directory+"/templates/_defaults.tpl"] = "{{/* Made from values.yaml by e2e/manifests/render. */}}\n" +
		"{{- define \"tolerarch.defaults\" -}}\n" + string(defaults) + "\n{{- end -}}\n"

	schema := values.jsonSchema()
	schema["$schema"] = config["$schema"]
	delete(config, "$schema")
	schema["properties"].(map[string]any)["config"] = config
	encoded := &strings.Builder{}
	encoder := json.NewEncoder(encoded)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		return err
	}
	files[Directory+"/values.schema.json"] = encoded.String()

	readme, err := read(Directory, "README.md")
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(readme, tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return fmt.Errorf("%s/README.md lacks the lines %q and %q", Directory, tableBegin, tableEnd)
	}
	table := &strings.Builder{}
	table.WriteString("| Value | Default | What it is |\n|---|---|---|\n")
	if err := values.rows(table); err != nil {
		return err
	}
	files[Directory+"/README.md"] = before + tableBegin + table.String() + tableEnd + after

	files["manifests/config.yaml"], err = configFile(text)
	return err
}

// configFile returns the default configuration with its comments: the block under `config:` of values.yaml, and settings that the
// chart derives from tls.mode.
func configFile(values string) (string, error) {
	_, block, found := strings.Cut(values, "\nconfig:\n")
	if !found {
		return "", fmt.Errorf("values.yaml has no block config")
	}
	file := &strings.Builder{}
	file.WriteString(`# yaml-language-server: $schema=config.schema.json
# The configuration of tolerarch. What is not named here has its default (see docs/configuration.md). A change takes effect while
# tolerarch runs, some seconds after it has reached the Pods; a file with faults is refused, and the old one stays in use.

`)
	for _, line := range strings.SplitAfter(block, "\n") {
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "  ") {
			break
		}
		file.WriteString(strings.TrimPrefix(line, "  "))
	}
	return strings.TrimRight(file.String(), "\n") + `

# tolerarch issues its serving certificate itself. A file that replaces this one needs the section as well.
tls:
  mode: managed
`, nil
}

// kustomization makes the files that manifests/kustomization.yaml lists. The ConfigMap is not among them: kustomize makes
// it of config.yaml.
func kustomization(files map[string]string) error {
	rendering, err := Template("tolerarch", "tolerarch")
	if err != nil {
		return err
	}
	add := func(path, template, text string) {
		kept := slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(line string) bool {
			// These labels are for Helm only.
			return strings.Contains(line, "helm.sh/chart:") || strings.Contains(line, "app.kubernetes.io/managed-by:")
		})
		if files[path] == "" {
			files[path] = "# Rendered from " + Directory + "/templates/" + template + ": change it there, then run e2e/manifests/render.\n"
		} else {
			files[path] += "---\n"
		}
		files[path] += strings.Join(kept, "")
	}
	for _, document := range Documents(rendering) {
		if document.Template != "configmap.yaml" {
			add("manifests/"+document.Template, document.Template, document.Text)
		}
	}

	rendering, err = Template("tolerarch", "tolerarch", "--set", "tls.mode=cert-manager")
	if err != nil {
		return err
	}
	for _, document := range Documents(rendering) {
		if document.Template == "issuer.yaml" || document.Template == "certificate.yaml" {
			add("manifests/cert-manager/"+document.Template, document.Template, document.Text)
		}
	}

	rendering, err = Template("tolerarch", "tolerarch", "--set", "config.discover.nodePools=true,config.discover.nodes=true")
	if err != nil {
		return err
	}
	for _, document := range Documents(rendering) {
		if document.Template == "discovery.yaml" {
			add("manifests/discovery/discovery.yaml", document.Template, document.Text)
		}
	}

	rendering, err = Template("tolerarch", "tolerarch", "--set", "controller.enabled=true")
	if err != nil {
		return err
	}
	for _, document := range Documents(rendering) {
		if document.Template == "controller.yaml" || document.Template == "validatingadmissionpolicy.yaml" {
			add("manifests/controller/"+document.Template, document.Template, document.Text)
		}
	}

	const taint = `{"selector": {"kubernetes.io/arch": "arm64"}, "taint": {"key": "tolerarch.io/multi-arch", "effect": "NoSchedule"}}`
	rendering, err = Template("tolerarch", "tolerarch", "--set", "controller.enabled=true", "--set-json", "config.controller.nodeTaints=["+taint+"]")
	if err != nil {
		return err
	}
	for _, document := range Documents(rendering) {
		if document.Template == "nodetaints.yaml" {
			add("manifests/node-taints/nodetaints.yaml", document.Template, document.Text)
		}
	}

	rendering, err = Template("tolerarch", "tolerarch", "--set", "config.cache.warm.fromPods=true")
	if err != nil {
		return err
	}
	for _, document := range Documents(rendering) {
		if document.Template == "warm.yaml" {
			add("manifests/warm/warm.yaml", document.Template, document.Text)
		}
	}

	// The rights to read pull secrets apply to the namespace in which they are created.
	const anyNamespace = "any-namespace"
	rendering, err = Template("tolerarch", "tolerarch", "--set", "config.credentials.pullSecrets=true,pullSecrets.namespaces={"+anyNamespace+"}")
	if err != nil {
		return err
	}
	for _, document := range Documents(rendering) {
		if document.Template == "pullsecrets.yaml" {
			text := strings.ReplaceAll(document.Text, "  namespace: \""+anyNamespace+"\"\n", "")
			add("manifests/pull-secrets/rights/pullsecrets.yaml", document.Template, text)
		}
	}
	return nil
}

// Features returns the names of the value files in ci/.
func Features() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(Repository, Directory, "ci/*-values.yaml"))
	for i, path := range paths {
		paths[i] = strings.TrimSuffix(filepath.Base(path), "-values.yaml")
	}
	return paths, err
}

// TemplateFeature renders the chart with the value file of a feature. Without a name it uses the defaults.
func TemplateFeature(feature, release, namespace string) (string, error) {
	if feature == "" {
		return Template(release, namespace)
	}
	return Template(release, namespace, "--values", filepath.Join(Repository, Directory, "ci", feature+"-values.yaml"))
}

// goldens makes the rendering of the defaults, and for each feature the objects that differ.
func goldens(files map[string]string) error {
	const folder, release, namespace = "e2e/manifests/testdata/chart/", "arm", "platform"
	features, err := Features()
	if err != nil {
		return err
	}
	var defaults []Document
	for _, feature := range append([]string{""}, features...) {
		rendering, err := TemplateFeature(feature, release, namespace)
		if err != nil {
			return err
		}
		documents := Documents(rendering)
		golden := &strings.Builder{}
		for _, document := range documents {
			if !slices.Contains(defaults, document) {
				fmt.Fprintf(golden, "---\n# Source: %s\n%s", document.Template, document.Text)
			}
		}
		for _, document := range defaults {
			if !slices.ContainsFunc(documents, func(d Document) bool { return d.Template == document.Template }) {
				fmt.Fprintf(golden, "# Not rendered: %s\n", document.Template)
			}
		}
		if feature == "" {
			defaults, feature = documents, "default"
		}
		files[folder+feature+".yaml"] = golden.String()
	}
	return nil
}

// Stale returns the files of a generator that are missing or outdated in the repository.
func Stale(generate func(map[string]string) error) (map[string]string, error) {
	files := map[string]string{}
	err := generate(files)
	for path, text := range files {
		if found, err := read(path); err == nil && found == text {
			delete(files, path)
		}
	}
	return files, err
}
