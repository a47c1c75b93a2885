//! Bars: amounts and their parts, which each format renders in its own way.

use super::bill::Bill;
use super::contents::Report;
use super::section::{memory, percent};
use tolerarch_engine::census::{Amount, Progress, Untolerated};

pub(super) struct Bar {
    pub(super) title: &'static str,
    /// Amount of the whole, such as `81.1 cores requested`.
    pub(super) whole: String,
    /// Parts in the order of the bar.
    pub(super) parts: Vec<Part>,
}

pub(super) struct Part {
    pub(super) label: String,
    /// Class of the style sheet, which gives the part its colour and pattern: a support (`all`, `partial`, `unknown`,
    /// `skipped`), a place (`here`, `there`, `waits`), or a cost (`saved`, `kept`, `rest`).
    pub(super) class: &'static str,
    /// Share of the whole, from 0 to 1.
    pub(super) share: f64,
    /// Amount and percentage.
    pub(super) text: String,
}

impl Report<'_> {
    /// Returns the bars whose whole is not 0.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let all = self.summary.all();
        let mut bars = Vec::new();
        if let Some(bill) = &self.bill {
            bars.extend(money(bill));
        }
        if all.cpu_millis > 0 {
            let mut bar = Bar::new("CPU", format!("{} requested", cores(all)));
            for (coverage, part, _) in &self.summary.totals {
                let name = coverage.as_str();
                bar.add_cores(name, name, *part, all);
            }
            bars.push(bar);
        }
        if all.memory_bytes > 0 {
            let mut bar = Bar::new("Memory", format!("{} requested", memory(all)));
            for (coverage, part, _) in &self.summary.totals {
                let name = coverage.as_str();
                let bytes = part.memory_bytes;
                bar.add(name, name, bytes, all.memory_bytes, &memory(*part));
            }
            bars.push(bar);
        }
        let progress = &self.summary.progress;
        if progress.eligible.cpu_millis > 0 {
            bars.push(nodes_of_eligible_pods(progress));
            bars.push(tolerations_of_eligible_pods(progress));
        }
        bars
    }
}

/// Returns a bar of today's costs with the part that could be saved.
fn money(bill: &Bill) -> Option<Bar> {
    let costs = bill.costs;
    let rest = costs.after.less(costs.kept);
    let today = costs.today.millionths();
    if today == 0 {
        return None;
    }
    let whole = format!("{} today, by requests", bill.written(costs.today));
    let mut bar = Bar::new("Cost a month", whole);
    for (label, class, money) in [
        ("saved", "saved", costs.saved()),
        ("kept by images", "kept", costs.kept),
        ("stays", "rest", rest),
    ] {
        let text = bill.written(money);
        bar.add(label, class, money.millionths(), today, &text);
    }
    Some(bar)
}

/// Returns a bar with the nodes on which eligible Pods run.
fn nodes_of_eligible_pods(progress: &Progress) -> Bar {
    let eligible = progress.eligible;
    let whole = format!("{} eligible", cores(eligible));
    let mut bar = Bar::new("Where eligible Pods run", whole);
    for (architecture, amount) in &progress.architectures {
        let class = match *architecture {
            "amd64" => "rest",
            "arm64" => "there",
            _ => "waits",
        };
        bar.add_cores(architecture, class, *amount, eligible);
    }
    bar.add_cores(
        "no node, or an unknown one",
        "partial",
        progress.elsewhere,
        eligible,
    );
    bar
}

/// Returns a bar with the eligible Pods that tolerate a pool, and with the reasons why others do not.
fn tolerations_of_eligible_pods(progress: &Progress) -> Bar {
    let eligible = progress.eligible;
    let whole = format!("{} eligible", cores(eligible));
    let mut bar = Bar::new("Which of them tolerate a pool", whole);
    let mut tolerating = eligible.cpu_millis;
    for gain in progress.untolerated.values() {
        tolerating = tolerating.saturating_sub(gain.requests.cpu_millis);
    }
    let tolerating = Amount {
        cpu_millis: tolerating,
        ..Amount::default()
    };
    bar.add_cores("tolerates the pool", "there", tolerating, eligible);
    for (label, class, reason) in [
        ("waits for a restart", "waits", Untolerated::Older),
        ("created since, without", "partial", Untolerated::Younger),
        ("is observed only", "skipped", Untolerated::Observed),
        ("is not selected", "skipped", Untolerated::NotCalled),
        (
            "is kept by a share or its owner",
            "skipped",
            Untolerated::Closed,
        ),
    ] {
        let untolerated = progress.untolerated(reason).requests;
        bar.add_cores(label, class, untolerated, eligible);
    }
    bar
}

impl Bar {
    fn new(title: &'static str, whole: String) -> Self {
        Self {
            title,
            whole,
            parts: Vec::new(),
        }
    }

    /// Adds a part unless it is 0.
    fn add(&mut self, label: &str, class: &'static str, part: u64, whole: u64, text: &str) {
        if part > 0 {
            self.parts.push(Part {
                label: label.to_owned(),
                class,
                share: part as f64 / whole as f64,
                text: format!("{text}, {}", percentage(part, whole)),
            });
        }
    }

    fn add_cores(&mut self, label: &str, class: &'static str, part: Amount, whole: Amount) {
        let text = cores(part);
        self.add(label, class, part.cpu_millis, whole.cpu_millis, &text);
    }
}

fn cores(amount: Amount) -> String {
    let cores = amount.cpu_cores();
    let unit = if amount.cpu_millis == 1000 {
        "core"
    } else {
        "cores"
    };
    format!("{cores} {unit}")
}

/// Formats a share: a part that is not zero is not 0%, and a part that is not the whole is not 100%.
fn percentage(part: u64, whole: u64) -> String {
    match percent(part, whole) {
        0 if part > 0 => "<1%".to_owned(),
        100 if part < whole => ">99%".to_owned(),
        percent => format!("{percent}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_shares_are_not_rounded_away() {
        for (part, whole, expected) in [
            (1, 1000, "<1%"),
            (999, 1000, ">99%"),
            (1000, 1000, "100%"),
            (1, 3, "33%"),
        ] {
            assert_eq!(percentage(part, whole), expected);
        }
    }
}
