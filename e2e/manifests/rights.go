package main

import (
	_ "embed"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// declared has the rights of each process by the configuration key that needs them, as the program declares them
// (src/rights.rs).
//
//go:embed rights.json
var declared []byte

// verbs returns the verbs that a process may use on a resource, for these keys or for all, in the order of the chart.
func verbs(process, resource string, keys ...string) []string {
	var rights []struct {
		Process, Key, Resource string
		Verbs                  []string
	}
	if err := json.Unmarshal(declared, &rights); err != nil {
		panic(err)
	}
	order := []string{"get", "list", "watch", "patch", "create", "delete"}
	return slices.DeleteFunc(order, func(verb string) bool {
		for _, right := range rights {
			if right.Process == process && right.Resource == resource && (len(keys) == 0 || slices.Contains(keys, right.Key)) && slices.Contains(right.Verbs, verb) {
				return false
			}
		}
		return true
	})
}

// managedTLS has the settings of managed certificates.
type managedTLS struct {
	Mode, Secret, ServingSecret string
	WebhookConfigurations       []string
}

// managed returns the settings with the program's defaults, or nil if the certificates come from elsewhere.
func (s set) managed() *managedTLS {
	if s.sets("TOLERARCH_TLS__MODE", "files") {
		return nil
	}
	for _, c := range all[*core.ConfigMap](s) {
		config := struct{ TLS managedTLS }{managedTLS{Secret: "tolerarch-certificates", ServingSecret: "tolerarch-serving", WebhookConfigurations: []string{"zz-tolerarch"}}}
		if yaml.Unmarshal([]byte(c.Data["config.yaml"]), &config) == nil && config.TLS.Mode == "managed" {
			return &config.TLS
		}
	}
	return nil
}

// usesTheAPI returns whether the program needs a token.
func (s set) usesTheAPI() bool {
	return s.readsPullSecrets() || len(s.discovers()) > 0 || s.warms() || s.followsFailedImages()
}

// discovers returns the resources, with their groups, that the configuration makes the program follow.
func (s set) discovers() map[string]string {
	found := map[string]string{}
	for _, kind := range []struct{ variable, group, resource string }{
		{"TOLERARCH_DISCOVER__NODE_POOLS", "karpenter.sh", "nodepools"},
		{"TOLERARCH_DISCOVER__NODES", "", "nodes"},
	} {
		on := s.sets(kind.variable, "true")
		for _, c := range all[*core.ConfigMap](s) {
			var config struct {
				Discover struct{ NodePools, Nodes bool }
			}
			if yaml.Unmarshal([]byte(c.Data["config.yaml"]), &config) == nil {
				on = on || kind.resource == "nodes" && config.Discover.Nodes || kind.resource == "nodepools" && config.Discover.NodePools
			}
		}
		if on {
			found[kind.resource] = kind.group
		}
	}
	return found
}

// warms returns whether the program is configured to look up the images of running Pods.
func (s set) warms() bool {
	for _, c := range all[*core.ConfigMap](s) {
		var config struct {
			Cache struct{ Warm struct{ FromPods bool } }
		}
		if yaml.Unmarshal([]byte(c.Data["config.yaml"]), &config) == nil && config.Cache.Warm.FromPods {
			return true
		}
	}
	return s.sets("TOLERARCH_CACHE__WARM__FROM_PODS", "true")
}

// followsFailedImages returns whether the program is configured to decide by the images that the controller has recorded.
func (s set) followsFailedImages() bool {
	for _, c := range all[*core.ConfigMap](s) {
		var config struct{ Server struct{ FailedImages bool } }
		if yaml.Unmarshal([]byte(c.Data["config.yaml"]), &config) == nil && config.Server.FailedImages {
			return true
		}
	}
	return s.sets("TOLERARCH_SERVER__FAILED_IMAGES", "true")
}

// isForFailedImages returns whether a rule lets the webhook follow the only ConfigMap that the controller writes, if it is
// configured to.
func (s set) isForFailedImages(role string, rule rbac.PolicyRule) bool {
	webhook, ok := strings.CutSuffix(role, "-failed-images")
	return ok && s.followsFailedImages() && reflect.DeepEqual(rule, s.failedImages(webhook+"-controller", "webhook"))
}

func (s set) failedImages(controller, process string) rbac.PolicyRule {
	return rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{controller + "-failed-images"}, Verbs: verbs(process, "configmaps")}
}

// isForWarmStart returns whether a rule lets the program list Pods, if it is configured to.
func (s set) isForWarmStart(rule rbac.PolicyRule) bool {
	return s.warms() && slices.Equal(rule.APIGroups, []string{""}) && slices.Equal(rule.Resources, []string{"pods"}) && slices.Equal(rule.Verbs, verbs("webhook", "pods"))
}

// isForDiscovery returns whether a rule lets the program follow the configured objects, and nothing else.
func (s set) isForDiscovery(rule rbac.PolicyRule) bool {
	if len(rule.APIGroups) != 1 || len(rule.Resources) != 1 {
		return false
	}
	group, ok := s.discovers()[rule.Resources[0]]
	return ok && group == rule.APIGroups[0] && slices.Equal(rule.Verbs, verbs("webhook", rule.Resources[0]))
}

// isOfController returns whether objects of this name are the controller's. A policy of the same name restricts it.
func (s set) isOfController(name string) bool {
	fence, ok := find[*admissionregistration.ValidatingAdmissionPolicy](s, "", name)
	return ok && strings.HasSuffix(name, "-controller") && *fence.Spec.FailurePolicy == admissionregistration.Fail
}

// isForController returns whether a rule lets the controller do what it is for, and nothing else.
func (s set) isForController(name string, rule rbac.PolicyRule) bool {
	var needed []rbac.PolicyRule
	need := func(group, resource string, verbs []string, names ...string) {
		needed = append(needed, rbac.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs})
	}
	need("", "pods", verbs("controller", "pods"))
	need("", "namespaces", verbs("controller", "namespaces"))
	need("coordination.k8s.io", "leases", verbs("controller", "leases"), name)
	events, logs, evicts := s.controls()
	if events {
		need("events.k8s.io", "events", verbs("controller", "events"))
	}
	if s.followsFailedImages() {
		needed = append(needed, s.failedImages(name, "controller"))
		if evicts {
			need("", "pods/eviction", verbs("controller", "pods/eviction"))
		}
	}
	if events || s.followsFailedImages() {
		need("", "nodes", verbs("controller", "nodes", "controller.events", "controller.learn"))
		if logs {
			need("", "pods/log", verbs("controller", "pods/log"))
		}
	}
	for _, c := range all[*admissionregistration.MutatingWebhookConfiguration](s) {
		need("admissionregistration.k8s.io", "mutatingwebhookconfigurations", verbs("controller", "mutatingwebhookconfigurations"), c.Name)
	}
	return s.isOfController(name) && slices.ContainsFunc(needed, func(one rbac.PolicyRule) bool { return reflect.DeepEqual(one, rule) })
}

// controls returns whether the controller is configured to write events, to read logs for them, and to evict Pods.
func (s set) controls() (events, logs, evicts bool) {
	events = true
	for _, c := range all[*core.ConfigMap](s) {
		config := struct {
			Controller struct{ Events, PodLogs, EvictFailed bool }
		}{struct{ Events, PodLogs, EvictFailed bool }{true, false, false}}
		if own := &config.Controller; yaml.Unmarshal([]byte(c.Data["config.yaml"]), &config) == nil {
			events, logs, evicts = events && own.Events, logs || own.PodLogs, evicts || own.EvictFailed
		}
	}
	return events, logs, evicts
}

// isForNodeTaints returns whether a rule lets the controller change nodes. A policy of the same name restricts the changes.
func (s set) isForNodeTaints(name string, rule rbac.PolicyRule) bool {
	fence, ok := find[*admissionregistration.ValidatingAdmissionPolicy](s, "", name)
	needed := rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: verbs("controller", "nodes", "controller.nodeTaints")}
	return ok && strings.HasSuffix(name, "-node-taints") && *fence.Spec.FailurePolicy == admissionregistration.Fail && reflect.DeepEqual(needed, rule)
}

// readsPullSecrets returns whether the program is configured to read pull secrets.
func (s set) readsPullSecrets() bool {
	if s.sets("TOLERARCH_CREDENTIALS__PULL_SECRETS", "true") {
		return true
	}
	for _, c := range all[*core.ConfigMap](s) {
		var config struct{ Credentials struct{ PullSecrets bool } }
		if yaml.Unmarshal([]byte(c.Data["config.yaml"]), &config) == nil && config.Credentials.PullSecrets {
			return true
		}
	}
	return false
}

// sets returns whether a variable overrides the configuration.
func (s set) sets(name, value string) bool {
	for _, d := range all[*apps.Deployment](s) {
		for _, c := range d.Spec.Template.Spec.Containers {
			if slices.Contains(c.Env, core.EnvVar{Name: name, Value: value}) {
				return true
			}
		}
	}
	return false
}

// checkRights reports every right that no process uses. In use are rights to get Secrets in single namespaces, to follow objects for
// discovery, and to write the objects of managed certificates by their names.
func (s set) checkRights(it *item) {
	switch o := it.object.(type) {
	case *rbac.Role:
		if !s.usesTheAPI() && !s.isOfController(o.Name) && !(s.managed() != nil && isOfIssuer(o.Name)) {
			it.fault("gives rights, and tolerarch needs none")
		}
		for _, rule := range o.Rules {
			if s.isForManaged(o.Name, rule, "", "secrets") || s.isForController(o.Name, rule) || s.isForFailedImages(o.Name, rule) {
				continue
			}
			if !s.readsPullSecrets() || !slices.Equal(rule.APIGroups, []string{""}) || !slices.Equal(rule.Resources, []string{"secrets"}) || !slices.Equal(rule.Verbs, verbs("webhook", "secrets")) {
				it.fault("gives other rights than to get Secrets: %v", rule)
			}
		}
	case *rbac.RoleBinding:
		if _, ok := find[*rbac.Role](s, o.Namespace, o.RoleRef.Name); !ok || o.RoleRef.Kind != "Role" {
			it.fault("there is no %s %s in %s", o.RoleRef.Kind, o.RoleRef.Name, o.Namespace)
		}
		for _, subject := range o.Subjects {
			s.checkAccount(it, subject.Kind, subject.Namespace, subject.Name)
			s.checkIssuer(it, o.RoleRef.Name, subject.Name)
		}
	case *rbac.ClusterRole:
		for _, rule := range o.Rules {
			if !s.isForManaged(o.Name, rule, "admissionregistration.k8s.io", "mutatingwebhookconfigurations") && !s.isForDiscovery(rule) && !s.isForWarmStart(rule) && !s.isForController(o.Name, rule) && !s.isForNodeTaints(o.Name, rule) {
				it.fault("gives rights in the whole cluster")
			}
		}
	case *rbac.ClusterRoleBinding:
		if _, ok := find[*rbac.ClusterRole](s, "", o.RoleRef.Name); !ok || o.RoleRef.Kind != "ClusterRole" {
			it.fault("there is no %s %s", o.RoleRef.Kind, o.RoleRef.Name)
		}
		for _, subject := range o.Subjects {
			s.checkAccount(it, subject.Kind, subject.Namespace, subject.Name)
			s.checkIssuer(it, o.RoleRef.Name, subject.Name)
		}
	case *flowcontrol.FlowSchema:
		for _, rule := range o.Spec.Rules {
			for _, subject := range rule.Subjects {
				s.checkAccount(it, string(subject.Kind), subject.ServiceAccount.Namespace, subject.ServiceAccount.Name)
			}
		}
	}
}

// isOfIssuer returns whether objects of this name are those of the process that issues the certificates.
func isOfIssuer(name string) bool { return strings.HasSuffix(name, "-certificates") }

// checkIssuer reports other accounts that get the issuer's rights, above all the webhook's.
func (s set) checkIssuer(it *item, role, account string) {
	if isOfIssuer(role) != isOfIssuer(account) {
		it.fault("gives %s to the account %s", role, account)
	}
}

// isForManaged returns whether a rule is the issuer's, and is limited to the names of managed certificates.
func (s set) isForManaged(role string, rule rbac.PolicyRule, group, resource string) bool {
	managed := s.managed()
	if managed == nil || !isOfIssuer(role) || !slices.Equal(rule.APIGroups, []string{group}) || !slices.Equal(rule.Resources, []string{resource}) {
		return false
	}
	names := managed.WebhookConfigurations
	if resource == "secrets" {
		names = []string{managed.Secret, managed.ServingSecret}
	}
	return slices.Equal(rule.ResourceNames, names) && slices.Equal(rule.Verbs, verbs("certificates", resource))
}

func (s set) checkAccount(it *item, kind, namespace, name string) {
	if _, ok := find[*core.ServiceAccount](s, namespace, name); !ok || kind != "ServiceAccount" {
		it.fault("there is no %s %s/%s", kind, namespace, name)
	}
}

func (s set) checkPodMonitor(it *item, m *monitoring.PodMonitor) {
	for _, d := range s.checkSelects(it, m.Namespace, &m.Spec.Selector) {
		for _, endpoint := range m.Spec.PodMetricsEndpoints {
			if endpoint.Port == nil || !slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Ports, func(p core.ContainerPort) bool { return p.Name == *endpoint.Port }) {
				it.fault("the Deployment %s has no such port", d.Name)
			}
		}
	}
}

func (s set) checkServiceMonitor(it *item, m *monitoring.ServiceMonitor) {
	selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	if err != nil {
		it.fault("selector: %v", err)
		return
	}
	found := false
	for _, service := range all[*core.Service](s) {
		if service.Namespace != m.Namespace || !selector.Matches(labels.Set(service.Labels)) {
			continue
		}
		found = true
		for _, endpoint := range m.Spec.Endpoints {
			if !slices.ContainsFunc(service.Spec.Ports, func(p core.ServicePort) bool { return p.Name == endpoint.Port }) {
				it.fault("the Service %s has no port %s", service.Name, endpoint.Port)
			}
		}
	}
	if !found {
		it.fault("selects no Service")
	}
}
