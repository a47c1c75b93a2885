//! Whether the versions of the kubelets follow the version-skew policy of Kubernetes.

use k8s_openapi::apimachinery::pkg::version::Info;

use super::arrival::Arrival;
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
    /// Reads a version, which may have a suffix of a provider: `v1.36.1-eks-abc`, `v1.36.1+k3s1` or `1.36+`.
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
    let Some(nodes) = arrival.cluster.nodes.as_deref() else {
        let message = "the nodes cannot be read; have someone with that right compare kubectl get nodes with kubectl version";
        return findings.not_tried(CHECK, message);
    };
    let info = match arrival.client.get::<Info>("/version").await {
        Ok(info) => info,
        Err(error) => {
            let why = format!(
                "the version of the API server cannot be read: {error}; compare kubectl get nodes with kubectl version"
            );
            return findings.not_tried(CHECK, why);
        }
    };
    let server = Version::parse(&format!("{}.{}", info.major, info.minor));
    match server.or_else(|| Version::parse(&info.git_version)) {
        Some(server) => compare(server, nodes, findings),
        None => {
            let why = format!(
                "{:?} is no known version of an API server",
                info.git_version
            );
            findings.not_tried(CHECK, why);
        }
    }
}

fn compare(server: Version, nodes: &[Node], findings: &mut Findings) {
    let mut versions = Vec::new();
    let mut too_old = Vec::new();
    let mut too_new = Vec::new();
    let mut unknown = Vec::new();
    for node in nodes {
        let Some(kubelet) = Version::parse(&node.kubelet) else {
            unknown.push(node.name());
            continue;
        };
        versions.push(kubelet);
        let named = format!("{} ({kubelet})", node.name());
        if server.is_too_new_for(kubelet) {
            too_old.push(named);
        } else if kubelet > server {
            too_new.push(named);
        }
    }
    if !too_old.is_empty() {
        report_too_old(server, &too_old, findings);
    }
    if !too_new.is_empty() {
        report_too_new(server, &too_new, findings);
    }
    if !unknown.is_empty() {
        let names = some_of(unknown);
        findings.not_tried(
            CHECK,
            format!("the version of the kubelet is unknown of {names}"),
        );
    }
    if nodes.is_empty() {
        findings.not_tried(CHECK, "there are no nodes");
    }
    if too_old.is_empty()
        && too_new.is_empty()
        && let Some(range) = range(&versions)
    {
        let message = format!("kubelets {range} with an API server {server}");
        findings.ok(CHECK, message);
    }
}

fn report_too_old(server: Version, nodes: &[String], findings: &mut Findings) {
    let names = some_of(nodes.iter().map(String::as_str));
    let allowed = server.allowance();
    let message = format!(
        "kubelets more than {allowed} minor versions older than the API server {server}: {names}"
    );
    let fix =
        format!("upgrade these nodes first: a new node usually has the newest kubelet ({POLICY})");
    findings.failed(CHECK, message, fix);
}

fn report_too_new(server: Version, nodes: &[String], findings: &mut Findings) {
    let names = some_of(nodes.iter().map(String::as_str));
    let message = format!("kubelets newer than the API server {server}: {names}");
    let fix = format!(
        "upgrade the control plane, or replace these nodes by nodes with a kubelet of {server} ({POLICY})"
    );
    findings.failed(CHECK, message, fix);
}

/// Renders the oldest and the newest version.
fn range(versions: &[Version]) -> Option<String> {
    let oldest = versions.iter().min()?;
    let newest = versions.iter().max()?;
    Some(if oldest == newest {
        newest.to_string()
    } else {
        format!("{oldest} to {newest}")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::doctor::findings::{Finding, Status};

    #[test]
    fn version_with_a_providers_suffix_is_parsed() {
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
    fn kubelet_skew_is_three_minor_versions_and_two_before_1_28() {
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
                "not tried: the version of the kubelet is unknown of node-0, node-1",
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
    fn no_success_is_reported_beside_a_fault() {
        let findings = compared("1.36", &["v1.31.0", "v1.37.0", "", "v1.36.0"]);
        let status = findings.iter().map(|finding| finding.status);
        let status: Vec<Status> = status.collect();
        assert_eq!(status, [Status::Failed, Status::Failed, Status::Unknown]);
    }
}
