//! Whether the kubelets may be mixed with a new one: the version-skew policy of Kubernetes.

use k8s_openapi::apimachinery::pkg::version::Info;

use super::arrival::{Arrival, NOT_TRIED};
use crate::cli::doctor::findings::{Findings, some_of};
use tolerarch_kubernetes::cluster::Node;

const CHECK: &str = "kubelets";
const POLICY: &str = "kubernetes.io/releases/version-skew-policy";

/// Major and minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// Reads a version with or without what providers add, such as `v1.36.1-eks-abc`, `v1.36.1+k3s1` or `1.36+`.
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (major, rest) = text.split_once('.')?;
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let minor = &rest[..end.unwrap_or(rest.len())];
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }

    /// Returns the number of minor versions by which a kubelet may be older than this API server.
    fn allowance(self) -> u32 {
        let since = Self {
            major: 1,
            minor: 28,
        };
        if self < since { 2 } else { 3 }
    }

    /// Returns whether a kubelet is too old for this API server.
    fn is_too_new_for(self, kubelet: Self) -> bool {
        kubelet.major < self.major || kubelet.minor.saturating_add(self.allowance()) < self.minor
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Checks that no kubelet is too old or too new for the API server.
pub(super) async fn check(arrival: &Arrival<'_>, findings: &mut Findings) {
    let Some(nodes) = arrival.shown.nodes.as_deref() else {
        let message = "the nodes cannot be read; have someone with that right compare kubectl get nodes with kubectl version";
        return findings.unknown(CHECK, format!("{NOT_TRIED}{message}"));
    };
    let info = match arrival.client.get::<Info>("/version").await {
        Ok(info) => info,
        Err(error) => {
            let message = format!(
                "{NOT_TRIED}the version of the API server cannot be read: {error}; compare kubectl get nodes with kubectl version"
            );
            return findings.unknown(CHECK, message);
        }
    };
    let server = Version::parse(&format!("{}.{}", info.major, info.minor));
    match server.or_else(|| Version::parse(&info.git_version)) {
        Some(server) => compare(server, nodes, findings),
        None => {
            let message = format!(
                "{NOT_TRIED}{:?} is no version of an API server that is known here",
                info.git_version
            );
            findings.unknown(CHECK, message);
        }
    }
}

fn compare(server: Version, nodes: &[Node], findings: &mut Findings) {
    let mut versions = Vec::new();
    let mut old = Vec::new();
    let mut new = Vec::new();
    let mut unread = Vec::new();
    for node in nodes {
        let Some(kubelet) = Version::parse(&node.kubelet) else {
            unread.push(node.name());
            continue;
        };
        versions.push(kubelet);
        let named = format!("{} ({kubelet})", node.name());
        if server.is_too_new_for(kubelet) {
            old.push(named);
        } else if kubelet > server {
            new.push(named);
        }
    }
    if !old.is_empty() {
        let names = some_of(old.iter().map(String::as_str));
        let allowed = server.allowance();
        let message = format!(
            "kubelets more than {allowed} minor versions older than the API server {server}: {names}"
        );
        let fix = format!(
            "upgrade these nodes before nodes are mixed: a new node usually has the newest kubelet ({POLICY})"
        );
        findings.failed(CHECK, message, fix);
    }
    if !new.is_empty() {
        let names = some_of(new.iter().map(String::as_str));
        let message = format!("kubelets newer than the API server {server}: {names}");
        let fix = format!(
            "upgrade the control plane, or make these nodes anew with a kubelet of {server} ({POLICY})"
        );
        findings.failed(CHECK, message, fix);
    }
    if !unread.is_empty() {
        let names = some_of(unread);
        findings.unknown(
            CHECK,
            format!("{NOT_TRIED}no version of the kubelet is known of {names}"),
        );
    }
    if nodes.is_empty() {
        findings.unknown(CHECK, format!("{NOT_TRIED}there are no nodes"));
    }
    if old.is_empty()
        && new.is_empty()
        && let Some(range) = range(&versions)
    {
        let message = format!("kubelets {range} with an API server {server}");
        findings.ok(CHECK, message);
    }
}

/// Writes the oldest and the newest version.
fn range(versions: &[Version]) -> Option<String> {
    let least = versions.iter().min()?;
    let most = versions.iter().max()?;
    Some(if least == most {
        most.to_string()
    } else {
        format!("{least} to {most}")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::doctor::findings::{Finding, Status};

    #[test]
    fn versions_of_providers_are_read() {
        for (text, expected) in [
            ("v1.36.1", Some((1, 36))),
            ("v1.36.1-eks-abc", Some((1, 36))),
            ("v1.36.1+k3s1", Some((1, 36))),
            ("v1.36.1-gke.1389000", Some((1, 36))),
            ("1.36+", Some((1, 36))),
            ("1.36", Some((1, 36))),
            ("v2.0.0", Some((2, 0))),
            ("", None),
            (".", None),
            ("v1", None),
            ("1.x", None),
            ("kwok-v0.6.1", None),
            ("1.99999999999", None),
        ] {
            let version = Version::parse(text);
            let version = version.map(|version| (version.major, version.minor));
            assert_eq!(version, expected, "{text}");
        }
    }

    fn compared(server: &str, kubelets: &[&str]) -> Vec<Finding> {
        let mut nodes: Vec<Node> = Vec::new();
        for (index, kubelet) in kubelets.iter().enumerate() {
            let node = json!({
                "metadata": {"name": format!("node-{index}")},
                "status": {"nodeInfo": {"kubeletVersion": kubelet}},
            });
            nodes.push(serde_json::from_value(node).unwrap());
        }
        let mut findings = Findings::default();
        compare(Version::parse(server).unwrap(), &nodes, &mut findings);
        findings.0
    }

    #[test]
    fn kubelets_may_be_three_minor_versions_older_and_two_before_1_28() {
        for (server, kubelets, status, message) in [
            (
                "1.36+",
                &["v1.36.1", "v1.33.4-eks-1"][..],
                Status::Ok,
                "kubelets 1.33 to 1.36 with an API server 1.36",
            ),
            (
                "1.36",
                &["v1.36.1", "v1.36.2"],
                Status::Ok,
                "kubelets 1.36 with an API server 1.36",
            ),
            (
                "1.36",
                &["v1.32.9", "v1.36.1"],
                Status::Failed,
                "kubelets more than 3 minor versions older than the API server 1.36: node-0 (1.32)",
            ),
            (
                "1.28",
                &["v1.25.0"],
                Status::Ok,
                "kubelets 1.25 with an API server 1.28",
            ),
            (
                "1.27",
                &["v1.25.0"],
                Status::Ok,
                "kubelets 1.25 with an API server 1.27",
            ),
            (
                "1.27",
                &["v1.24.0"],
                Status::Failed,
                "kubelets more than 2 minor versions older than the API server 1.27: node-0 (1.24)",
            ),
            (
                "1.36",
                &["v1.37.0"],
                Status::Failed,
                "kubelets newer than the API server 1.36: node-0 (1.37)",
            ),
            (
                "1.36",
                &["", "odd"],
                Status::Unknown,
                "not tried: no version of the kubelet is known of node-0, node-1",
            ),
            (
                "1.36",
                &[],
                Status::Unknown,
                "not tried: there are no nodes",
            ),
        ] {
            let findings = compared(server, kubelets);
            let [finding] = &*findings else {
                panic!("{server} {kubelets:?}: {findings:?}");
            };
            assert_eq!(finding.status, status, "{finding:?}");
            assert_eq!(finding.message, message);
            assert_eq!(finding.fix.is_empty(), status != Status::Failed);
        }
    }

    #[test]
    fn each_fault_is_named_and_nothing_is_ticked_beside_it() {
        let findings = compared("1.36", &["v1.31.0", "v1.37.0", "", "v1.36.0"]);
        let status = findings.iter().map(|finding| finding.status);
        let status: Vec<Status> = status.collect();
        assert_eq!(status, [Status::Failed, Status::Failed, Status::Unknown]);
    }
}
