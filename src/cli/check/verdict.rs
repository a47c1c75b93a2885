//! The webhook's decision on an object, with what the user needs to know of it.

use serde::Serialize;
use serde_json::value::RawValue;

use super::super::advice::placeholder;
use super::super::session::{FailOn, Session};
use super::workload::{Object, Place};
use tolerarch_core::decision::Decision;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::patch;
use tolerarch_core::policy::Blocker;
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_core::review::{Subject, TEMPLATE};
use tolerarch_engine::decide::{self, Wait};
use tolerarch_text::escape::shortened;

/// Decision on an object, in the form of `-o json`. Members are added, never renamed.
#[derive(Serialize)]
pub(super) struct Verdict {
    #[serde(flatten)]
    pub(super) place: Place,
    /// `tolerated`, `placed`, `retracted` or `unchanged`.
    pub(super) decision: &'static str,
    pub(super) reason: Reason,
    /// Pools that are open to the Pod through tolerarch.
    pub(super) pools: Vec<String>,
    pub(super) blockers: Vec<BlockingImage>,
    /// Warnings that the creator of the Pod would get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// Image that decided, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image: Option<String>,
    /// Reason why the platforms of that image are unknown, from the trace of its lookup.
    #[serde(rename = "error", skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<String>,
    /// JSON patch of the object, if one fits and something changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) patch: Option<Box<RawValue>>,
    /// True if access failed for a Pod that names pull secrets, which are not read.
    #[serde(skip)]
    pub(super) lacks_pull_secrets: bool,
}

#[derive(Serialize)]
pub(super) struct BlockingImage {
    /// Image as the Pod names it, shortened.
    pub(super) image: String,
    pub(super) reason: Reason,
    /// Platforms of pools that the image lacks; none if the image's platforms are unknown.
    pub(super) lacks: PlatformSet,
}

impl Verdict {
    /// Decides as the webhook, but waits for every image. An error says why the API server would refuse the Pod.
    pub(super) async fn of(object: &Object, session: &Session) -> Result<Self, String> {
        let (subject, namespace) = (object.subject()?, &object.place.namespace);
        let Session {
            snapshot,
            policy,
            limits,
            ..
        } = session;
        let wait = Wait::ForAll(limits);
        let verdict = |decision: Decision<'_>| Self::new(object, &subject, decision, session);
        let decided = async {
            verdict(match &subject {
                Subject::Pod(pod) => snapshot.decide(policy, namespace, pod, wait).await,
                Subject::DaemonSet(set) => {
                    snapshot
                        .decide_daemon_set(policy, namespace, set, wait)
                        .await
                }
                Subject::Skipped(reason) => Decision::unchanged(*reason),
            })
        };
        let failed = || verdict(Decision::unchanged(Reason::Unknown(LookupError::Internal)));
        let verdict = decide::caught(decided).await.unwrap_or_else(failed);
        match (&subject, verdict.reason) {
            (Subject::Pod(_), Reason::Malformed) => Err(object.malformed("it has no containers")),
            _ => Ok(verdict),
        }
    }

    fn new(
        object: &Object,
        subject: &Subject<'_>,
        decision: Decision<'_>,
        session: &Session,
    ) -> Self {
        let done = decision.done();
        let Decision {
            reason,
            image,
            blockers,
            opened,
            edits,
            warnings,
            unused_secrets,
        } = decision;
        let pod = subject.pod().map(|(_, pod)| pod);
        let root = match subject {
            Subject::DaemonSet(_) => Some(TEMPLATE),
            _ => object.template.as_deref(),
        };
        let patch = pod
            .zip(root)
            .map(|(pod, root)| patch::build(root, pod, &edits));
        let patch = patch.filter(|patch| !patch.is_empty());
        let blocking = |&Blocker { image, cause }: &Blocker<'_>| {
            let image = shortened(image).to_owned();
            BlockingImage {
                image,
                reason: cause.into(),
                lacks: cause.lacks().unwrap_or_default(),
            }
        };
        let unknown = image.filter(|_| FailOn::of(reason).contains(&FailOn::Unknown));
        let placeholder = unknown.and_then(placeholder);
        let asked = || session.cause(&unknown?.parse().ok()?, &unused_secrets);
        let refused = pod.filter(|_| placeholder.is_none());
        Self {
            place: object.place.clone(),
            decision: done,
            reason,
            pools: opened.iter().map(|pool| pool.name.clone()).collect(),
            blockers: blockers.iter().map(blocking).collect(),
            warnings,
            image: image.map(|image| shortened(image).to_owned()),
            cause: placeholder.map(ToOwned::to_owned).or_else(asked),
            patch: patch.and_then(|patch| RawValue::from_string(patch).ok()),
            lacks_pull_secrets: refused.is_some_and(|pod| session.lacks_pull_secrets(reason, pod)),
        }
    }
}
