//! The registry in which all parts register their metrics, and its rendering. Each part has a file for its metrics.
//!
//! The values of labels are closed sets: constants of the program, and the registry hosts that the configuration names. All
//! other hosts are untrusted input and counted together as `other`; an image is never a label. Metrics on the path of a
//! cached review are resolved at the start, so that an event is only an atomic addition.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus::core::Collector;
use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Registry, TextEncoder,
};
use scopeguard::ScopeGuard;

/// The label of registries that the configuration does not name.
pub const OTHER: &str = "other";

pub type Registered<M> = Result<M, prometheus::Error>;

#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    hosts: Arc<[String]>,
}

impl Metrics {
    /// Returns a registry with the metrics of the process. `hosts` are the registry hosts that get their own labels.
    pub fn new<'h>(hosts: impl IntoIterator<Item = &'h str>) -> Result<Self, prometheus::Error> {
        let hosts = hosts.into_iter().map(str::to_owned).collect();
        let metrics = Self {
            registry: Registry::new(),
            hosts,
        };
        let help = "Always 1; the version is the label.";
        let build: IntGaugeVec = metrics.add("tolerarch_build_info", help, &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        #[cfg(target_os = "linux")]
        {
            let process = prometheus::process_collector::ProcessCollector::for_self();
            metrics.registry.register(Box::new(process))?;
        }
        Ok(metrics)
    }

    pub fn render(&self) -> Result<String, prometheus::Error> {
        let families = self.registry.gather();
        TextEncoder::new().encode_to_string(&families)
    }

    /// Returns a value for each host with its own label, and one for all others. `make` gets the label.
    pub fn per_host<T>(&self, make: impl Fn(&str) -> T) -> PerHost<T> {
        let mut named = BTreeMap::new();
        for host in self.hosts.iter() {
            named.insert(host.clone(), make(host));
        }
        PerHost {
            named,
            other: make(OTHER),
        }
    }

    /// Registers a metric, or a family of metrics with these labels.
    pub fn add<F: Family>(&self, name: &str, help: &str, labels: &[&str]) -> Registered<F> {
        self.add_by(HistogramOpts::new(name, help), labels)
    }

    /// Registers a metric or a family with these options, whose buckets only a histogram has.
    pub fn add_by<F: Family>(&self, options: HistogramOpts, labels: &[&str]) -> Registered<F> {
        let family = F::new(options, labels)?;
        self.registry.register(Box::new(family.clone()))?;
        Ok(family)
    }
}

/// A metric, or a family of metrics with labels, that can be created from its description.
pub trait Family: Collector + Clone + 'static {
    fn new(options: HistogramOpts, labels: &[&str]) -> Registered<Self>;
}

macro_rules! family {
    ($($Type:ident: |$options:ident, $labels:pat_param| $make:expr;)*) => {$(
        impl Family for $Type {
            fn new($options: HistogramOpts, $labels: &[&str]) -> Registered<Self> {
                $make
            }
        }
    )*};
}
family!(
    IntCounter: |options, _| Self::with_opts(options.common_opts);
    IntGauge: |options, _| Self::with_opts(options.common_opts);
    IntCounterVec: |options, labels| Self::new(options.common_opts, labels);
    IntGaugeVec: |options, labels| Self::new(options.common_opts, labels);
    GaugeVec: |options, labels| Self::new(options.common_opts, labels);
    HistogramVec: |options, labels| Self::new(options, labels);
);

/// Defines a struct of metrics. Each field has its help as documentation, its labels in brackets, and then its name and
/// buckets. The private function `families` registers all of them, as does the function that is named after `by`. A single
/// label may be followed by its values, whose series then exist from the start.
#[macro_export]
macro_rules! families {
    ($(#[$about:meta])* $visible:vis struct $Name:ident $(by $register:ident)? {
        $($(#[doc = $help:literal])+ $seen:vis $field:ident: $Family:ident
            $([$($label:literal),+ $(of $values:expr)?])? = $name:literal $(in $buckets:ident)?,)+
    }) => {
        $(#[$about])*
        #[derive(Clone)]
        $visible struct $Name {
            $($(#[doc = $help])+ $seen $field: $Family,)+
        }

        impl $Name {
            $($visible fn $register(
                metrics: &$crate::metrics::Metrics,
            ) -> $crate::metrics::Registered<Self> {
                Self::families(metrics)
            })?

            fn families(metrics: &$crate::metrics::Metrics) -> $crate::metrics::Registered<Self> {
                Ok(Self {
                    $($field: {
                        let options = prometheus::HistogramOpts::new($name, concat!($($help),+).trim_start());
                        $(let options = options.buckets($buckets.to_vec());)?
                        let family: $Family = metrics.add_by(options, &[$($($label),+)?])?;
                        $($(for value in $values {
                            family.with_label_values(&[value]);
                        })?)?
                        family
                    },)+
                })
            }
        }
    };
}

/// Returns the label of a result that is a success or a failure.
pub const fn outcome(is_ok: bool) -> &'static str {
    if is_ok { "success" } else { "failure" }
}

pub const OUTCOMES: [&str; 2] = [outcome(true), outcome(false)];

/// A value for each host with its own label, and one for all others. There are few hosts, so that comparing names costs
/// less than a keyed hash.
pub struct PerHost<T> {
    named: BTreeMap<String, T>,
    other: T,
}

impl<T> PerHost<T> {
    /// Returns the value for `host`, which may have the default port. The configuration names hosts without it.
    pub fn get(&self, host: &str) -> &T {
        let name = host.strip_suffix(":443").unwrap_or(host);
        self.named.get(name).unwrap_or(&self.other)
    }
}

/// An increment of a gauge, which ends when it is dropped.
pub type GaugeGuard = ScopeGuard<IntGauge, fn(IntGauge)>;

pub fn counted(gauge: &IntGauge) -> GaugeGuard {
    gauge.inc();
    scopeguard::guard(gauge.clone(), |gauge| gauge.dec())
}
