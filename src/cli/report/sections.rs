//! Sections of a report in reading order, and the sections on what images support.

use std::cmp::Reverse;

use super::super::advice::fix;
use super::super::output::count;
use super::contents::{Ranking, Report};
use super::newer::IMAGES;
use super::section::{Cell, NEXT, Section, amount_cells, memory, percent};
use tolerarch_engine::census::{Amount, Coverage, IndexedPod};

/// Returns a row with the requested amounts between other cells.
fn row(before: Vec<Cell>, amount: Amount, after: Vec<Cell>) -> Vec<Cell> {
    [before, amount_cells(amount).to_vec(), after].concat()
}

fn section(
    title: &str,
    intro: impl Into<String>,
    columns: &[&'static str],
    rows: impl Iterator<Item = Vec<Cell>>,
) -> Section {
    Section {
        title: title.to_owned(),
        intro: intro.into(),
        columns: columns.to_vec(),
        rows: rows.collect(),
    }
}

impl Report<'_> {
    /// Returns the sections that are not empty, in reading order, with a ranking by each of `ranks`.
    pub(super) fn sections(&self, ranks: &[Ranking]) -> Vec<Section> {
        let mut sections = vec![self.totals(), self.next_steps()];
        sections.extend(self.changes());
        sections.extend(self.costs(ranks));
        sections.extend(self.progress(ranks));
        sections.extend(ranks.iter().map(|by| match by {
            Ranking::Image => self.by_image(),
            Ranking::Workload => self.by_workload(),
            Ranking::Namespace => self.by_namespace(),
        }));
        sections.extend([
            self.newer_tags(),
            self.unknown(),
            self.causes(),
            self.missed(),
            self.misplaced(),
        ]);
        sections.retain(|section| !section.rows.is_empty());
        sections
    }

    /// Returns all sections for a format with bars. The bars show the totals, so the steps come first.
    pub(super) fn sections_below_bars(&self) -> Vec<Section> {
        let mut sections = self.sections(&[Ranking::Image, Ranking::Workload, Ranking::Namespace]);
        sections.sort_by_key(|section| section.title != NEXT);
        sections
    }

    fn totals(&self) -> Section {
        let all = self.summary.all();
        let rows = self
            .summary
            .totals
            .iter()
            .map(|(coverage, part, workloads)| {
                let mut cells = row(
                    vec![Cell::Coverage(*coverage)],
                    *part,
                    vec![Cell::number(*workloads)],
                );
                cells.insert(2, Cell::number(percent(part.cpu_millis, all.cpu_millis)));
                cells.insert(
                    4,
                    Cell::number(percent(part.memory_bytes, all.memory_bytes)),
                );
                cells
            });
        let intro = format!(
            "all: every image runs on every platform of a pool; partial: an image lacks one; unknown: the platforms of \
             an image could not be determined; skipped: Pods that are not decided on. {} request {} cores and {} of \
             memory.",
            count(all.pods, "Pod"),
            all.cpu_cores(),
            memory(all)
        );
        let columns = ["Support", "CPU", "%", "Memory", "%", "Pods", "Workloads"];
        section("What the images of the Pods support", intro, &columns, rows)
    }

    fn by_image(&self) -> Section {
        let mut columns = vec!["CPU", "Memory", "Pods", "Workloads", "Reason", "Image"];
        if self.bill.is_some() {
            columns.insert(0, "Kept");
        }
        let mut rows = Vec::new();
        for ((image, cause), total) in &self.summary.images {
            let before = match self.bill {
                Some(_) => vec![Cell::money(total.keeps_money)],
                None => Vec::new(),
            };
            let after = vec![
                Cell::number(total.workloads.len() as u64),
                Cell::Text(cause.to_string()),
                Cell::name(image),
            ];
            rows.push(row(before, total.keeps, after));
        }
        section(
            "Images that keep Pods from the pools",
            "The image that keeps most comes first. A Pod that several images keep counts for each of them.",
            &columns,
            rows.into_iter(),
        )
    }

    fn by_workload(&self) -> Section {
        let workloads = self.summary.workloads.iter();
        let ineligible = workloads
            .filter(|(_, one)| matches!(one.coverage, Coverage::Partial | Coverage::Unknown));
        let rows = ineligible.map(|(workload, one)| {
            let cells = vec![
                Cell::Coverage(one.coverage),
                Cell::Text(one.reason.to_string()),
                Cell::name(&workload.namespace),
                Cell::Name(workload.label()),
            ];
            row(vec![], one.amount, cells)
        });
        section(
            "Workloads that images keep from the pools",
            "The largest comes first.",
            &[
                "CPU",
                "Memory",
                "Pods",
                "Support",
                "Reason",
                "Namespace",
                "Object",
            ],
            rows,
        )
    }

    fn by_namespace(&self) -> Section {
        let rows = self.summary.namespaces.iter().map(|(namespace, one)| {
            let all: Amount = one.amounts.values().sum();
            let shares = Coverage::ALL.map(|coverage| {
                let part = one.amounts.get(&coverage).copied().unwrap_or_default();
                let percent = percent(part.cpu_millis, all.cpu_millis);
                Cell::Number(format!("{percent}%"), percent as f64)
            });
            row(vec![Cell::name(namespace)], all, shares.to_vec())
        });
        section(
            "Namespaces",
            "Shares of the requested CPU. The namespace in which images keep most comes first.",
            &[
                "Namespace",
                "CPU",
                "Memory",
                "Pods",
                "All",
                "Partial",
                "Unknown",
                "Skipped",
            ],
            rows,
        )
    }

    fn newer_tags(&self) -> Section {
        let newer = self.newer.into_iter().flatten();
        let rows = newer.map(|one| {
            vec![
                Cell::Name(one.nearest()),
                Cell::name(one.newest.as_deref().unwrap_or("-")),
                Cell::name(&one.image),
                Cell::Name(one.message()),
            ]
        });
        section(
            "Newer tags that have the missing platforms",
            format!(
                "The first {IMAGES} of the images that lack a platform. Only tags that differ in nothing but the version \
                 count, and pre-releases only if the image is one."
            ),
            &["Nearest", "Newest", "Image", "Note"],
            rows,
        )
    }

    fn unknown(&self) -> Section {
        let rows = self.summary.unknown.iter().map(|(reason, one)| {
            let before = vec![Cell::Text(reason.to_string())];
            let after = vec![
                Cell::number(one.images.len() as u64),
                Cell::Text(fix(*reason).unwrap_or_default().to_owned()),
            ];
            row(before, one.amount, after)
        });
        section(
            "Unknown, and what to do",
            "It is unknown whether these Pods could use a pool.",
            &["Reason", "CPU", "Memory", "Pods", "Images", "Do"],
            rows,
        )
    }

    /// Returns why images are unknown, by the traces of their lookups.
    fn causes(&self) -> Section {
        let causes = self.causes.iter();
        let rows = causes.map(|(image, cause)| vec![Cell::name(image), Cell::name(cause)]);
        section("What the registries said", "", &["Image", "Cause"], rows)
    }

    fn missed(&self) -> Section {
        // Missed Pods are sorted by workload.
        let missed = &self.summary.missed;
        let groups = missed.chunk_by(|(one, pools), (other, others)| {
            one.workload == other.workload && pools == others
        });
        let mut groups: Vec<_> = groups.collect();
        groups.sort_by_key(|pods| Reverse(pods.len()));
        let rows = groups.into_iter().filter_map(|pods| {
            let (IndexedPod { workload, .. }, pools) = pods.first()?;
            Some(vec![
                Cell::number(pods.len() as u64),
                Cell::Name(pools.join(",")),
                Cell::name(&workload.namespace),
                Cell::Name(workload.label()),
            ])
        });
        section(
            "Missed: Pods that could use a pool, and were created without",
            "Pods that are older than tolerarch get the tolerations when they are created again.",
            &["Pods", "Pools", "Namespace", "Object"],
            rows,
        )
    }

    fn misplaced(&self) -> Section {
        let mut rows = Vec::new();
        for (pod, platform, images) in &self.summary.misplaced {
            for image in images {
                rows.push(vec![
                    Cell::Text(platform.to_string()),
                    Cell::name(pod.node.as_deref().unwrap_or_default()),
                    Cell::name(&pod.workload.namespace),
                    Cell::name(&pod.name),
                    Cell::name(image),
                ]);
            }
        }
        section(
            "Misplaced: Pods on nodes that their images do not support",
            "They fail there unless the node emulates the platform: keep them off by placement.require or their own affinity.",
            &["Platform", "Node", "Namespace", "Pod", "Image"],
            rows.into_iter(),
        )
    }
}
