//! Metrics of all parts, and metrics of reloads and of the cluster.

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec};

use tolerarch_images::credentials::CredentialMetrics;
use tolerarch_images::registry::RegistryMetrics;
use tolerarch_images::resolver::ResolverMetrics;
use tolerarch_kubernetes::cluster::unread_objects;
use tolerarch_support::families;
use tolerarch_support::metrics::{Metrics, Registered, outcome};
use tolerarch_webhook::admission::ReviewMetrics;

/// Metrics of the parts that are rebuilt at each reload or follow the cluster. They are registered once.
#[derive(Clone)]
pub(super) struct Families {
    pub(super) reviews: ReviewMetrics,
    pub(super) resolver: ResolverMetrics,
    pub(super) registry: RegistryMetrics,
    pub(super) credentials: CredentialMetrics,
    pub(super) unread: IntCounterVec,
    pub(super) changes: Changes,
}

families! {
    pub(super) struct Changes {
        /// Images that are kept from an architecture because they failed there, in one namespace at least.
        pub(super) failed_images: IntGauge = "tolerarch_failed_images",
        /// Owners whose Pods stay unchanged because they delete changed Pods and create them again.
        pub(super) recreating_owners: IntGauge = "tolerarch_recreating_owners",
        /// Whether a pool opens nodes of platforms that its definition does not name.
        pub(super) mismatches: IntGaugeVec["pool"] = "tolerarch_pool_platforms_mismatch",
        /// Changes of the configuration's files, by whether the new configuration could be used.
        pub(super) reloads: IntCounterVec["result"] = "tolerarch_config_reloads_total",
        /// Whether the configuration's files are in use as they are now.
        pub(super) last_reload: IntGauge = "tolerarch_config_last_reload_successful",
    }
}

impl Families {
    /// Registers all metrics: those of reviews in `admission`, all others in `metrics`.
    pub(super) fn register(metrics: &Metrics, admission: &Metrics) -> Registered<Self> {
        let changes = Changes::families(metrics)?;
        // Both series exist from the start.
        for is_ok in [false, true] {
            changes.reloads.with_label_values(&[outcome(is_ok)]);
        }
        changes.last_reload.set(1);
        Ok(Self {
            reviews: ReviewMetrics::register(admission)?,
            resolver: ResolverMetrics::register(metrics)?,
            registry: RegistryMetrics::register(metrics)?,
            credentials: CredentialMetrics::register(metrics)?,
            unread: unread_objects(metrics)?,
            changes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::serve::supervisor::Supervisor;
    use tolerarch_controller::ControllerMetrics;
    use tolerarch_engine::census::Count;
    use tolerarch_images::registry::RequestKind;
    use tolerarch_images::shared_cache::SharedCacheMetrics;
    use tolerarch_support::health::{Component, Health, Reported};
    use tolerarch_support::logging;
    use tolerarch_webhook::tls::{ManagedMetrics, TlsMetrics};

    /// Renders all metrics of the program.
    fn rendered() -> String {
        let metrics = Metrics::new([]).unwrap();
        let families = Families::register(&metrics, &metrics).unwrap();
        // Families without a value are not rendered.
        families
            .reviews
            .show(&Config::default().policy.pools, std::iter::empty());
        *families.registry.request("a.test", RequestKind::Token) = "2xx";
        families.registry.requests_left("docker.io", 1);
        families
            .changes
            .mismatches
            .with_label_values(&["multi-arch"])
            .set(0);
        SharedCacheMetrics::register(&metrics).unwrap();
        TlsMetrics::register(&metrics).unwrap();
        ManagedMetrics::register(&metrics).unwrap();
        logging::count_panics(&metrics).unwrap();
        Supervisor::register(&metrics)
            .unwrap()
            .restarts
            .with_label_values(&["reload"]);
        let controller = ControllerMetrics::register(&metrics).unwrap();
        controller.show_census(&Count::default().totals(&[]), [("mode", 0), ("profile", 0)]);
        Health::register(
            &metrics,
            vec![Component::reported("serving", Reported::default())],
        )
        .unwrap()
        .check();
        metrics.render().unwrap()
    }

    /// Alerts and dashboard are tested with series that are written by hand.
    #[test]
    fn series_of_alerts_and_dashboard_have_existing_labels() {
        let tests = [
            include_str!("../../e2e/manifests/testdata/alerts.yaml"),
            include_str!("../../e2e/manifests/testdata/series.yaml"),
        ];
        let text = rendered();
        let tests = tests.concat();
        let series = tests
            .split("{series: '")
            .skip(1)
            .filter_map(|rest| rest.split('\'').next());
        let series: Vec<&str> = series
            .filter(|series| series.starts_with("tolerarch_"))
            .collect();
        assert!(series.len() > 30, "{series:?}");
        for series in series {
            let (name, labels) = series.split_once('{').unwrap();
            let labels = labels
                .trim_end_matches('}')
                .split(',')
                .map(|label| label.split_once('=').unwrap());
            for (label, value) in labels.filter(|(label, _)| !["job", "instance"].contains(label)) {
                // Any value may occur of these labels. All values of the others exist from the start.
                let is_open =
                    ["code", "component", "kind", "le", "registry", "version"].contains(&label);
                let expected = if is_open {
                    format!("{label}=\"")
                } else {
                    format!("{label}={value}")
                };
                let mut lines = text
                    .lines()
                    .filter(|line| line.split('{').next() == Some(name));
                assert!(
                    lines.any(|line| line.contains(&expected)),
                    "{series}: {label}"
                );
            }
        }
    }

    #[test]
    fn documentation_lists_every_metric() {
        let page = include_str!("../../docs/metrics.md");
        let text = rendered();
        let names = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let names: Vec<&str> = names.collect();
        assert!(names.contains(&"process_open_fds"), "{names:?}");
        for name in names.iter().filter(|name| !name.starts_with("process_")) {
            assert!(
                page.contains(&format!("`{name}`")),
                "{name} is not in docs/metrics.md"
            );
        }
        for name in page
            .split('`')
            .filter(|text| text.starts_with("tolerarch_"))
        {
            assert!(names.contains(&name), "{name} is in docs/metrics.md only");
        }
    }
}
