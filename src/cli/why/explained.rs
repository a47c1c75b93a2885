//! What is known of one object: what was and would be decided, by which images, and where its Pods run.

use serde_json::{Value, json};

use super::super::advice::fix;
use super::super::check::Template;
use super::super::output::{Colour, Look, Row, shown, table, wrapped};
use super::super::session::{FailOn, Session, cause};
use super::super::survey::{Survey, SurveyedPod};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::placement::is_tolerated;
use tolerarch_core::pod::Pod;
use tolerarch_core::reason::Reason;
use tolerarch_engine::decide;
use tolerarch_text::escape::shortened;

/// Pods of a table; JSON has them all.
const PODS: usize = 20;

/// An object, explained.
pub(super) struct Explained {
    /// `Deployment/web`; with the place of the template where there are several.
    label: String,
    kind: String,
    name: String,
    path: String,
    namespace: String,
    /// What would be done today, and why.
    decision: &'static str,
    reason: Reason,
    warnings: Vec<String>,
    pools: Vec<PoolState>,
    images: Vec<ImageState>,
    /// What an earlier pass has left on the Pod itself.
    decided: Option<Marks>,
    pods: Vec<PodState>,
}

struct PoolState {
    name: String,
    platforms: PlatformSet,
    /// Whether every image runs there, and the pool is open to the workload.
    is_open: bool,
    is_tolerated: bool,
    /// What some image lacks of it; `None` where that is not known.
    lacks: Option<PlatformSet>,
}

struct ImageState {
    image: String,
    platforms: Option<PlatformSet>,
    /// Of all pools.
    lacks: PlatformSet,
    /// Why its platforms are not known.
    unknown: Option<Reason>,
    cause: Option<String>,
}

/// The annotations that tolerarch has left.
#[derive(Default)]
struct Marks {
    pools: String,
    required: String,
    preferred: String,
    reason: String,
}

struct PodState {
    name: String,
    node: Option<String>,
    platform: Option<PlatformSet>,
    marks: Marks,
    /// Images that do not run on its node.
    misplaced: Vec<String>,
}

impl Marks {
    fn of(pod: &Pod<'_>) -> Self {
        Self {
            pools: pod.pools_annotation().to_owned(),
            required: pod.required_annotation().to_owned(),
            preferred: pod.preferred_annotation().to_owned(),
            reason: pod.reason_annotation().unwrap_or_default().to_owned(),
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

    fn json(&self) -> Value {
        let Self { pools, required, preferred, reason } = self;
        json!({"pools": pools, "required": required, "preferred": preferred, "reason": reason})
    }
}

impl Explained {
    pub(super) async fn of(session: &Session, survey: &Survey, namespace: &str, object: &Template) -> Self {
        let Template { kind, name, path, label, .. } = object;
        let mut explained = Self {
            label: label.clone(),
            kind: kind.clone(),
            name: name.clone(),
            path: path.clone(),
            namespace: namespace.to_owned(),
            decision: "unchanged",
            reason: Reason::Malformed,
            warnings: Vec::new(),
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
        let own = survey.pods.iter().filter(|pod| object.owns(pod));
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
        self.warnings = decision.warnings;
        let verdicts = policy.verdicts(policy.rank(namespace, pod), &images);
        self.pools = verdicts
            .of_pools()
            .map(|verdict| PoolState {
                name: verdict.pool.name.clone(),
                platforms: verdict.pool.platforms,
                is_open: verdict.is_open,
                is_tolerated: is_tolerated(pod, verdict.pool),
                lacks: verdicts.shared.map(|shared| verdict.pool.platforms.difference(shared)),
            })
            .collect();
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
            let cause = cause.and_then(|image| cause_of(session, &image));
            let platforms = known.nodes().ok();
            let lacks = platforms.map_or(PlatformSet::EMPTY, |nodes| wanted.difference(nodes));
            self.images.push(ImageState { image: name.to_owned(), platforms, lacks, unknown, cause });
        }
    }

    /// Where a Pod runs, and what was decided on it.
    fn pod(&self, survey: &Survey, pod: &SurveyedPod) -> PodState {
        let facts = pod.shape.and_then(|shape| survey.shapes.get(shape)).map(|shape| &shape.pod);
        let platform =
            pod.node.as_deref().and_then(|node| survey.nodes.as_ref().and_then(|nodes| *nodes.get(node)?));
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
            platform,
            marks: facts.map(Marks::of).unwrap_or_default(),
            misplaced: self.images.iter().filter(does_not_run).map(|image| image.image.clone()).collect(),
        }
    }

    pub(super) fn table(&self, look: Look) -> String {
        let colour = match FailOn::of(self.reason) {
            [FailOn::Unsupported, ..] => Colour::Red,
            [FailOn::Unknown, ..] => Colour::Yellow,
            _ => Colour::Green,
        };
        let title = format!("{} in {}", self.label, self.namespace);
        let mut text = colour.paint(&shown(&title), look) + "\n";
        let mut line = |name: &str, value: &str| {
            text += &wrapped(&format!("  {name:<10} {}", shown(value)), "             ", look);
        };
        if let Some(marks) = &self.decided {
            line("decided", &marks.text());
        }
        line("today", &format!("{}: {}", self.decision, self.reason));
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
            wrapped(&format!("  {}: {}; {}", shown(&image.image), shown(cause), fix(reason)), "    ", look)
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

    /// The documented shape; members are added, never renamed.
    pub(super) fn json(&self) -> Value {
        json!({
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "path": self.path,
            "decision": self.decision,
            "reason": self.reason.as_str(),
            "warnings": self.warnings,
            "pools": self.pools.iter().map(PoolState::json).collect::<Vec<_>>(),
            "images": self.images.iter().map(ImageState::json).collect::<Vec<_>>(),
            "decided": self.decided.as_ref().map(Marks::json),
            "pods": self.pods.iter().map(PodState::json).collect::<Vec<_>>(),
        })
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

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "platforms": names(self.platforms),
            "open": self.is_open,
            "tolerated": self.is_tolerated,
            "lacks": self.lacks.map(names),
        })
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

    fn json(&self) -> Value {
        json!({
            "image": self.image,
            "platforms": self.platforms.map(names),
            "lacks": names(self.lacks),
            "reason": self.unknown.map(Reason::as_str),
            "error": self.cause,
        })
    }
}

impl PodState {
    fn row(&self) -> Row {
        let platform = self.platform.map_or_else(|| "-".to_owned(), |platform| platform.to_string());
        let wrong = if self.misplaced.is_empty() { "" } else { " (misplaced)" };
        let colour = if self.misplaced.is_empty() { Colour::Plain } else { Colour::Red };
        let node = self.node.as_deref().map_or_else(|| "-".to_owned(), shown);
        Row { colour, cells: vec![shown(&self.name), node, format!("{platform}{wrong}"), self.marks.text()] }
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "node": self.node,
            "platform": self.platform.map(|platform| platform.to_string()),
            "decided": self.marks.json(),
            "misplaced": self.misplaced,
        })
    }
}

fn names(platforms: PlatformSet) -> Vec<String> {
    platforms.names().collect()
}

fn cause_of(session: &Session, image: &tolerarch_core::image::ImageRef) -> Option<String> {
    cause(&session.traces.of(image))
}
