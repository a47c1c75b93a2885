package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"tolerarch.io/e2e/manifests/chart"
)

// The generated files in the repository are up to date: the kustomization, the schema, the table of values, and the expected
// renderings of all features.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	for _, generate := range chart.Generators {
		stale, err := chart.Stale(generate)
		if err != nil {
			t.Fatal(err)
		}
		for path := range stale {
			t.Errorf("%s is out of date; run: cd e2e/manifests && go run ./render", path)
		}
	}
}

func TestChartPassesLint(t *testing.T) {
	if err := chart.Lint(); err != nil {
		t.Error(err)
	}
	for _, feature := range features(t) {
		if err := chart.Lint("--values", filepath.Join(chart.Repository, chart.Directory, "ci", feature+"-values.yaml")); err != nil {
			t.Error(err)
		}
	}
}

// features returns the names of the chart's value files in ci/.
func features(t *testing.T) []string {
	t.Helper()
	names, err := chart.Features()
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	return names
}

// checkedInstallation checks a rendering together with the Namespace that must exist before its installation.
func checkedInstallation(t *testing.T, rendering, namespace string) []*item {
	t.Helper()
	return checked(t, fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %q\n---\n%s", namespace, rendering))
}

// faults returns the faults of all items, each with the ID of its item.
func faults(items []*item) []string {
	var texts []string
	for _, it := range items {
		for _, fault := range it.faults {
			texts = append(texts, it.id+": "+fault)
		}
	}
	return texts
}

// Every feature passes all checks, apart from the faults that the feature intends.
func TestFeatures(t *testing.T) {
	intended := map[string][]string{
		"host-mounts": {
			"Deployment/arm-tolerarch: volume host-0 mounts a path of the host",
			"Deployment/arm-tolerarch: volume host-1 mounts a path of the host",
		},
		"host-network": {"Deployment/arm-tolerarch: uses a namespace of the host"},
		"issuer":       {"Certificate/arm-tolerarch-tls: issuerRef: there is no ClusterIssuer company-ca"},
		"minimal": {
			`Deployment/arm-tolerarch: there is no ServiceAccount "existing"`, "NetworkPolicy: is missing", "PodDisruptionBudget: is missing",
		},
		"network": {"Deployment/arm-tolerarch: volume ca: there is no ConfigMap company-ca"},
		"test": { // rights that exist only while helm test runs
			"ClusterRole/arm-tolerarch-test: gives rights in the whole cluster",
			"ClusterRole/arm-tolerarch-test: gives rights in the whole cluster",
			"Role/arm-tolerarch-test: gives rights, and tolerarch needs none",
			"Role/arm-tolerarch-test: gives other rights than to get Secrets: {[get] [] [services configmaps] [arm-tolerarch] []}",
			"Role/arm-tolerarch-test: gives other rights than to get Secrets: {[list] [] [pods] [] []}",
			"Role/arm-tolerarch-test: gives other rights than to get Secrets: {[list] [discovery.k8s.io] [endpointslices] [] []}",
			"Role/arm-tolerarch-test: gives rights, and tolerarch needs none",
			"Role/arm-tolerarch-test: gives other rights than to get Secrets: {[create] [] [pods] [] []}",
		},
		"webhook": {
			"MutatingWebhookConfiguration/zz-arm-tolerarch: pods.tolerarch.io: namespaceSelector has to be true for the labels kubernetes.io/metadata.name=default",
		},
	}
	for _, feature := range append(features(t), "") {
		t.Run("feature "+feature, func(t *testing.T) {
			rendering, err := chart.TemplateFeature(feature, "arm", "platform")
			if err != nil {
				t.Fatal(err)
			}
			if got := faults(checkedInstallation(t, rendering, "platform")); !slices.Equal(got, intended[feature]) {
				t.Errorf("faults %q, not %q", got, intended[feature])
			}
		})
	}
}

// The names are legal, but some look like other YAML types, are invalid for Services, or are very long.
func TestAnyReleaseInAnyNamespace(t *testing.T) {
	long := strings.Repeat("n", 63)
	for _, c := range []struct{ release, namespace, name string }{
		{"tolerarch", "tolerarch", "tolerarch"},
		{"tolerarch", "default", "tolerarch"},
		{"my-tolerarch-2", "kube-system", "my-tolerarch-2"},
		{"arm", long, "arm-tolerarch"},
		{"null", "true", "null-tolerarch"},
		{"1e3", "0123", "r1e3-tolerarch"},
		{"a.b", "off", "a-b-tolerarch"},
		{strings.Repeat("r", 53), "1-2", strings.Repeat("r", 50)},
		{strings.Repeat("r", 49) + ".b", "x", strings.Repeat("r", 49)},
	} {
		t.Run(c.release+" in "+c.namespace, func(t *testing.T) {
			rendering, err := chart.TemplateFeature("pull-secrets", c.release, c.namespace)
			if err != nil {
				t.Fatal(err)
			}
			items := checkedInstallation(t, rendering, c.namespace)
			for _, fault := range faults(items) {
				// The check expects reviews of Pods in `default`, but a release in this namespace excludes it.
				if c.namespace != "default" || !strings.Contains(fault, "namespaceSelector has to be true") {
					t.Error(fault)
				}
			}
			if _, ok := find[*core.Service](items, c.namespace, c.name); !ok {
				t.Errorf("no Service %s", c.name)
			}
			for _, it := range items {
				if it.object != nil && (len(it.object.GetName()) > 63 || strings.Contains(it.object.GetName(), ".")) {
					t.Errorf("the name %s is not valid for every kind", it.object.GetName())
				}
			}
			withoutGroup := strings.ReplaceAll(rendering, "tolerarch.io", "")
			if c.namespace != "tolerarch" && regexp.MustCompile(`tolerarch\.tolerarch\b|namespace: "?tolerarch"?$`).MatchString(withoutGroup) {
				t.Error("the rendering names the namespace tolerarch")
			}
		})
	}
}

// The chart refuses values that cannot work, with an error that names the value.
func TestRefusedValues(t *testing.T) {
	for set, text := range map[string]string{
		"tls.mode=files":                                    "tls/mode",
		"config.tls.mode=managed":                           "config.tls.mode follows tls.mode",
		"tls.mode=secret":                                   "tls.secret.name",
		"tls.secret.caBundle=LS0tLS1CRUdJTg==":              "caBundle",
		"webhook.failurePolicy=Fail":                        "failurePolicy",
		"webhook.timeoutSeconds=31":                         "timeoutSeconds",
		"config.mdoe=observe":                               "mdoe",
		"config.cache.tagTtl=soon":                          "tagTtl",
		"image.digest=sha256:12":                            "digest",
		"pullSecrets.namespaces={shop}":                     "config.credentials.pullSecrets",
		"flowSchema.enabled=true":                           "config.credentials.pullSecrets",
		"serviceAccount.create=false":                       "serviceAccount.name",
		"hostMounts.credentialProviderConfig=/etc/p/c.json": "credentialProviderBinDir",
		"webhook.matchConditions[0].name=a,webhook.matchConditions[0].expression=has(namespaceObject)": "expression",
	} {
		t.Run(set, func(t *testing.T) {
			_, err := chart.Template("arm", "platform", "--set", set)
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("the error does not contain %q: %v", text, err)
			}
		})
	}
}

// A parent chart, Rancher and Helm add keys at the top level and in global.
func TestAcceptsForeignValues(t *testing.T) {
	for _, set := range []string{"enabled=true", "global.cattle.clusterId=c", "global.storageClass=x", "tags.a=true", "parentsKey.key=1"} {
		if _, err := chart.Template("arm", "platform", "--set", set); err != nil {
			t.Error(err)
		}
	}
}

// The chart works as a subchart that its parent switches on and off.
func TestSubchart(t *testing.T) {
	parent := t.TempDir()
	if err := os.CopyFS(filepath.Join(parent, "charts/tolerarch"), os.DirFS(filepath.Join(chart.Repository, chart.Directory))); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: parent\nversion: 1.0.0\ndependencies: [{name: tolerarch, version: 0.x, condition: tolerarch.enabled}]\n",
		"values.yaml": "global: {imageRegistry: mirror.example.com, parents: x}\ntolerarch: {enabled: true, replicas: 7}\n",
	} {
		if err := os.WriteFile(filepath.Join(parent, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rendering, err := chart.TemplateChart(parent, "arm", "platform")
	if err != nil || !strings.Contains(rendering, "replicas: 7") || !strings.Contains(rendering, `"mirror.example.com/tolerarch/tolerarch:`) {
		t.Errorf("%v: %s", err, rendering)
	}
	for _, fault := range faults(checkedInstallation(t, rendering, "platform")) {
		t.Error(fault)
	}
	rendering, err = chart.TemplateChart(parent, "arm", "platform", "--set", "tolerarch.enabled=false")
	if err != nil || strings.Contains(rendering, "kind:") {
		t.Errorf("%v: %s", err, rendering)
	}
}

// Renderings depend only on the values, and uninstalling a release leaves nothing behind.
func TestRenderingsDependOnlyOnValues(t *testing.T) {
	templates, err := filepath.Glob(filepath.Join(chart.Repository, chart.Directory, "templates/*.*"))
	if err != nil || len(templates) == 0 {
		t.Fatal(templates, err)
	}
	if rendering, err := chart.Template("arm", "platform"); err != nil || strings.Contains(rendering, "helm.sh/hook") {
		t.Error("the chart has a hook without test.enabled", err)
	}
	forbidden := regexp.MustCompile(`\blookup\b "|\bgenCA\b|\bgenSignedCert\b|\brand[A-Z]\w*|\bnow\b \||helm\.sh/hook|helm\.sh/resource-policy|finalizers:|namespaceObject|Capabilities`)
	for _, template := range templates {
		text, err := os.ReadFile(template)
		if err != nil {
			t.Fatal(err)
		}
		if match := forbidden.Find(text); match != nil {
			t.Errorf("%s contains %s", template, match)
		}
	}
	for _, feature := range append(features(t), "") {
		rendering, err := chart.TemplateFeature(feature, "arm", "platform")
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := chart.TemplateFeature(feature, "arm", "platform"); rendering != again {
			t.Errorf("%s: two renderings differ", feature)
		}
		if strings.Contains(rendering, "namespaceObject") {
			t.Errorf("%s: the rendering contains namespaceObject", feature)
		}
		if hasCABundle := strings.Contains(rendering, "caBundle:"); hasCABundle != (feature == "tls-secret") {
			t.Errorf("%s: has a caBundle: %t", feature, hasCABundle)
		}
	}
}

// helm test deletes its objects after the test, apart from the Pod. Helm 3 reads the Pod's log (--logs) after it has deleted the
// hooks, and looks for a Pod with the name of each hook. The Service does not select the Pod, so the Pod gets no reviews.
func TestHelmTestLeavesOnlyItsPodBehind(t *testing.T) {
	rendering, err := chart.TemplateFeature("test", "arm", "platform")
	if err != nil {
		t.Fatal(err)
	}
	items := checkedInstallation(t, rendering, "platform")
	hooks := 0
	for _, it := range items {
		annotations := it.object.GetAnnotations()
		if annotations["helm.sh/hook"] != "test" {
			continue
		}
		hooks++
		policy := "before-hook-creation,hook-succeeded,hook-failed"
		if _, ok := it.object.(*core.Pod); ok {
			policy = "before-hook-creation"
		}
		if annotations["helm.sh/hook-delete-policy"] != policy || it.object.GetName() != "arm-tolerarch-test" {
			t.Errorf("%s: %v", it.id, annotations)
		}
	}
	pods := all[*core.Pod](items)
	service, ok := find[*core.Service](items, "platform", "arm-tolerarch")
	if hooks != 8 || len(pods) != 1 || !ok {
		t.Fatalf("%d hooks, %d Pods, Service %t", hooks, len(pods), ok)
	}
	if labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pods[0].Labels)) {
		t.Error("the Service selects the Pod of the test")
	}
}

// The selector of a Deployment is immutable, so no value may change it.
func TestValuesDoNotChangeSelectors(t *testing.T) {
	selector := func(arguments ...string) map[string]string {
		rendering, err := chart.Template("arm", "platform", arguments...)
		if err != nil {
			t.Fatal(err)
		}
		d, ok := find[*apps.Deployment](checkedInstallation(t, rendering, "platform"), "platform", "arm-tolerarch")
		if !ok {
			t.Fatal("no Deployment")
		}
		return d.Spec.Selector.MatchLabels
	}
	want := fmt.Sprint(selector())
	for _, set := range []string{
		"commonLabels.a=b", `commonLabels.app\.kubernetes\.io/name=other`, `podLabels.app\.kubernetes\.io/component=other`,
		"image.tag=9.9.9", "replicas=5",
	} {
		if got := fmt.Sprint(selector("--set", set)); got != want {
			t.Errorf("%s: %s, not %s", set, got, want)
		}
	}
}

// Chart and program are released together, so they have the same version.
func TestChartHasTheVersionOfTheProgram(t *testing.T) {
	version := func(file, pattern string) string {
		text, err := os.ReadFile(filepath.Join(chart.Repository, file))
		if err != nil {
			t.Fatal(err)
		}
		match := regexp.MustCompile(pattern).FindSubmatch(text)
		if match == nil {
			t.Fatalf("%s has no %s", file, pattern)
		}
		return string(match[1])
	}
	program := version("Cargo.toml", `(?m)^version = "(.+)"$`)
	for _, pattern := range []string{`(?m)^version: (\S+)$`, `(?m)^appVersion: "(\S+)"$`} {
		if got := version(chart.Directory+"/Chart.yaml", pattern); got != program {
			t.Errorf("%s: %s, not %s", pattern, got, program)
		}
	}
}

// The kustomization works in another namespace, which an overlay or the kustomization itself sets.
func TestKustomizationInAnotherNamespace(t *testing.T) {
	edited := t.TempDir()
	if err := os.CopyFS(edited, os.DirFS("../../manifests")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(edited, "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "\nnamespace: tolerarch\n", "\nnamespace: platform\n", 1))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"testdata/namespace", "testdata/namespace-cert-manager", edited} {
		items := checked(t, kustomized(t, folder))
		for _, fault := range faults(items) {
			t.Errorf("%s: %s", folder, fault)
		}
		if _, ok := find[*core.Namespace](items, "", "platform"); !ok {
			t.Errorf("%s: no Namespace platform", folder)
		}
		for _, c := range all[*admissionregistration.MutatingWebhookConfiguration](items) {
			if values := c.Webhooks[0].NamespaceSelector.MatchExpressions[0].Values; !slices.Equal(values, []string{"platform", "kube-system"}) {
				t.Errorf("%s: %q", folder, values)
			}
		}
	}
}
