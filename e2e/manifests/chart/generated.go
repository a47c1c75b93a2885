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

// Generators add files that are made from the chart to a map by their paths in the repository. A generator reads files of the repository
// that generators before it make.
var Generators = []func(map[string]string) error{schemaAndTable, kustomization, goldens}

// readFile returns a file of the repository.
func readFile(path ...string) (string, error) {
	text, err := os.ReadFile(filepath.Join(append([]string{Repository}, path...)...))
	return string(text), err
}

// schemaAndTable makes the files that follow from values.yaml: the schema and the table of the values, the defaults of values that are
// null, and the default configuration.
func schemaAndTable(files map[string]string) error {
	text, err := readFile(Directory, "values.yaml")
	if err != nil {
		return err
	}
	values, err := readValues([]byte(text))
	if err != nil {
		return err
	}
	defaults, err := json.MarshalIndent(values.defaults(), "", "  ")
	if err != nil {
		return err
	}
	files[Directory+"/templates/_defaults.tpl"] = "{{/* Made from values.yaml by e2e/manifests/render. */}}\n" +
		"{{- define \"tolerarch.defaults\" -}}\n" + string(defaults) + "\n{{- end -}}\n"
	if files[Directory+"/values.schema.json"], err = valuesSchema(values); err != nil {
		return err
	}
	if files[Directory+"/README.md"], err = readmeWithTable(values); err != nil {
		return err
	}
	files["manifests/config.yaml"], err = configFile(text)
	return err
}

// valuesSchema returns the schema of the values. The schema of config is the program's.
func valuesSchema(values *value) (string, error) {
	configText, err := readFile("manifests/config.schema.json")
	if err != nil {
		return "", err
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(configText), &config); err != nil {
		return "", err
	}
	schema := values.jsonSchema()
	schema["$schema"] = config["$schema"]
	delete(config, "$schema")
	schema["properties"].(map[string]any)["config"] = config
	encoded := &strings.Builder{}
	encoder := json.NewEncoder(encoded)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(schema)
	return encoded.String(), err
}

// readmeWithTable returns the chart's README with the table of the values.
func readmeWithTable(values *value) (string, error) {
	readme, err := readFile(Directory, "README.md")
	if err != nil {
		return "", err
	}
	before, rest, hasBegin := strings.Cut(readme, tableBegin)
	_, after, hasEnd := strings.Cut(rest, tableEnd)
	if !hasBegin || !hasEnd {
		return "", fmt.Errorf("%s/README.md lacks the lines %q and %q", Directory, tableBegin, tableEnd)
	}
	table := &strings.Builder{}
	table.WriteString("| Value | Default | What it is |\n|---|---|---|\n")
	if err := values.writeRows(table); err != nil {
		return "", err
	}
	return before + tableBegin + table.String() + tableEnd + after, nil
}

// configFile returns the default configuration with its comments: the block below `config:` in values.yaml, and the settings that the
// chart derives from tls.mode.
func configFile(values string) (string, error) {
	_, block, ok := strings.Cut(values, "\nconfig:\n")
	if !ok {
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

// component is the folder of a kustomize component, with the templates whose documents it gets.
type component struct {
	folder    string
	templates []string
	arguments []string // of helm template
}

// nodeTaint is an entry of config.controller.nodeTaints, as JSON.
const nodeTaint = `{"selector": {"kubernetes.io/arch": "arm64"}, "taint": {"key": "tolerarch.io/multi-arch", "effect": "NoSchedule"}}`

// anyNamespace stands for the namespace in which the rights to read pull secrets are created. The rendered files name no namespace.
const anyNamespace = "any-namespace"

var components = []component{
	{
		folder:    "manifests/cert-manager",
		templates: []string{"issuer.yaml", "certificate.yaml"},
		arguments: []string{"--set", "tls.mode=cert-manager"},
	},
	{
		folder:    "manifests/discovery",
		templates: []string{"discovery.yaml"},
		arguments: []string{"--set", "config.discover.nodePools=true,config.discover.nodes=true"},
	},
	{
		folder:    "manifests/controller",
		templates: []string{"controller.yaml", "validatingadmissionpolicy.yaml"},
		arguments: []string{"--set", "controller.enabled=true"},
	},
	{
		folder:    "manifests/node-taints",
		templates: []string{"nodetaints.yaml"},
		arguments: []string{"--set", "controller.enabled=true", "--set-json", "config.controller.nodeTaints=[" + nodeTaint + "]"},
	},
	{
		folder:    "manifests/warm",
		templates: []string{"warm.yaml"},
		arguments: []string{"--set", "config.cache.warm.fromPods=true"},
	},
	{
		folder:    "manifests/pull-secrets/rights",
		templates: []string{"pullsecrets.yaml"},
		arguments: []string{"--set", "config.credentials.pullSecrets=true,pullSecrets.namespaces={" + anyNamespace + "}"},
	},
}

// kustomization makes the files that manifests/kustomization.yaml lists, and those of the components. It leaves out the ConfigMap, which
// kustomize makes from config.yaml.
func kustomization(files map[string]string) error {
	rendering, err := Template("tolerarch", "tolerarch")
	if err != nil {
		return err
	}
	for _, document := range Documents(rendering) {
		if document.Template != "configmap.yaml" {
			addManifest(files, "manifests", document)
		}
	}
	for _, component := range components {
		rendering, err := Template("tolerarch", "tolerarch", component.arguments...)
		if err != nil {
			return err
		}
		for _, document := range Documents(rendering) {
			if slices.Contains(component.templates, document.Template) {
				document.Text = strings.ReplaceAll(document.Text, "  namespace: \""+anyNamespace+"\"\n", "")
				addManifest(files, component.folder, document)
			}
		}
	}
	return nil
}

// addManifest appends a document to the file of its template in a folder, without labels that are for Helm only.
func addManifest(files map[string]string, folder string, document Document) {
	lines := slices.DeleteFunc(strings.SplitAfter(document.Text, "\n"), func(line string) bool {
		return strings.Contains(line, "helm.sh/chart:") || strings.Contains(line, "app.kubernetes.io/managed-by:")
	})
	path := folder + "/" + document.Template
	if files[path] == "" {
		files[path] = "# Rendered from " + Directory + "/templates/" + document.Template + ": change it there, then run e2e/manifests/render.\n"
	} else {
		files[path] += "---\n"
	}
	files[path] += strings.Join(lines, "")
}

// Features returns the names of the value files in ci/.
func Features() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(Repository, Directory, "ci/*-values.yaml"))
	for i, path := range paths {
		paths[i] = strings.TrimSuffix(filepath.Base(path), "-values.yaml")
	}
	return paths, err
}

// TemplateFeature renders the chart with the value file of a feature, or with the defaults if the name is empty.
func TemplateFeature(feature, release, namespace string) (string, error) {
	if feature == "" {
		return Template(release, namespace)
	}
	return Template(release, namespace, "--values", filepath.Join(Repository, Directory, "ci", feature+"-values.yaml"))
}

// goldens makes the expected rendering of the defaults, and for each feature the documents that differ from it.
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

// Stale returns the files of a generator that are missing or outdated in the repository, with their new text.
func Stale(generate func(map[string]string) error) (map[string]string, error) {
	files := map[string]string{}
	err := generate(files)
	for path, text := range files {
		if committed, err := readFile(path); err == nil && committed == text {
			delete(files, path)
		}
	}
	return files, err
}
