//! Sections of a report, in reading order: tables that mark untrusted cells, and that each format renders its own way.

use std::cmp::Reverse;

use super::super::advice::fix;
use super::super::output::count;
use super::{By, Report};
use tolerarch_engine::census::{Amount, Coverage, IndexedPod};

pub(super) struct Section {
    pub(super) title: &'static str,
    /// Meaning of the table, and advice.
    pub(super) intro: String,
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Cell>>,
}

#[derive(Clone)]
pub(super) enum Cell {
    /// Text of this program.
    Text(String),
    /// Untrusted text: a name that was chosen in the cluster.
    Name(String),
    /// A number, and its sort key.
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

    fn name(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

/// Returns a row with the requested amounts between other cells.
fn row(before: Vec<Cell>, amount: Amount, after: Vec<Cell>) -> Vec<Cell> {
    let amount = vec![
        Cell::Number(amount.cpu_cores().to_string(), amount.cpu_millis as f64),
        Cell::Number(memory(amount), amount.memory_bytes as f64),
        Cell::number(amount.pods),
    ];
    [before, amount, after].concat()
}

fn section(
    title: &'static str,
    intro: impl Into<String>,
    columns: &[&'static str],
    rows: impl Iterator<Item = Vec<Cell>>,
) -> Section {
    Section {
        title,
        intro: intro.into(),
        columns: columns.to_vec(),
        rows: rows.collect(),
    }
}

impl Report<'_> {
    /// Returns the sections that are not empty, in reading order, with a ranking by each of `ranks`.
    pub(super) fn sections(&self, ranks: &[By]) -> Vec<Section> {
        let mut sections = vec![self.totals()];
        sections.extend(ranks.iter().map(|by| match by {
            By::Image => self.by_image(),
            By::Workload => self.by_workload(),
            By::Namespace => self.by_namespace(),
        }));
        sections.extend([
            self.unknown(),
            self.causes(),
            self.missed(),
            self.misplaced(),
        ]);
        sections.retain(|section| !section.rows.is_empty());
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
        let rows = self.summary.images.iter().map(|((image, cause), one)| {
            let workloads = Cell::number(one.workloads.len() as u64);
            row(
                vec![],
                one.keeps,
                vec![workloads, Cell::Text(cause.to_string()), Cell::name(image)],
            )
        });
        section(
            "Images that keep Pods from the pools",
            "The one that keeps most comes first; a Pod that several images keep counts for each of them.",
            &["CPU", "Memory", "Pods", "Workloads", "Reason", "Image"],
            rows,
        )
    }

    fn by_workload(&self) -> Section {
        let workloads = self.summary.workloads.iter();
        let kept = workloads
            .filter(|(_, one)| matches!(one.coverage, Coverage::Partial | Coverage::Unknown));
        let rows = kept.map(|(workload, one)| {
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
            "Shares of the requested CPU; where images keep most comes first.",
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
            "Whether these Pods could use a pool is not known.",
            &["Reason", "CPU", "Memory", "Pods", "Images", "Do"],
            rows,
        )
    }

    /// Returns why single images are unknown, from the traces of their lookups.
    fn causes(&self) -> Section {
        let causes = self.causes.iter();
        let rows = causes.map(|(image, cause)| vec![Cell::name(image), Cell::name(cause)]);
        section("What the registries said", "", &["Image", "Cause"], rows)
    }

    fn missed(&self) -> Section {
        // Missed Pods are sorted by workload.
        let missed = &self.summary.missed;
        let alike = missed.chunk_by(|(one, pools), (other, others)| {
            one.workload == other.workload && pools == others
        });
        let mut alike: Vec<_> = alike.collect();
        alike.sort_by_key(|pods| Reverse(pods.len()));
        let rows = alike.into_iter().filter_map(|pods| {
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
            "They get it when they are created again.",
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
            "They fail there, unless the node emulates: keep them off, by placement.require or their own affinity.",
            &["Platform", "Node", "Namespace", "Pod", "Image"],
            rows.into_iter(),
        )
    }
}

/// Formats memory, such as `1.5Gi`, in the unit that gives one to four digits.
pub(super) fn memory(amount: Amount) -> String {
    const UNITS: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let mut tenths = u128::from(amount.memory_bytes) * 10;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths = (tenths + 512) / 1024;
        unit += 1;
    }
    let decimal = if tenths % 10 == 0 || tenths >= 1000 {
        String::new()
    } else {
        format!(".{}", tenths % 10)
    };
    format!("{}{decimal}{}", tenths / 10, UNITS[unit])
}

/// Returns the rounded percentage of a whole; 0 for a whole of 0.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    let part = u128::from(part);
    let whole = u128::from(whole);
    u64::try_from((part * 200 + whole) / (whole * 2).max(1)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let of = |cpu_millis, memory_bytes| Amount {
            cpu_millis,
            memory_bytes,
            pods: 1,
        };
        for (millis, text) in [
            (0, "0"),
            (1, "0.001"),
            (250, "0.25"),
            (1000, "1"),
            (12_500, "12.5"),
            (100_000, "100"),
        ] {
            assert_eq!(of(millis, 0).cpu_cores().to_string(), text);
        }
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1Ki"),
            (1536, "1.5Ki"),
            (128 << 20, "128Mi"),
            (1 << 30, "1Gi"),
            ((1 << 30) + (1 << 29), "1.5Gi"),
            (5000 << 30, "4.9Ti"),
            (u64::MAX, "16384Pi"),
        ] {
            assert_eq!(memory(of(0, bytes)), text, "{bytes}");
        }
        for (part, whole, expected) in [
            (0, 0, 0),
            (1, 3, 33),
            (2, 3, 67),
            (3, 3, 100),
            (u64::MAX, u64::MAX, 100),
        ] {
            assert_eq!(percent(part, whole), expected);
        }
    }
}
