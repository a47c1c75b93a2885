//! What a report says, in the order in which it is read: tables whose cells know whether they are untrusted, which each form
//! writes in its own way.

use std::cmp::Reverse;
use std::sync::Arc;

use super::super::advice::fix;
use super::super::output::count;
use super::figures::{cores, memory, percent};
use super::{By, Report};
use tolerarch_engine::census::{Amount, Coverage, PodOf};

pub(super) struct Section {
    pub(super) title: &'static str,
    /// What it means, and what to do.
    pub(super) intro: String,
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Cell>>,
}

#[derive(Clone)]
pub(super) enum Cell {
    /// A text of ours.
    Text(String),
    /// Untrusted text: a name that was chosen in the cluster.
    Name(String),
    /// A number, and by what it sorts.
    Number(String, f64),
    Coverage(Coverage),
}

impl Cell {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Name(text) | Self::Number(text, _) => text,
            Self::Coverage(coverage) => coverage.as_str(),
        }
    }

    fn number(number: u64) -> Self {
        Self::Number(number.to_string(), number as f64)
    }

    fn name(name: &Arc<str>) -> Self {
        Self::Name(name.as_ref().to_owned())
    }
}

fn amount(amount: Amount) -> [Cell; 3] {
    [
        Cell::Number(cores(amount), amount.cpu_millis as f64),
        Cell::Number(memory(amount), amount.memory_bytes as f64),
        Cell::number(amount.pods),
    ]
}

impl Report {
    pub(super) fn totals(&self) -> Section {
        let all = self.summary.all();
        let share = |part: u64, whole: u64| Cell::number(percent(part, whole));
        let rows = Coverage::ALL.iter().filter_map(|coverage| {
            let (part, workloads) = self.summary.totals.get(coverage)?;
            let [cpu, memory, pods] = amount(*part);
            Some(vec![
                Cell::Coverage(*coverage),
                cpu,
                share(part.cpu_millis, all.cpu_millis),
                memory,
                share(part.memory_bytes, all.memory_bytes),
                pods,
                Cell::number(*workloads),
            ])
        });
        Section {
            title: "What the images of the Pods support",
            intro: format!(
                "all: every image runs on every platform of a pool; partial: an image lacks one; unknown: the platforms of \
                 an image could not be determined; skipped: Pods that are not decided on. {} request {} cores and {} of \
                 memory.",
                count(all.pods, "Pod"),
                cores(all),
                memory(all)
            ),
            columns: vec!["SUPPORT", "CPU", "%", "MEMORY", "%", "PODS", "WORKLOADS"],
            rows: rows.collect(),
        }
    }

    pub(super) fn kept(&self, by: By) -> Section {
        match by {
            By::Image => self.by_image(),
            By::Workload => self.by_workload(),
            By::Namespace => self.by_namespace(),
        }
    }

    fn by_image(&self) -> Section {
        let rows = self.summary.images.iter().map(|((image, cause), one)| {
            let mut row = amount(one.keeps).to_vec();
            row.extend([
                Cell::number(one.workloads.len() as u64),
                Cell::Text(cause.to_string()),
                Cell::name(image),
            ]);
            row
        });
        Section {
            title: "Images that keep Pods from the pools",
            intro:
                "The one that keeps most comes first; a Pod that several images keep counts for each of them."
                    .to_owned(),
            columns: vec!["CPU", "MEMORY", "PODS", "WORKLOADS", "REASON", "IMAGE"],
            rows: rows.collect(),
        }
    }

    fn by_workload(&self) -> Section {
        let workloads = self.summary.workloads.iter();
        let kept = workloads.filter(|(_, one)| matches!(one.coverage, Coverage::Partial | Coverage::Unknown));
        let rows = kept.map(|(workload, one)| {
            let mut row = amount(one.amount).to_vec();
            row.extend([
                Cell::Coverage(one.coverage),
                Cell::Text(one.reason.as_str().to_owned()),
                Cell::name(&workload.namespace),
                Cell::Name(workload.label()),
            ]);
            row
        });
        Section {
            title: "Workloads that images keep from the pools",
            intro: "The largest comes first.".to_owned(),
            columns: vec!["CPU", "MEMORY", "PODS", "SUPPORT", "REASON", "NAMESPACE", "OBJECT"],
            rows: rows.collect(),
        }
    }

    fn by_namespace(&self) -> Section {
        let rows = self.summary.namespaces.iter().map(|(namespace, one)| {
            let all: Amount = one.amounts.values().sum();
            let mut row = vec![Cell::name(namespace)];
            row.extend(amount(all));
            row.extend(Coverage::ALL.map(|coverage| {
                let part = one.amounts.get(&coverage).copied().unwrap_or_default();
                let percent = percent(part.cpu_millis, all.cpu_millis);
                Cell::Number(format!("{percent}%"), percent as f64)
            }));
            row
        });
        Section {
            title: "Namespaces",
            intro: "Shares of the requested CPU; where images keep most comes first.".to_owned(),
            columns: vec!["NAMESPACE", "CPU", "MEMORY", "PODS", "ALL", "PARTIAL", "UNKNOWN", "SKIPPED"],
            rows: rows.collect(),
        }
    }

    pub(super) fn unknown(&self) -> Section {
        let rows = self.summary.unknown.iter().map(|(reason, one)| {
            let mut row = vec![Cell::Text(reason.as_str().to_owned())];
            row.extend(amount(one.amount));
            row.extend([
                Cell::number(one.images.len() as u64),
                Cell::Text(fix(*reason).unwrap_or_default().to_owned()),
            ]);
            row
        });
        Section {
            title: "Unknown, and what to do",
            intro: "Whether these Pods could use a pool is not known.".to_owned(),
            columns: vec!["REASON", "CPU", "MEMORY", "PODS", "IMAGES", "DO"],
            rows: rows.collect(),
        }
    }

    /// Why single images are not known, as their registries were asked.
    pub(super) fn causes(&self) -> Section {
        let rows = self
            .causes
            .iter()
            .map(|(image, cause)| vec![Cell::Name(image.clone()), Cell::Name(cause.clone())]);
        Section {
            title: "What the registries said",
            intro: String::new(),
            columns: vec!["IMAGE", "CAUSE"],
            rows: rows.collect(),
        }
    }

    pub(super) fn missed(&self) -> Section {
        // They are sorted by workload.
        let alike = self
            .summary
            .missed
            .chunk_by(|(one, pools), (other, others)| one.workload == other.workload && pools == others);
        let mut alike: Vec<_> = alike.collect();
        alike.sort_by_key(|pods| Reverse(pods.len()));
        let rows = alike.into_iter().filter_map(|pods| {
            let (PodOf { workload, .. }, pools) = pods.first()?;
            Some(vec![
                Cell::number(pods.len() as u64),
                Cell::Name(pools.join(",")),
                Cell::name(&workload.namespace),
                Cell::Name(workload.label()),
            ])
        });
        Section {
            title: "Missed: Pods that could use a pool, and were created without",
            intro: "They get it when they are created again.".to_owned(),
            columns: vec!["PODS", "POOLS", "NAMESPACE", "OBJECT"],
            rows: rows.collect(),
        }
    }

    pub(super) fn misplaced(&self) -> Section {
        let rows = self.summary.misplaced.iter().flat_map(|one| {
            one.images.iter().map(|image| {
                vec![
                    Cell::Text(one.platform.to_string()),
                    Cell::Name(one.node.clone()),
                    Cell::name(&one.pod.workload.namespace),
                    Cell::Name(one.pod.name.clone()),
                    Cell::name(image),
                ]
            })
        });
        Section {
            title: "Misplaced: Pods on nodes that their images do not support",
            intro: "They fail there, unless the node emulates: keep them off, by placement.require or their own affinity."
                .to_owned(),
            columns: vec!["PLATFORM", "NODE", "NAMESPACE", "POD", "IMAGE"],
            rows: rows.collect(),
        }
    }
}
