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

var update = flag.Bool("update", false, "rewrite fields.txt")

// readTypes are the types with fields on which a decision, or a request to the webhook, may depend.
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

// readValues are string types with a fixed set of values on which a decision may depend.
var readValues = []string{
	"ContainerRestartPolicy", "NodeSelectorOperator", "PullPolicy", "TaintEffect", "TolerationOperator",
}

// TestNewFieldsAreReviewed fails if the version of k8s.io/api has other fields or values than fields.txt. A maintainer then decides for
// each whether it matters for a decision, and adds a test or documentation. After that, `go test -run Reviewed . -update` rewrites
// fields.txt.
func TestNewFieldsAreReviewed(t *testing.T) {
	const file = "fields.txt"
	var current []string
	for _, readType := range readTypes {
		for _, name := range fieldNames(readType) {
			current = append(current, strings.TrimPrefix(readType.PkgPath(), "k8s.io/api/")+" "+readType.Name()+" "+name)
		}
	}
	current = append(current, constants(t)...)
	current = append(current, templates()...)
	slices.Sort(current)
	if *update {
		must(os.WriteFile(file, []byte(strings.Join(current, "\n")+"\n"), 0o644))
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reviewed := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range current {
		if !slices.Contains(reviewed, line) {
			t.Errorf("new: %s", line)
		}
	}
	for _, line := range reviewed {
		if !slices.Contains(current, line) {
			t.Errorf("removed: %s", line)
		}
	}
	if t.Failed() {
		t.Log("decide what each means for a decision, then run: go test -run Reviewed . -update")
	}
}

// The policy names every field of a node's spec apart from the taints, because the controller may change only taints.
func TestNodeTaintsPolicyNamesEveryField(t *testing.T) {
	policy, err := os.ReadFile("../../manifests/node-taints/nodetaints.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fieldNames(reflect.TypeFor[corev1.NodeSpec]()) {
		unchanged := "object.?spec.?" + name + " == oldObject.?spec.?" + name + "\n"
		if name != "taints" && !strings.Contains(string(policy), unchanged) {
			t.Errorf("the controller could change spec.%s of nodes", name)
		}
	}
}

// fieldNames returns the JSON names of a struct's fields, including those of embedded structs.
func fieldNames(structType reflect.Type) []string {
	var names []string
	for i := range structType.NumField() {
		field := structType.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			names = append(names, fieldNames(field.Type)...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

// constants returns the constants of the types in readValues.
func constants(t *testing.T) []string {
	core, err := build.Import("k8s.io/api/core/v1", ".", build.FindOnly)
	if err != nil {
		t.Fatal(err)
	}
	source, err := parser.ParseFile(token.NewFileSet(), filepath.Join(core.Dir, "types.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	ast.Inspect(source, func(node ast.Node) bool {
		constant, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		constantType, ok := constant.Type.(*ast.Ident)
		if !ok || !slices.Contains(readValues, constantType.Name) {
			return true
		}
		for _, value := range constant.Values {
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			must(err)
			lines = append(lines, "core/v1 "+constantType.Name+" = "+text)
		}
		return true
	})
	return lines
}

// templates returns the fields of Kubernetes' built-in kinds that contain the spec of a Pod.
func templates() []string {
	var lines []string
	var walk func(kind string, fieldType reflect.Type, path string, parents []reflect.Type)
	walk = func(kind string, fieldType reflect.Type, path string, parents []reflect.Type) {
		for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, fieldType.Kind()) {
			fieldType = fieldType.Elem()
		}
		if fieldType == reflect.TypeFor[corev1.PodSpec]() {
			lines = append(lines, "template "+kind+" "+path)
			return
		}
		if fieldType.Kind() != reflect.Struct || slices.Contains(parents, fieldType) {
			return
		}
		for i := range fieldType.NumField() {
			field := fieldType.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			walk(kind, field.Type, path+"."+name, append(parents, fieldType))
		}
	}
	for kind, kindType := range scheme.Scheme.AllKnownTypes() {
		if kind.Version != "__internal" && !strings.HasSuffix(kind.Kind, "List") {
			walk(kind.GroupVersion().String()+" "+kind.Kind, kindType, "", nil)
		}
	}
	return lines
}
