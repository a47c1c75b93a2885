//! The role of a DaemonSet on its nodes, and whether its Pods would run on a new node. Pure.
//!
//! Mounts show a role better than names, which vendors and packages choose: the kubelet and the container runtime fix
//! the paths (`--cni-conf-dir`, the registries of plug-ins and devices), below any root.

use std::fmt;

use crate::cluster::{DaemonSet, Taint};
use crate::discovery::NewNode;
use tolerarch_core::pod::Fit;

/// Role of a DaemonSet, in the order of how much a node needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Network,
    ServiceProxy,
    Storage,
    Device,
    Dns,
    Credentials,
    Metrics,
    Logs,
}

/// Signs of a role.
struct Signs {
    role: Role,
    /// Ends of host paths that only Pods with this role mount.
    mounts: &'static [&'static str],
    /// Parts of names, delimited by hyphens: of a DaemonSet, or of the last component of an image's repository.
    names: &'static [&'static str],
}

/// Signs in order of precedence: a network plug-in also mounts a log directory, and may proxy Services.
const SIGNS: [Signs; 8] = [
    Signs {
        role: Role::Network,
        mounts: &["cni/net.d", "cni/bin"],
        names: &[
            "cni",
            "calico-node",
            "canal",
            "cilium",
            "aws-node",
            "flannel",
            "weave-net",
            "antrea-agent",
            "kube-router",
            "multus",
            "kindnet",
            "kindnetd",
            "netd",
            "ovnkube-node",
        ],
    },
    Signs {
        role: Role::ServiceProxy,
        mounts: &[],
        names: &["kube-proxy"],
    },
    Signs {
        role: Role::Storage,
        mounts: &["/plugins_registry"],
        names: &["csi", "node-driver-registrar"],
    },
    Signs {
        role: Role::Device,
        mounts: &["/device-plugins"],
        names: &["device-plugin", "k8s-device-plugin", "gpu-operator"],
    },
    Signs {
        role: Role::Dns,
        mounts: &[],
        names: &[
            "node-local-dns",
            "nodelocaldns",
            "k8s-dns-node-cache",
            "node-cache",
        ],
    },
    Signs {
        role: Role::Credentials,
        mounts: &[],
        names: &[
            "eks-pod-identity-agent",
            "gke-metadata-server",
            "kiam-agent",
            "kube2iam",
        ],
    },
    Signs {
        role: Role::Metrics,
        mounts: &[],
        names: &[
            "node-exporter",
            "cadvisor",
            "dcgm-exporter",
            "telegraf",
            "collectd",
            "metricbeat",
            "cloudwatch-agent",
            "gke-metrics-agent",
            "ama-metrics-node",
            "datadog",
            "datadog-agent",
            "newrelic-infrastructure",
        ],
    },
    Signs {
        role: Role::Logs,
        mounts: &[
            "/var/log",
            "/var/log/pods",
            "/var/log/containers",
            "/var/log/journal",
            "/run/log/journal",
            "docker/containers",
        ],
        names: &[
            "fluent-bit",
            "fluentbit",
            "fluentd",
            "filebeat",
            "promtail",
            "logging-agent",
            "log-agent",
            "vector-agent",
        ],
    },
];

impl Role {
    /// Returns the role of a DaemonSet; `None` if nothing shows one.
    pub fn of(set: &DaemonSet) -> Option<Self> {
        if let Some(role) = by_mounts(set) {
            return Some(role);
        }
        let images = set.images();
        let mut names: Vec<&str> = images.iter().map(|image| last_component(image)).collect();
        names.push(set.name());
        for signs in &SIGNS {
            let is_named = |name: &&str| signs.names.iter().any(|sign| has_part(name, sign));
            if names.iter().any(is_named) {
                return Some(signs.role);
            }
        }
        // An exporter of node metrics sees the node's processes, or all of its file system.
        let is_all = |path: &String| path == "/" || path == "/proc";
        if set.has_host_processes && set.host_paths.iter().any(is_all) {
            return Some(Self::Metrics);
        }
        None
    }

    /// Returns what a node lacks without the DaemonSet.
    pub const fn loss(self) -> &'static str {
        match self {
            Self::Network => "Pods get no network there, and the node may never become ready",
            Self::ServiceProxy => "Pods reach no Service there",
            Self::Storage => "its volumes cannot be mounted there",
            Self::Device => "its devices are not offered there",
            Self::Dns => "names are resolved without the cache of the node, or not at all",
            Self::Credentials => "Pods get no credentials of the cloud there",
            Self::Metrics => "the node is not measured",
            Self::Logs => "logs are not collected there",
        }
    }
}

/// Writes the role with its article: `a network plug-in`.
impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "a network plug-in",
            Self::ServiceProxy => "the proxy for Services",
            Self::Storage => "a CSI driver",
            Self::Device => "a device plug-in",
            Self::Dns => "the DNS cache",
            Self::Credentials => "an agent for credentials",
            Self::Metrics => "an agent for metrics",
            Self::Logs => "an agent for logs",
        })
    }
}

/// Whether a DaemonSet runs on a new node, by the rules of its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedulability<'n> {
    Runs,
    /// Its Pods select such nodes but do not tolerate this taint.
    Untolerated(&'n Taint),
    /// Its Pods select such nodes of other architectures, one of which is given.
    Bound(String),
    /// Its Pods tolerate the node's taints, but select by labels that the new node may or may not have.
    Unsure,
    Elsewhere,
}

impl<'n> Schedulability<'n> {
    /// Judges a DaemonSet; `others` are the architectures of the existing nodes.
    pub fn of<'o>(
        set: &DaemonSet,
        node: &'n NewNode<'_>,
        others: impl IntoIterator<Item = &'o String>,
    ) -> Self {
        let Some(pod) = &set.pod else {
            return Self::Unsure;
        };
        let taint = node.closed_by(pod.tolerations());
        match (pod.fits(&node.labels), taint) {
            (Fit::Yes, None) => Self::Runs,
            (Fit::Yes, Some(taint)) => Self::Untolerated(taint),
            (Fit::Unknown, None) => Self::Unsure,
            (Fit::Unknown, Some(_)) => Self::Elsewhere,
            (Fit::No, _) => {
                for other in others {
                    let labels = node.labels.with_architecture(other);
                    if pod.fits(&labels) == Fit::Yes {
                        return Self::Bound(other.clone());
                    }
                }
                Self::Elsewhere
            }
        }
    }
}

/// Returns whether the names of two DaemonSets differ only in the architecture: `agent-amd64` and `agent-arm64`.
pub fn are_siblings(one: &DaemonSet, other: &DaemonSet) -> bool {
    one.namespace() == other.namespace()
        && one.name() != other.name()
        && without_architecture(one.name()) == without_architecture(other.name())
}

/// Returns the parts of a name, without architectures.
fn without_architecture(name: &str) -> Vec<&str> {
    const ARCHITECTURES: [&str; 10] = [
        "amd64", "x86", "x64", "64", "arm64", "aarch64", "arm", "ppc64le", "s390x", "riscv64",
    ];
    let mut parts: Vec<&str> = name.split(['-', '.']).collect();
    parts.retain(|part| !ARCHITECTURES.contains(part));
    parts
}

fn by_mounts(set: &DaemonSet) -> Option<Role> {
    for signs in &SIGNS {
        for path in &set.host_paths {
            let path = path.trim_end_matches('/');
            if signs.mounts.iter().any(|end| path.ends_with(end)) {
                return Some(signs.role);
            }
        }
    }
    None
}

/// Returns the last component of an image's repository, without tag and digest.
fn last_component(image: &str) -> &str {
    let last = image.rsplit('/').next().unwrap_or(image);
    let end = last.find([':', '@']).unwrap_or(last.len());
    &last[..end]
}

/// Returns whether a name contains `part`, with no letter or digit directly before or after it.
fn has_part(name: &str, part: &str) -> bool {
    for (start, _) in name.match_indices(part) {
        let before = name[..start].bytes().next_back();
        let after = name[start + part.len()..].bytes().next();
        if is_boundary(before) && is_boundary(after) {
            return true;
        }
    }
    false
}

fn is_boundary(byte: Option<u8>) -> bool {
    byte.is_none_or(|byte| !byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn role(name: &str, image: &str, spec: &Value) -> Option<Role> {
        let mut template = spec.clone();
        template["containers"] = json!([{"name": "main", "image": image}]);
        let set = json!({
            "metadata": {"name": name, "namespace": "ops"},
            "spec": {"template": {"metadata": {}, "spec": template}},
        });
        Role::of(&serde_json::from_value(set).unwrap())
    }

    fn mounting(paths: &[&str]) -> Value {
        let volume = |path: &&str| json!({"name": "v", "hostPath": {"path": path}});
        json!({"volumes": paths.iter().map(volume).collect::<Vec<Value>>()})
    }

    #[test]
    fn mounts_show_the_role() {
        for (paths, expected) in [
            (
                &["/var/log/calico", "/etc/cni/net.d"][..],
                Some(Role::Network),
            ),
            (
                &["/var/lib/rancher/k3s/agent/etc/cni/net.d/"],
                Some(Role::Network),
            ),
            (&["/opt/cni/bin"], Some(Role::Network)),
            (&["/var/lib/kubelet/plugins_registry/"], Some(Role::Storage)),
            (
                &["/var/snap/microk8s/common/var/lib/kubelet/plugins_registry"],
                Some(Role::Storage),
            ),
            (&["/var/lib/kubelet/device-plugins"], Some(Role::Device)),
            (&["/var/log"], Some(Role::Logs)),
            (
                &["/var/lib/docker/containers", "/var/log/pods"],
                Some(Role::Logs),
            ),
            (&["/run/log/journal"], Some(Role::Logs)),
            (&["/var/log/mine", "/etc/ssl"], None),
        ] {
            let role = role("x", "registry.example.com/x:1", &mounting(paths));
            assert_eq!(role, expected, "{paths:?}");
        }
        let mut exporter = mounting(&["/proc", "/sys"]);
        assert_eq!(role("x", "x", &exporter), None);
        exporter["hostPID"] = true.into();
        assert_eq!(role("x", "x", &exporter), Some(Role::Metrics));
    }

    #[test]
    fn siblings_differ_in_the_architecture_only() {
        let set = |namespace: &str, name: &str| -> DaemonSet {
            let metadata = json!({"name": name, "namespace": namespace});
            serde_json::from_value(
                json!({"metadata": metadata, "spec": {"template": {"spec": {}}}}),
            )
            .unwrap()
        };
        for (one, other, expected) in [
            ("kube-flannel-ds-amd64", "kube-flannel-ds-arm64", true),
            ("agent", "agent-aarch64", true),
            ("agent-x86-64", "agent-arm64", true),
            ("agent", "agent", false),
            ("agent-amd64", "other-arm64", false),
        ] {
            assert_eq!(
                are_siblings(&set("ops", one), &set("ops", other)),
                expected,
                "{one} {other}"
            );
        }
        assert!(!are_siblings(
            &set("ops", "agent-amd64"),
            &set("dev", "agent-arm64")
        ));
    }

    #[test]
    fn names_show_the_role_without_mounts() {
        for (name, image, expected) in [
            (
                "kube-proxy",
                "registry.k8s.io/kube-proxy:v1.36.0",
                Some(Role::ServiceProxy),
            ),
            (
                "aws-node",
                "602401143452.dkr.ecr.eu-west-1.amazonaws.com/amazon-k8s-cni:v1",
                Some(Role::Network),
            ),
            (
                "kube-flannel-ds",
                "ghcr.io/flannel-io/flannel:v0.27.0",
                Some(Role::Network),
            ),
            ("ebs-csi-node", "x", Some(Role::Storage)),
            (
                "nvidia",
                "nvcr.io/nvidia/k8s-device-plugin@sha256:00",
                Some(Role::Device),
            ),
            (
                "node-local-dns",
                "registry.k8s.io/dns/k8s-dns-node-cache:1",
                Some(Role::Dns),
            ),
            ("eks-pod-identity-agent", "x", Some(Role::Credentials)),
            (
                "prometheus-node-exporter",
                "quay.io/prometheus/node-exporter:v1",
                Some(Role::Metrics),
            ),
            ("fluent-bit", "x", Some(Role::Logs)),
            ("vector", "timberio/vector:0", None),
            ("sparcsix", "registry.example.com:5000/cnidaria", None),
            ("x", "cilium.example.com/x", None),
        ] {
            assert_eq!(role(name, image, &json!({})), expected, "{name} {image}");
        }
    }
}
