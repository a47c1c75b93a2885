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

// deploymentsBehind returns the Deployments whose Pods the Service selects.
func (s itemSet) deploymentsBehind(service *core.Service) []*apps.Deployment {
	var deployments []*apps.Deployment
	selector := labels.SelectorFromSet(service.Spec.Selector)
	for _, d := range all[*apps.Deployment](s) {
		if d.Namespace == service.Namespace && len(service.Spec.Selector) > 0 &&
			selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			deployments = append(deployments, d)
		}
	}
	return deployments
}

func (s itemSet) checkService(it *item, service *core.Service) {
	deployments := s.deploymentsBehind(service)
	if len(deployments) == 0 {
		it.faultf("selects the Pods of no Deployment")
	}
	for _, d := range deployments {
		for _, p := range service.Spec.Ports {
			target := p.TargetPort
			if target == (intstr.IntOrString{}) {
				target = intstr.FromInt32(p.Port)
			}
			if !hasPort(d.Spec.Template.Spec, target) {
				it.faultf("targetPort %s of port %d is not a port of the Deployment %s", target.String(), p.Port, d.Name)
			}
		}
	}
}

// checkSelects returns the Deployments whose Pods the selector of an object matches, and reports a selector that matches none.
func (s itemSet) checkSelects(it *item, namespace string, labelSelector *metav1.LabelSelector) []*apps.Deployment {
	selector, err := metav1.LabelSelectorAsSelector(labelSelector)
	if err != nil {
		it.faultf("selector: %v", err)
		return nil
	}
	var selected []*apps.Deployment
	for _, d := range all[*apps.Deployment](s) {
		if d.Namespace == namespace && selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			selected = append(selected, d)
		}
	}
	if len(selected) == 0 {
		it.faultf("selects the Pods of no Deployment")
	}
	return selected
}

func (s itemSet) checkNetworkPolicy(it *item, np *networking.NetworkPolicy) {
	allowsAPI := allowsEgressToAPI(np)
	for _, d := range s.checkSelects(it, np.Namespace, &np.Spec.PodSelector) {
		pod := d.Spec.Template.Spec
		serves := slices.Contains(pod.Containers[0].Args, "serve")
		if serves && isTrue(pod.AutomountServiceAccountToken) != allowsAPI {
			it.faultf("egress has to allow the Kubernetes API if and only if the Deployment %s mounts a token", d.Name)
		}
		for _, c := range pod.Containers {
			for _, p := range c.Ports {
				if !allowsIngress(np, p) {
					it.faultf("ingress does not allow the port %s (%d) of the Deployment %s", p.Name, p.ContainerPort, d.Name)
				}
			}
		}
	}
}

// allowsIngress returns whether an ingress rule allows the port.
func allowsIngress(np *networking.NetworkPolicy, p core.ContainerPort) bool {
	for _, rule := range np.Spec.Ingress {
		if len(rule.Ports) == 0 {
			return true
		}
		for _, allowed := range rule.Ports {
			if allowed.Port == nil || *allowed.Port == intstr.FromInt32(p.ContainerPort) || *allowed.Port == intstr.FromString(p.Name) {
				return true
			}
		}
	}
	return false
}

// allowsEgressToAPI returns whether egress rules allow a port on which API servers listen: 6443, or 443. One rule for 443 is for
// registries, so only a second one is for API servers.
func allowsEgressToAPI(np *networking.NetworkPolicy) bool {
	rulesFor443 := 0
	for _, rule := range np.Spec.Egress {
		for _, allowed := range rule.Ports {
			if allowed.Port == nil {
				continue
			}
			if *allowed.Port == intstr.FromInt32(6443) {
				return true
			}
			if *allowed.Port == intstr.FromInt32(443) {
				rulesFor443++
			}
		}
	}
	return rulesFor443 > 1
}
