//! The webhook's decision on an object, with its reasons.

use serde::Serialize;
use serde_json::value::RawValue;

use super::super::advice::placeholder;
use super::super::session::{FailOn, Session};
use super::workload::{Object, Place};
use tolerarch_core::decision::Decision;
use tolerarch_core::patch;
use tolerarch_core::placement;
use tolerarch_core::pod::{PREFERRED_KEY, Pod, REQUIRED_KEY};
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_core::review::Subject;
use tolerarch_engine::decide::{self, BlockingImage, Wait};
use tolerarch_text::escape::shortened;

/// Decision on an object, in the form of `-o json`. Members are added, never renamed.
#[derive(Serialize)]
pub(super) struct Verdict {
    #[serde(flatten)]
    pub(super) place: Place,
    /// `tolerated`, `placed`, `retracted` or `unchanged`.
    pub(super) decision: &'static str,
    pub(super) reason: Reason,
    /// Pools that tolerarch opens to the Pod.
    pub(super) pools: Vec<String>,
    /// Requirements on nodes that tolerarch adds, in the form of the Pod's annotation: `amd64,team=blue`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) required: String,
    /// Preferences for nodes that tolerarch adds, in the form of the Pod's annotation: `arm64=80,pool/multi-arch=50`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) preferred: String,
    pub(super) blockers: Vec<BlockingImage>,
    /// Warnings that the creator of the Pod would get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// Image that the reason is about, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image: Option<String>,
    /// Reason why the platforms of that image are unknown, from the trace of its lookup.
    #[serde(rename = "error", skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<String>,
    /// JSON patch of the object, if one fits and something changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) patch: Option<Box<RawValue>>,
    /// True if a lookup failed for a Pod that names pull secrets, which are not read.
    #[serde(skip)]
    pub(super) lacks_pull_secrets: bool,
}

impl Verdict {
    /// Decides like the webhook, but waits for every image. The error says why the API server would refuse the Pod.
    pub(super) async fn of(object: &Object, session: &Session) -> Result<Self, String> {
        let subject = object.subject()?;
        let decided = async {
            let decision = decide(session, &subject, &object.place.namespace).await;
            Self::new(object, &subject, decision, session)
        };
        let verdict = match decide::caught(decided).await {
            Some(verdict) => verdict,
            None => {
                let decision = Decision::unchanged(Reason::Unknown(LookupError::Internal));
                Self::new(object, &subject, decision, session)
            }
        };
        if matches!(subject, Subject::Pod(_)) && verdict.reason == Reason::Malformed {
            return Err(object.malformed("it has no containers"));
        }
        Ok(verdict)
    }

    fn new(
        object: &Object,
        subject: &Subject<'_>,
        decision: Decision<'_>,
        session: &Session,
    ) -> Self {
        let pod = subject.pod().map(|(_, pod)| pod);
        let requires = session.policy.placement.requires();
        let prefers = pod.is_some_and(|pod| placement::prefers(pod, &session.policy));
        let patch = patch_of(object, subject, &decision);
        let mut verdict = Self {
            required: recorded(&decision, pod, REQUIRED_KEY, requires),
            preferred: recorded(&decision, pod, PREFERRED_KEY, prefers),
            place: object.place.clone(),
            decision: decision.outcome(),
            reason: decision.reason,
            pools: decision
                .opened
                .iter()
                .map(|pool| pool.name.clone())
                .collect(),
            blockers: decision.blockers.iter().map(BlockingImage::of).collect(),
            image: decision.image.map(|image| shortened(image).to_owned()),
            warnings: decision.warnings,
            cause: None,
            patch,
            lacks_pull_secrets: false,
        };
        let mut is_placeholder = false;
        if let Some(image) = decision.image
            && FailOn::of(decision.reason).contains(&FailOn::Unknown)
        {
            if let Some(meaning) = placeholder(image) {
                is_placeholder = true;
                verdict.cause = Some(meaning.to_owned());
            } else if let Ok(image) = image.parse() {
                verdict.cause = session.cause(&image, &decision.unused_secrets);
            }
        }
        if let Some(pod) = pod
            && !is_placeholder
        {
            verdict.lacks_pull_secrets = session.lacks_pull_secrets(decision.reason, pod);
        }
        verdict
    }
}

/// Returns the patch of the object; `None` if no patch is possible.
fn patch_of(
    object: &Object,
    subject: &Subject<'_>,
    decision: &Decision<'_>,
) -> Option<Box<RawValue>> {
    let root = match subject {
        Subject::Template(change) => change.kind.template_pointer(),
        _ => object.template.as_deref()?,
    };
    let (_, pod) = subject.pod()?;
    let text = patch::build(root, pod, &decision.edits);
    RawValue::from_string(text).ok()
}

/// Returns the value of an annotation of tolerarch after this decision. Anyone may write such an annotation into a Pod, so
/// an unchanged one counts only if the decision has compared it with the Pod.
fn recorded(
    decision: &Decision<'_>,
    pod: Option<&Pod<'_>>,
    key: &'static str,
    is_on: bool,
) -> String {
    if let Some(text) = decision.edits.annotations.get(key) {
        return text.clone();
    }
    let is_compared = matches!(
        decision.reason,
        Reason::Tolerated | Reason::Placed | Reason::Retracted
    );
    match pod {
        Some(pod) if is_on && is_compared => pod.annotation(key).to_owned(),
        _ => String::new(),
    }
}

async fn decide<'a>(
    session: &'a Session,
    subject: &'a Subject<'_>,
    namespace: &str,
) -> Decision<'a> {
    let Session {
        snapshot,
        policy,
        limits,
        ..
    } = session;
    let wait = Wait::ForAll(limits);
    match subject {
        Subject::Pod(pod) => snapshot.decide(policy, namespace, pod, wait).await,
        Subject::Template(change) => {
            let decision = snapshot.decide_template(policy, namespace, change, wait);
            decision.await
        }
        Subject::Skipped(reason) => Decision::unchanged(*reason),
    }
}
