//! Which versions there are: of Kubernetes, of what serves, and of this command.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::version::Info;

use super::findings::{Exam, Findings};
use super::installation::{Backend, image};
use tolerarch_kubernetes::cluster::RequestError;

/// The first one with all that the manifests use (matchConditions).
const KUBERNETES: u32 = 30;

/// Checks the API server's version, and whether it can be asked at all.
pub(super) async fn check_cluster(exam: &mut Exam<'_>) -> Result<(), RequestError> {
    let Exam { client, findings, .. } = exam;
    match client.get::<Info>("/version").await {
        // Some providers add a plus.
        Ok(Info { minor, git_version, .. })
            if minor.trim_end_matches('+').parse::<u32>().is_ok_and(|minor| minor < KUBERNETES) =>
        {
            findings.failed(
                "version",
                format!("Kubernetes {git_version} is too old"),
                format!("upgrade the cluster to 1.{KUBERNETES} or later, which has matchConditions"),
            );
        }
        Ok(Info { git_version, .. }) => findings.ok("version", format!("Kubernetes {git_version}")),
        Err(error) if error.is_forbidden() => {
            findings.unread("version", "the version of the API server", &error);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

pub(super) fn check_pods(backend: &Backend, findings: &mut Findings) {
    let own = env!("CARGO_PKG_VERSION");
    let tags: BTreeSet<&str> = backend.pods.iter().filter_map(|pod| tag(image(pod)?)).collect();
    for tag in tags {
        match parse(tag).map(|theirs| Some(theirs).cmp(&parse(own))) {
            Some(Ordering::Less) => findings.failed(
                "version",
                format!("tolerarch {tag} runs, older than this command ({own})"),
                "upgrade it: helm upgrade, or kubectl apply -k of the new manifests",
            ),
            Some(Ordering::Greater) => {
                findings.unknown("version", format!("tolerarch {tag} runs, newer than this command ({own})"));
            }
            Some(Ordering::Equal) => findings.ok("version", format!("tolerarch {tag} runs")),
            None => findings.unknown("version", format!("an image with the tag {tag} runs")),
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
