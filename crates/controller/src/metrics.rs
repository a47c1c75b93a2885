//! What is counted of the controller.

use prometheus::{IntCounter, IntGauge};

use super::note::EventReason;
use super::repair::Repaired;
use tolerarch_support::metrics::Metrics;

/// Clones count the same.
#[derive(Clone)]
pub struct ControllerMetrics {
    /// Whether this replica leads.
    pub(super) leads: IntGauge,
    repairs: [IntCounter; Repaired::COUNTED.len()],
    events: [IntCounter; EventReason::ALL.len()],
    dropped: IntCounter,
}

impl ControllerMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is taken: an internal error.
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let leads = metrics
            .gauge("tolerarch_controller_is_leader", "Whether this replica of the controller leads.")?;
        let repairs = metrics.counters(
            "tolerarch_controller_repairs_total",
            "Tries to open pools to Pods without a node, by what came of them.",
            &["result"],
        )?;
        let repairs = Repaired::COUNTED.map(|result| repairs.with_label_values(&[result.as_str()]));
        let events = metrics.counters(
            "tolerarch_controller_events_total",
            "Events that were written on Pods, by their reason.",
            &["reason"],
        )?;
        let events = EventReason::ALL.map(|reason| events.with_label_values(&[reason.as_str()]));
        let dropped = metrics.counter(
            "tolerarch_controller_events_dropped_total",
            "Events that were not written, as too many were waiting.",
        )?;
        Ok(Self { leads, repairs, events, dropped })
    }

    /// An event was written.
    pub(super) fn wrote(&self, reason: EventReason) {
        if let Some(place) = EventReason::ALL.iter().position(|known| *known == reason) {
            self.events[place].inc();
        }
    }

    /// An event had no room.
    pub(super) fn dropped_event(&self) {
        self.dropped.inc();
    }

    /// It was tried to repair a Pod.
    pub(super) fn repaired(&self, repaired: Repaired) {
        if let Some(place) = Repaired::COUNTED.iter().position(|known| *known == repaired) {
            self.repairs[place].inc();
        }
    }
}
