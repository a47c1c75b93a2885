//! What is known of one object: what was and would be decided, by which images, and where its Pods run.

use serde::Serialize;

use super::super::advice::fix;
use super::super::check::{Object, Place};
use super::super::output::{Colour, Look, Row, shown, table, wrapped};
use super::super::session::{Session, colour};
use super::super::survey::{Survey, SurveyedPod};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::placement::is_tolerated;
use tolerarch_core::pod::{POOLS_KEY, PREFERRED_KEY, Pod, REASON_KEY, REQUIRED_KEY};
use tolerarch_core::policy::Pool;
use tolerarch_core::reason::Reason;
use tolerarch_engine::decide;
use tolerarch_text::escape::shortened;

/// Pods of a table; JSON has them all.
const PODS: usize = 20;

/// An object, explained, as `-o json` has it. Members are added, never renamed.
#[derive(Serialize)]
pub(super) struct Explained {
    #[serde(skip)]
    label: String,
    kind: String,
    name: String,
    path: String,
    namespace: String,
    /// What would be done today, and why.
    decision: &'static str,
    reason: Reason,
    warnings: Vec<String>,
    #[serde(skip)]
    pub(super) lacks_pull_secrets: bool,
    pools: Vec<PoolState>,
    images: Vec<ImageState>,
    /// What an earlier pass has left on the Pod itself.
    decided: Option<Marks>,
    pods: Vec<PodState>,
}

#[derive(Serialize)]
struct PoolState {
    name: String,
    platforms: PlatformSet,
    /// Whether every image runs there, and the pool is open to the workload.
    #[serde(rename = "open")]
    is_open: bool,
    #[serde(rename = "tolerated")]
    is_tolerated: bool,
    /// What some image lacks of it; `None` where that is not known.
    lacks: Option<PlatformSet>,
}

#[derive(Serialize)]
struct ImageState {
    image: String,
    platforms: Option<PlatformSet>,
    /// Of all pools.
    lacks: PlatformSet,
    #[serde(rename = "reason")]
    unknown: Option<Reason>,
    #[serde(rename = "error")]
    cause: Option<String>,
}

#[derive(Default, Serialize)]
struct Marks {
    pools: String,
    required: String,
    preferred: String,
    reason: String,
}

#[derive(Serialize)]
struct PodState {
    name: String,
    node: Option<String>,
    platform: Option<String>,
    #[serde(rename = "decided")]
    marks: Marks,
    misplaced: Vec<String>,
}

impl Marks {
    fn of(pod: &Pod<'_>) -> Self {
        Self {
            pools: pod.annotation(POOLS_KEY).to_owned(),
            required: pod.annotation(REQUIRED_KEY).to_owned(),
            preferred: pod.annotation(PREFERRED_KEY).to_owned(),
            reason: pod.annotation(REASON_KEY).to_owned(),
        }
    }

    /// `opened multi-arch, required amd64`
    fn text(&self) -> String {
        let Self { pools, required, preferred, reason } = self;
        let all = [("opened", pools), ("required", required), ("preferred", preferred), ("closed:", reason)];
        let said = all.iter().filter(|(_, text)| !text.is_empty());
        let said: Vec<String> = said.map(|(what, text)| format!("{what} {}", shown(text))).collect();
        if said.is_empty() { "-".to_owned() } else { said.join(", ") }
    }
}

impl Explained {
    pub(super) async fn of(session: &Session, survey: &Survey, namespace: &str, object: &Object) -> Self {
        let Place { kind, name, path, .. } = &object.place;
        let mut explained = Self {
            label: object.label(),
            kind: kind.clone(),
            name: name.clone(),
            path: path.clone(),
            namespace: namespace.to_owned(),
            decision: "unchanged",
            reason: Reason::Malformed,
            warnings: Vec::new(),
            lacks_pull_secrets: false,
            pools: Vec::new(),
            images: Vec::new(),
            decided: None,
            pods: Vec::new(),
        };
        let Ok(pod) = object.pod() else { return explained };
        // An internal error costs the answer for this object, and no other.
        if decide::caught(explained.decide(session, survey, &pod)).await.is_none() {
            explained.reason = Reason::Internal;
        }
        if kind == "Pod" {
            explained.decided = Some(Marks::of(&pod));
        }
        let own = survey.pods.iter().filter(|pod| pod.is_of(kind, name));
        explained.pods = own.map(|pod| explained.pod(survey, pod)).collect();
        explained
    }

    async fn decide(&mut self, session: &Session, survey: &Survey, pod: &Pod<'_>) {
        let snapshot = &session.snapshot;
        let namespace = self.namespace.as_str();
        let terms = survey.terms(namespace);
        let policy = snapshot.policy_for(terms.profile).unwrap_or(&snapshot.policy);
        let (decision, images) = snapshot.examine(policy, namespace, pod, &session.limits).await;
        let is_opted_out = terms.is_opted_out;
        self.decision = if is_opted_out { "unchanged" } else { decision.done() };
        self.reason = if is_opted_out { Reason::OptedOut } else { decision.reason };
        self.lacks_pull_secrets = session.lacks_pull_secrets(self.reason, pod);
        self.warnings = decision.warnings;
        let verdicts = policy.verdicts(policy.rank(namespace, pod), &images);
        let state = |pool: &Pool| PoolState {
            name: pool.name.clone(),
            platforms: pool.platforms,
            is_open: verdicts.is_open(pool),
            is_tolerated: is_tolerated(pod, pool),
            lacks: verdicts.shared.map(|shared| pool.platforms.difference(shared)),
        };
        self.pools = policy.pools.iter().map(state).collect();
        let wanted = policy.pools.iter().fold(PlatformSet::EMPTY, |all, pool| all.union(pool.platforms));
        // In the order of the Pod, each once.
        for usage in pod.images() {
            let name = shortened(usage.given);
            let Some(known) = images.iter().find(|image| image.given == usage.given) else { continue };
            if self.images.iter().any(|image| image.image == name) {
                continue;
            }
            let unknown = known.nodes().err().map(Reason::from);
            let cause = usage.image.ok().filter(|_| unknown.is_some());
            let cause = cause.and_then(|image| session.cause(&image));
            let platforms = known.nodes().ok();
            let lacks = platforms.map_or(PlatformSet::EMPTY, |nodes| wanted.difference(nodes));
            self.images.push(ImageState { image: name.to_owned(), platforms, lacks, unknown, cause });
        }
    }

    /// Where a Pod runs, and what was decided on it.
    fn pod(&self, survey: &Survey, SurveyedPod { pod, .. }: &SurveyedPod) -> PodState {
        let facts = pod.shape.and_then(|shape| survey.shapes.get(shape)).map(|shape| &shape.pod);
        let platform = pod.node.as_deref().and_then(|node| survey.platform(node));
        let does_not_run = |image: &&ImageState| {
            let is_in_pod = facts.is_some_and(|facts| {
                facts.images().iter().any(|usage| shortened(usage.given) == image.image)
            });
            let runs = platform.zip(image.platforms).is_none_or(|(node, runs_on)| runs_on.contains_all(node));
            is_in_pod && !runs
        };
        PodState {
            name: pod.name.to_string(),
            node: pod.node.as_deref().map(ToOwned::to_owned),
            platform: platform.map(|platform| platform.to_string()),
            marks: facts.map(Marks::of).unwrap_or_default(),
            misplaced: self.images.iter().filter(does_not_run).map(|image| image.image.clone()).collect(),
        }
    }

    pub(super) fn table(&self, look: Look) -> String {
        let title = format!("{} in {}", self.label, self.namespace);
        let mut text = colour(self.reason).paint(&shown(&title), look) + "\n";
        let mut line = |name: &str, value: &str| {
            text += &wrapped(&format!("  {name:<10} {}", shown(value)), "             ", look);
        };
        if let Some(marks) = &self.decided {
            line("decided", &marks.text());
        }
        let why = Some(self.reason.as_str()).filter(|why| *why != self.decision);
        line("today", &[Some(self.decision), why].into_iter().flatten().collect::<Vec<_>>().join(": "));
        for pool in &self.pools {
            line("pool", &pool.text());
        }
        for warning in &self.warnings {
            line("warning", warning);
        }
        let rows: Vec<Row> = self.images.iter().map(ImageState::row).collect();
        if !rows.is_empty() {
            text += &format!("\n{}", table(&["PLATFORMS", "REASON", "IMAGE"], &rows, "  ", look));
        }
        let unknown = self.images.iter().filter_map(|image| Some((image, image.unknown?)));
        let advice = unknown.map(|(image, reason)| {
            let cause = image.cause.as_deref().unwrap_or(reason.as_str());
            // What is told of a failed connection says itself what to do.
            let fix = fix(reason).filter(|_| reason != Reason::Unreachable || image.cause.is_none());
            let said = [Some(shown(cause)), fix.map(ToOwned::to_owned)];
            let said = said.into_iter().flatten().collect::<Vec<_>>().join("; ");
            wrapped(&format!("  {}: {said}", shown(&image.image)), "    ", look)
        });
        let advice: String = advice.collect();
        if !advice.is_empty() {
            text += &format!("\n{advice}");
        }
        let rows: Vec<Row> = self.pods.iter().take(PODS).map(PodState::row).collect();
        if !rows.is_empty() {
            text += &format!("\n{}", table(&["POD", "NODE", "PLATFORM", "DECIDED"], &rows, "  ", look));
        }
        if let Some(more) = self.pods.len().checked_sub(PODS).filter(|more| *more > 0) {
            text += &format!("  and {more} more; -o json has them all\n");
        }
        text
    }
}

impl PoolState {
    fn text(&self) -> String {
        let Self { name, platforms, is_open, is_tolerated, lacks } = self;
        let state = match (is_open, lacks) {
            (true, _) => "every image runs there".to_owned(),
            (false, None) => "closed, as an image is unknown".to_owned(),
            (false, Some(lacks)) if lacks.is_empty() => "not open to this workload yet (share)".to_owned(),
            (false, Some(lacks)) => format!("closed, as images lack {lacks}"),
        };
        let tolerated = if *is_tolerated { ", tolerated" } else { "" };
        format!("{name} ({platforms}): {state}{tolerated}")
    }
}

impl ImageState {
    fn row(&self) -> Row {
        let (reason, colour) = match self.unknown {
            Some(reason) => (reason.as_str().to_owned(), Colour::Yellow),
            None if self.lacks.is_empty() => (String::new(), Colour::Plain),
            None => (format!("lacks {}", self.lacks), Colour::Red),
        };
        let platforms = self.platforms.map_or_else(|| "unknown".to_owned(), |set| set.to_string());
        Row { colour, cells: vec![platforms, reason, shown(&self.image)] }
    }
}

impl PodState {
    fn row(&self) -> Row {
        let platform = self.platform.as_deref().unwrap_or("-");
        let wrong = if self.misplaced.is_empty() { "" } else { " (misplaced)" };
        let colour = if self.misplaced.is_empty() { Colour::Plain } else { Colour::Red };
        let node = self.node.as_deref().map_or_else(|| "-".to_owned(), shown);
        Row { colour, cells: vec![shown(&self.name), node, format!("{platform}{wrong}"), self.marks.text()] }
    }
}
