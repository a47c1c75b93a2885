{{/* Gives keys without a value the chart's defaults. In YAML a section whose keys are all commented out is null, and Helm then removes
its defaults. Each template begins with this one. Maps of arbitrary keys, such as affinity, are empty then, as Helm has no other way to
remove their defaults. The program has the defaults of config. */}}
{{- define "tolerarch.values" -}}
{{- include "tolerarch.fill" (dict "values" .Values "defaults" (include "tolerarch.defaults" . | fromJson)) -}}
{{- $config := .Values.config -}}
{{- range $name, $section := $config -}}
{{- if kindIs "invalid" $section -}}
{{- $_ := unset $config $name -}}
{{- else if and (kindIs "map" $section) (ne $name "profiles") -}}
{{- range $key, $value := $section -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $section $key -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tolerarch.fill" -}}
{{- $values := .values -}}
{{- range $key, $default := .defaults -}}
{{- $value := index $values $key -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := set $values $key $default -}}
{{- else if and (kindIs "map" $value) (kindIs "map" $default) -}}
{{- include "tolerarch.fill" (dict "values" $value "defaults" $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of all objects. It is also the name of a Service, so it has no dots, and does not begin with a digit. */}}
{{- define "tolerarch.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $chart := default .Chart.Name .Values.nameOverride -}}
{{- $release := regexReplaceAll "^([0-9])" (.Release.Name | replace "." "-") "r${1}" -}}
{{- $name := contains $chart $release | ternary $release (printf "%s-%s" $release $chart) -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of selectors. They never change during the life of a release, as a Deployment's selector cannot change. */}}
{{- define "tolerarch.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: webhook
{{- end -}}

{{- define "tolerarch.labels" -}}
{{- $own := include "tolerarch.selectorLabels" . | fromYaml -}}
{{- $own = merge $own (dict
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/managed-by" .Release.Service
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_")) -}}
{{- toYaml (merge $own (default dict .Values.commonLabels)) -}}
{{- end -}}

{{/* Everything under metadata. "annotations" has further annotations of the object. Objects of the controller set "component". */}}
{{- define "tolerarch.metadata" -}}
{{- $root := .root -}}
name: {{ default (include "tolerarch.fullname" $root) .name | quote }}
{{- if not .cluster }}
namespace: {{ default $root.Release.Namespace .namespace | quote }}
{{- end }}
labels:
  {{- $component := dict "app.kubernetes.io/component" (default "webhook" .component) }}
  {{- merge $component (include "tolerarch.labels" $root | fromYaml) (default dict .labels) | toYaml | nindent 2 }}
{{- with merge dict (default dict .annotations) (default dict $root.Values.commonAnnotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tolerarch.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tolerarch.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name has to name an existing account if serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "tolerarch.image" -}}
{{- $image := .Values.image -}}
{{- $registry := default $image.registry ((.Values.global).imageRegistry) -}}
{{- with $registry }}{{ . }}/{{ end }}{{ $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end -}}
{{- end -}}

{{/* Names of pull secrets without duplicates. Charts accept names or objects with a name, and share them by global. */}}
{{- define "tolerarch.pullSecrets" -}}
{{- $names := list -}}
{{- range concat .Values.image.pullSecrets (default list ((.Values.global).imagePullSecrets)) -}}
{{- if kindIs "map" . -}}
{{- $names = append $names .name -}}
{{- else -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- uniq $names | toJson -}}
{{- end -}}

{{/* The source of the serving certificate. Only this template decides what a mode means.
       managed     the configuration's section tls, if the program manages the certificate
       secretName  the Secret that is mounted
       injectFrom  annotation for cert-manager's CA injector
       caBundle    the CA in the API server's format */}}
{{- define "tolerarch.tls" -}}
{{- $fullname := include "tolerarch.fullname" . -}}
{{- if eq .Values.tls.mode "managed" -}}
managed:
  mode: managed
  secret: {{ printf "%s-certificates" $fullname | quote }}
  servingSecret: {{ printf "%s-serving" $fullname | quote }}
  webhookConfigurations: [{{ printf "zz-%s" $fullname | quote }}]
secretName: {{ printf "%s-serving" $fullname | quote }}
{{- else if eq .Values.tls.mode "cert-manager" -}}
{{- $name := printf "%s-tls" $fullname -}}
secretName: {{ $name }}
injectFrom: {{ .Release.Namespace }}/{{ $name }}
{{- else -}}
secretName: {{ required "tls.secret.name has to name a Secret if tls.mode is secret" .Values.tls.secret.name | quote }}
{{- with .Values.tls.secret.caBundle }}
caBundle: {{ b64enc . }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The program's configuration: that of the values, with the paths of mounted files of the nodes, and the settings of managed certificates. */}}
{{- define "tolerarch.config" -}}
{{- $mounts := .Values.hostMounts -}}
{{- $config := deepCopy (default dict .Values.config) -}}
{{- with $mounts.containerdCertsDir -}}
{{- $config = merge $config (dict "registries" (dict "hostsDir" .)) -}}
{{- end -}}
{{- with $mounts.credentialProviderConfig -}}
{{- $binDir := required "hostMounts.credentialProviderBinDir has to be set, too" $mounts.credentialProviderBinDir -}}
{{- $config = merge $config (dict "credentials" (dict "providers" (dict "config" . "binDir" $binDir))) -}}
{{- end -}}
{{- if dig "tls" "mode" "" $config -}}
{{- fail "config.tls.mode follows tls.mode, which gives the rights for it as well: set that one" -}}
{{- end -}}
{{- with (include "tolerarch.tls" . | fromYaml).managed -}}
{{- $config = merge $config (dict "tls" .) -}}
{{- end -}}
{{- if .Values.controller.enabled -}}
{{- $fullname := include "tolerarch.fullname" . -}}
{{- $own := dict "webhookConfigurations" (list (printf "zz-%s" $fullname)) "lease" (include "tolerarch.controllerName" .) -}}
{{- $config = merge $config (dict "controller" $own) -}}
{{- end -}}
{{- if include "tolerarch.learns" . -}}
{{- $config = merge $config (dict "server" (dict "failedImages" true)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The port in a section of the configuration. */}}
{{- define "tolerarch.port" -}}
{{- $defaults := dict "server" "[::]:8443" "admin" "[::]:8080" -}}
{{- dig .section "listen" (get $defaults .section) (default dict .root.Values.config) | toString | regexFind "[0-9]+$" -}}
{{- end -}}

{{/* Directories of the nodes without duplicates. */}}
{{- define "tolerarch.hostDirectories" -}}
{{- $mounts := .Values.hostMounts -}}
{{- $directories := list -}}
{{- with $mounts.containerdCertsDir }}{{ $directories = append $directories (clean .) }}{{ end -}}
{{- with $mounts.credentialProviderConfig }}{{ $directories = append $directories (dir .) }}{{ end -}}
{{- with $mounts.credentialProviderBinDir }}{{ $directories = append $directories (clean .) }}{{ end -}}
{{- uniq $directories | toJson -}}
{{- end -}}

{{- define "tolerarch.readsPullSecrets" -}}
{{- if dig "credentials" "pullSecrets" false (default dict .Values.config) }}yes{{ end -}}
{{- end -}}

{{- define "tolerarch.discovers" -}}
{{- $discover := dig "discover" dict (default dict .Values.config) -}}
{{- with $discover }}{{ if or .nodePools .nodes }}yes{{ end }}{{ end -}}
{{- end -}}

{{- define "tolerarch.warms" -}}
{{- if dig "cache" "warm" "fromPods" false (default dict .Values.config) }}yes{{ end -}}
{{- end -}}

{{/* Not empty if the controller records failed images, which the webhook then follows. */}}
{{- define "tolerarch.learns" -}}
{{- if and .Values.controller.enabled (ne (dig "controller" "learn" true (default dict .Values.config) | toString) "false") }}yes{{ end -}}
{{- end -}}

{{/* Not empty if the program uses the Kubernetes API, and so needs a token and an egress rule. */}}
{{- define "tolerarch.usesTheAPI" -}}
{{- if or (include "tolerarch.readsPullSecrets" .) (include "tolerarch.discovers" .) (include "tolerarch.warms" .) (include "tolerarch.learns" .) }}yes{{ end -}}
{{- end -}}

{{/* The name of the webhook entry for a profile, or for reviews without a profile. API servers accept only DNS names here and in the path
of a Service. */}}
{{- define "tolerarch.webhook" -}}
{{- $resource := .resource -}}
{{- with .profile -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" .) -}}
{{- fail (printf "config.profiles: %q cannot be in the path of a webhook; write lower-case letters, digits, '-' and '.'" .) -}}
{{- end -}}
{{- printf "%s.%s.tolerarch.io" . (ternary "profiles" (printf "profiles-%s" $resource) (eq $resource "pods")) -}}
{{- else -}}
{{- printf "%s.tolerarch.io" $resource -}}
{{- end -}}
{{- end -}}

{{/* The name of the controller's objects. */}}
{{- define "tolerarch.controllerName" -}}
{{- printf "%s-controller" (include "tolerarch.fullname" .) -}}
{{- end -}}

{{- define "tolerarch.controllerLabels" -}}
{{- toYaml (set (include "tolerarch.selectorLabels" . | fromYaml) "app.kubernetes.io/component" "controller") -}}
{{- end -}}

{{/* Required and preferred nodes of Pods with these labels (as YAML). A "single" Pod is not spread. Terms without a selector get one with the
labels, and count only Pods of the same rollout, as older Pods are removed. */}}
{{- define "tolerarch.scheduling" -}}
{{- $values := .root.Values -}}
{{- $own := dict "labelSelector" (dict "matchLabels" (fromYaml .labels)) "matchLabelKeys" (list "pod-template-hash") -}}
{{- $affinity := deepCopy (default dict $values.affinity) -}}
{{- $apart := default dict $affinity.podAntiAffinity -}}
{{- $terms := default list $apart.requiredDuringSchedulingIgnoredDuringExecution -}}
{{- range $apart.preferredDuringSchedulingIgnoredDuringExecution -}}
{{- $terms = append $terms .podAffinityTerm -}}
{{- end -}}
{{- range $terms -}}
{{- if not (hasKey . "labelSelector") -}}
{{- $_ := merge . $own -}}
{{- end -}}
{{- end -}}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with ternary list $values.topologySpreadConstraints (hasKey . "single") }}
topologySpreadConstraints: # preferences, as two replicas on one node are better than one
  {{- range . }}
  - {{ merge (deepCopy .) (hasKey . "labelSelector" | ternary dict $own) | toYaml | indent 4 | trim }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Selector of scraped objects: Pods or Services of the webhook and the controller, and the Pod that issues certificates. */}}
{{- define "tolerarch.scraped" -}}
{{- $labels := include "tolerarch.selectorLabels" . | fromYaml -}}
{{- $names := list "webhook" -}}
{{- if .Values.controller.enabled -}}
{{- $names = append $names "controller" -}}
{{- end -}}
{{- if eq .Values.tls.mode "managed" -}}
{{- $names = append $names "certificates" -}}
{{- end -}}
{{- if gt (len $names) 1 -}}
{{- $labels = omit $labels "app.kubernetes.io/component" -}}
{{- $components := dict "key" "app.kubernetes.io/component" "operator" "In" "values" $names -}}
{{- toYaml (dict "matchLabels" $labels "matchExpressions" (list $components)) -}}
{{- else -}}
{{- toYaml (dict "matchLabels" $labels) -}}
{{- end -}}
{{- end -}}

{{/* Tolerations that the policy lets the controller add: those of the pools, and any with the keys for discovered pools. */}}
{{- define "tolerarch.poolTolerations" -}}
{{- $presets := dict
  "gke" (dict "key" "kubernetes.io/arch" "operator" "Equal" "value" "arm64" "effect" "NoSchedule")
  "karpenter" (dict "key" "tolerarch.io/multi-arch" "operator" "Exists" "effect" "NoSchedule") -}}
{{- $default := list (dict "tolerations" (list $presets.karpenter)) -}}
{{- $all := list -}}
{{- range default $default (default dict .Values.config).pools -}}
{{- range default (list (get $presets (default "" .preset))) .tolerations -}}
{{- $all = append $all . -}}
{{- end -}}
{{- end -}}
{{- range .Values.controller.tolerationKeys -}}
{{- $all = append $all (dict "key" . "discovered" true) -}}
{{- end -}}
{{- uniq $all | toJson -}}
{{- end -}}
