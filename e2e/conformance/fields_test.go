package main

import (
	"flag"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

var update = flag.Bool("update", false, "write fields.txt anew")

// readTypes are the types whose fields decide about a Pod, or about what reaches the webhook.
var readTypes = []reflect.Type{
	reflect.TypeFor[admissionv1.AdmissionRequest](), reflect.TypeFor[admissionv1.AdmissionResponse](),
	reflect.TypeFor[registrationv1.MutatingWebhook](), reflect.TypeFor[registrationv1.RuleWithOperations](),
	reflect.TypeFor[registrationv1.WebhookClientConfig](),
	reflect.TypeFor[appsv1.DaemonSetSpec](), reflect.TypeFor[corev1.PodTemplate](),
	reflect.TypeFor[corev1.PodTemplateSpec](), reflect.TypeFor[corev1.PodSpec](), reflect.TypeFor[corev1.PodStatus](),
	reflect.TypeFor[corev1.Container](), reflect.TypeFor[corev1.EphemeralContainer](), reflect.TypeFor[corev1.ContainerStatus](),
	reflect.TypeFor[corev1.ResourceRequirements](), reflect.TypeFor[corev1.VolumeMount](), reflect.TypeFor[corev1.EnvVar](),
	reflect.TypeFor[corev1.SecurityContext](), reflect.TypeFor[corev1.PodSecurityContext](),
	reflect.TypeFor[corev1.Volume](), reflect.TypeFor[corev1.ImageVolumeSource](),
	reflect.TypeFor[corev1.Toleration](), reflect.TypeFor[corev1.Taint](),
	reflect.TypeFor[corev1.Affinity](), reflect.TypeFor[corev1.NodeAffinity](), reflect.TypeFor[corev1.NodeSelector](),
	reflect.TypeFor[corev1.NodeSelectorTerm](), reflect.TypeFor[corev1.NodeSelectorRequirement](),
	reflect.TypeFor[corev1.PreferredSchedulingTerm](),
	reflect.TypeFor[corev1.NodeSpec](), reflect.TypeFor[corev1.NodeStatus](),
}

// readValues are string types that a decision reads, and that have a fixed set of values.
var readValues = []string{
	"ContainerRestartPolicy", "NodeSelectorOperator", "PullPolicy", "TaintEffect", "TolerationOperator",
}

// TestNewFieldsAreReviewed fails when a newer version of k8s.io/api has new fields. A maintainer decides for each field whether it
// matters for a decision, and then adds a test or documentation. After that, `go test -run Reviewed . -update` writes fields.txt.
func TestNewFieldsAreReviewed(t *testing.T) {
	const file = "fields.txt"
	var found []string
	for _, one := range readTypes {
		for _, name := range fieldNames(one) {
			found = append(found, strings.TrimPrefix(one.PkgPath(), "k8s.io/api/")+" "+one.Name()+" "+name)
		}
	}
	found = append(found, values(t)...)
	found = append(found, templates()...)
	slices.Sort(found)
	if *update {
		must(os.WriteFile(file, []byte(strings.Join(found, "\n")+"\n"), 0o644))
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, one := range found {
		if !slices.Contains(known, one) {
			t.Errorf("new: %s", one)
		}
	}
	for _, one := range known {
		if !slices.Contains(found, one) {
			t.Errorf("gone: %s", one)
		}
	}
	if t.Failed() {
		t.Log("see what each means for a decision, and run: go test -run LookedThrough . -update")
	}
}

// The policy names every field of a node's spec but the taints, as the controller may change only taints.
func TestNodeTaintsPolicyNamesEveryField(t *testing.T) {
	policy, err := os.ReadFile("../../manifests/node-taints/nodetaints.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fieldNames(reflect.TypeFor[corev1.NodeSpec]()) {
		stays := "object.?spec.?" + name + " == oldObject.?spec.?" + name + "\n"
		if name != "taints" && !strings.Contains(string(policy), stays) {
			t.Errorf("the controller could change spec.%s of nodes", name)
		}
	}
}

// fieldNames returns the JSON names of a struct's fields, including those of embedded structs.
func fieldNames(of reflect.Type) []string {
	var names []string
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			names = append(names, fieldNames(field.Type)...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

// values returns the constants of the types in readValues.
func values(t *testing.T) []string {
	core, err := build.Import("k8s.io/api/core/v1", ".", build.FindOnly)
	if err != nil {
		t.Fatal(err)
	}
	source, err := parser.ParseFile(token.NewFileSet(), filepath.Join(core.Dir, "types.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(source, func(node ast.Node) bool {
		constant, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		of, ok := constant.Type.(*ast.Ident)
		if !ok || !slices.Contains(readValues, of.Name) {
			return true
		}
		for _, value := range constant.Values {
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			must(err)
			found = append(found, "core/v1 "+of.Name+" = "+text)
		}
		return true
	})
	return found
}

// templates returns the fields of Kubernetes' built-in kinds that hold the spec of a Pod.
func templates() []string {
	var found []string
	var walk func(kind string, of reflect.Type, path string, within []reflect.Type)
	walk = func(kind string, of reflect.Type, path string, within []reflect.Type) {
		for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, of.Kind()) {
			of = of.Elem()
		}
		if of == reflect.TypeFor[corev1.PodSpec]() {
			found = append(found, "template "+kind+" "+path)
			return
		}
		if of.Kind() != reflect.Struct || slices.Contains(within, of) {
			return
		}
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			walk(kind, field.Type, path+"."+name, append(within, of))
		}
	}
	for kind, of := range scheme.Scheme.AllKnownTypes() {
		if kind.Version != "__internal" && !strings.HasSuffix(kind.Kind, "List") {
			walk(kind.GroupVersion().String()+" "+kind.Kind, of, "", nil)
		}
	}
	return found
}
