//! Evidence in a Pod's status that an image does not run on the node. Pure. Of untrusted text, only known words count.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::time::{Duration, SystemTime};

use super::exec_format::{Program, failed_program, names_own_program};
use tolerarch_core::image::is_digest;
use tolerarch_core::pod::PodMode;
use tolerarch_core::reason::Reason;
use tolerarch_engine::lessons::Evidence;
use tolerarch_images::registry::Digest;
use tolerarch_kubernetes::cluster::{ContainerStatus, Phase, StoredPod};

/// Maximum number of failures of one Pod.
const CONTAINERS: usize = 8;
/// Maximum time since the end of a container for which it is reported.
const REPORTED: Duration = Duration::from_secs(3600);
/// Maximum duration of a program that could not start; the times in a status are whole seconds.
const SOON: Duration = Duration::from_secs(5);
/// Exit codes of programs that cannot be run: by crun and old runc, sh, newer runc.
const EXIT_CODES: [i32; 4] = [1, 126, 127, 255];
/// Reasons of kubelets for a container that could not be created or started. The message is the runtime's.
const NOT_STARTED: [&str; 2] = ["CreateContainerError", "RunContainerError"];
/// Reasons of containerd and dockerd for a terminated container that could not be started.
const ENDED_BY_RUNTIME: [&str; 2] = ["StartError", "ContainerCannotRun"];
const DIGEST: usize = "sha256:".len() + 64;
/// Messages of containerd, dockerd and CRI-O about an index without an entry for the node.
const NO_MATCH: [&str; 4] = [
    "no match for platform",
    "no matching manifest for",
    "no image found in image index for architecture",
    "no image found in manifest list for architecture",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerFailure {
    pub(super) container: String,
    /// Image in the Pod's specification.
    pub(super) image: String,
    pub(super) evidence: Evidence,
    /// Set if the container ended at once and only its log can show the evidence. `true` for the log of the previous
    /// run.
    pub(super) in_log: Option<bool>,
    /// Digest of the image that failed; `None` if it is unknown.
    pub(super) digest: Option<Digest>,
    pub(super) blame: Blame,
}

/// Possible cause of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The image alone: nothing in the Pod affects which program is run, and how.
    Image,
    /// The image, or a setting of its Pod.
    ImageOrPod,
    /// The node: a program other than the container's could not be run. Holds the end of the runtime's message.
    Node(String),
}

impl ContainerFailure {
    fn new(
        status: &ContainerStatus,
        evidence: Evidence,
        digest: Option<Digest>,
        blame: Blame,
    ) -> Self {
        Self {
            container: status.name.clone(),
            image: status.image.clone(),
            evidence,
            in_log: None,
            digest,
            blame,
        }
    }

    /// Returns whether this image of the Pod's specification may have caused the failure.
    pub(super) fn is_of_image(&self, image: &str) -> bool {
        self.image == image && !matches!(self.blame, Blame::Node(_))
    }
}

pub(super) fn failures(pod: &StoredPod, now: SystemTime) -> Vec<ContainerFailure> {
    let Some(facts) = &pod.facts else {
        return Vec::new();
    };
    // A kubelet may create a mirror Pod with any status in any namespace.
    let is_mirror = facts.skipped() == Some(Reason::MirrorPod);
    let is_opted_out = facts.mode() == PodMode::Off;
    let is_over = pod.phase == Phase::Succeeded || pod.metadata.deletion_timestamp.is_some();
    if is_mirror || is_opted_out || is_over || pod.node.is_none() {
        return Vec::new();
    }
    let mut failures = Vec::new();
    for container in &pod.containers {
        if failures.len() == CONTAINERS {
            break;
        }
        if !container.image.is_empty() {
            failures.extend(failure(container, now));
        }
    }
    failures
}

fn failure(status: &ContainerStatus, now: SystemTime) -> Option<ContainerFailure> {
    if let Some(waiting) = &status.state.waiting {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().unwrap_or_default();
        let is_pull = ["ErrImagePull", "ImagePullBackOff"].contains(&reason);
        if is_pull && names_no_match(message) {
            return Some(pull_failure(status, message));
        }
        if NOT_STARTED.contains(&reason)
            && let Some(program) = failed_program(message)
        {
            let digest = digest_of_reference(&status.image_id);
            let blame = blame(program, status.is_plain);
            return Some(ContainerFailure::new(
                status,
                Evidence::ExecFormatError,
                digest,
                blame,
            ));
        }
    }
    failure_of_run(status, now)
}

/// Returns the failure to pull an image that has no entry for the node.
fn pull_failure(status: &ContainerStatus, message: &str) -> ContainerFailure {
    // No image has been pulled, so the status has no digest; the runtime's message may.
    let (digest, blame) = match digest_of_unpacked_index(message) {
        Some(digest) => (Some(digest), Blame::Image),
        None => (digest_of_reference(&status.image), Blame::ImageOrPod),
    };
    ContainerFailure::new(status, Evidence::NoMatchForPlatform, digest, blame)
}

/// Returns the failure with which the container's last run ended.
fn failure_of_run(status: &ContainerStatus, now: SystemTime) -> Option<ContainerFailure> {
    let ContainerStatus {
        state, last_state, ..
    } = status;
    let current = state.terminated.as_ref();
    let ended = current.or(last_state.terminated.as_ref())?;
    if ended.exit_code == 0 {
        return None;
    }
    let started = ended.started_at.as_ref().map(|at| SystemTime::from(at.0));
    let finished = ended.finished_at.as_ref().map(|at| SystemTime::from(at.0));
    if let Some(finished) = finished
        && let Ok(since) = now.duration_since(finished)
        && since > REPORTED
    {
        return None;
    }
    let evidence = Evidence::ExecFormatError;
    let reason = ended.reason.as_deref().unwrap_or_default();
    let message = ended.message.as_deref().unwrap_or_default();
    // The image of a running Pod may be changed, so the previous run may have been of another image.
    let digest = if state.waiting.is_some() || state.terminated.is_some() {
        digest_of_reference(&status.image_id)
    } else {
        None
    };
    if ENDED_BY_RUNTIME.contains(&reason) {
        let program = failed_program(message)?;
        let blame = blame(program, status.is_plain && state.terminated.is_some());
        return Some(ContainerFailure::new(status, evidence, digest, blame));
    }
    let mut failure = ContainerFailure::new(status, evidence, digest, Blame::ImageOrPod);
    if names_own_program(last_line(message)) {
        return Some(failure);
    }
    let duration = finished?.duration_since(started?).ok()?;
    if !EXIT_CODES.contains(&ended.exit_code) || !message.is_empty() || duration > SOON {
        return None;
    }
    failure.in_log = Some(state.terminated.is_none());
    Some(failure)
}

/// Returns the possible cause of a failure by the program that could not be run. `is_of_image` is set if nothing in the
/// Pod chose the program.
fn blame(program: Program<'_>, is_of_image: bool) -> Blame {
    match program {
        Program::Own if is_of_image => Blame::Image,
        Program::Own => Blame::ImageOrPod,
        Program::Other { message } => Blame::Node(message.to_owned()),
    }
}

/// Returns the last line of a termination message. The runtime's message follows the container's output.
fn last_line(message: &str) -> &str {
    message.trim_end().lines().next_back().unwrap_or_default()
}

/// Returns the digest of an index without the node's platform. Only containerd's own words count: other parts of the
/// message may come from a registry, which anybody may run.
fn digest_of_unpacked_index(message: &str) -> Option<Digest> {
    let message = message
        .strip_prefix("rpc error: code = NotFound desc = ")
        .unwrap_or(message);
    let image = message.strip_prefix("failed to pull and unpack image \"")?;
    let (_image, cause) = image.split_once('"')?;
    let manifest = cause.strip_prefix(": no match for platform in manifest ")?;
    digest(manifest.get(..DIGEST)?)
}

fn digest_of_reference(image: &str) -> Option<Digest> {
    digest(image.rsplit_once('@')?.1)
}

fn digest(text: &str) -> Option<Digest> {
    if text.len() == DIGEST && is_digest(text) && text.starts_with("sha256:") {
        Some(Digest::of_text(text))
    } else {
        None
    }
}

fn names_no_match(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    NO_MATCH.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ENDED: &str = "2026-01-01T10:00:02Z";
    /// Message of the only runtime that reports the container's own program.
    const GVISOR: &str = "failed to start containerd task \"a\": OCI runtime start failed: starting container: starting sub-container [/a]: creating process: failed to load /a: exec format error: unknown";
    const HOOK: &str = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running createContainer hook #0: fork/exec /usr/bin/nvidia-ctk: exec format error: unknown";

    fn now() -> SystemTime {
        humantime::parse_rfc3339("2026-01-01T10:30:00Z").unwrap()
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

    fn evidence(pod: &Value) -> Option<(Evidence, Option<bool>)> {
        let failures = failures(&StoredPod::of_value(pod).unwrap(), now());
        assert!(failures.len() < 2);
        failures.first().map(|failure| {
            assert_eq!(
                (&*failure.container, &*failure.image),
                ("app", "acme/app:1")
            );
            (failure.evidence, failure.in_log)
        })
    }

    fn ended(code: i32, message: &str, started: &str) -> Value {
        json!({"exitCode": code, "reason": "Error", "message": message, "startedAt": started, "finishedAt": ENDED})
    }

    #[test]
    fn message_of_a_failed_pull_is_evidence() {
        let of_message = |reason: &str, message: &str| {
            evidence(&pod(
                json!({"state": {"waiting": {"reason": reason, "message": message}}}),
            ))
        };
        for message in [
            "failed to pull and unpack image \"a\": no match for platform in manifest: not found",
            "no matching manifest for linux/arm64/v8 in the manifest list entries",
            "choosing image instance: no image found in image index for architecture \"arm64\", variant \"v8\", OS \"linux\"",
        ] {
            for reason in ["ErrImagePull", "ImagePullBackOff"] {
                assert_eq!(
                    of_message(reason, message),
                    Some((Evidence::NoMatchForPlatform, None)),
                    "{message}"
                );
            }
            assert_eq!(of_message("ContainerCreating", message), None);
        }
        assert_eq!(of_message("ErrImagePull", "not found"), None);
        for reason in NOT_STARTED {
            assert_eq!(
                of_message(reason, GVISOR),
                Some((Evidence::ExecFormatError, None))
            );
        }
        // About a credential plugin or a decompressor of the node; and the text of a registry.
        for reason in [
            "ErrImagePull",
            "ImagePullBackOff",
            "ContainerCreating",
            "PostStartHookError",
        ] {
            assert_eq!(
                of_message(reason, "fork/exec /usr/bin/unpigz: exec format error"),
                None
            );
            assert_eq!(of_message(reason, GVISOR), None, "{reason}");
        }
    }

    #[test]
    fn end_of_a_container_is_evidence() {
        let now_and_before = |end: Value| {
            let now = evidence(&pod(json!({"state": {"terminated": end}})));
            let waiting = json!({"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"});
            let before = evidence(&pod(
                json!({"state": {"waiting": waiting}, "lastState": {"terminated": end}}),
            ));
            (now, before)
        };
        let exec = "exec container process `/app`: Exec format error";
        let expected = Some((Evidence::ExecFormatError, None));
        assert_eq!(now_and_before(ended(1, exec, ENDED)), (expected, expected));
        assert_eq!(now_and_before(ended(0, exec, ENDED)), (None, None));
        let in_log = |previous| Some((Evidence::ExecFormatError, Some(previous)));
        for code in EXIT_CODES {
            assert_eq!(
                now_and_before(ended(code, "", ENDED)),
                (in_log(false), in_log(true))
            );
        }
        assert_eq!(now_and_before(ended(137, "", ENDED)), (None, None));
        assert_eq!(
            now_and_before(ended(1, "out of memory", ENDED)),
            (None, None)
        );
        assert_eq!(
            now_and_before(ended(1, "", "2026-01-01T09:59:00Z")),
            (None, None),
            "it ran for a minute"
        );
        assert_eq!(
            now_and_before(json!({"exitCode": 1, "startedAt": null, "finishedAt": null})),
            (None, None)
        );
    }

    #[test]
    fn pods_out_of_scope_have_no_failures() {
        let dying = pod(
            json!({"state": {"terminated": ended(255, "exec /app: exec format error", ENDED)}}),
        );
        assert!(evidence(&dying).is_some());
        let changed = |pointer: &str, value: Value| {
            let mut pod = dying.clone();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            pod.pointer_mut(parent).unwrap()[key] = value;
            evidence(&pod)
        };
        assert_eq!(changed("/spec/nodeName", json!("")), None);
        assert_eq!(changed("/status/phase", json!("Succeeded")), None);
        assert!(changed("/status/phase", json!("Failed")).is_some());
        assert_eq!(
            changed("/metadata/labels", json!({"tolerarch.io/mode": "off"})),
            None
        );
        assert_eq!(
            changed("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            None
        );
        let mirror = json!({"kubernetes.io/config.mirror": "8d5e957f297893487bd98fa830fa6413"});
        assert_eq!(changed("/metadata/annotations", mirror), None);
        let long_ago = "2026-01-01T09:00:00Z";
        let mut old = dying.clone();
        old["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] =
            long_ago.into();
        assert_eq!(evidence(&old), None);
    }

    #[test]
    fn failures_of_a_pod_are_limited() {
        let mut many = pod(
            json!({"state": {"terminated": ended(255, "exec /app: exec format error", ENDED)}}),
        );
        let statuses = many["status"]["containerStatuses"].as_array_mut().unwrap();
        *statuses = vec![statuses[0].clone(); 5000];
        assert_eq!(
            failures(&StoredPod::of_value(&many).unwrap(), now()).len(),
            CONTAINERS
        );
    }

    const DIGEST: &str = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    /// Returns whether the digest of the failed image is known, and whether the image alone is to blame.
    fn judged(pod: &Value) -> (bool, bool) {
        let failures = failures(&StoredPod::of_value(pod).unwrap(), now());
        let ContainerFailure { digest, blame, .. } = &failures[0];
        assert!(digest.is_none_or(|digest| digest.to_string() == DIGEST));
        assert!(!matches!(blame, Blame::Node(_)));
        (digest.is_some(), *blame == Blame::Image)
    }

    fn pulled(status: Value) -> Value {
        let mut pod = pod(status);
        pod["status"]["containerStatuses"][0]["imageID"] =
            format!("docker.io/acme/app@{DIGEST}").into();
        pod
    }

    fn ended_by(reason: &str, message: &str) -> Value {
        pulled(json!({"state": {"terminated": {
            "exitCode": 128, "reason": reason, "message": message, "startedAt": ENDED, "finishedAt": ENDED,
        }}}))
    }

    #[test]
    fn message_of_the_runtime_blames_the_image_alone() {
        assert_eq!(judged(&ended_by("StartError", GVISOR)), (true, true));
        let waiting =
            json!({"state": {"waiting": {"reason": "RunContainerError", "message": GVISOR}}});
        assert_eq!(judged(&pulled(waiting.clone())), (true, true));
        assert_eq!(
            judged(&pod(waiting)),
            (false, true),
            "the digest is unknown"
        );
    }

    #[test]
    fn text_that_a_tenant_may_write_does_not_blame_the_image_alone() {
        // A container can write this message.
        assert_eq!(
            judged(&ended_by("Error", "exec /app: exec format error")),
            (true, false)
        );
        assert_eq!(
            evidence(&ended_by("Error", GVISOR)),
            None,
            "no runtime writes this into a log"
        );
        // The Pod's working directory is part of this message.
        let inner = "chdir to \"exec format error\" failed: no such file";
        assert_eq!(evidence(&ended_by("StartError", inner)), None);
    }

    /// Settings that select, find, cover or filter the program.
    #[test]
    fn settings_of_the_pod_share_the_blame() {
        let by_runtime = ended_by("StartError", GVISOR);
        for (pointer, key, value) in [
            (
                "/metadata",
                "annotations",
                json!({"cdi.k8s.io/gpu": "vendor.com/gpu=0"}),
            ),
            (
                "/spec/containers/0",
                "resources",
                json!({"claims": [{"name": "gpu"}]}),
            ),
            ("/spec/containers/0", "command", json!(["/a"])),
            ("/spec/containers/0", "args", json!(["/a"])),
            ("/spec/containers/0", "workingDir", json!("/mnt")),
            (
                "/spec/containers/0",
                "env",
                json!([{"name": "A"}, {"name": "PATH", "value": "/mnt"}]),
            ),
            (
                "/spec/containers/0",
                "envFrom",
                json!([{"configMapRef": {"name": "own"}}]),
            ),
            (
                "/spec/containers/0",
                "volumeMounts",
                json!([{"name": "v", "mountPath": "/app"}]),
            ),
            (
                "/spec/containers/0",
                "volumeMounts",
                json!([{"name": "v", "mountPath": "/var/run/secrets/../../app"}]),
            ),
            (
                "/spec/containers/0",
                "volumeDevices",
                json!([{"name": "v", "devicePath": "/app"}]),
            ),
            (
                "/spec/containers/0",
                "securityContext",
                json!({"seccompProfile": {"type": "Localhost"}}),
            ),
            (
                "/spec",
                "securityContext",
                json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "own"}}),
            ),
            ("/spec", "runtimeClassName", json!("wasm")),
        ] {
            let mut pod = by_runtime.clone();
            pod.pointer_mut(pointer).unwrap()[key] = value.clone();
            assert_eq!(judged(&pod), (true, false), "{key}: {value}");
        }
        let mut usual = by_runtime.clone();
        usual["spec"]["containers"][0]["env"] = json!([{"name": "A"}]);
        let token = "/var/run/secrets/kubernetes.io/serviceaccount";
        usual["spec"]["containers"][0]["volumeMounts"] =
            json!([{"name": "token", "mountPath": token}]);
        usual["spec"]["securityContext"] =
            json!({"seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 1});
        assert_eq!(judged(&usual), (true, true));
    }

    #[test]
    fn earlier_run_may_have_been_of_another_image() {
        let before = json!({"exitCode": 128, "reason": "StartError", "message": GVISOR, "finishedAt": ENDED});
        let waits = json!({"reason": "CrashLoopBackOff", "message": "back-off"});
        let again =
            |state: Value| pulled(json!({"state": state, "lastState": {"terminated": before}}));
        assert_eq!(judged(&again(json!({"waiting": waits}))), (true, false));
        assert_eq!(judged(&again(json!({"running": {}}))), (false, false));
    }

    /// Neither the image nor its Pod is to blame for a program of the node.
    #[test]
    fn failed_program_of_the_node_blames_the_node() {
        let waits_for = |reason: &str, message: &str| {
            pulled(json!({"state": {"waiting": {"reason": reason, "message": message}}}))
        };
        for message in [
            HOOK,
            "failed to create containerd task: failed to start shim: start failed: : fork/exec /usr/local/bin/containerd-shim-runc-v2: exec format error",
            "failed to create containerd task: failed to create shim task: failed to create init process I/O: failed to start binary process: fork/exec /usr/bin/logger: exec format error",
            "container create failed: fork/exec /usr/bin/conmon: exec format error",
            // By a hook that has become another program.
            "error running hook #0: error running hook: exit status 1, stdout: , stderr: exec /sbin/ldconfig.real: exec format error\n: unknown",
            "exec /app: exec format error",
        ] {
            let by_kubelet = NOT_STARTED.map(|reason| waits_for(reason, message));
            let by_runtime = ENDED_BY_RUNTIME.map(|reason| ended_by(reason, message));
            for pod in by_kubelet.into_iter().chain(by_runtime) {
                let failures = failures(&StoredPod::of_value(&pod).unwrap(), now());
                let [
                    ContainerFailure {
                        digest: _,
                        blame: Blame::Node(end),
                        ..
                    },
                ] = &*failures
                else {
                    panic!("{failures:?}");
                };
                assert!(message.contains(&**end), "{end}");
                assert!(!failures[0].is_of_image("acme/app:1"));
            }
            let by_container = ended_by(
                "Error",
                &format!("exec /app: exec format error\n{message}\n"),
            );
            assert_eq!(
                evidence(&by_container).is_some(),
                message.starts_with("exec "),
                "its last line counts: {message}"
            );
        }
    }

    #[test]
    fn only_containerds_words_name_the_digest() {
        let pull = |message: &str| {
            let mut pod = pulled(
                json!({"state": {"waiting": {"reason": "ErrImagePull", "message": message}}}),
            );
            let by_tag = judged(&pod);
            pod["spec"]["containers"][0]["image"] = format!("acme/app@{DIGEST}").into();
            (by_tag, judged(&pod))
        };
        let by_containerd = format!(
            "failed to pull and unpack image \"docker.io/acme/app:1\": no match for platform in manifest {DIGEST}: not found"
        );
        let image_alone = ((true, true), (true, true));
        assert_eq!(pull(&by_containerd), image_alone);
        assert_eq!(
            pull(&format!(
                "rpc error: code = NotFound desc = {by_containerd}"
            )),
            image_alone
        );
        // The image that was pulled before is another one, or another version.
        let image_or_pod = ((false, false), (true, false));
        for message in [
            "no match for platform in manifest: not found".to_owned(),
            format!("failed to resolve reference \"evil.test/x\": 500: {by_containerd}"),
            by_containerd.replace(": no match", ": 403: no match"),
            by_containerd.replace("2cf2", "zz"),
            by_containerd[..by_containerd.len() - 20].to_owned(),
        ] {
            assert_eq!(pull(&message), image_or_pod, "{message}");
        }
    }
}
