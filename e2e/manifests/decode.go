package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// item is one document of the input, or a placeholder for a required kind that is missing.
type item struct {
	id     string
	object metav1.Object // nil if the document could not be decoded
	faults []string
}

// faultf adds a fault.
func (it *item) faultf(format string, args ...any) {
	it.faults = append(it.faults, fmt.Sprintf(format, args...))
}

// newDecoder returns a strict decoder that accepts only the kinds that the manifests may contain.
func newDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, apps.AddToScheme, policy.AddToScheme, networking.AddToScheme,
		admissionregistration.AddToScheme, certmanager.AddToScheme, rbac.AddToScheme, flowcontrol.AddToScheme,
		monitoring.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
}

// decode returns an error only for input that cannot be split into documents. Every other error is a fault of its item.
func decode(r io.Reader) ([]*item, error) {
	decoder := newDecoder()
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	var items []*item
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		items = append(items, decodeDocument(decoder, document, len(items)+1))
	}
	if len(items) == 0 {
		return nil, errors.New("no documents on standard input")
	}
	return items, nil
}

func decodeDocument(decoder runtime.Decoder, document []byte, number int) *item {
	it := &item{id: fmt.Sprintf("document %d", number)}
	var meta metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(document, &meta); err == nil && meta.Kind != "" {
		it.id = meta.Kind + "/" + meta.Name
	}

	object, _, err := decoder.Decode(document, nil, nil)
	switch {
	case err == nil:
	case runtime.IsNotRegisteredError(err):
		gvk := schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind)
		it.faultf("the kind %s in %s is not expected here", gvk.Kind, gvk.GroupVersion())
		return it
	default:
		// With a strict decoding error, the decoder still returns the object. So its references are checked as well.
		it.faultf("%v", err)
	}
	if object != nil {
		it.object, _ = object.(metav1.Object)
	}
	return it
}
