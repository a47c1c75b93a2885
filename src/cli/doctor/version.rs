//! The API server's version.

use k8s_openapi::apimachinery::pkg::version::Info;

use super::findings::Exam;
use tolerarch_kubernetes::cluster::RequestError;

/// First minor version of Kubernetes with all features that the manifests use (matchConditions).
const KUBERNETES: u32 = 30;

/// Checks the API server's version. Fails if the API server does not answer or does not authenticate the user.
pub(super) async fn check(
    Exam {
        client, findings, ..
    }: &mut Exam<'_>,
) -> Result<(), RequestError> {
    let version = match client.get::<Info>("/version").await {
        Err(error) if error.is_final() => return Err(error),
        version => findings.read("version", "the version of the API server", version),
    };
    let Some(Info {
        minor, git_version, ..
    }) = version
    else {
        return Ok(());
    };
    // Some providers add a plus to the minor version.
    let minor = minor.trim_end_matches('+').parse::<u32>();
    if minor.is_ok_and(|minor| minor < KUBERNETES) {
        let message = format!("Kubernetes {git_version} is too old");
        let fix =
            format!("upgrade the cluster to 1.{KUBERNETES} or later, which has matchConditions");
        findings.failed("version", message, fix);
    } else {
        findings.ok("version", format!("Kubernetes {git_version}"));
    }
    Ok(())
}
