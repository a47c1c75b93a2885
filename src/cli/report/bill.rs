//! Costs of a cluster as a whole.

use tolerarch_engine::census::{Costs, Money, Prices};

/// Costs of all Pods, and of the nodes below them.
pub(super) struct Bill {
    /// Name or sign of the currency.
    pub(super) currency: String,
    pub(super) prices: Prices,
    pub(super) costs: Costs,
    /// What all nodes with a price cost; `None` of one namespace, or where nodes may not be listed.
    pub(super) nodes: Option<Money>,
}

impl Bill {
    /// Formats money with its currency.
    pub(super) fn written(&self, money: Money) -> String {
        format!("{} {}", decimal(money), self.currency)
    }

    /// Returns what the nodes cost beyond the requests of their Pods; `None` where nodes do not say what they have.
    pub(super) fn beyond_requests(&self) -> Option<Money> {
        let nodes = self.nodes?;
        (nodes >= self.costs.today).then(|| nodes.less(self.costs.today))
    }
}

/// Formats money with two decimals.
pub(super) fn decimal(money: Money) -> String {
    let cents = money.millionths().saturating_add(5_000) / 10_000;
    format!("{}.{:02}", cents / 100, cents % 100)
}
