package main

import (
	"fmt"
	"path"
	"slices"
	"strings"

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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const injectCAFrom = "cert-manager.io/inject-ca-from"

// check returns the items with their faults, and one more for each kind that is missing altogether.
func check(items []*item) []*item {
	s := set(items)
	seen := map[string]bool{}
	for _, it := range items {
		if it.object == nil {
			continue
		}
		key := it.id + " in " + it.object.GetNamespace()
		if seen[key] {
			it.fault("is there twice")
		}
		seen[key] = true
		s.checkNamespace(it)
		switch o := it.object.(type) {
		case *admissionregistration.MutatingWebhookConfiguration:
			s.checkWebhooks(it, o)
		case *core.Service:
			s.checkService(it, o)
		case *apps.Deployment:
			s.checkDeployment(it, o)
		case *policy.PodDisruptionBudget:
			s.checkSelects(it, o.Namespace, o.Spec.Selector)
		case *networking.NetworkPolicy:
			s.checkNetworkPolicy(it, o)
		case *certmanager.Certificate:
			s.checkCertificate(it, o)
		case *certmanager.Issuer:
			if ca := o.Spec.CA; ca != nil && s.certificateOf(o.Namespace, ca.SecretName) == nil {
				it.fault("no Certificate makes the Secret %s", ca.SecretName)
			}
		case *monitoring.PodMonitor:
			s.checkPodMonitor(it, o)
		case *monitoring.ServiceMonitor:
			s.checkServiceMonitor(it, o)
		default:
			s.checkRights(it)
		}
	}
	return append(items, s.missing()...)
}

// set is everything that was read. Objects with faults count, so that one typo is not reported many times over.
type set []*item

func all[T metav1.Object](s set) []T {
	var found []T
	for _, it := range s {
		if o, ok := it.object.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

func find[T metav1.Object](s set, namespace, name string) (T, bool) {
	for _, o := range all[T](s) {
		if o.GetNamespace() == namespace && o.GetName() == name {
			return o, true
		}
	}
	var none T
	return none, false
}

func (s set) missing() []*item {
	counts := map[string]int{
		"MutatingWebhookConfiguration": len(all[*admissionregistration.MutatingWebhookConfiguration](s)),
		"Service":                      len(all[*core.Service](s)),
		"Deployment":                   len(all[*apps.Deployment](s)),
		"PodDisruptionBudget":          len(all[*policy.PodDisruptionBudget](s)),
		"NetworkPolicy":                len(all[*networking.NetworkPolicy](s)),
	}
	var missing []*item
	for kind, count := range counts {
		if count == 0 {
			missing = append(missing, &item{id: kind, faults: []string{"there is none"}})
		}
	}
	slices.SortFunc(missing, func(a, b *item) int { return strings.Compare(a.id, b.id) })
	return missing
}

func (s set) checkNamespace(it *item) {
	switch it.object.(type) {
	case *core.Namespace, *admissionregistration.MutatingWebhookConfiguration, *flowcontrol.FlowSchema, *rbac.ClusterRole, *rbac.ClusterRoleBinding:
		if ns := it.object.GetNamespace(); ns != "" {
			it.fault("has a namespace (%s), but its kind has none", ns)
		}
	case *rbac.Role, *rbac.RoleBinding: // in the namespaces whose pull secrets are read
	default:
		ns := it.object.GetNamespace()
		if _, ok := find[*core.Namespace](s, "", ns); !ok {
			it.fault("its namespace %q is not among the objects", ns)
		}
	}
}

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

// checkWebhookSelectors tries the selectors out: the API server fills them with these labels.
// profileOf tells for which profile an entry is: that of the namespaces that it selects.
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

const profileLabel = "tolerarch.io/profile"

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
		// No Pod is for two entries.
		try("namespaceSelector", w.NamespaceSelector, labels.Set{name: "default"}, false)
	}
	try("objectSelector", w.ObjectSelector, labels.Set{}, true)
	try("objectSelector", w.ObjectSelector, labels.Set{mode: "off"}, false)
}

func (s set) deploymentsBehind(service *core.Service) []*apps.Deployment {
	var behind []*apps.Deployment
	selector := labels.SelectorFromSet(service.Spec.Selector)
	for _, d := range all[*apps.Deployment](s) {
		if d.Namespace == service.Namespace && len(service.Spec.Selector) > 0 &&
			selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			behind = append(behind, d)
		}
	}
	return behind
}

func (s set) checkService(it *item, service *core.Service) {
	behind := s.deploymentsBehind(service)
	if len(behind) == 0 {
		it.fault("selects the Pods of no Deployment")
	}
	for _, d := range behind {
		for _, p := range service.Spec.Ports {
			target := p.TargetPort
			if target == (intstr.IntOrString{}) {
				target = intstr.FromInt32(p.Port)
			}
			if !hasPort(d.Spec.Template.Spec, target) {
				it.fault("targetPort %s of port %d is no port of the Deployment %s", target.String(), p.Port, d.Name)
			}
		}
	}
}

// checkSelects is for the objects that say something about the webhook's Pods.
func (s set) checkSelects(it *item, namespace string, labelSelector *metav1.LabelSelector) []*apps.Deployment {
	selector, err := metav1.LabelSelectorAsSelector(labelSelector)
	if err != nil {
		it.fault("selector: %v", err)
		return nil
	}
	var selected []*apps.Deployment
	for _, d := range all[*apps.Deployment](s) {
		if d.Namespace == namespace && selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			selected = append(selected, d)
		}
	}
	if len(selected) == 0 {
		it.fault("selects the Pods of no Deployment")
	}
	return selected
}

func (s set) checkNetworkPolicy(it *item, np *networking.NetworkPolicy) {
	admitted := func(p core.ContainerPort) bool {
		for _, rule := range np.Spec.Ingress {
			if len(rule.Ports) == 0 {
				return true
			}
			for _, open := range rule.Ports {
				if open.Port == nil || *open.Port == intstr.FromInt32(p.ContainerPort) || *open.Port == intstr.FromString(p.Name) {
					return true
				}
			}
		}
		return false
	}
	for _, d := range s.checkSelects(it, np.Namespace, &np.Spec.PodSelector) {
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, p := range c.Ports {
				if !admitted(p) {
					it.fault("ingress does not admit the port %s (%d) of the Deployment %s", p.Name, p.ContainerPort, d.Name)
				}
			}
		}
	}
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

func (s set) checkDeployment(it *item, d *apps.Deployment) {
	s.checkSelects(it, d.Namespace, d.Spec.Selector)
	pod := d.Spec.Template.Spec

	account, ok := find[*core.ServiceAccount](s, d.Namespace, pod.ServiceAccountName)
	if !ok {
		it.fault("there is no ServiceAccount %q", pod.ServiceAccountName)
	} else if !isFalse(account.AutomountServiceAccountToken) || isTrue(pod.AutomountServiceAccountToken) != s.usesTheAPI() {
		it.fault("automountServiceAccountToken has to be false in the ServiceAccount, and in the Pod true if and only if it uses the API")
	}
	// The variables of service links begin with the name of a Service, as those that override settings do.
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		it.fault("enableServiceLinks has to be false")
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		it.fault("uses a namespace of the host")
	}
	for _, v := range pod.Volumes {
		switch {
		case v.ConfigMap != nil:
			if _, ok := find[*core.ConfigMap](s, d.Namespace, v.ConfigMap.Name); !ok {
				it.fault("volume %s: there is no ConfigMap %s", v.Name, v.ConfigMap.Name)
			}
		case v.Secret != nil:
			if s.certificateOf(d.Namespace, v.Secret.SecretName) == nil && !s.hasCABundle() {
				it.fault("volume %s: no Certificate makes the Secret %s", v.Name, v.Secret.SecretName)
			}
		case v.HostPath != nil:
			it.fault("volume %s mounts a path of the host", v.Name)
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, problem := range soft(pod.SecurityContext, c.SecurityContext) {
			it.fault("container %s: %s", c.Name, problem)
		}
		for _, probe := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if probe == nil || probe.HTTPGet == nil {
				it.fault("container %s: needs httpGet probes for liveness and readiness", c.Name)
			} else if !hasPort(pod, probe.HTTPGet.Port) {
				it.fault("container %s: no port %s for the probe %s", c.Name, probe.HTTPGet.Port.String(), probe.HTTPGet.Path)
			}
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
				it.fault("container %s: there is no volume %s", c.Name, m.Name)
			}
			if m.SubPath != "" || m.SubPathExpr != "" {
				it.fault("container %s: files mounted by subPath (%s) do not follow changes", c.Name, m.MountPath)
			}
		}
		if err := s.configError(d.Namespace, pod, c); err != nil {
			it.fault("container %s: %v", c.Name, err)
		}
	}
}

// configError tells whether the file after --config is one that a ConfigMap brings there.
func (s set) configError(namespace string, pod core.PodSpec, c core.Container) error {
	i := slices.Index(c.Args, "--config")
	if i < 0 || i+1 == len(c.Args) {
		return nil
	}
	file := c.Args[i+1]
	for _, m := range c.VolumeMounts {
		if m.MountPath != path.Dir(file) {
			continue
		}
		for _, v := range pod.Volumes {
			if v.Name != m.Name || v.ConfigMap == nil {
				continue
			}
			if configMap, ok := find[*core.ConfigMap](s, namespace, v.ConfigMap.Name); ok {
				if _, ok := configMap.Data[path.Base(file)]; ok {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("no ConfigMap brings the file %s", file)
}

// soft lists what keeps a container from being hardened.
func soft(pod *core.PodSecurityContext, c *core.SecurityContext) []string {
	if pod == nil || c == nil {
		return []string{"needs a securityContext, and its Pod too"}
	}
	var problems []string
	require := func(ok bool, problem string) {
		if !ok {
			problems = append(problems, problem)
		}
	}
	require(isTrue(pod.RunAsNonRoot) && !isFalse(c.RunAsNonRoot), "runAsNonRoot has to be true")
	require(pod.RunAsUser == nil && pod.RunAsGroup == nil && c.RunAsUser == nil && c.RunAsGroup == nil,
		"runAsUser has to be the image's, or what OpenShift assigns")
	require(pod.SeccompProfile != nil && pod.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault &&
		c.SeccompProfile == nil, "seccompProfile has to be RuntimeDefault")
	require(isFalse(c.AllowPrivilegeEscalation), "allowPrivilegeEscalation has to be false")
	require(isTrue(c.ReadOnlyRootFilesystem), "readOnlyRootFilesystem has to be true")
	require(!isTrue(c.Privileged), "is privileged")
	require(c.Capabilities != nil && len(c.Capabilities.Add) == 0 &&
		slices.Contains(c.Capabilities.Drop, "ALL"), "capabilities have to drop ALL and add none")
	return problems
}

func hasPort(pod core.PodSpec, port intstr.IntOrString) bool {
	for _, c := range pod.Containers {
		for _, p := range c.Ports {
			if port == intstr.FromString(p.Name) || port == intstr.FromInt32(p.ContainerPort) {
				return true
			}
		}
	}
	return false
}

// hasCABundle tells whether the certificate comes from somewhere else.
func (s set) hasCABundle() bool {
	return slices.ContainsFunc(all[*admissionregistration.MutatingWebhookConfiguration](s),
		func(c *admissionregistration.MutatingWebhookConfiguration) bool {
			return slices.ContainsFunc(c.Webhooks, func(w admissionregistration.MutatingWebhook) bool {
				return len(w.ClientConfig.CABundle) > 0
			})
		})
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

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }
