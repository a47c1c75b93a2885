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

func (s itemSet) checkWebhooks(it *item, c *admissionregistration.MutatingWebhookConfiguration) {
	if len(c.Webhooks) == 0 {
		it.faultf("has no webhooks")
	}
	certificateName := c.Annotations[injectCAFrom]
	namespace, name, _ := strings.Cut(certificateName, "/")
	certificate, ok := find[*certmanager.Certificate](s, namespace, name)
	for _, w := range c.Webhooks {
		hasCABundle := len(w.ClientConfig.CABundle) > 0
		if managed := s.managedCertificates(); managed != nil {
			if certificateName != "" || hasCABundle || !slices.Contains(managed.WebhookConfigurations, c.Name) {
				it.faultf("%s: tls.mode is managed, and writes the caBundle of %v", w.Name, managed.WebhookConfigurations)
			}
		} else if !ok && !hasCABundle {
			it.faultf("annotation %s: there is no Certificate %q", injectCAFrom, certificateName)
		} else if hasCABundle && certificateName != "" {
			it.faultf("%s: cert-manager would overwrite the caBundle", w.Name)
		}
		if w.FailurePolicy == nil || *w.FailurePolicy != admissionregistration.Ignore {
			it.faultf("%s: failurePolicy has to be Ignore", w.Name)
		}
		if w.TimeoutSeconds == nil || *w.TimeoutSeconds < 1 || *w.TimeoutSeconds > 30 {
			it.faultf("%s: timeoutSeconds has to be in 1..30", w.Name)
		}
		if w.SideEffects == nil || *w.SideEffects != admissionregistration.SideEffectClassNone {
			it.faultf("%s: sideEffects has to be None", w.Name)
		}
		for _, err := range compileErrors(w) {
			it.faultf("%s: %v", w.Name, err)
		}
		s.checkWebhookSelectors(it, w)
		s.checkWebhookService(it, w, certificate)
	}
}

// checkWebhookService reports a webhook whose path or Service is wrong. The certificate is that of cert-manager, if there is one.
func (s itemSet) checkWebhookService(it *item, w admissionregistration.MutatingWebhook, certificate *certmanager.Certificate) {
	ref := w.ClientConfig.Service
	if ref == nil {
		it.faultf("%s: clientConfig names no service", w.Name)
		return
	}
	path := "/mutate"
	if profile := profileOf(w); profile != "" {
		path += "/" + profile
	}
	if ref.Path == nil || *ref.Path != path {
		it.faultf("%s: the path has to be %s", w.Name, path)
	}
	service, ok := find[*core.Service](s, ref.Namespace, ref.Name)
	if !ok {
		it.faultf("%s: there is no Service %s/%s", w.Name, ref.Namespace, ref.Name)
		return
	}
	port := int32(443)
	if ref.Port != nil {
		port = *ref.Port
	}
	if !slices.ContainsFunc(service.Spec.Ports, func(p core.ServicePort) bool { return p.Port == port }) {
		it.faultf("%s: the Service %s has no port %d", w.Name, service.Name, port)
	}
	if certificate == nil {
		return
	}
	if host := service.Name + "." + service.Namespace + ".svc"; !slices.Contains(certificate.Spec.DNSNames, host) {
		it.faultf("%s: the Certificate %s has no dnsName %s", w.Name, certificate.Name, host)
	}
	for _, d := range s.deploymentsBehind(service) {
		if !mountsSecret(d.Spec.Template.Spec, certificate.Spec.SecretName) {
			it.faultf("%s: the Deployment %s does not mount the Secret %s of the Certificate %s",
				w.Name, d.Name, certificate.Spec.SecretName, certificate.Name)
		}
	}
}

// profileOf returns the profile of the namespaces that a webhook selects, or an empty text if it selects namespaces without one.
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

// checkWebhookSelectors evaluates the selectors with the labels that namespaces and Pods have.
func (s itemSet) checkWebhookSelectors(it *item, w admissionregistration.MutatingWebhook) {
	const name, mode = core.LabelMetadataName, "tolerarch.io/mode"
	withProfile := func(l labels.Set) labels.Set {
		if profile := profileOf(w); profile != "" {
			l[profileLabel] = profile
		}
		return l
	}
	expect := func(field string, selector *metav1.LabelSelector, l labels.Set, want bool) {
		compiled, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			it.faultf("%s: %s: %v", w.Name, field, err)
		} else if compiled.Matches(l) != want {
			it.faultf("%s: %s has to be %t for the labels %v", w.Name, field, want, l)
		}
	}
	for _, ns := range all[*core.Namespace](s) {
		expect("namespaceSelector", w.NamespaceSelector, labels.Set{name: ns.Name}, false)
	}
	expect("namespaceSelector", w.NamespaceSelector, withProfile(labels.Set{name: "kube-system"}), false)
	expect("namespaceSelector", w.NamespaceSelector, withProfile(labels.Set{name: "default"}), true)
	expect("namespaceSelector", w.NamespaceSelector, withProfile(labels.Set{name: "default", mode: "off"}), false)
	if profileOf(w) != "" {
		// Namespaces without a profile belong to another webhook: at most one webhook is called for a Pod.
		expect("namespaceSelector", w.NamespaceSelector, labels.Set{name: "default"}, false)
	}
	expect("objectSelector", w.ObjectSelector, labels.Set{}, true)
	expect("objectSelector", w.ObjectSelector, labels.Set{mode: "off"}, false)
}

// hasCABundle returns whether a webhook has its caBundle in the manifests, so that the certificate comes from elsewhere.
func (s itemSet) hasCABundle() bool {
	return slices.ContainsFunc(all[*admissionregistration.MutatingWebhookConfiguration](s),
		func(c *admissionregistration.MutatingWebhookConfiguration) bool {
			return slices.ContainsFunc(c.Webhooks, func(w admissionregistration.MutatingWebhook) bool {
				return len(w.ClientConfig.CABundle) > 0
			})
		})
}

// certificateOf returns the Certificate that makes a Secret, or nil.
func (s itemSet) certificateOf(namespace, secret string) *certmanager.Certificate {
	for _, c := range all[*certmanager.Certificate](s) {
		if c.Namespace == namespace && c.Spec.SecretName == secret {
			return c
		}
	}
	return nil
}

func (s itemSet) checkCertificate(it *item, c *certmanager.Certificate) {
	ref := c.Spec.IssuerRef
	if _, ok := find[*certmanager.Issuer](s, c.Namespace, ref.Name); !ok || ref.Kind != "Issuer" {
		it.faultf("issuerRef: there is no %s %s", ref.Kind, ref.Name)
	}
	if key := c.Spec.PrivateKey; key == nil || key.RotationPolicy != certmanager.RotationPolicyAlways {
		it.faultf("privateKey.rotationPolicy has to be Always")
	}
}

// mountsSecret returns whether a container of the Pod mounts the Secret.
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
