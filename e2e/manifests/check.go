package main

import (
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
)

// check adds the faults of each item, and returns the items with one more for each missing kind.
func check(items []*item) []*item {
	s := itemSet(items)
	seen := map[string]bool{}
	for _, it := range items {
		if it.object == nil {
			continue
		}
		key := it.id + " in " + it.object.GetNamespace()
		if seen[key] {
			it.faultf("occurs twice")
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
				it.faultf("no Certificate makes the Secret %s", ca.SecretName)
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

// itemSet holds every item of the input, including items with faults. Otherwise one typo would be reported many times.
type itemSet []*item

// all returns the objects of type T.
func all[T metav1.Object](s itemSet) []T {
	var objects []T
	for _, it := range s {
		if o, ok := it.object.(T); ok {
			objects = append(objects, o)
		}
	}
	return objects
}

// find returns the object of type T with this namespace and name, and whether it exists.
func find[T metav1.Object](s itemSet, namespace, name string) (T, bool) {
	for _, o := range all[T](s) {
		if o.GetNamespace() == namespace && o.GetName() == name {
			return o, true
		}
	}
	var zero T
	return zero, false
}

// missing returns an item with a fault for each required kind that has no object.
func (s itemSet) missing() []*item {
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
			missing = append(missing, &item{id: kind, faults: []string{"is missing"}})
		}
	}
	slices.SortFunc(missing, func(a, b *item) int { return strings.Compare(a.id, b.id) })
	return missing
}

// checkNamespace reports a namespaced object whose namespace is missing, and a namespace of a cluster-scoped object.
func (s itemSet) checkNamespace(it *item) {
	switch it.object.(type) {
	case *core.Namespace, *admissionregistration.MutatingWebhookConfiguration, *admissionregistration.ValidatingAdmissionPolicy,
		*admissionregistration.ValidatingAdmissionPolicyBinding, *flowcontrol.FlowSchema, *rbac.ClusterRole, *rbac.ClusterRoleBinding:
		if ns := it.object.GetNamespace(); ns != "" {
			it.faultf("has the namespace %s, but its kind is cluster-scoped", ns)
		}
	case *rbac.Role, *rbac.RoleBinding:
		// They may be in any namespace whose pull secrets are read.
	default:
		ns := it.object.GetNamespace()
		if _, ok := find[*core.Namespace](s, "", ns); !ok {
			it.faultf("its namespace %q is not among the objects", ns)
		}
	}
}
