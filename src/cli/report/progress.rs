//! Sections on progress: where eligible Pods run now, and which of them wait for a restart.

use super::contents::{Ranking, Report};
use super::section::{Cell, Section, amount_cells, percent};
use tolerarch_engine::census::{Amount, Progress, Untolerated};

impl Report<'_> {
    /// Returns the overall progress, and that of namespaces if `ranks` has them; nothing if no Pod is eligible.
    pub(super) fn progress(&self, ranks: &[Ranking]) -> Vec<Section> {
        let progress = &self.summary.progress;
        if progress.eligible == Amount::default() && progress.bound == Amount::default() {
            return Vec::new();
        }
        let mut sections = vec![self.overall_progress()];
        if ranks.contains(&Ranking::Namespace) {
            sections.push(self.progress_of_namespaces());
        }
        sections
    }

    fn overall_progress(&self) -> Section {
        let progress = &self.summary.progress;
        let mut rows = Vec::new();
        for (what, amount) in self.progress_lines() {
            if amount != Amount::default() {
                let mut row = vec![Cell::Text(what), share(amount, progress.eligible)];
                row.extend(amount_cells(amount));
                rows.push(row);
            }
        }
        if progress.bound != Amount::default() {
            let what = "not eligible: bound by its own nodeSelector or affinity".to_owned();
            let mut row = vec![Cell::Text(what), Cell::Number(String::new(), 0.0)];
            row.extend(amount_cells(progress.bound));
            rows.push(row);
        }
        Section {
            title: "How far it is".to_owned(),
            intro: "Where the Pods run that could run on several architectures of a pool, and which of them do not tolerate the \
                    pool yet. Percentages are of their cores."
                .to_owned(),
            columns: vec!["What", "Share", "CPU", "Memory", "Pods"],
            rows,
        }
    }

    /// Returns the parts of the eligible amount, each with its description.
    fn progress_lines(&self) -> Vec<(String, Amount)> {
        let progress = &self.summary.progress;
        let untolerated = |reason| progress.untolerated(reason).requests;
        let waiting = if self.installed.is_some() {
            "waits for a restart: older than tolerarch"
        } else {
            "would wait for a restart after an installation"
        };
        let mut lines = vec![("eligible".to_owned(), progress.eligible)];
        for (architecture, amount) in &progress.architectures {
            lines.push((format!("on {architecture}"), *amount));
        }
        for (what, amount) in [
            ("on no node yet, or an unknown one", progress.elsewhere),
            (waiting, untolerated(Untolerated::Older)),
            (
                "created since, and without the toleration",
                untolerated(Untolerated::Younger),
            ),
            ("is observed only", untolerated(Untolerated::Observed)),
            (
                "is selected by no webhook of tolerarch",
                untolerated(Untolerated::NotCalled),
            ),
            (
                "is kept by the share of the pool, its owner or its size",
                untolerated(Untolerated::Closed),
            ),
        ] {
            lines.push((what.to_owned(), amount));
        }
        lines
    }

    fn progress_of_namespaces(&self) -> Section {
        let architectures: Vec<&'static str> = self
            .summary
            .progress
            .architectures
            .keys()
            .copied()
            .collect();
        let mut rows = Vec::new();
        for (namespace, total) in &self.summary.namespaces {
            let progress = &total.progress;
            if progress.eligible != Amount::default() {
                rows.push(row(namespace, progress, &architectures));
            }
        }
        let mut columns = vec!["Namespace", "CPU", "Memory", "Pods"];
        columns.extend(architectures);
        columns.push("Waiting");
        Section {
            title: "How far namespaces are".to_owned(),
            intro: "Requests of the Pods that could run on several architectures of a pool; the share of their cores on each \
                    architecture, and the share that waits for a restart."
                .to_owned(),
            columns,
            rows,
        }
    }
}

fn row(namespace: &str, progress: &Progress, architectures: &[&'static str]) -> Vec<Cell> {
    let mut row = vec![Cell::Name(namespace.to_owned())];
    row.extend(amount_cells(progress.eligible));
    for architecture in architectures {
        let amount = progress.architectures.get(architecture);
        let amount = amount.copied().unwrap_or_default();
        row.push(share(amount, progress.eligible));
    }
    let waiting = progress.untolerated(Untolerated::Older);
    row.push(share(waiting.requests, progress.eligible));
    row
}

/// Returns the share of the cores of eligible Pods.
fn share(part: Amount, eligible: Amount) -> Cell {
    let percent = percent(part.cpu_millis, eligible.cpu_millis);
    Cell::Number(format!("{percent}%"), percent as f64)
}
