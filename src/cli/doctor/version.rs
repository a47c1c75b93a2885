//! Which versions there are: of Kubernetes, of what serves, and of this command.

use serde_json::Value;

use super::findings::{Exam, Findings};
use super::installation::Backend;
use tolerarch_kubernetes::cluster::RequestError;

/// The first one with all that the manifests use (matchConditions).
const KUBERNETES: u32 = 30;

/// Also tells whether the API server can be asked at all.
pub(super) async fn check_cluster(exam: &mut Exam<'_>) -> Result<(), RequestError> {
    let Exam { client, findings, .. } = exam;
    let version = match client.get::<Value>("/version").await {
        Ok(version) => version,
        Err(error) if error.is_forbidden() => {
            findings.unread("version", "the version of the API server", &error);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let text = |name: &str| version[name].as_str().unwrap_or_default();
    let full = text("gitVersion");
    // Some providers add a plus.
    match text("minor").trim_end_matches('+').parse::<u32>() {
        Ok(minor) if minor < KUBERNETES => findings.failed(
            "version",
            format!("Kubernetes {full} is too old"),
            format!("upgrade the cluster to 1.{KUBERNETES} or later, which has matchConditions"),
        ),
        _ => findings.ok("version", format!("Kubernetes {full}")),
    }
    Ok(())
}

pub(super) fn check_pods(backend: &Backend, findings: &mut Findings) {
    let own = env!("CARGO_PKG_VERSION");
    let images = backend.pods.iter().filter_map(|pod| pod.spec.containers.first());
    let mut tags: Vec<&str> = images.filter_map(|container| tag(&container.image)).collect();
    tags.sort_unstable();
    tags.dedup();
    for tag in tags {
        match (parse(tag), parse(own)) {
            (Some(theirs), Some(ours)) if theirs < ours => findings.failed(
                "version",
                format!("tolerarch {tag} runs, older than this command ({own})"),
                "upgrade it: helm upgrade, or kubectl apply -k of the new manifests",
            ),
            (Some(theirs), Some(ours)) if theirs > ours => {
                findings.unknown("version", format!("tolerarch {tag} runs, newer than this command ({own})"));
            }
            (Some(_), _) => findings.ok("version", format!("tolerarch {tag} runs")),
            (None, _) => findings.unknown("version", format!("an image with the tag {tag} runs")),
        }
    }
}

/// The tag of an image, without a digest.
fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next()?;
    let (_, tag) = name.rsplit('/').next()?.rsplit_once(':')?;
    Some(tag)
}

fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.trim_start_matches('v').split(['-', '+']).next()?.split('.');
    let mut next = || parts.next()?.parse().ok();
    Some((next()?, next()?, next()?))
}
