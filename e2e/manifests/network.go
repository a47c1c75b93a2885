package main

import (
	"slices"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

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

// checkSelects checks objects that select the webhook's Pods.
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
	// If API servers listen on 443, a second rule beside that for registries allows it.
	leads, secure := false, 0
	for _, rule := range np.Spec.Egress {
		for _, open := range rule.Ports {
			leads = leads || open.Port != nil && *open.Port == intstr.FromInt32(6443)
			if open.Port != nil && *open.Port == intstr.FromInt32(443) {
				secure++
			}
		}
	}
	for _, d := range s.checkSelects(it, np.Namespace, &np.Spec.PodSelector) {
		serves := slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "serve")
		if serves && isTrue(d.Spec.Template.Spec.AutomountServiceAccountToken) != (leads || secure > 1) {
			it.fault("egress has to lead to the Kubernetes API if and only if the Deployment %s mounts a token", d.Name)
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, p := range c.Ports {
				if !admitted(p) {
					it.fault("ingress does not admit the port %s (%d) of the Deployment %s", p.Name, p.ContainerPort, d.Name)
				}
			}
		}
	}
}
