//! Sections on money: what the Pods cost on their nodes, and what they would cost on the cheapest nodes that they may use.

use super::bill::Bill;
use super::contents::{Ranking, Report};
use super::section::{Cell, Section};
use tolerarch_engine::census::{Costs, Money};

impl Report<'_> {
    /// Returns the total costs, and those of namespaces and workloads if `ranks` has them; none without prices. Costs of
    /// images are in the ranking of images.
    pub(super) fn costs(&self, ranks: &[Ranking]) -> Vec<Section> {
        let Some(bill) = &self.bill else {
            return Vec::new();
        };
        let mut sections = vec![overview(bill)];
        if ranks.contains(&Ranking::Namespace) {
            sections.push(self.costs_of_namespaces(bill));
        }
        if ranks.contains(&Ranking::Workload) {
            sections.push(self.costs_of_workloads(bill));
        }
        sections
    }

    fn costs_of_namespaces(&self, bill: &Bill) -> Section {
        let mut rows = Vec::new();
        for (namespace, total) in &self.summary.namespaces {
            let name = Cell::Name((*namespace).to_owned());
            rows.push((total.costs, vec![name]));
        }
        let title = format!("What namespaces cost a month, in {}", bill.currency);
        ranking(title, &["Namespace"], rows)
    }

    fn costs_of_workloads(&self, bill: &Bill) -> Section {
        let mut rows = Vec::new();
        for (workload, total) in &self.summary.workloads {
            let namespace = Cell::Name(workload.namespace.to_string());
            let object = Cell::Name(workload.label());
            rows.push((total.costs, vec![namespace, object]));
        }
        let names = &["Namespace", "Object"];
        let title = format!("What workloads cost a month, in {}", bill.currency);
        ranking(title, names, rows)
    }
}

fn overview(bill: &Bill) -> Section {
    let costs = bill.costs;
    let mut lines = vec![
        ("today, where the Pods run", costs.today),
        (
            "after, if all that may ran where it costs least",
            costs.after,
        ),
        ("saved: today less after", costs.saved()),
        (
            "kept: more, if all images ran on all platforms of their pools",
            costs.kept,
        ),
    ];
    if let Some(beyond) = bill.beyond_requests() {
        lines.push(("not counted: nodes beyond the requests of Pods", beyond));
    }
    let mut rows = Vec::new();
    for (what, money) in lines {
        rows.push(vec![Cell::Text(what.to_owned()), Cell::money(money)]);
    }
    Section {
        title: format!("What it costs a month, in {}", bill.currency),
        intro: "Requests of the Pods, at the price of the node's architecture, for 730 hours."
            .to_owned(),
        columns: vec!["What", "Amount"],
        rows,
    }
}

/// Returns a section of costs, sorted by what could be saved. `names` are the headers of the cells that name the objects.
fn ranking(title: String, names: &[&'static str], mut rows: Vec<(Costs, Vec<Cell>)>) -> Section {
    rows.retain(|(costs, _)| costs.today > Money::default());
    rows.sort_by_key(|(costs, _)| {
        let mut potential = costs.saved();
        potential.add(costs.kept);
        std::cmp::Reverse((potential, costs.today))
    });
    let mut cells = Vec::new();
    for (costs, named) in rows {
        let mut row = vec![
            Cell::money(costs.today),
            Cell::money(costs.after),
            Cell::money(costs.saved()),
            Cell::money(costs.kept),
        ];
        row.extend(named);
        cells.push(row);
    }
    let mut columns = vec!["Today", "After", "Saved", "Kept"];
    columns.extend(names);
    Section {
        title,
        intro: "Those that could save most come first. After: if all that may ran where it costs least. Kept: what more could \
                be saved if all images ran on all platforms of their pools."
            .to_owned(),
        columns,
        rows: cells,
    }
}
