//! What to do next: the steps that bring most, each with its object and how it is done.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::super::advice::{EXCLUDED, fix};
use super::super::output::count;
use super::contents::Report;
use super::section::{Cell, NEXT, Section, amount_cells};
use tolerarch_core::pod::is_name;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;
use tolerarch_engine::census::{Amount, ImageTotal, Money, ReasonTotal, Workload, WorkloadTotal};

/// Maximum number of steps.
const MOST: usize = 10;
/// Number of steps of a kind that come before others of it, so that restarts do not hide images, nor images restarts.
const MOST_OF_A_KIND: usize = 5;

pub(super) struct Step<'r> {
    pub(super) kind: StepKind,
    /// What is done, in a few words.
    pub(super) action: String,
    /// Namespace of a workload; empty for all other objects.
    pub(super) namespace: &'r str,
    /// Name of the object, or how many there are.
    pub(super) object: Cell,
    pub(super) brings: Worth,
    pub(super) how: How,
}

/// What a step brings; money outweighs requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Worth {
    /// What may be saved a month; 0 without prices.
    pub(super) money: Money,
    /// Requests of the Pods that the step concerns.
    pub(super) requests: Amount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StepKind {
    Move,
    Install,
    Enforce,
    Restart,
    Update,
    Build,
    Resolve,
}

pub(super) enum How {
    /// Command for a shell, made of valid names only.
    Command(String),
    Advice(String),
}

impl StepKind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Install => "install",
            Self::Enforce => "enforce",
            Self::Restart => "restart",
            Self::Update => "update",
            Self::Build => "build",
            Self::Resolve => "resolve",
        }
    }
}

/// Eligible Pods of a workload that were created without the tolerations of a pool.
struct Missed<'r> {
    workload: &'r Workload,
    brings: Worth,
    is_observed: bool,
}

impl Report<'_> {
    /// Returns at most ten steps: Pods that fail where they are come first, then what brings most.
    pub(super) fn steps(&self) -> Vec<Step<'_>> {
        let mut steps = self.missed_steps();
        steps.extend(self.image_steps());
        let unknown = self.summary.unknown.iter();
        steps.extend(unknown.map(|(reason, total)| unknown_step(*reason, total)));
        steps.sort_by_key(|step| Reverse(step.brings));
        steps.splice(0..0, self.misplaced_step());
        // Those beyond their share come last, where others leave room.
        let mut of_kind: HashMap<StepKind, usize> = HashMap::new();
        let mut beyond = Vec::new();
        let mut chosen = Vec::new();
        for step in steps {
            let before = of_kind.entry(step.kind).or_default();
            *before += 1;
            if *before > MOST_OF_A_KIND {
                beyond.push(step);
            } else {
                chosen.push(step);
            }
        }
        chosen.extend(beyond);
        chosen.truncate(MOST);
        chosen
    }

    pub(super) fn next_steps(&self) -> Section {
        let mut rows = Vec::new();
        for (place, step) in self.steps().into_iter().enumerate() {
            let mut row = vec![Cell::number(place as u64 + 1)];
            if self.bill.is_some() {
                row.push(Cell::money(step.brings.money));
            }
            row.extend(amount_cells(step.brings.requests));
            row.extend([
                Cell::Text(step.action),
                Cell::name(step.namespace),
                step.object,
                match step.how {
                    How::Command(command) => Cell::Command(command),
                    How::Advice(advice) => Cell::Text(advice),
                },
            ]);
            rows.push(row);
        }
        let mut columns = vec!["#"];
        if self.bill.is_some() {
            columns.push("Saves");
        }
        columns.extend(["CPU", "Memory", "Pods", "Step", "Namespace", "Object", "Do"]);
        Section {
            title: NEXT.to_owned(),
            intro: "Pods that fail where they are come first, then what brings most to the pools. The amounts are the \
                    requests of the Pods of each step."
                .to_owned(),
            columns,
            rows,
        }
    }

    /// Returns one step for all Pods on nodes that their images do not support: what keeps them off is one setting.
    fn misplaced_step(&self) -> Option<Step<'_>> {
        let misplaced = &self.summary.misplaced;
        let (first, ..) = misplaced.first()?;
        let mut workloads: Vec<&Workload> = Vec::new();
        let mut brings = Worth::default();
        for (pod, ..) in misplaced {
            workloads.push(&pod.workload);
            brings.requests.add(pod.requests);
        }
        workloads.dedup();
        let mut step = Step {
            kind: StepKind::Move,
            action: "keep off these nodes".to_owned(),
            namespace: "",
            object: Cell::Text(count(workloads.len() as u64, "workload")),
            brings,
            how: How::Advice(
                "they fail there, unless the node emulates: placement.require or an affinity of their own keeps them \
                 off; the Pods are below, under Misplaced"
                    .to_owned(),
            ),
        };
        if workloads.len() == 1 {
            step.namespace = &first.workload.namespace;
            step.object = Cell::Name(first.workload.label());
        }
        Some(step)
    }

    fn missed_steps(&self) -> Vec<Step<'_>> {
        let mut steps = Vec::new();
        let mut before_installation = Vec::new();
        let mut observed = Vec::new();
        for missed in self.missed_workloads() {
            if !self.is_installed {
                before_installation.push(missed);
            } else if missed.is_observed {
                observed.push(missed);
            } else {
                steps.extend(restart(&missed));
            }
        }
        steps.extend(together(
            &before_installation,
            StepKind::Install,
            "have tolerarch review them",
            "install it (tolerarch doctor --pre says whether the cluster is ready for it); Pods get the tolerations when \
             they are created again",
        ));
        steps.extend(together(
            &observed,
            StepKind::Enforce,
            "enforce, not observe",
            "set mode: enforce in the configuration, the profile, or the Pods' label tolerarch.io/mode; Pods get the \
             tolerations when they are created again",
        ));
        steps
    }

    /// Returns the workloads of the missed Pods that the webhook reviews when they are created again.
    fn missed_workloads(&self) -> Vec<Missed<'_>> {
        let totals = self.summary.workloads.iter();
        let totals: HashMap<&Workload, &WorkloadTotal<'_>> =
            totals.map(|(workload, total)| (*workload, total)).collect();
        let mut missed = Vec::new();
        // They are sorted by workload.
        let alike = self
            .summary
            .missed
            .chunk_by(|(one, _), (other, _)| one.workload == other.workload);
        for pods in alike {
            let Some((first, _)) = pods.first() else {
                continue;
            };
            let workload = &*first.workload;
            if EXCLUDED.contains(&&*workload.namespace) {
                continue;
            }
            let total = totals.get(workload);
            let brings = Worth {
                money: total.map(|total| total.missed_money).unwrap_or_default(),
                requests: pods.iter().map(|(pod, _)| &pod.requests).sum(),
            };
            missed.push(Missed {
                workload,
                brings,
                is_observed: total.is_some_and(|total| total.reason == Reason::Observed),
            });
        }
        missed
    }

    fn image_steps(&self) -> Vec<Step<'_>> {
        let mut steps = Vec::new();
        for ((image, cause), total) in &self.summary.images {
            let action = match cause {
                Cause::Lacks(platforms) => format!("build for {platforms}"),
                Cause::Failed(failure) => format!("repair for {}", failure.platforms),
                Cause::Unknown(_) => continue,
            };
            // Pods that other images keep as well are brought by none of them alone.
            if total.alone.pods == 0 {
                continue;
            }
            let mut step = Step {
                kind: StepKind::Build,
                action,
                namespace: "",
                object: Cell::name(image),
                brings: Worth {
                    money: total.alone_money,
                    requests: total.alone,
                },
                how: How::Advice(image_advice(total)),
            };
            if let Some(advice) = self.newer_tag(image) {
                step.kind = StepKind::Update;
                step.action = "take a newer tag".to_owned();
                step.how = How::Advice(advice);
            }
            steps.push(step);
        }
        steps
    }

    /// Returns which newer tag of an image has the missing platforms, if one was found.
    fn newer_tag(&self, image: &str) -> Option<String> {
        let mut newer = self.newer.into_iter().flatten();
        let newer = newer.find(|one| one.image == image)?;
        let nearest = newer.nearest.as_ref()?;
        let newest = newer.newest.as_ref()?;
        if nearest == newest {
            return Some(format!("{newest} has what is missing"));
        }
        Some(format!(
            "{nearest} has what is missing, and {newest} is the newest that has"
        ))
    }
}

/// Returns how Pods are created again; `None` for those of Jobs, of which the next run brings it.
fn restart<'r>(missed: &Missed<'r>) -> Option<Step<'r>> {
    let Workload {
        namespace,
        kind,
        name,
    } = missed.workload;
    let how = match &**kind {
        "CronJob" | "Job" => return None,
        "Deployment" | "StatefulSet" if is_name(namespace) && is_name(name) => {
            let kind = kind.to_lowercase();
            How::Command(format!(
                "kubectl --namespace {namespace} rollout restart {kind}/{name}"
            ))
        }
        "Pod" => {
            How::Advice("delete it and create it again: it has no owner that would".to_owned())
        }
        _ => How::Advice("have its owner create the Pods again".to_owned()),
    };
    Some(Step {
        kind: StepKind::Restart,
        action: "restart".to_owned(),
        namespace,
        object: Cell::Name(missed.workload.label()),
        brings: missed.brings,
        how,
    })
}

/// Returns one step for all of these workloads.
fn together<'r>(
    missed: &[Missed<'r>],
    kind: StepKind,
    action: &str,
    advice: &str,
) -> Option<Step<'r>> {
    if missed.is_empty() {
        return None;
    }
    let mut brings = Worth::default();
    for one in missed {
        brings.money.add(one.brings.money);
        brings.requests.add(one.brings.requests);
    }
    Some(Step {
        kind,
        action: action.to_owned(),
        namespace: "",
        object: Cell::Text(count(missed.len() as u64, "workload")),
        brings,
        how: How::Advice(advice.to_owned()),
    })
}

fn image_advice(total: &ImageTotal<'_>) -> String {
    let mut advice = "have it built for this platform as well, or take a tag that is".to_owned();
    let others = total.keeps.pods.saturating_sub(total.alone.pods);
    if others > 0 {
        let others = count(others, "more Pod");
        advice += &format!("; {others} of it need other images, too");
    }
    advice
}

fn unknown_step<'r>(reason: Reason, total: &ReasonTotal<'r>) -> Step<'r> {
    let mut images = total.images.iter();
    let object = match (images.next(), images.next()) {
        (Some(image), None) => Cell::name(image),
        _ => Cell::Text(count(total.images.len() as u64, "image")),
    };
    Step {
        kind: StepKind::Resolve,
        action: format!("resolve: {reason}"),
        namespace: "",
        object,
        brings: Worth {
            money: total.money,
            requests: total.amount,
        },
        how: How::Advice(fix(reason).unwrap_or_default().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tolerarch_core::image::LookupError;
    use tolerarch_engine::census::{Costs, Coverage, IndexedPod, Summary};

    fn pod(namespace: &str, kind: &str, name: &str, cpu_millis: u64) -> IndexedPod {
        let workload = Workload {
            namespace: namespace.into(),
            kind: kind.into(),
            name: name.into(),
        };
        IndexedPod {
            name: name.into(),
            between: None,
            workload: workload.into(),
            shape: None,
            requests: cores(cpu_millis),
            node: None,
            created: None,
        }
    }

    fn cores(cpu_millis: u64) -> Amount {
        Amount {
            cpu_millis,
            memory_bytes: 0,
            pods: 1,
        }
    }

    fn report(pods: &[IndexedPod]) -> Report<'_> {
        let mut missed: Vec<_> = pods.iter().map(|pod| (pod, vec!["pool"])).collect();
        missed.sort_by_key(|(pod, _)| &pod.workload);
        Report {
            summary: Summary {
                missed,
                ..Summary::default()
            },
            is_installed: true,
            ..Report::default()
        }
    }

    fn lines(report: &Report<'_>) -> Vec<String> {
        let rows = report.next_steps().rows;
        let line = |row: &Vec<Cell>| {
            let cells: Vec<&str> = row.iter().map(Cell::text).collect();
            cells.join(" ")
        };
        rows.iter().map(line).collect()
    }

    #[test]
    fn only_valid_names_are_in_a_command() {
        let evil = "web; rm -rf /";
        for (namespace, kind, name, command) in [
            (
                "shop",
                "Deployment",
                "web",
                Some("kubectl --namespace shop rollout restart deployment/web"),
            ),
            (
                "shop",
                "StatefulSet",
                "db.v1",
                Some("kubectl --namespace shop rollout restart statefulset/db.v1"),
            ),
            ("shop", "Deployment", evil, None),
            (evil, "Deployment", "web", None),
            ("--all", "Deployment", "web", None),
            ("shop", "Deployment", "-web", None),
            ("shop", "Deployment", "web\n", None),
            ("shop", "Deployment", "", None),
            ("shop", "Rollout", "web", None),
            ("shop", evil, "web", None),
            ("shop", "Pod", "web", None),
        ] {
            let pods = [pod(namespace, kind, name, 1)];
            let report = report(&pods);
            let steps = report.steps();
            let found = match &steps[0].how {
                How::Command(command) => Some(command.as_str()),
                How::Advice(_) => None,
            };
            assert_eq!(found, command, "{namespace} {kind} {name}");
        }
    }

    #[test]
    fn a_restart_is_advised_where_it_brings_something() {
        let pods = [
            pod("shop", "Deployment", "web", 100),
            pod("shop", "Deployment", "web", 100),
            pod("shop", "CronJob", "bills", 900),
            pod("kube-system", "Deployment", "dns", 800),
            pod("team", "Deployment", "watched", 50),
        ];
        let mut report = report(&pods);
        let observed = WorkloadTotal {
            coverage: Coverage::All,
            reason: Reason::Observed,
            amount: cores(50),
            images: [].into(),
            costs: Costs::default(),
            missed: 1,
            missed_money: Money::default(),
            misplaced: 0,
        };
        report.summary.workloads = vec![(&pods[4].workload, observed)];
        assert_eq!(
            lines(&report),
            [
                "1 0.2 0 2 restart shop Deployment/web kubectl --namespace shop rollout restart deployment/web",
                "2 0.05 0 1 enforce, not observe  1 workload set mode: enforce in the configuration, the profile, or \
                 the Pods' label tolerarch.io/mode; Pods get the tolerations when they are created again",
            ]
        );
        report.is_installed = false;
        let lines = lines(&report);
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(
            lines[0].starts_with("1 1.15 0 4 have tolerarch review them  3 workloads install it")
        );
    }

    #[test]
    fn what_brings_most_comes_first_after_what_fails() {
        let names: Vec<String> = (0..9).map(|number| format!("app-{number}")).collect();
        let pods: Vec<IndexedPod> = names
            .iter()
            .zip(10..)
            .map(|(name, cpu)| pod("shop", "Deployment", name, cpu))
            .collect();
        let mut report = report(&pods);
        let image = |alone: u64, others: u64| {
            let mut total = ImageTotal {
                alone: Amount {
                    cpu_millis: alone,
                    pods: alone,
                    ..Amount::default()
                },
                ..ImageTotal::default()
            };
            total.keeps = total.alone;
            total.keeps.pods += others;
            total
        };
        let arm = Cause::Lacks("linux/arm64".parse().unwrap());
        let unknown = Cause::Unknown(LookupError::NotFound);
        report.summary.images = vec![
            (("never-alone", arm), image(0, 9)),
            (("large", arm), image(16, 2)),
            (("unknown", unknown), image(99, 0)),
        ];
        let mut reason = ReasonTotal {
            amount: cores(15),
            ..ReasonTotal::default()
        };
        reason.images.insert("unknown");
        report.summary.unknown = vec![(unknown.into(), reason)];
        report.summary.misplaced = vec![(&pods[0], "linux/arm64".parse().unwrap(), [].into())];
        let lines = lines(&report);
        let expected = [
            "1 0.01 0 1 keep off these nodes shop Deployment/app-0 they fail there",
            "2 0.018 0 1 restart shop Deployment/app-8 kubectl",
            "3 0.017 0 1 restart shop Deployment/app-7 kubectl",
            "4 0.016 0 16 build for linux/arm64  large have it built for this platform as well, or take a tag that is; 2 \
             more Pods of it need other images, too",
            "5 0.016 0 1 restart shop Deployment/app-6 kubectl",
            "6 0.015 0 1 restart shop Deployment/app-5 kubectl",
            "7 0.015 0 1 resolve: not-found  unknown push the image",
            "8 0.014 0 1 restart shop Deployment/app-4 kubectl",
            // More restarts than their share, as there is room.
            "9 0.013 0 1 restart shop Deployment/app-3 kubectl",
            "10 0.012 0 1 restart shop Deployment/app-2 kubectl",
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{expected} in\n{lines:#?}");
        }
    }
}
