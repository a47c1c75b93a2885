package main

import (
	"fmt"
	"path"
	"slices"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// readinessTime is longer than the program holds a probe during its start (crates/webhook/src/admin.rs).
const readinessTime = 5

func (s set) checkDeployment(it *item, d *apps.Deployment) {
	s.checkSelects(it, d.Namespace, d.Spec.Selector)
	if d.Spec.Replicas == nil || *d.Spec.Replicas > 1 {
		for _, problem := range spread(d.Spec.Template) {
			it.fault("%s", problem)
		}
	}
	pod := d.Spec.Template.Spec

	account, ok := find[*core.ServiceAccount](s, d.Namespace, pod.ServiceAccountName)
	if !ok {
		it.fault("there is no ServiceAccount %q", pod.ServiceAccountName)
	} else if !isFalse(account.AutomountServiceAccountToken) || isTrue(pod.AutomountServiceAccountToken) != (s.usesTheAPI() || s.isOfController(d.Name) || isOfIssuer(d.Name)) {
		it.fault("automountServiceAccountToken has to be false in the ServiceAccount, and in the Pod true if and only if it uses the API")
	}
	// Variables of service links begin with the name of a Service, and so may look like variables that override settings.
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		it.fault("enableServiceLinks has to be false")
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		it.fault("uses a namespace of the host")
	}
	serves := slices.ContainsFunc(pod.Containers, func(c core.Container) bool { return slices.Contains(c.Args, "serve") })
	mounts := func(v core.Volume) bool { return v.Secret != nil && v.Secret.SecretName == s.managed().ServingSecret }
	if serves && s.managed() != nil && !slices.ContainsFunc(pod.Volumes, mounts) {
		it.fault("does not mount %s, the Secret with what it serves", s.managed().ServingSecret)
	}
	for _, v := range pod.Volumes {
		switch {
		case v.ConfigMap != nil:
			if _, ok := find[*core.ConfigMap](s, d.Namespace, v.ConfigMap.Name); !ok {
				it.fault("volume %s: there is no ConfigMap %s", v.Name, v.ConfigMap.Name)
			}
		case v.Secret != nil:
			if managed := s.managed(); managed != nil && v.Secret.SecretName == managed.ServingSecret {
				if !isFirstReadInTime(v.Secret) {
					it.fault("volume %s: tls.crt and tls.key have to be waited for: a change takes a minute or more", v.Name)
				}
				continue
			}
			// A Pod starts without an optional Secret.
			optional := v.Secret.Optional != nil && *v.Secret.Optional
			if !optional && s.certificateOf(d.Namespace, v.Secret.SecretName) == nil && !s.hasCABundle() {
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
			} else if probe == c.ReadinessProbe && probe.TimeoutSeconds < readinessTime {
				it.fault("container %s: the readiness probe needs timeoutSeconds: %d", c.Name, readinessTime)
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

// isFirstReadInTime returns whether kubelets start the Pod only after the Secret has a certificate.
func isFirstReadInTime(secret *core.SecretVolumeSource) bool {
	var keys []string
	for _, item := range secret.Items {
		keys = append(keys, item.Key+"="+item.Path)
	}
	return !isTrue(secret.Optional) && slices.Equal(keys, []string{"tls.crt=tls.crt", "tls.key=tls.key"})
}

// spread returns the faults that keep replicas from a preferred spread over nodes, also on nodes without a zone. The scheduler scores
// only nodes that have the labels of all soft constraints.
func spread(template core.PodTemplateSpec) []string {
	var problems []string
	selects := func(selector *metav1.LabelSelector) bool {
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && parsed.Matches(labels.Set(template.Labels))
	}
	overHosts := false
	for _, c := range template.Spec.TopologySpreadConstraints {
		if !selects(c.LabelSelector) {
			problems = append(problems, "topologySpreadConstraints: the selector for "+c.TopologyKey+" does not select the Pods")
		}
		if c.WhenUnsatisfiable == core.ScheduleAnyway && c.TopologyKey != core.LabelHostname {
			problems = append(problems, "topologySpreadConstraints: none counts on nodes without the label "+c.TopologyKey)
		}
		overHosts = overHosts || c.TopologyKey == core.LabelHostname
	}
	if !overHosts {
		problems = append(problems, "topologySpreadConstraints: replicas are not spread over nodes")
	}
	affinity := template.Spec.Affinity
	if affinity == nil || affinity.PodAntiAffinity == nil {
		return append(problems, "replicas prefer no different zones")
	}
	for _, wish := range affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		if term := wish.PodAffinityTerm; !selects(term.LabelSelector) {
			problems = append(problems, "podAntiAffinity: the selector for "+term.TopologyKey+" does not select the Pods")
		}
	}
	return problems
}

// configError returns an error unless a ConfigMap provides the file after --config.
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

// soft returns the settings that leave a container less hardened than possible.
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

func isTrue(b *bool) bool { return b != nil && *b }

func isFalse(b *bool) bool { return b != nil && !*b }
