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

// declaredRights lists the rights of each process with the configuration key that needs them, as the program declares them
// (src/rights.rs).
//
//go:embed rights.json
var declaredRights []byte

// verbs returns the verbs that a process may use on a resource, in the order of the chart. With keys, only the rights that these
// configuration keys need count.
func verbs(process, resource string, keys ...string) []string {
	var rights []struct {
		Process, Key, Resource string
		Verbs                  []string
	}
	if err := json.Unmarshal(declaredRights, &rights); err != nil {
		panic(err)
	}
	order := []string{"get", "list", "watch", "patch", "create", "delete"}
	return slices.DeleteFunc(order, func(verb string) bool {
		for _, right := range rights {
			isNeeded := len(keys) == 0 || slices.Contains(keys, right.Key)
			if right.Process == process && right.Resource == resource && isNeeded && slices.Contains(right.Verbs, verb) {
				return false
			}
		}
		return true
	})
}

// managedTLS is the section tls of a configuration with managed certificates.
type managedTLS struct {
	Mode, Secret, ServingSecret string
	WebhookConfigurations       []string
}

// managedCertificates returns the section tls, with the program's defaults, or nil if the certificates come from elsewhere.
func (s itemSet) managedCertificates() *managedTLS {
	if s.hasVariable("TOLERARCH_TLS__MODE", "files") {
		return nil
	}
	for _, c := range all[*core.ConfigMap](s) {
		defaults := managedTLS{
			Secret:                "tolerarch-certificates",
			ServingSecret:         "tolerarch-serving",
			WebhookConfigurations: []string{"zz-tolerarch"},
		}
		config := struct{ TLS managedTLS }{TLS: defaults}
		if yaml.Unmarshal([]byte(c.Data["config.yaml"]), &config) == nil && config.TLS.Mode == "managed" {
			return &config.TLS
		}
	}
	return nil
}

// webhookUsesAPI returns whether the webhook is configured to use the Kubernetes API, and so needs a token.
func (s itemSet) webhookUsesAPI() bool {
	return s.readsPullSecrets() || len(s.discoveredResources()) > 0 || s.warmsFromPods() || s.followsFailedImages()
}

// discoveredResources returns the resources that the program is configured to follow, each with its API group.
func (s itemSet) discoveredResources() map[string]string {
	groups := map[string]string{}
	for _, kind := range []struct{ variable, group, resource string }{
		{"TOLERARCH_DISCOVER__NODE_POOLS", "karpenter.sh", "nodepools"},
		{"TOLERARCH_DISCOVER__NODES", "", "nodes"},
	} {
		isDiscovered := s.hasVariable(kind.variable, "true")
		for _, c := range all[*core.ConfigMap](s) {
			var config struct {
				Discover struct{ NodePools, Nodes bool }
			}
			if yaml.Unmarshal([]byte(c.Data["config.yaml"]), &config) != nil {
				continue
			}
			switch kind.resource {
			case "nodes":
				isDiscovered = isDiscovered || config.Discover.Nodes
			case "nodepools":
				isDiscovered = isDiscovered || config.Discover.NodePools
			}
		}
		if isDiscovered {
			groups[kind.resource] = kind.group
		}
	}
	return groups
}

// warmsFromPods returns whether the program is configured to look up the images of running Pods when it starts.
func (s itemSet) warmsFromPods() bool {
	for _, c := range all[*core.ConfigMap](s) {
		var config struct {
			Cache struct{ Warm struct{ FromPods bool } }
		}
		if yaml.Unmarshal([]byte(c.Data["config.yaml"]), &config) == nil && config.Cache.Warm.FromPods {
			return true
		}
	}
	return s.hasVariable("TOLERARCH_CACHE__WARM__FROM_PODS", "true")
}

// followsFailedImages returns whether the program is configured to follow the failed images that the controller has recorded.
func (s itemSet) followsFailedImages() bool {
	for _, c := range all[*core.ConfigMap](s) {
		var config struct{ Server struct{ FailedImages bool } }
		if yaml.Unmarshal([]byte(c.Data["config.yaml"]), &config) == nil && config.Server.FailedImages {
			return true
		}
	}
	return s.hasVariable("TOLERARCH_SERVER__FAILED_IMAGES", "true")
}

// isForFailedImages returns whether a rule only lets the webhook follow the ConfigMap that the controller writes, and the webhook is
// configured to follow it.
func (s itemSet) isForFailedImages(role string, rule rbac.PolicyRule) bool {
	webhook, ok := strings.CutSuffix(role, "-failed-images")
	return ok && s.followsFailedImages() && reflect.DeepEqual(rule, s.failedImagesRule(webhook+"-controller", "webhook"))
}

// failedImagesRule returns the rule for a process and the ConfigMap in which the controller records failed images.
func (s itemSet) failedImagesRule(controller, process string) rbac.PolicyRule {
	return rbac.PolicyRule{
		APIGroups:     []string{""},
		Resources:     []string{"configmaps"},
		ResourceNames: []string{controller + "-failed-images"},
		Verbs:         verbs(process, "configmaps"),
	}
}

// isForWarmStart returns whether a rule only lets the program list Pods, and the program is configured to do so.
func (s itemSet) isForWarmStart(rule rbac.PolicyRule) bool {
	return s.warmsFromPods() && isRuleFor(rule, "", "pods", verbs("webhook", "pods"))
}

// isRuleFor returns whether a rule is for one resource and these verbs. It ignores the names of objects.
func isRuleFor(rule rbac.PolicyRule, group, resource string, verbs []string) bool {
	return slices.Equal(rule.APIGroups, []string{group}) && slices.Equal(rule.Resources, []string{resource}) && slices.Equal(rule.Verbs, verbs)
}

// isForDiscovery returns whether a rule only lets the program follow a resource that it is configured to follow.
func (s itemSet) isForDiscovery(rule rbac.PolicyRule) bool {
	if len(rule.Resources) != 1 {
		return false
	}
	resource := rule.Resources[0]
	group, ok := s.discoveredResources()[resource]
	return ok && isRuleFor(rule, group, resource, verbs("webhook", resource))
}

// isOfController returns whether objects of this name are the controller's, and a policy of the same name restricts the controller.
func (s itemSet) isOfController(name string) bool {
	return strings.HasSuffix(name, "-controller") && s.hasRequiredPolicy(name)
}

// hasRequiredPolicy returns whether there is an admission policy of this name that fails closed.
func (s itemSet) hasRequiredPolicy(name string) bool {
	policy, ok := find[*admissionregistration.ValidatingAdmissionPolicy](s, "", name)
	return ok && *policy.Spec.FailurePolicy == admissionregistration.Fail
}

// isForController returns whether a rule is exactly one of those that the configured controller needs.
func (s itemSet) isForController(name string, rule rbac.PolicyRule) bool {
	if !s.isOfController(name) {
		return false
	}
	return slices.ContainsFunc(s.controllerRules(name), func(needed rbac.PolicyRule) bool { return reflect.DeepEqual(needed, rule) })
}

// controllerRules returns the rules that the controller needs as it is configured. Its objects have this name.
func (s itemSet) controllerRules(name string) []rbac.PolicyRule {
	var rules []rbac.PolicyRule
	need := func(group, resource string, verbs []string, names ...string) {
		rules = append(rules, rbac.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs})
	}
	need("", "pods", verbs("controller", "pods"))
	need("", "namespaces", verbs("controller", "namespaces"))
	need("coordination.k8s.io", "leases", verbs("controller", "leases"), name)
	events, logs, evicts := s.controllerSettings()
	if events {
		need("events.k8s.io", "events", verbs("controller", "events"))
	}
	if s.followsFailedImages() {
		rules = append(rules, s.failedImagesRule(name, "controller"))
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
	return rules
}

// controllerSettings returns whether the controller is configured to write events, to read the logs of Pods, and to evict Pods.
func (s itemSet) controllerSettings() (events, logs, evicts bool) {
	events = true
	for _, c := range all[*core.ConfigMap](s) {
		var config struct {
			Controller struct{ Events, PodLogs, EvictFailed bool }
		}
		config.Controller.Events = true // the program's default
		if yaml.Unmarshal([]byte(c.Data["config.yaml"]), &config) != nil {
			continue
		}
		events = events && config.Controller.Events
		logs = logs || config.Controller.PodLogs
		evicts = evicts || config.Controller.EvictFailed
	}
	return events, logs, evicts
}

// isForNodeTaints returns whether a rule only lets the controller change nodes, and a policy of the same name restricts the changes.
func (s itemSet) isForNodeTaints(name string, rule rbac.PolicyRule) bool {
	needed := rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: verbs("controller", "nodes", "controller.nodeTaints")}
	return strings.HasSuffix(name, "-node-taints") && s.hasRequiredPolicy(name) && reflect.DeepEqual(needed, rule)
}

// readsPullSecrets returns whether the program is configured to read pull secrets.
func (s itemSet) readsPullSecrets() bool {
	if s.hasVariable("TOLERARCH_CREDENTIALS__PULL_SECRETS", "true") {
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

// hasVariable returns whether an environment variable sets this value in a Deployment, and so overrides the configuration.
func (s itemSet) hasVariable(name, value string) bool {
	for _, d := range all[*apps.Deployment](s) {
		for _, c := range d.Spec.Template.Spec.Containers {
			if slices.Contains(c.Env, core.EnvVar{Name: name, Value: value}) {
				return true
			}
		}
	}
	return false
}

// checkRights reports every right that no process needs as it is configured, and bindings to missing roles and accounts.
func (s itemSet) checkRights(it *item) {
	switch o := it.object.(type) {
	case *rbac.Role:
		s.checkRole(it, o)
	case *rbac.RoleBinding:
		if _, ok := find[*rbac.Role](s, o.Namespace, o.RoleRef.Name); !ok || o.RoleRef.Kind != "Role" {
			it.faultf("there is no %s %s in %s", o.RoleRef.Kind, o.RoleRef.Name, o.Namespace)
		}
		s.checkSubjects(it, o.RoleRef.Name, o.Subjects)
	case *rbac.ClusterRole:
		for _, rule := range o.Rules {
			if !s.isClusterRuleNeeded(o.Name, rule) {
				it.faultf("gives rights in the whole cluster")
			}
		}
	case *rbac.ClusterRoleBinding:
		if _, ok := find[*rbac.ClusterRole](s, "", o.RoleRef.Name); !ok || o.RoleRef.Kind != "ClusterRole" {
			it.faultf("there is no %s %s", o.RoleRef.Kind, o.RoleRef.Name)
		}
		s.checkSubjects(it, o.RoleRef.Name, o.Subjects)
	case *flowcontrol.FlowSchema:
		for _, rule := range o.Spec.Rules {
			for _, subject := range rule.Subjects {
				s.checkAccount(it, string(subject.Kind), subject.ServiceAccount.Namespace, subject.ServiceAccount.Name)
			}
		}
	}
}

func (s itemSet) checkRole(it *item, role *rbac.Role) {
	isOfManagedIssuer := s.managedCertificates() != nil && isOfIssuer(role.Name)
	if !s.webhookUsesAPI() && !s.isOfController(role.Name) && !isOfManagedIssuer {
		it.faultf("gives rights, and tolerarch needs none")
	}
	for _, rule := range role.Rules {
		if s.isForManaged(role.Name, rule, "", "secrets") || s.isForController(role.Name, rule) || s.isForFailedImages(role.Name, rule) {
			continue
		}
		if !s.readsPullSecrets() || !isRuleFor(rule, "", "secrets", verbs("webhook", "secrets")) {
			it.faultf("gives other rights than to get Secrets: %v", rule)
		}
	}
}

// isClusterRuleNeeded returns whether a process needs this rule of a ClusterRole.
func (s itemSet) isClusterRuleNeeded(role string, rule rbac.PolicyRule) bool {
	return s.isForManaged(role, rule, "admissionregistration.k8s.io", "mutatingwebhookconfigurations") ||
		s.isForDiscovery(rule) ||
		s.isForWarmStart(rule) ||
		s.isForController(role, rule) ||
		s.isForNodeTaints(role, rule)
}

// checkSubjects reports subjects of a binding that do not exist, and accounts that must not have the role.
func (s itemSet) checkSubjects(it *item, role string, subjects []rbac.Subject) {
	for _, subject := range subjects {
		s.checkAccount(it, subject.Kind, subject.Namespace, subject.Name)
		s.checkIssuer(it, role, subject.Name)
	}
}

// isOfIssuer returns whether objects of this name belong to the process that issues the certificates.
func isOfIssuer(name string) bool { return strings.HasSuffix(name, "-certificates") }

// checkIssuer reports a role of the issuer for another account, above all the webhook's, and another role for the issuer's account.
func (s itemSet) checkIssuer(it *item, role, account string) {
	if isOfIssuer(role) != isOfIssuer(account) {
		it.faultf("gives %s to the account %s", role, account)
	}
}

// isForManaged returns whether a rule is the issuer's, and is limited to the names of the objects that it writes.
func (s itemSet) isForManaged(role string, rule rbac.PolicyRule, group, resource string) bool {
	managed := s.managedCertificates()
	if managed == nil || !isOfIssuer(role) {
		return false
	}
	names := managed.WebhookConfigurations
	if resource == "secrets" {
		names = []string{managed.Secret, managed.ServingSecret}
	}
	return slices.Equal(rule.ResourceNames, names) && isRuleFor(rule, group, resource, verbs("certificates", resource))
}

func (s itemSet) checkAccount(it *item, kind, namespace, name string) {
	if _, ok := find[*core.ServiceAccount](s, namespace, name); !ok || kind != "ServiceAccount" {
		it.faultf("there is no %s %s/%s", kind, namespace, name)
	}
}

func (s itemSet) checkPodMonitor(it *item, m *monitoring.PodMonitor) {
	for _, d := range s.checkSelects(it, m.Namespace, &m.Spec.Selector) {
		ports := d.Spec.Template.Spec.Containers[0].Ports
		for _, endpoint := range m.Spec.PodMetricsEndpoints {
			if endpoint.Port == nil || !slices.ContainsFunc(ports, func(p core.ContainerPort) bool { return p.Name == *endpoint.Port }) {
				it.faultf("the Deployment %s has no such port", d.Name)
			}
		}
	}
}

func (s itemSet) checkServiceMonitor(it *item, m *monitoring.ServiceMonitor) {
	selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	if err != nil {
		it.faultf("selector: %v", err)
		return
	}
	hasService := false
	for _, service := range all[*core.Service](s) {
		if service.Namespace != m.Namespace || !selector.Matches(labels.Set(service.Labels)) {
			continue
		}
		hasService = true
		for _, endpoint := range m.Spec.Endpoints {
			if !slices.ContainsFunc(service.Spec.Ports, func(p core.ServicePort) bool { return p.Name == endpoint.Port }) {
				it.faultf("the Service %s has no port %s", service.Name, endpoint.Port)
			}
		}
	}
	if !hasService {
		it.faultf("selects no Service")
	}
}
