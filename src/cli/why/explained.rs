//! Explanation of one object: the earlier decision and today's, its images, and the nodes of its Pods.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::advice::fix;
use super::super::check::{Object, Place};
use super::super::output::{Colour, MAX_ITEMS, Row, paragraphs, rest, sanitized, table, wrapped};
use super::super::session::{Session, colour};
use super::super::survey::Survey;
use tolerarch_core::pod::{POOLS_KEY, PREFERRED_KEY, Pod, REASON_KEY, REQUIRED_KEY, Usage};
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_engine::census::{IndexedPod, Workload};
use tolerarch_engine::decide::{Examined, ImageState, PoolState};
use tolerarch_kubernetes::cluster::{Scope, WebhookCall};
use tolerarch_text::escape::shortened;

/// Explanation of an object, in the form of `-o json`. Members are added, never renamed.
#[derive(Serialize)]
pub(super) struct Explained {
    #[serde(skip)]
    label: String,
    kind: String,
    name: String,
    path: String,
    namespace: String,
    #[serde(flatten)]
    pub(super) today: Examined,
    /// Annotations that an earlier decision left on the Pod; `None` for a workload.
    decided: Option<Annotations>,
    pods: Vec<PodState>,
}

#[derive(Serialize)]
struct PodState {
    name: String,
    node: Option<String>,
    platform: Option<String>,
    #[serde(rename = "decided")]
    annotations: Annotations,
    misplaced: Vec<String>,
}

/// Annotations of tolerarch on a Pod.
#[derive(Serialize)]
struct Annotations {
    pools: String,
    preferred: String,
    reason: String,
    required: String,
}

impl Annotations {
    fn of(pod: Option<&Pod<'_>>) -> Self {
        let text = |key| pod.map_or("", |pod| pod.annotation(key)).to_owned();
        let [pools, required, preferred, reason] =
            [POOLS_KEY, REQUIRED_KEY, PREFERRED_KEY, REASON_KEY].map(text);
        Self {
            pools,
            required,
            preferred,
            reason,
        }
    }

    /// Renders the annotations: `opened multi-arch, required amd64`.
    fn text(&self) -> String {
        let Self {
            pools,
            required,
            preferred,
            reason,
        } = self;
        let mut parts = Vec::new();
        for (what, text) in [
            ("opened", pools),
            ("required", required),
            ("preferred", preferred),
            ("closed:", reason),
        ] {
            if !text.is_empty() {
                parts.push(format!("{what} {text}"));
            }
        }
        if parts.is_empty() {
            "-".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

impl Explained {
    /// Explains an object of a namespace. `scope` has the Pods that are reviewed, with the namespace's labels, if both are
    /// known. Adds a note if the object is not decided on, or if that is unknown.
    pub(super) async fn of(
        session: &Session,
        survey: &Survey,
        namespace: &str,
        scope: Option<(&Scope, &BTreeMap<String, String>)>,
        object: &Object,
        notes: &mut Vec<String>,
    ) -> Self {
        let Place {
            kind,
            name,
            path,
            label,
            ..
        } = object.place.clone();
        let called = match scope {
            Some((scope, namespace_labels)) => called(scope, namespace_labels, object),
            None => WebhookCall::For(None),
        };
        notes.extend(scope_note(&called, &label, namespace));
        let pod = object.pod().ok();
        let settings = survey.terms(namespace);
        let policy = session.snapshot.policy_for(settings.profile);
        let policy = policy.unwrap_or(&session.snapshot.policy);
        let mut today = match &pod {
            Some(pod) => session.examine(policy, namespace, pod).await,
            None => Examined::skipped(Reason::Malformed),
        };
        if settings.is_opted_out {
            today.decision = "unchanged";
            today.reason = Reason::OptedOut;
        } else if called == WebhookCall::No {
            today.decision = "unchanged";
            today.reason = Reason::NotApplicable;
        }
        let mut pods = Vec::new();
        for pod in &survey.pods {
            if is_of_object(pod, &kind, &name) {
                pods.push(PodState::of(survey, &today.images, pod));
            }
        }
        let decided = match pod {
            Some(pod) if kind == "Pod" => Some(Annotations::of(Some(&pod))),
            _ => None,
        };
        Self {
            label,
            kind,
            name,
            path,
            namespace: namespace.to_owned(),
            today,
            decided,
            pods,
        }
    }

    pub(super) fn table(&self, width: Option<usize>) -> String {
        let title = format!("{} in {}", self.label, self.namespace);
        let mut text = colour(self.today.reason).paint(&sanitized(&title)) + "\n";
        let mut line = |name: &str, value: &str| {
            text += &wrapped(&format!("  {name:<10} {value}"), "             ", width);
        };
        if let Some(annotations) = &self.decided {
            line("decided", &annotations.text());
        }
        let Examined {
            decision,
            reason,
            warnings,
            pools,
            images,
            ..
        } = &self.today;
        let why = if reason.as_str() == *decision {
            String::new()
        } else {
            format!(": {reason}")
        };
        line("today", &format!("{decision}{why}"));
        for pool in pools {
            line("pool", &state(pool));
        }
        for warning in warnings {
            line("warning", warning);
        }
        let image_table = table(
            &["PLATFORMS", "REASON", "IMAGE"],
            images.iter().map(row),
            "  ",
            width,
        );
        let mut advice = String::new();
        for image in images {
            if let Some(reason) = image.unknown {
                advice += &wrapped(&advise(image, reason), "    ", width);
            }
        }
        let rows = self.pods.iter().take(MAX_ITEMS).map(PodState::row);
        let mut pods = table(&["POD", "NODE", "PLATFORM", "DECIDED"], rows, "  ", width);
        pods.extend(rest(self.pods.len(), MAX_ITEMS).map(|rest| format!("  {rest}")));
        paragraphs([text, image_table, advice, pods])
    }
}

/// Returns whether the webhook is called for the object.
fn called<'s>(
    scope: &'s Scope,
    namespace_labels: &BTreeMap<String, String>,
    object: &Object,
) -> WebhookCall<'s> {
    let labels = &object.value["metadata"]["labels"];
    let labels = BTreeMap::deserialize(labels).unwrap_or_default();
    scope.called(namespace_labels, &labels)
}

/// Returns a note if the object is not decided on, or if that is unknown.
fn scope_note(called: &WebhookCall<'_>, label: &str, namespace: &str) -> Option<String> {
    match called {
        WebhookCall::For(_) => None,
        WebhookCall::No => Some(format!(
            "no webhook of tolerarch selects the labels of {label} and of the namespace {namespace}, so it is not decided on"
        )),
        WebhookCall::Unknown => Some(format!(
            "a matchCondition of the webhook, which is not evaluated here, determines whether {label} is decided on"
        )),
    }
}

/// Returns whether the Pod is this object, or belongs to it.
fn is_of_object(pod: &IndexedPod, kind: &str, name: &str) -> bool {
    let is_owner = |owner: &Workload| *owner.kind == *kind && *owner.name == *name;
    kind == "Pod" && *pod.name == *name
        || is_owner(&pod.workload)
        || pod.between.as_ref().is_some_and(|owner| is_owner(owner))
}

fn state(pool: &PoolState) -> String {
    let PoolState {
        name,
        platforms,
        is_open,
        is_tolerated,
        lacks,
    } = pool;
    let state = match (is_open, lacks) {
        (true, _) => "every image runs there".to_owned(),
        (false, None) => "closed, as an image is unknown".to_owned(),
        (false, Some(lacks)) if lacks.is_empty() => {
            "not open to this workload yet (share)".to_owned()
        }
        (false, Some(lacks)) => format!("closed, as not every image runs on {lacks}"),
    };
    let tolerated = if *is_tolerated { ", tolerated" } else { "" };
    format!("{name} ({platforms}): {state}{tolerated}")
}

/// Returns why an image is unknown, and advice.
fn advise(image: &ImageState, reason: Reason) -> String {
    let name = &image.image;
    let Some(cause) = &image.cause else {
        let fix = fix(reason).map(|fix| format!("; {fix}"));
        return format!("  {name}: {reason}{}", fix.unwrap_or_default());
    };
    match fix(reason) {
        // The cause of a failed connection already includes advice.
        Some(fix) if reason != Reason::Unknown(LookupError::Unreachable) => {
            format!("  {name}: {cause}; {fix}")
        }
        _ => format!("  {name}: {cause}"),
    }
}

fn row(image: &ImageState) -> Row {
    let (reason, colour) = match image.unknown {
        Some(reason) => (reason.as_str().to_owned(), Colour::Yellow),
        None if image.lacks.is_empty() => (String::new(), Colour::Plain),
        None if let Some(failure) = image.failed => {
            (Cause::Failed(failure).to_string(), Colour::Red)
        }
        None => (format!("lacks {}", image.lacks), Colour::Red),
    };
    let platforms = image
        .platforms
        .map_or_else(|| "unknown".to_owned(), |set| set.to_string());
    Row {
        colour,
        cells: vec![platforms, reason, image.image.clone()],
    }
}

impl PodState {
    /// Returns the state of a Pod: its node, its annotations, and its images that do not run on the node.
    fn of(survey: &Survey, images: &[ImageState], pod: &IndexedPod) -> Self {
        let facts = pod
            .shape
            .and_then(|shape| survey.shapes.get_index(shape))
            .map(|shape| &shape.pod);
        let usages: Vec<Usage<'_>> = facts.map(Pod::images).unwrap_or_default();
        let platform = pod.node.as_deref().and_then(|node| survey.platform(node));
        let mut misplaced = Vec::new();
        for image in images {
            let (Some(node), Some(runs_on)) = (platform, image.platforms) else {
                continue;
            };
            let mut usages = usages.iter();
            let is_of_pod = usages.any(|usage| shortened(usage.given) == image.image);
            if is_of_pod && !runs_on.contains(node) {
                misplaced.push(image.image.clone());
            }
        }
        Self {
            name: pod.name.to_string(),
            node: pod.node.as_deref().map(ToOwned::to_owned),
            platform: platform.map(|platform| platform.to_string()),
            annotations: Annotations::of(facts),
            misplaced,
        }
    }

    fn row(&self) -> Row {
        let platform = self.platform.as_deref().unwrap_or("-");
        let wrong = if self.misplaced.is_empty() {
            ""
        } else {
            " (misplaced)"
        };
        let colour = if self.misplaced.is_empty() {
            Colour::Plain
        } else {
            Colour::Red
        };
        let node = self.node.as_deref().unwrap_or("-").to_owned();
        Row {
            colour,
            cells: vec![
                self.name.clone(),
                node,
                format!("{platform}{wrong}"),
                self.annotations.text(),
            ],
        }
    }
}
