//! The registry in which all parts register their metrics, and its rendering. Each part has its metrics in a file.
//!
//! Labels are closed sets: those of the program, and the registry hosts that the configuration names. All other hosts
//! are untrusted and counted together as `other`; an image is never a label. Metrics on the path of a warm review are
//! resolved at start, so that an event is an atomic addition.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus::core::Collector;
use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

/// The label of registries that the configuration does not name.
pub const OTHER: &str = "other";

pub type Registered<M> = Result<M, prometheus::Error>;

#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    hosts: Arc<[String]>,
}

impl Metrics {
    /// Makes a registry with the metrics of the process. `hosts` are the registry hosts that get their own labels.
    pub fn new<'h>(hosts: impl IntoIterator<Item = &'h str>) -> Result<Self, prometheus::Error> {
        let hosts = hosts.into_iter().map(str::to_owned).collect();
        let metrics = Self { registry: Registry::new(), hosts };
        let build =
            metrics.gauges("tolerarch_build_info", "Always 1; the version is the label.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        #[cfg(target_os = "linux")]
        metrics.registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        Ok(metrics)
    }

    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    /// Makes a value for each host with its own label, and one for all others, each from its label.
    pub fn per_host<T>(&self, make: impl Fn(&str) -> T) -> PerHost<T> {
        let named = self.hosts.iter().map(|host| (host.clone(), make(host))).collect();
        PerHost { named, other: make(OTHER) }
    }

    pub fn counter(&self, name: &str, help: &str) -> Registered<IntCounter> {
        self.add(IntCounter::new(name, help)?)
    }

    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Registered<IntCounterVec> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    pub fn gauge(&self, name: &str, help: &str) -> Registered<IntGauge> {
        self.add(IntGauge::new(name, help)?)
    }

    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Registered<IntGaugeVec> {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    pub fn float_gauges(&self, name: &str, help: &str, labels: &[&str]) -> Registered<GaugeVec> {
        self.add(GaugeVec::new(Opts::new(name, help), labels)?)
    }

    pub fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Registered<HistogramVec> {
        self.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?)
    }

    fn add<C: Collector + Clone + 'static>(&self, metric: C) -> Registered<C> {
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }
}

/// Values for each host with its own label, and for all others: few, so comparing names costs less than a keyed hash.
pub struct PerHost<T> {
    named: BTreeMap<String, T>,
    other: T,
}

impl<T> PerHost<T> {
    /// Returns the value of `host`, which may carry the default port; the configuration names hosts without it.
    pub fn get(&self, host: &str) -> &T {
        self.named.get(host.strip_suffix(":443").unwrap_or(host)).unwrap_or(&self.other)
    }
}

/// Increments a gauge for as long as it exists.
pub struct Counted(IntGauge);

impl Counted {
    pub fn by(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
