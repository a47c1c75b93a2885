{{/* Made from values.yaml by e2e/manifests/render. */}}
{{- define "tolerarch.defaults" -}}
{
  "affinity": {},
  "certificates": {
    "resources": {}
  },
  "commonAnnotations": {},
  "commonLabels": {},
  "config": {},
  "controller": {
    "enabled": false,
    "replicas": 2,
    "resources": {},
    "serviceAccount": {
      "annotations": {}
    },
    "tolerationKeys": []
  },
  "dashboards": {
    "annotations": {},
    "enabled": false,
    "labels": {}
  },
  "deploymentAnnotations": {},
  "extraArgs": [],
  "extraCAs": {
    "configMap": "",
    "secret": ""
  },
  "extraEnv": [],
  "extraObjects": [],
  "extraVolumeMounts": [],
  "extraVolumes": [],
  "flowSchema": {
    "enabled": false,
    "matchingPrecedence": 1000,
    "priorityLevel": "workload-high"
  },
  "fullnameOverride": "",
  "hostMounts": {
    "containerdCertsDir": "",
    "credentialProviderBinDir": "",
    "credentialProviderConfig": ""
  },
  "hostNetwork": false,
  "image": {
    "digest": "",
    "pullPolicy": "IfNotPresent",
    "pullSecrets": [],
    "registry": "ghcr.io",
    "repository": "tolerarch/tolerarch",
    "tag": ""
  },
  "nameOverride": "",
  "networkPolicy": {
    "apiServerCIDRs": [],
    "apiServerPort": 6443,
    "egressPorts": [
      443
    ],
    "enabled": true,
    "extraEgress": [],
    "extraIngress": [],
    "metricsFrom": []
  },
  "nodeSelector": {},
  "podAnnotations": {},
  "podDisruptionBudget": {
    "enabled": true,
    "maxUnavailable": 1,
    "unhealthyPodEvictionPolicy": "AlwaysAllow"
  },
  "podLabels": {},
  "podMonitor": {
    "enabled": false,
    "interval": "",
    "labels": {}
  },
  "podSecurityContext": {},
  "priorityClassName": "",
  "prometheusRule": {
    "enabled": false,
    "labels": {}
  },
  "proxy": {
    "exempt": "",
    "http": "",
    "https": ""
  },
  "pullSecrets": {
    "namespaces": [],
    "resourceNames": []
  },
  "replicas": 2,
  "resources": {},
  "securityContext": {},
  "serviceAccount": {
    "annotations": {},
    "create": true,
    "name": ""
  },
  "serviceMonitor": {
    "enabled": false,
    "interval": "",
    "labels": {}
  },
  "strategy": {},
  "terminationGracePeriodSeconds": 30,
  "test": {
    "enabled": false,
    "namespace": "default"
  },
  "tls": {
    "certManager": {
      "duration": "2160h",
      "issuerRef": {},
      "renewBefore": "720h"
    },
    "mode": "managed",
    "secret": {
      "caBundle": "",
      "name": ""
    }
  },
  "tolerations": [],
  "topologySpreadConstraints": [
    {
      "maxSkew": 1,
      "topologyKey": "kubernetes.io/hostname",
      "whenUnsatisfiable": "ScheduleAnyway"
    }
  ],
  "webhook": {
    "annotations": {},
    "excludedNamespaces": [
      "kube-system"
    ],
    "labels": {},
    "matchConditions": [],
    "namespaceSelector": {
      "matchExpressions": [],
      "matchLabels": {}
    },
    "objectSelector": {
      "matchExpressions": [],
      "matchLabels": {}
    },
    "skipInApiServer": false,
    "timeoutSeconds": 5
  }
}
{{- end -}}
