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

// readinessTimeout is the shortest allowed timeoutSeconds of a readiness probe. It is longer than the time for which the program holds a
// probe while it starts (HOLD in crates/webhook/src/admin.rs).
const readinessTimeout = 5

func (s itemSet) checkDeployment(it *item, d *apps.Deployment) {
	s.checkSelects(it, d.Namespace, d.Spec.Selector)
	if d.Spec.Replicas == nil || *d.Spec.Replicas > 1 {
		for _, problem := range spreadProblems(d.Spec.Template) {
			it.faultf("%s", problem)
		}
	}
	pod := d.Spec.Template.Spec

	s.checkToken(it, d)
	// Service links set variables that begin with the name of a Service. They may look like variables that override settings.
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		it.faultf("enableServiceLinks has to be false")
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		it.faultf("uses a namespace of the host")
	}
	s.checkVolumes(it, d.Namespace, pod)
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s.checkContainer(it, d.Namespace, pod, c)
	}
}

// checkToken reports a missing ServiceAccount, and a token that is mounted without need or missing.
func (s itemSet) checkToken(it *item, d *apps.Deployment) {
	pod := d.Spec.Template.Spec
	account, ok := find[*core.ServiceAccount](s, d.Namespace, pod.ServiceAccountName)
	if !ok {
		it.faultf("there is no ServiceAccount %q", pod.ServiceAccountName)
		return
	}
	usesAPI := s.webhookUsesAPI() || s.isOfController(d.Name) || isOfIssuer(d.Name)
	if !isFalse(account.AutomountServiceAccountToken) || isTrue(pod.AutomountServiceAccountToken) != usesAPI {
		it.faultf("automountServiceAccountToken has to be false in the ServiceAccount, and in the Pod true if and only if it uses the API")
	}
}

func (s itemSet) checkVolumes(it *item, namespace string, pod core.PodSpec) {
	managed := s.managedCertificates()
	isServingCertificate := func(v core.Volume) bool {
		return managed != nil && v.Secret != nil && v.Secret.SecretName == managed.ServingSecret
	}
	serves := slices.ContainsFunc(pod.Containers, func(c core.Container) bool { return slices.Contains(c.Args, "serve") })
	if serves && managed != nil && !slices.ContainsFunc(pod.Volumes, isServingCertificate) {
		it.faultf("does not mount the Secret %s with its serving certificate", managed.ServingSecret)
	}
	for _, v := range pod.Volumes {
		switch {
		case v.ConfigMap != nil:
			if _, ok := find[*core.ConfigMap](s, namespace, v.ConfigMap.Name); !ok {
				it.faultf("volume %s: there is no ConfigMap %s", v.Name, v.ConfigMap.Name)
			}
		case isServingCertificate(v):
			if !waitsForCertificate(v.Secret) {
				it.faultf("volume %s: the Pod has to wait for tls.crt and tls.key, as a later change takes a minute or more", v.Name)
			}
		case v.Secret != nil:
			// A Pod starts without an optional Secret.
			if !isTrue(v.Secret.Optional) && s.certificateOf(namespace, v.Secret.SecretName) == nil && !s.hasCABundle() {
				it.faultf("volume %s: no Certificate makes the Secret %s", v.Name, v.Secret.SecretName)
			}
		case v.HostPath != nil:
			it.faultf("volume %s mounts a path of the host", v.Name)
		}
	}
}

func (s itemSet) checkContainer(it *item, namespace string, pod core.PodSpec, c core.Container) {
	for _, problem := range hardeningProblems(pod.SecurityContext, c.SecurityContext) {
		it.faultf("container %s: %s", c.Name, problem)
	}
	for _, probe := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			it.faultf("container %s: needs httpGet probes for liveness and readiness", c.Name)
		} else if !hasPort(pod, probe.HTTPGet.Port) {
			it.faultf("container %s: no port %s for the probe %s", c.Name, probe.HTTPGet.Port.String(), probe.HTTPGet.Path)
		} else if probe == c.ReadinessProbe && probe.TimeoutSeconds < readinessTimeout {
			it.faultf("container %s: the readiness probe needs timeoutSeconds: %d", c.Name, readinessTimeout)
		}
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
			it.faultf("container %s: there is no volume %s", c.Name, m.Name)
		}
		if m.SubPath != "" || m.SubPathExpr != "" {
			it.faultf("container %s: files mounted by subPath (%s) do not follow changes", c.Name, m.MountPath)
		}
	}
	if err := s.configError(namespace, pod, c); err != nil {
		it.faultf("container %s: %v", c.Name, err)
	}
}

// waitsForCertificate returns whether kubelets start the Pod only after the Secret has a certificate.
func waitsForCertificate(secret *core.SecretVolumeSource) bool {
	var keys []string
	for _, item := range secret.Items {
		keys = append(keys, item.Key+"="+item.Path)
	}
	return !isTrue(secret.Optional) && slices.Equal(keys, []string{"tls.crt=tls.crt", "tls.key=tls.key"})
}

// spreadProblems returns what keeps the scheduler from spreading the replicas over nodes and zones. The scheduler scores only nodes with
// the labels of all soft constraints, so a soft constraint on zones would end the spread over nodes without that label.
func spreadProblems(template core.PodTemplateSpec) []string {
	var problems []string
	selects := func(selector *metav1.LabelSelector) bool {
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && parsed.Matches(labels.Set(template.Labels))
	}
	isOverNodes := false
	for _, c := range template.Spec.TopologySpreadConstraints {
		if !selects(c.LabelSelector) {
			problems = append(problems, "topologySpreadConstraints: the selector for "+c.TopologyKey+" does not select the Pods")
		}
		if c.WhenUnsatisfiable == core.ScheduleAnyway && c.TopologyKey != core.LabelHostname {
			problems = append(problems, "topologySpreadConstraints: no constraint applies to nodes without the label "+c.TopologyKey)
		}
		isOverNodes = isOverNodes || c.TopologyKey == core.LabelHostname
	}
	if !isOverNodes {
		problems = append(problems, "topologySpreadConstraints: replicas are not spread over nodes")
	}
	affinity := template.Spec.Affinity
	if affinity == nil || affinity.PodAntiAffinity == nil {
		return append(problems, "podAntiAffinity: replicas do not prefer different zones")
	}
	for _, preference := range affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		if term := preference.PodAffinityTerm; !selects(term.LabelSelector) {
			problems = append(problems, "podAntiAffinity: the selector for "+term.TopologyKey+" does not select the Pods")
		}
	}
	return problems
}

// configError returns an error unless a mounted ConfigMap provides the file that --config names.
func (s itemSet) configError(namespace string, pod core.PodSpec, c core.Container) error {
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
	return fmt.Errorf("no ConfigMap provides the file %s", file)
}

// hardeningProblems returns the settings that leave a container less hardened than possible.
func hardeningProblems(pod *core.PodSecurityContext, c *core.SecurityContext) []string {
	if pod == nil || c == nil {
		return []string{"the container and its Pod both need a securityContext"}
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
