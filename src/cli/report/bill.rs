//! Total costs of a cluster.

use tolerarch_engine::census::{Costs, Money, Prices};

/// Costs of all Pods and of their nodes.
pub(super) struct Bill {
    /// Name or sign of the currency.
    pub(super) currency: String,
    pub(super) prices: Prices,
    pub(super) costs: Costs,
    /// Costs of all nodes with a price; `None` in a report of one namespace, or if the user may not list nodes.
    pub(super) nodes: Option<Money>,
}

impl Bill {
    /// Formats money with its currency.
    pub(super) fn written(&self, money: Money) -> String {
        format!("{} {}", decimal(money), self.currency)
    }

    /// Returns the costs of the nodes beyond the requests of their Pods; `None` if nodes do not report their capacity.
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
