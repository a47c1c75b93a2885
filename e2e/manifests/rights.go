package main

import (
	"slices"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// managedTLS is what the configuration says if the program manages its certificates.
type managedTLS struct {
	Mode, Secret          string
	WebhookConfigurations []string
}

// managed gives it, with the program's defaults; nil if the certificates come from elsewhere.
func (s set) managed() *managedTLS {
	if s.sets("TOLERARCH_TLS__MODE", "files") {
		return nil
	}
	for _, c := range all[*core.ConfigMap](s) {
		config := struct{ TLS managedTLS }{managedTLS{Secret: "tolerarch-certificates", WebhookConfigurations: []string{"zz-tolerarch"}}}
		if yaml.Unmarshal([]byte(c.Data["config.yaml"]), &config) == nil && config.TLS.Mode == "managed" {
			return &config.TLS
		}
	}
	return nil
}

// usesTheAPI tells whether the program needs a token.
func (s set) usesTheAPI() bool {
	return s.readsPullSecrets() || s.managed() != nil
}

// readsPullSecrets tells whether the program is configured to.
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

// sets tells whether a variable overrides the configuration.
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

// checkRights lets pass the rights that are used: to get Secrets of single namespaces, and to write the names that managed
// certificates take.
func (s set) checkRights(it *item) {
	switch o := it.object.(type) {
	case *rbac.Role:
		if !s.usesTheAPI() {
			it.fault("gives rights, and tolerarch needs none")
		}
		for _, rule := range o.Rules {
			if s.isForManaged(rule, "", "secrets") {
				continue
			}
			if !s.readsPullSecrets() || !slices.Equal(rule.APIGroups, []string{""}) || !slices.Equal(rule.Resources, []string{"secrets"}) || !slices.Equal(rule.Verbs, []string{"get"}) {
				it.fault("gives other rights than to get Secrets: %v", rule)
			}
		}
	case *rbac.RoleBinding:
		if _, ok := find[*rbac.Role](s, o.Namespace, o.RoleRef.Name); !ok || o.RoleRef.Kind != "Role" {
			it.fault("there is no %s %s in %s", o.RoleRef.Kind, o.RoleRef.Name, o.Namespace)
		}
		for _, subject := range o.Subjects {
			s.checkAccount(it, subject.Kind, subject.Namespace, subject.Name)
		}
	case *rbac.ClusterRole:
		for _, rule := range o.Rules {
			if !s.isForManaged(rule, "admissionregistration.k8s.io", "mutatingwebhookconfigurations") {
				it.fault("gives rights in the whole cluster")
			}
		}
	case *rbac.ClusterRoleBinding:
		if _, ok := find[*rbac.ClusterRole](s, "", o.RoleRef.Name); !ok || o.RoleRef.Kind != "ClusterRole" {
			it.fault("there is no %s %s", o.RoleRef.Kind, o.RoleRef.Name)
		}
		for _, subject := range o.Subjects {
			s.checkAccount(it, subject.Kind, subject.Namespace, subject.Name)
		}
	case *flowcontrol.FlowSchema:
		for _, rule := range o.Spec.Rules {
			for _, subject := range rule.Subjects {
				s.checkAccount(it, string(subject.Kind), subject.ServiceAccount.Namespace, subject.ServiceAccount.Name)
			}
		}
	}
}

// isForManaged tells whether a rule is for nothing but the names that managed certificates take.
func (s set) isForManaged(rule rbac.PolicyRule, group, resource string) bool {
	managed := s.managed()
	if managed == nil || !slices.Equal(rule.APIGroups, []string{group}) || !slices.Equal(rule.Resources, []string{resource}) {
		return false
	}
	if resource == "secrets" {
		return slices.Equal(rule.ResourceNames, []string{managed.Secret}) && slices.Equal(rule.Verbs, []string{"get", "patch", "create"})
	}
	return slices.Equal(rule.ResourceNames, managed.WebhookConfigurations) && slices.Equal(rule.Verbs, []string{"get", "patch"})
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
