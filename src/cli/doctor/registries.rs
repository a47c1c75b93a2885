//! Whether registries answer the replicas, by what these say in their logs: the way from here is another one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::findings::Exam;
use super::installation::Backend;
use super::objects::Pod;
use crate::cli::advice::fix;
use tolerarch_core::reason::Reason;
use tolerarch_kubernetes::cluster::{RequestError, UserClient};

/// What is read of each log: long enough for a Pod that is tried now and then, and bounded.
const READ: &str = "sinceSeconds=600&tailLines=2000&limitBytes=1048576";
/// Findings; one registry that fails is told once.
const SHOWN: usize = 10;

/// What a failure says of its registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// It does not answer, or nothing gets there.
    Fails,
    Denies,
}

impl Meaning {
    /// By the text of a `registry::Error`; `None` for what is about a single image.
    fn of(error: &str) -> Option<Self> {
        let says = |text: &str| error.starts_with(text) || error.contains(&format!(": {text}"));
        if says("denied: ") || error.contains("as its token server") {
            Some(Self::Denies)
        } else if says("failed: ") || says("timed out") || says("every address of the host is forbidden") {
            Some(Self::Fails)
        } else {
            None
        }
    }
}

/// What the logs of the last minutes say. It takes the right to get pods/log.
pub(super) async fn check(exam: &mut Exam<'_>, backend: &Backend) {
    let Exam { client, findings, .. } = exam;
    let mut seen: BTreeMap<(String, String), (String, usize)> = BTreeMap::new();
    let mut read = false;
    for pod in &backend.pods {
        match log(client, &backend.namespace, pod).await {
            Ok(log) if !log.is_empty() && !log.lines().any(|line| line.starts_with('{')) => {
                findings.unknown("registries", format!("the log of {} is not JSON", pod.metadata.name));
            }
            Ok(log) => {
                read = true;
                collect(&log, &mut seen);
            }
            Err(error) => findings.unread("registries", &format!("the log of {}", pod.metadata.name), &error),
        }
    }
    if read && seen.is_empty() {
        findings.ok("registries", "no registry has failed in the last ten minutes");
    }
    let mut seen: Vec<_> = seen.into_iter().collect();
    seen.sort_by_key(|(_, (_, times))| std::cmp::Reverse(*times));
    for ((host, error), (image, times)) in seen.into_iter().take(SHOWN) {
        let message = format!("{host}: {error} (in the last ten minutes {times} times, of {image} for one)");
        match Meaning::of(&error) {
            Some(Meaning::Denies) => {
                findings.noted("registries", format!("{message}; it wants a login"), fix(Reason::Denied).unwrap_or_default());
            }
            _ => findings.failed(
                "registries",
                message,
                format!("let the replicas out to where it says; tolerarch inspect --explain {image} shows each request"),
            ),
        }
    }
}

async fn log(client: &UserClient, namespace: &str, pod: &Pod) -> Result<String, RequestError> {
    let name = &pod.metadata.name;
    // Others may have put containers beside it, and then one has to be named.
    let container = pod.admin().map(|(own, _)| format!("&container={}", own.name)).unwrap_or_default();
    client.text(&format!("/api/v1/namespaces/{namespace}/pods/{name}/log?{READ}{container}")).await
}

/// Adds the failures of registries that a log has, by host and text, each with an image and how often.
fn collect(log: &str, seen: &mut BTreeMap<(String, String), (String, usize)>) {
    for line in log.lines().filter(|line| line.contains("\"lookup failed\"")) {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let text = |field: &str| line[field].as_str().unwrap_or_default();
        let (image, error) = (text("image"), text("error"));
        let host = image.split('/').next().unwrap_or_default();
        if text("message") == "lookup failed" && Meaning::of(error).is_some() {
            let seen = seen.entry((host.to_owned(), error.to_owned()));
            seen.or_insert_with(|| (image.to_owned(), 0)).1 += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tolerarch_images::registry::Error;

    #[test]
    fn what_an_error_means_is_read_from_its_text() {
        let redirected = |cause: Error| Error::Redirected {
            registry: "registry.k8s.io".into(),
            host: "europe-west1-docker.pkg.dev".into(),
            cause: Box::new(cause),
        };
        for (error, meaning) in [
            (Error::Unreachable("x".into()), Some(Meaning::Fails)),
            (Error::Timeout, Some(Meaning::Fails)),
            (Error::AddressNotAllowed, Some(Meaning::Fails)),
            (Error::Denied("x".into()), Some(Meaning::Denies)),
            (Error::TokenHost { registry: "a.b".into(), host: "c.d".into() }, Some(Meaning::Denies)),
            (Error::NotFound, None),
            (Error::NotAllowed, None),
            (Error::Throttled(None), None),
        ] {
            assert_eq!(Meaning::of(&error.to_string()), meaning, "{error}");
            let redirected = redirected(error);
            assert_eq!(Meaning::of(&redirected.to_string()), meaning, "{redirected}");
        }
    }
}
