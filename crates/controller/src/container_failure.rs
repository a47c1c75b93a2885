//! How a Pod shows that an image is not for the node it is on: pure. What containers and runtimes say is untrusted text, and
//! only known words in it count.

use std::time::{Duration, SystemTime};

use super::note::Evidence;
use tolerarch_core::pod::PodMode;
use tolerarch_kubernetes::cluster::{ContainerStatus, Phase, StoredPod, Terminated};

/// Containers of one Pod that are looked at.
const CONTAINERS: usize = 8;
/// Bytes of an image's name; none that can be pulled is longer.
const IMAGE: usize = 1024;
/// What ended longer ago is not told.
const LATELY: Duration = Duration::from_secs(3600);
/// What does not even begin ends this soon; the times of a status are whole seconds.
const SOON: Duration = Duration::from_secs(5);
/// How runtimes and shells end what cannot be run: crun and old runc, sh, newer runc.
const EXIT_CODES: [i32; 4] = [1, 126, 127, 255];
/// What containerd, dockerd and CRI-O say of an index without an entry for the node.
const NO_MATCH: [&str; 4] = [
    "no match for platform",
    "no matching manifest for",
    "no image found in image index for architecture",
    "no image found in manifest list for architecture",
];

/// A container that did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerFailure {
    pub(super) container: String,
    /// As the Pod names it.
    pub(super) image: String,
    pub(super) sign: Sign,
}

/// What it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// Its status says it.
    Evident(Evidence),
    /// It ended at once, and only its log can say why; that of the run before the present one if that is set.
    InItsLog { previous: bool },
}

/// What there is to see of a Pod now.
pub(super) fn failures(pod: &StoredPod, now: SystemTime) -> Vec<ContainerFailure> {
    let is_of_concern = pod.node.is_some() && pod.phase != Phase::Succeeded && !pod.is_terminating();
    let is_opted_out = pod.facts.as_ref().is_none_or(|facts| facts.mode() == PodMode::Off);
    if !is_of_concern || is_opted_out {
        return Vec::new();
    }
    let named = pod.containers.iter().filter(|container| (1..=IMAGE).contains(&container.image.len()));
    let seen = named.filter_map(|container| {
        let sign = sign(container, now)?;
        Some(ContainerFailure { container: container.name.clone(), image: container.image.clone(), sign })
    });
    seen.take(CONTAINERS).collect()
}

fn sign(container: &ContainerStatus, now: SystemTime) -> Option<Sign> {
    if let Some(waiting) = &container.waiting {
        let is_pull = ["ErrImagePull", "ImagePullBackOff"].contains(&&*waiting.reason);
        if is_pull && NO_MATCH.iter().any(|known| says(&waiting.message, known)) {
            return Some(Sign::Evident(Evidence::NoMatch));
        }
        if is_exec_format(&waiting.message) {
            return Some(Sign::Evident(Evidence::ExecFormat));
        }
    }
    let ended = container.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
    let finished = time(&ended.finished_at);
    if finished.and_then(|at| now.duration_since(at).ok()).is_some_and(|since| since > LATELY) {
        return None;
    }
    if is_exec_format(&ended.message) {
        return Some(Sign::Evident(Evidence::ExecFormat));
    }
    let is_suspect = EXIT_CODES.contains(&ended.exit_code) && ended.message.is_empty() && is_short(ended);
    is_suspect.then_some(Sign::InItsLog { previous: container.is_previous })
}

/// Whether a text is about a program for another architecture.
pub(super) fn is_exec_format(text: &str) -> bool {
    says(text, "exec format error")
}

fn says(text: &str, words: &str) -> bool {
    text.to_ascii_lowercase().contains(words)
}

fn is_short(ended: &Terminated) -> bool {
    let lasted = time(&ended.started_at).zip(time(&ended.finished_at));
    lasted.and_then(|(began, ended)| ended.duration_since(began).ok()).is_some_and(|lasted| lasted <= SOON)
}

fn time(text: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339_weak(text).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ENDED: &str = "2026-01-01T10:00:02Z";

    fn now() -> SystemTime {
        time("2026-01-01T10:30:00Z").unwrap()
    }

    fn pod(status: Value) -> Value {
        let mut status = status;
        status["name"] = "app".into();
        json!({
            "metadata": {"name": "web", "namespace": "team", "uid": "u"},
            "spec": {"nodeName": "n", "containers": [{"name": "app", "image": "acme/app:1"}]},
            "status": {"phase": "Running", "containerStatuses": [status]},
        })
    }

    fn seen(pod: &Value) -> Option<Sign> {
        let failures = failures(&StoredPod::of_value(pod).unwrap(), now());
        assert!(failures.len() < 2);
        failures.first().map(|failure| {
            assert_eq!((&*failure.container, &*failure.image), ("app", "acme/app:1"));
            failure.sign
        })
    }

    fn ended(code: i32, message: &str, started: &str) -> Value {
        json!({"exitCode": code, "reason": "Error", "message": message, "startedAt": started, "finishedAt": ENDED})
    }

    #[test]
    fn what_runtimes_say_of_a_pull() {
        let sees = |reason: &str, message: &str| {
            seen(&pod(json!({"state": {"waiting": {"reason": reason, "message": message}}})))
        };
        for message in [
            "failed to pull and unpack image \"a\": no match for platform in manifest: not found",
            "no matching manifest for linux/arm64/v8 in the manifest list entries",
            "choosing image instance: no image found in image index for architecture \"arm64\", variant \"v8\", OS \"linux\"",
        ] {
            for reason in ["ErrImagePull", "ImagePullBackOff"] {
                assert_eq!(sees(reason, message), Some(Sign::Evident(Evidence::NoMatch)), "{message}");
            }
            assert_eq!(sees("ContainerCreating", message), None);
        }
        assert_eq!(sees("ErrImagePull", "not found"), None);
        let exec = "failed to start containerd task \"a\": exec /a: exec format error: unknown";
        assert_eq!(sees("RunContainerError", exec), Some(Sign::Evident(Evidence::ExecFormat)));
    }

    #[test]
    fn how_containers_end() {
        let now_and_before = |end: Value| {
            let now = seen(&pod(json!({"state": {"terminated": end}})));
            let waiting =
                json!({"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"});
            let before = seen(&pod(json!({"state": {"waiting": waiting}, "lastState": {"terminated": end}})));
            (now, before)
        };
        let exec = "exec container process `/app`: Exec format error";
        let told = Some(Sign::Evident(Evidence::ExecFormat));
        assert_eq!(now_and_before(ended(1, exec, ENDED)), (told, told));
        assert_eq!(now_and_before(ended(0, exec, ENDED)), (None, None));
        let in_log = |previous| Some(Sign::InItsLog { previous });
        for code in EXIT_CODES {
            assert_eq!(now_and_before(ended(code, "", ENDED)), (in_log(false), in_log(true)));
        }
        assert_eq!(now_and_before(ended(137, "", ENDED)), (None, None));
        assert_eq!(now_and_before(ended(1, "out of memory", ENDED)), (None, None));
        assert_eq!(now_and_before(ended(1, "", "2026-01-01T09:59:00Z")), (None, None), "it ran for a minute");
        assert_eq!(
            now_and_before(json!({"exitCode": 1, "startedAt": null, "finishedAt": null})),
            (None, None)
        );
    }

    #[test]
    fn which_pods_are_looked_at() {
        let dying = pod(json!({"state": {"terminated": ended(255, "exec format error", ENDED)}}));
        assert!(seen(&dying).is_some());
        let changed = |pointer: &str, value: Value| {
            let mut pod = dying.clone();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            pod.pointer_mut(parent).unwrap()[key] = value;
            seen(&pod)
        };
        assert_eq!(changed("/spec/nodeName", json!("")), None);
        assert_eq!(changed("/status/phase", json!("Succeeded")), None);
        assert!(changed("/status/phase", json!("Failed")).is_some());
        assert_eq!(changed("/metadata/labels", json!({"tolerarch.io/mode": "off"})), None);
        assert_eq!(changed("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")), None);
        let long_ago = "2026-01-01T09:00:00Z";
        let mut old = dying.clone();
        old["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = long_ago.into();
        assert_eq!(seen(&old), None);
    }

    #[test]
    fn of_one_pod_few_containers_are_looked_at() {
        let mut many = pod(json!({"state": {"terminated": ended(255, "exec format error", ENDED)}}));
        let statuses = many["status"]["containerStatuses"].as_array_mut().unwrap();
        *statuses = vec![statuses[0].clone(); 5000];
        assert_eq!(failures(&StoredPod::of_value(&many).unwrap(), now()).len(), CONTAINERS);
    }
}
