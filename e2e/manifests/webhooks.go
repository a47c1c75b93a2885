package main

import (
	"slices"
	"strings"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const injectCAFrom = "cert-manager.io/inject-ca-from"

const profileLabel = "tolerarch.io/profile"

func (s set) checkWebhooks(it *item, c *admissionregistration.MutatingWebhookConfiguration) {
	if len(c.Webhooks) == 0 {
		it.fault("has no webhooks")
	}
	ca := c.Annotations[injectCAFrom]
	caNamespace, caName, _ := strings.Cut(ca, "/")
	certificate, ok := find[*certmanager.Certificate](s, caNamespace, caName)
	for _, w := range c.Webhooks {
		if managed := s.managed(); managed != nil {
			if ca != "" || len(w.ClientConfig.CABundle) > 0 || !slices.Contains(managed.WebhookConfigurations, c.Name) {
				it.fault("%s: tls.mode is managed, and writes the caBundle of %v", w.Name, managed.WebhookConfigurations)
			}
		} else if given := len(w.ClientConfig.CABundle) > 0; !ok && !given {
			it.fault("annotation %s: there is no Certificate %q", injectCAFrom, ca)
		} else if given && ca != "" {
			it.fault("%s: caBundle is given, and cert-manager overwrites it", w.Name)
		}
		if w.FailurePolicy == nil || *w.FailurePolicy != admissionregistration.Ignore {
			it.fault("%s: failurePolicy has to be Ignore", w.Name)
		}
		if w.TimeoutSeconds == nil || *w.TimeoutSeconds < 1 || *w.TimeoutSeconds > 30 {
			it.fault("%s: timeoutSeconds has to be in 1..30", w.Name)
		}
		if w.SideEffects == nil || *w.SideEffects != admissionregistration.SideEffectClassNone {
			it.fault("%s: sideEffects has to be None", w.Name)
		}
		for _, err := range compileErrors(w) {
			it.fault("%s: %v", w.Name, err)
		}
		s.checkWebhookSelectors(it, w)

		ref := w.ClientConfig.Service
		if ref == nil {
			it.fault("%s: clientConfig names no service", w.Name)
			continue
		}
		path := "/mutate"
		if profile := profileOf(w); profile != "" {
			path += "/" + profile
		}
		if ref.Path == nil || *ref.Path != path {
			it.fault("%s: the path has to be %s", w.Name, path)
		}
		service, ok := find[*core.Service](s, ref.Namespace, ref.Name)
		if !ok {
			it.fault("%s: there is no Service %s/%s", w.Name, ref.Namespace, ref.Name)
			continue
		}
		port := int32(443)
		if ref.Port != nil {
			port = *ref.Port
		}
		if !slices.ContainsFunc(service.Spec.Ports, func(p core.ServicePort) bool { return p.Port == port }) {
			it.fault("%s: the Service %s has no port %d", w.Name, service.Name, port)
		}
		if certificate == nil {
			continue
		}
		if host := service.Name + "." + service.Namespace + ".svc"; !slices.Contains(certificate.Spec.DNSNames, host) {
			it.fault("%s: the Certificate %s has no dnsName %s", w.Name, certificate.Name, host)
		}
		for _, d := range s.deploymentsBehind(service) {
			if !mountsSecret(d.Spec.Template.Spec, certificate.Spec.SecretName) {
				it.fault("%s: the Deployment %s does not mount the Secret %s of the Certificate %s",
					w.Name, d.Name, certificate.Spec.SecretName, certificate.Name)
			}
		}
	}
}

// profileOf returns the profile of an entry, which is that of the namespaces that it selects.
func profileOf(w admissionregistration.MutatingWebhook) string {
	if w.NamespaceSelector == nil {
		return ""
	}
	for _, e := range w.NamespaceSelector.MatchExpressions {
		if e.Key == profileLabel && e.Operator == metav1.LabelSelectorOpIn && len(e.Values) == 1 {
			return e.Values[0]
		}
	}
	return ""
}

// checkWebhookSelectors evaluates the selectors with labels as the API server sets them.
func (s set) checkWebhookSelectors(it *item, w admissionregistration.MutatingWebhook) {
	const name, mode = core.LabelMetadataName, "tolerarch.io/mode"
	chosen := func(l labels.Set) labels.Set {
		if profile := profileOf(w); profile != "" {
			l[profileLabel] = profile
		}
		return l
	}
	try := func(field string, selector *metav1.LabelSelector, l labels.Set, want bool) {
		compiled, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			it.fault("%s: %s: %v", w.Name, field, err)
		} else if compiled.Matches(l) != want {
			it.fault("%s: %s has to be %t for the labels %v", w.Name, field, want, l)
		}
	}
	for _, ns := range all[*core.Namespace](s) {
		try("namespaceSelector", w.NamespaceSelector, labels.Set{name: ns.Name}, false)
	}
	try("namespaceSelector", w.NamespaceSelector, chosen(labels.Set{name: "kube-system"}), false)
	try("namespaceSelector", w.NamespaceSelector, chosen(labels.Set{name: "default"}), true)
	try("namespaceSelector", w.NamespaceSelector, chosen(labels.Set{name: "default", mode: "off"}), false)
	if profileOf(w) != "" {
		// At most one entry selects a Pod.
		try("namespaceSelector", w.NamespaceSelector, labels.Set{name: "default"}, false)
	}
	try("objectSelector", w.ObjectSelector, labels.Set{}, true)
	try("objectSelector", w.ObjectSelector, labels.Set{mode: "off"}, false)
}

// hasCABundle returns whether the certificate comes from somewhere else.
func (s set) hasCABundle() bool {
	return slices.ContainsFunc(all[*admissionregistration.MutatingWebhookConfiguration](s),
		func(c *admissionregistration.MutatingWebhookConfiguration) bool {
			return slices.ContainsFunc(c.Webhooks, func(w admissionregistration.MutatingWebhook) bool {
				return len(w.ClientConfig.CABundle) > 0
			})
		})
}

func (s set) certificateOf(namespace, secret string) *certmanager.Certificate {
	for _, c := range all[*certmanager.Certificate](s) {
		if c.Namespace == namespace && c.Spec.SecretName == secret {
			return c
		}
	}
	return nil
}

func (s set) checkCertificate(it *item, c *certmanager.Certificate) {
	ref := c.Spec.IssuerRef
	if _, ok := find[*certmanager.Issuer](s, c.Namespace, ref.Name); !ok || ref.Kind != "Issuer" {
		it.fault("issuerRef: there is no %s %s", ref.Kind, ref.Name)
	}
	if key := c.Spec.PrivateKey; key == nil || key.RotationPolicy != certmanager.RotationPolicyAlways {
		it.fault("privateKey.rotationPolicy has to be Always")
	}
}

func mountsSecret(pod core.PodSpec, secret string) bool {
	for _, v := range pod.Volumes {
		if v.Secret == nil || v.Secret.SecretName != secret {
			continue
		}
		for _, c := range pod.Containers {
			if slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.Name == v.Name }) {
				return true
			}
		}
	}
	return false
}
