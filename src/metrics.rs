//! All metrics, one method an event. Labels are closed sets: our own enums, and those registry hosts that the
//! configuration names; every other host is `other`. An image is never a label.
//!
//! What the way of a review touches is resolved once, at start: an event is then an atomic addition.

mod under_way;

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use tokio::time::{Duration, Instant};

use crate::reason::Reason;
pub use under_way::{InFlight, OpenCircuit, RequestObserved};

/// Seconds of a review: from a cached answer to the largest budget.
const REVIEW_BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 5.0, 10.0];
/// Seconds of one request to a registry.
const REQUEST_BUCKETS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0];
/// The label of registries that the configuration does not name.
const OTHER: &str = "other";
/// Docker Hub, as images name it.
const HUB: &str = "docker.io";

/// A handle on all metrics; clones are the same metrics.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    registry: Registry,
    reviews: Vec<IntCounter>,
    review_durations: Vec<Histogram>,
    /// By host. They are few: to compare them takes less than a keyed hash for each image of a review.
    lookups: BTreeMap<String, Lookups>,
    other_lookups: Lookups,
    lookups_in_flight: IntGauge,
    requests: IntCounterVec,
    request_durations: HistogramVec,
    circuits_open: IntGaugeVec,
    requests_left: IntGaugeVec,
    cache_entries: [IntGauge; CacheLevel::ALL.len()],
    cache_evictions: [IntCounter; CacheLevel::ALL.len()],
    handshake_errors: IntCounter,
    certificate_expiry: IntGauge,
    certificate_reloads: IntCounterVec,
    config_reloads: IntCounterVec,
    config_reloaded: IntGauge,
}

type Lookups = [IntCounter; LookupResult::ALL.len()];

/// How a lookup was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupResult {
    /// From the cache.
    Hit,
    /// From the cache, by an answer past its time: while a new one is asked for, or as the registry fails.
    Stale,
    /// From the cache, where a recent failure stands.
    Negative,
    /// By a lookup that another Pod had started.
    Joined,
    /// By the registry.
    Fetched,
    /// Not: the registry or the way to it failed, no lookup may begin, or the Pod could not wait.
    Failed,
}

impl LookupResult {
    const ALL: [Self; 6] =
        [Self::Hit, Self::Stale, Self::Negative, Self::Joined, Self::Fetched, Self::Failed];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Negative => "negative",
            Self::Joined => "joined",
            Self::Fetched => "fetched",
            Self::Failed => "failed",
        }
    }
}

/// A level of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheLevel {
    /// From tags to digests; failures too.
    Tag,
    /// From digests to platforms.
    Platforms,
}

impl CacheLevel {
    const ALL: [Self; 2] = [Self::Tag, Self::Platforms];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Tag => "tag",
            Self::Platforms => "platforms",
        }
    }
}

/// What is asked of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A token, of a token server.
    Token,
    /// Where a tag points.
    Head,
    /// A manifest or an index.
    Manifest,
    /// A config blob.
    Config,
}

impl RequestKind {
    /// The name by which the outside knows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Head => "head",
            Self::Manifest => "manifest",
            Self::Config => "config",
        }
    }
}

impl Metrics {
    /// Registers everything. `hosts` are the registry hosts that get a label of their own.
    ///
    /// # Errors
    /// Two metrics have one name: a defect.
    pub fn new<'h>(hosts: impl IntoIterator<Item = &'h str>) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let add = Adder(&registry);
        let reviews = add.counters(
            "tolerarch_reviews_total",
            "Reviews answered, by what became of the Pod.",
            &["reason"],
        )?;
        let review_durations = add.histograms(
            "tolerarch_review_duration_seconds",
            "Time from a review's arrival to its answer.",
            &["reason"],
            &REVIEW_BUCKETS,
        )?;
        let lookups = add.counters(
            "tolerarch_lookups_total",
            "Lookups of images, by registry and by how they were answered.",
            &["registry", "result"],
        )?;
        let lookups_of =
            |host: &str| LookupResult::ALL.map(|result| lookups.with_label_values(&[host, result.as_str()]));
        let build =
            add.gauges("tolerarch_build_info", "Always 1; the version is the label.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let entries = add.gauges("tolerarch_cache_entries", "Entries of the cache.", &["level"])?;
        let evictions = add.counters(
            "tolerarch_cache_evictions_total",
            "Entries that had to make room for others.",
            &["level"],
        )?;
        let families = Families {
            reviews: Reason::ALL.iter().map(|reason| reviews.with_label_values(&[reason.as_str()])).collect(),
            review_durations: Reason::ALL
                .iter()
                .map(|reason| review_durations.with_label_values(&[reason.as_str()]))
                .collect(),
            lookups: hosts.into_iter().map(|host| (host.to_owned(), lookups_of(host))).collect(),
            other_lookups: lookups_of(OTHER),
            lookups_in_flight: add.gauge("tolerarch_lookups_in_flight", "Lookups that are under way.")?,
            requests: add.counters(
                "tolerarch_registry_requests_total",
                "Requests to registries and token servers, by status class or kind of failure.",
                &["registry", "kind", "code"],
            )?,
            request_durations: add.histograms(
                "tolerarch_registry_request_duration_seconds",
                "Time of a request to a registry or token server, its body included.",
                &["registry", "kind", "code"],
                &REQUEST_BUCKETS,
            )?,
            circuits_open: add.gauges(
                "tolerarch_registry_circuit_open",
                "Whether a registry keeps failing and is left alone; of others, how many.",
                &["registry"],
            )?,
            requests_left: add.gauges(
                "tolerarch_registry_ratelimit_remaining",
                "Requests that a registry's limit leaves, as it last said.",
                &["registry"],
            )?,
            cache_entries: CacheLevel::ALL.map(|level| entries.with_label_values(&[level.as_str()])),
            cache_evictions: CacheLevel::ALL.map(|level| evictions.with_label_values(&[level.as_str()])),
            handshake_errors: add
                .counter("tolerarch_tls_handshake_errors_total", "TLS handshakes of clients that failed.")?,
            certificate_expiry: add.gauge(
                "tolerarch_certificate_expiry_timestamp_seconds",
                "When the serving certificate expires, in seconds since 1970.",
            )?,
            certificate_reloads: add.counters(
                "tolerarch_certificate_reloads_total",
                "Changes of the certificate files, by whether the new pair could be used.",
                &["result"],
            )?,
            config_reloads: add.counters(
                "tolerarch_config_reloads_total",
                "Changes of the configuration's files, by whether the new configuration could be used.",
                &["result"],
            )?,
            config_reloaded: add.gauge(
                "tolerarch_config_last_reload_successful",
                "Whether the configuration's files are in use as they are now.",
            )?,
            registry: registry.clone(),
        };
        for host in families.lookups.keys().map(String::as_str).chain([OTHER]) {
            families.circuits_open.with_label_values(&[host]).set(0);
        }
        for result in ["success", "failure"] {
            families.certificate_reloads.with_label_values(&[result]);
            families.config_reloads.with_label_values(&[result]);
        }
        families.config_reloaded.set(1);
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        Ok(Self(Arc::new(families)))
    }

    /// Everything, in Prometheus' text format.
    ///
    /// # Errors
    /// A metric cannot be written: a defect.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.0.registry.gather())
    }

    /// A review was answered.
    pub fn reviewed(&self, reason: Reason, took: Duration) {
        self.0.reviews[reason as usize].inc();
        self.0.review_durations[reason as usize].observe(took.as_secs_f64());
    }

    /// An image of the registry `host` was looked up.
    pub fn looked_up(&self, host: &str, result: LookupResult) {
        self.0.lookups.get(without_port(host)).unwrap_or(&self.0.other_lookups)[result as usize].inc();
    }

    /// A lookup begins; it is under way until the value is dropped.
    pub fn lookup_in_flight(&self) -> InFlight {
        self.0.lookups_in_flight.inc();
        InFlight(self.0.lookups_in_flight.clone())
    }

    /// A request to `host` begins. If it is dropped without an end, it counts as `abandoned`.
    pub fn registry_request(&self, host: &str, kind: RequestKind) -> RequestObserved {
        let registry = self.label(host).to_owned();
        RequestObserved { metrics: self.clone(), registry, kind, begun: Instant::now(), code: "abandoned" }
    }

    /// The circuit of the registry `host` is open until the value is dropped.
    pub fn circuit_open(&self, host: &str) -> OpenCircuit {
        let gauge = self.0.circuits_open.with_label_values(&[self.label(host)]);
        gauge.inc();
        OpenCircuit(gauge)
    }

    /// The registry `host` says how many requests its limit leaves. Told for hosts that the configuration names and for Docker
    /// Hub, whose limit is what the metric is for; what strangers claim would be one muddle.
    pub fn requests_left(&self, host: &str, left: i64) {
        let label = self.label(host);
        let label = if host == HUB { HUB } else { label };
        if label != OTHER {
            self.0.requests_left.with_label_values(&[label]).set(left);
        }
    }

    /// The host's name where the configuration names it.
    fn label(&self, host: &str) -> &str {
        self.0.lookups.get_key_value(without_port(host)).map_or(OTHER, |(host, _)| host)
    }

    /// A level of the cache has so many entries.
    pub fn cache_has(&self, level: CacheLevel, entries: usize) {
        self.0.cache_entries[level as usize].set(i64::try_from(entries).unwrap_or(i64::MAX));
    }

    /// So many entries had to make room.
    pub fn cache_evicted(&self, level: CacheLevel, entries: usize) {
        self.0.cache_evictions[level as usize].inc_by(entries as u64);
    }

    /// A client's TLS handshake failed.
    pub fn handshake_failed(&self) {
        self.0.handshake_errors.inc();
    }

    /// A certificate is in use from now on that expires at this time, in seconds since 1970.
    pub fn certificate_expires(&self, timestamp: i64) {
        self.0.certificate_expiry.set(timestamp);
    }

    /// The certificate files changed.
    pub fn certificate_reloaded(&self, success: bool) {
        self.0.certificate_reloads.with_label_values(&[if success { "success" } else { "failure" }]).inc();
    }

    /// The configuration's files changed.
    pub fn config_reloaded(&self, success: bool) {
        self.0.config_reloads.with_label_values(&[if success { "success" } else { "failure" }]).inc();
        self.0.config_reloaded.set(success.into());
    }
}

/// The configuration names hosts without the default port.
fn without_port(host: &str) -> &str {
    host.strip_suffix(":443").unwrap_or(host)
}

/// Makes metrics and registers them.
struct Adder<'r>(&'r Registry);

impl Adder<'_> {
    fn add<C: Collector + Clone + 'static>(&self, metric: C) -> Result<C, prometheus::Error> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.add(IntCounter::new(name, help)?)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.add(IntGauge::new(name, help)?)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, prometheus::Error> {
        self.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?)
    }
}

#[cfg(test)]
mod tests;
