//! Next steps: those that bring most, each with its object and how to do it.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::super::advice::{EXCLUDED, fix};
use super::super::output::count;
use super::contents::Report;
use super::section::{Cell, NEXT, Section, amount_cells};
use tolerarch_core::pod::is_name;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;
use tolerarch_engine::census::{Gain, ImageTotal, ReasonTotal, Untolerated, Workload};

/// Maximum number of steps.
const MAX_STEPS: usize = 10;
/// Number of steps of a kind that are preferred, so that restarts do not hide images or the other way round.
const PREFERRED_OF_A_KIND: usize = 5;

pub(super) struct Step<'r> {
    pub(super) kind: StepKind,
    /// The step in a few words.
    pub(super) action: String,
    /// Namespace of a workload; empty for all other objects.
    pub(super) namespace: &'r str,
    /// Name of the object, or the number of objects.
    pub(super) object: Cell,
    pub(super) brings: Gain,
    pub(super) how: Instruction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StepKind {
    Move,
    Install,
    Enforce,
    Restart,
    Explain,
    Select,
    Open,
    Consolidate,
    Update,
    Build,
    Resolve,
}

pub(super) enum Instruction {
    /// Command for a shell, which contains only valid names.
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
            Self::Explain => "explain",
            Self::Select => "select",
            Self::Open => "open",
            Self::Consolidate => "consolidate",
            Self::Update => "update",
            Self::Build => "build",
            Self::Resolve => "resolve",
        }
    }
}

/// Eligible Pods of a workload that do not tolerate a pool.
struct MissedWorkload<'r> {
    workload: &'r Workload,
    brings: Gain,
}

impl Report<'_> {
    /// Returns at most [`MAX_STEPS`] steps. Pods that fail on their nodes come first, then the steps that bring most.
    pub(super) fn steps(&self) -> Vec<Step<'_>> {
        let mut steps = self.missed_steps();
        steps.extend(self.movable_step());
        steps.extend(self.image_steps());
        let unknown = self.summary.unknown.iter();
        steps.extend(unknown.map(|(reason, total)| unknown_step(*reason, total)));
        steps.sort_by_key(|step| Reverse(step.brings));
        steps.splice(0..0, self.misplaced_step());
        let mut counts: HashMap<StepKind, usize> = HashMap::new();
        let mut surplus = Vec::new();
        let mut chosen = Vec::new();
        for step in steps {
            let count = counts.entry(step.kind).or_default();
            *count += 1;
            if *count > PREFERRED_OF_A_KIND {
                surplus.push(step);
            } else {
                chosen.push(step);
            }
        }
        // Further steps of a kind fill the list.
        chosen.extend(surplus);
        chosen.truncate(MAX_STEPS);
        chosen
    }

    pub(super) fn next_steps(&self) -> Section {
        let mut rows = Vec::new();
        for (index, step) in self.steps().into_iter().enumerate() {
            let mut row = vec![Cell::number(index as u64 + 1)];
            if self.bill.is_some() {
                row.push(match step.kind {
                    // This step saves no money: it makes Pods run.
                    StepKind::Move => Cell::Number(String::new(), 0.0),
                    _ => Cell::money(step.brings.money),
                });
            }
            row.extend(amount_cells(step.brings.requests));
            row.extend([
                Cell::Text(step.action),
                Cell::name(step.namespace),
                step.object,
                match step.how {
                    Instruction::Command(command) => Cell::Command(command),
                    Instruction::Advice(advice) => Cell::Text(advice),
                },
            ]);
            rows.push(row);
        }
        let mut columns = vec!["#"];
        let mut intro = "Pods that fail on their nodes come first, then the steps that bring most to the pools. The amounts \
                         are the requests of the Pods of each step."
            .to_owned();
        if let Some(bill) = &self.bill {
            columns.push("Saves a month");
            intro = format!(
                "Pods that fail on their nodes come first, then the steps that save most, in {}, if the Pods then run where \
                 it costs least. The other amounts are their requests.",
                bill.currency
            );
        }
        columns.extend(["CPU", "Memory", "Pods", "Step", "Namespace", "Object", "Do"]);
        Section {
            title: NEXT.to_owned(),
            intro,
            columns,
            rows,
        }
    }

    /// Returns one step for all Pods on nodes that their images do not support, because one setting keeps them off.
    fn misplaced_step(&self) -> Option<Step<'_>> {
        let misplaced = &self.summary.misplaced;
        let (first, ..) = misplaced.first()?;
        let mut workloads: Vec<&Workload> = Vec::new();
        let mut brings = Gain::default();
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
            how: Instruction::Advice(
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
        let older = self.untolerating(Untolerated::Older);
        let mut steps = Vec::new();
        if self.is_installed {
            let restarts = older.iter();
            steps.extend(restarts.filter_map(|missed| restart(missed, &self.cluster_flags)));
        } else {
            let advice = "no installation was found or looked for (--config): install it (tolerarch doctor --pre says whether \
                          the cluster is ready for it); Pods get the tolerations when they are created again";
            steps.extend(together(
                &older,
                StepKind::Install,
                "have tolerarch review them",
                advice,
            ));
        }
        let younger = self.untolerating(Untolerated::Younger);
        steps.extend(
            younger
                .iter()
                .map(|missed| explain(missed, &self.cluster_flags)),
        );
        steps.extend(together(
            &self.untolerating(Untolerated::NotCalled),
            StepKind::Select,
            "have tolerarch review them",
            "no webhook of tolerarch selects them: see its namespaceSelector and objectSelector",
        ));
        steps.extend(together(
            &self.untolerating(Untolerated::Closed),
            StepKind::Open,
            "open a pool to them",
            "the share of the pool, the Pods' owner or their size keeps the toleration from them: tolerarch why says which",
        ));
        steps.extend(together(
            &self.untolerating(Untolerated::Observed),
            StepKind::Enforce,
            "enforce, not observe",
            "set mode: enforce in the configuration, the profile, or the Pods' label tolerarch.io/mode; Pods get the \
             tolerations when they are created again",
        ));
        steps
    }

    /// Returns the step for Pods that tolerate a pool and run on more expensive nodes.
    fn movable_step(&self) -> Option<Step<'_>> {
        let movable = self.summary.progress.movable;
        if movable.requests.pods == 0 {
            return None;
        }
        Some(Step {
            kind: StepKind::Consolidate,
            action: "run where it costs less".to_owned(),
            namespace: "",
            object: Cell::Text(count(movable.requests.pods, "Pod")),
            brings: movable,
            how: Instruction::Advice(
                "they tolerate the pool already: tolerarch pools says where new nodes come from; consolidation or a restart \
                 moves them"
                    .to_owned(),
            ),
        })
    }

    /// Returns the workloads with Pods that do not tolerate a pool for this reason, in namespaces where the webhook is
    /// called.
    fn untolerating(&self, reason: Untolerated) -> Vec<MissedWorkload<'_>> {
        let mut missed = Vec::new();
        for (workload, total) in &self.summary.workloads {
            let brings = total.progress.untolerated(reason);
            if brings.requests.pods > 0 && !EXCLUDED.contains(&&*workload.namespace) {
                missed.push(MissedWorkload { workload, brings });
            }
        }
        missed
    }

    fn image_steps(&self) -> Vec<Step<'_>> {
        let mut steps = Vec::new();
        for ((image, cause), total) in &self.summary.images {
            let action = match cause {
                // The platforms are those of several pools, and one pool is enough.
                Cause::Lacks(platforms) if platforms.names().count() > 1 => {
                    format!("build for {platforms}, or those of them that one pool has")
                }
                Cause::Lacks(platforms) => format!("build for {platforms}"),
                Cause::Failed(failure) => format!("repair for {}", failure.platforms),
                Cause::Unknown(_) => continue,
            };
            // A Pod that other images or its own node selector keep as well is not brought by this image alone.
            if total.brings.requests.pods == 0 {
                continue;
            }
            let mut step = Step {
                kind: StepKind::Build,
                action,
                namespace: namespace_of(total),
                object: Cell::name(image),
                brings: total.brings,
                how: Instruction::Advice(image_advice(total)),
            };
            if let Some(tag) = self.newer_tag(image) {
                step.kind = StepKind::Update;
                step.action = "take a newer tag".to_owned();
                step.how = Instruction::Advice(tag + &kept_by(total));
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
        let mut advice = format!("{nearest} has what is missing");
        if newer.may_be_nearer {
            advice += " (perhaps one before it, too)";
        }
        if let Some(newest) = &newer.newest
            && newest != nearest
        {
            advice += &format!(", and so has {newest}");
        }
        Some(advice)
    }
}

/// Returns the namespace of all workloads of an image; empty if there are several.
fn namespace_of<'r>(total: &ImageTotal<'r>) -> &'r str {
    let mut namespaces = total.workloads.iter().map(|workload| &*workload.namespace);
    match namespaces.next() {
        Some(first) if namespaces.all(|other| other == first) => first,
        _ => "",
    }
}

/// Returns the end of an advice: the number of workloads with the image.
fn kept_by(total: &ImageTotal<'_>) -> String {
    match total.workloads.len() {
        1 => "; 1 workload has it".to_owned(),
        several => format!("; {several} workloads have it"),
    }
}

/// Returns the step that finds out why Pods created after the installation have no toleration.
fn explain<'r>(missed: &MissedWorkload<'r>, cluster_flags: &str) -> Step<'r> {
    let Workload {
        namespace,
        kind,
        name,
    } = missed.workload;
    let how = if is_name(namespace) && is_name(name) && is_name(&kind.to_lowercase()) {
        let kind = kind.to_lowercase();
        Instruction::Command(format!(
            "tolerarch why{cluster_flags} -n {namespace} {kind}/{name}"
        ))
    } else {
        Instruction::Advice("tolerarch why says what was decided".to_owned())
    };
    Step {
        kind: StepKind::Explain,
        action: "find out why it has no toleration".to_owned(),
        namespace,
        object: Cell::Name(missed.workload.label()),
        brings: missed.brings,
        how,
    }
}

/// Returns the step that has Pods created again; `None` for Pods of Jobs, whose next run gets the tolerations.
fn restart<'r>(missed: &MissedWorkload<'r>, cluster_flags: &str) -> Option<Step<'r>> {
    let Workload {
        namespace,
        kind,
        name,
    } = missed.workload;
    let how = match &**kind {
        "CronJob" | "Job" => return None,
        "Deployment" | "StatefulSet" if is_name(namespace) && is_name(name) => {
            let kind = kind.to_lowercase();
            Instruction::Command(format!(
                "kubectl{cluster_flags} --namespace {namespace} rollout restart {kind}/{name}"
            ))
        }
        "Pod" => Instruction::Advice(
            "delete it and create it again: it has no owner that would".to_owned(),
        ),
        _ => Instruction::Advice("have its owner create the Pods again".to_owned()),
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
    missed: &[MissedWorkload<'r>],
    kind: StepKind,
    action: &str,
    advice: &str,
) -> Option<Step<'r>> {
    if missed.is_empty() {
        return None;
    }
    let mut brings = Gain::default();
    for one in missed {
        brings.add(one.brings);
    }
    Some(Step {
        kind,
        action: action.to_owned(),
        namespace: "",
        object: Cell::Text(count(missed.len() as u64, "workload")),
        brings,
        how: Instruction::Advice(advice.to_owned()),
    })
}

fn image_advice(total: &ImageTotal<'_>) -> String {
    let mut advice = "have it built for this platform as well, or take a tag that is".to_owned();
    let others = total.keeps.pods.saturating_sub(total.alone.pods);
    advice += &kept_by(total);
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
        brings: Gain {
            money: total.money,
            requests: total.amount,
        },
        how: Instruction::Advice(fix(reason).unwrap_or_default().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::newer::Newer;
    use super::*;
    use tolerarch_core::image::LookupError;
    use tolerarch_engine::census::{
        Amount, Costs, Coverage, IndexedPod, Progress, Summary, WorkloadTotal,
    };

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
            is_called: true,
        }
    }

    fn cores(cpu_millis: u64) -> Amount {
        Amount {
            cpu_millis,
            memory_bytes: 0,
            pods: 1,
        }
    }

    /// Returns the workloads of Pods that do not tolerate a pool for this reason.
    fn untolerating(
        pods: &[IndexedPod],
        reason: Untolerated,
    ) -> Vec<(&Workload, WorkloadTotal<'_>)> {
        let mut workloads: Vec<(&Workload, WorkloadTotal<'_>)> = Vec::new();
        for pod in pods {
            let gain = Gain {
                requests: pod.requests,
                ..Gain::default()
            };
            let index = workloads
                .iter()
                .position(|(workload, _)| **workload == *pod.workload);
            let index = index.unwrap_or_else(|| {
                let total = WorkloadTotal {
                    coverage: Coverage::All,
                    reason: Reason::Tolerated,
                    amount: Amount::default(),
                    images: [].into(),
                    costs: Costs::default(),
                    missed: 1,
                    progress: Progress::default(),
                    misplaced: 0,
                };
                workloads.push((&pod.workload, total));
                workloads.len() - 1
            });
            let untolerated = &mut workloads[index].1.progress.untolerated;
            untolerated.entry(reason).or_default().add(gain);
        }
        workloads
    }

    fn report(pods: &[IndexedPod]) -> Report<'_> {
        Report {
            summary: Summary {
                workloads: untolerating(pods, Untolerated::Older),
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
    fn commands_contain_only_valid_names() {
        let injection = "web; rm -rf /";
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
            ("shop", "Deployment", injection, None),
            (injection, "Deployment", "web", None),
            ("--all", "Deployment", "web", None),
            ("shop", "Deployment", "-web", None),
            ("shop", "Deployment", "web\n", None),
            ("shop", "Deployment", "", None),
            ("shop", "Rollout", "web", None),
            ("shop", injection, "web", None),
            ("shop", "Pod", "web", None),
        ] {
            let pods = [pod(namespace, kind, name, 1)];
            let report = report(&pods);
            let steps = report.steps();
            let actual = match &steps[0].how {
                Instruction::Command(command) => Some(command.as_str()),
                Instruction::Advice(_) => None,
            };
            assert_eq!(actual, command, "{namespace} {kind} {name}");
        }
    }

    #[test]
    fn restart_is_advised_only_if_it_helps() {
        let pods = [
            pod("shop", "Deployment", "web", 100),
            pod("shop", "Deployment", "web", 100),
            pod("shop", "CronJob", "bills", 900),
            pod("kube-system", "Deployment", "dns", 800),
        ];
        let mut report = report(&pods);
        let observed = [pod("team", "Deployment", "watched", 50)];
        let young = [pod("team", "Deployment", "young", 40)];
        let workloads = &mut report.summary.workloads;
        workloads.extend(untolerating(&observed, Untolerated::Observed));
        workloads.extend(untolerating(&young, Untolerated::Younger));
        assert_eq!(
            lines(&report),
            [
                "1 0.2 0 2 restart shop Deployment/web kubectl --namespace shop rollout restart deployment/web",
                "2 0.05 0 1 enforce, not observe  1 workload set mode: enforce in the configuration, the profile, or \
                 the Pods' label tolerarch.io/mode; Pods get the tolerations when they are created again",
                "3 0.04 0 1 find out why it has no toleration team Deployment/young tolerarch why -n team deployment/young",
            ]
        );
        report.is_installed = false;
        let lines = lines(&report);
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(
            lines[0]
                .starts_with("1 1.1 0 3 have tolerarch review them  2 workloads no installation")
        );
    }

    #[test]
    fn failing_pods_come_first_then_the_largest_gains() {
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
            total.brings.requests = total.alone;
            total.keeps = total.alone;
            total.keeps.pods += others;
            total.workloads.insert(&pods[0].workload);
            total
        };
        let lacks_arm64 = Cause::Lacks("linux/arm64".parse().unwrap());
        let unknown = Cause::Unknown(LookupError::NotFound);
        report.summary.images = vec![
            (("never-alone", lacks_arm64), image(0, 9)),
            (("large", lacks_arm64), image(16, 2)),
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
            "4 0.016 0 16 build for linux/arm64 shop large have it built for this platform as well, or take a tag that is; \
             1 workload has it; 2 more Pods of it need other images, too",
            "5 0.016 0 1 restart shop Deployment/app-6 kubectl",
            "6 0.015 0 1 restart shop Deployment/app-5 kubectl",
            "7 0.015 0 1 resolve: not-found  unknown push the image",
            "8 0.014 0 1 restart shop Deployment/app-4 kubectl",
            // Further restarts fill the list.
            "9 0.013 0 1 restart shop Deployment/app-3 kubectl",
            "10 0.012 0 1 restart shop Deployment/app-2 kubectl",
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{expected} in\n{lines:#?}");
        }
    }

    #[test]
    fn tag_advice_makes_no_claim_about_unlisted_tags() {
        // A later tag may be unlisted, or its lookup may have failed.
        for (may_be_nearer, newest, expected) in [
            (false, "1.3", "1.1 has what is missing, and so has 1.3"),
            (false, "1.1", "1.1 has what is missing"),
            (
                true,
                "1.3",
                "1.1 has what is missing (perhaps one before it, too), and so has 1.3",
            ),
            (
                true,
                "1.1",
                "1.1 has what is missing (perhaps one before it, too)",
            ),
        ] {
            let mut newer = Newer::default();
            newer.image = "app:1.0".to_owned();
            newer.nearest = Some("1.1".to_owned());
            newer.may_be_nearer = may_be_nearer;
            newer.newest = Some(newest.to_owned());
            let report = Report {
                newer: Some(std::slice::from_ref(&newer)),
                ..Report::default()
            };
            assert_eq!(report.newer_tag("app:1.0").unwrap(), expected);
            assert_eq!(report.newer_tag("app"), None);
        }
    }
}
