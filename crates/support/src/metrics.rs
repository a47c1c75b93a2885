//! The registry in which all parts register their metrics, and its rendering. Each part has its metrics in a file.
//!
//! Labels are closed sets: those of the program, and the registry hosts that the configuration names. All other hosts
//! are untrusted and counted together as `other`; an image is never a label. Metrics on the path of a warm review are
//! resolved at start, so that an event is an atomic addition.

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
    /// Makes a registry with the metrics of the process. `hosts` are the registry hosts that get their own labels.
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
        metrics.registry.register(Box::new(
            prometheus::process_collector::ProcessCollector::for_self(),
        ))?;
        Ok(metrics)
    }

    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    /// Makes a value for each host with its own label, and one for all others, each from its label.
    pub fn per_host<T>(&self, make: impl Fn(&str) -> T) -> PerHost<T> {
        let named = self
            .hosts
            .iter()
            .map(|host| (host.clone(), make(host)))
            .collect();
        PerHost {
            named,
            other: make(OTHER),
        }
    }

    /// Registers a metric, or a family of metrics with these labels.
    pub fn add<F: Family>(&self, name: &str, help: &str, labels: &[&str]) -> Registered<F> {
        self.add_by(HistogramOpts::new(name, help), labels)
    }

    /// Registers a metric, or a family, with the buckets of these options where it is a histogram.
    pub fn add_by<F: Family>(&self, options: HistogramOpts, labels: &[&str]) -> Registered<F> {
        let family = F::new(options, labels)?;
        self.registry.register(Box::new(family.clone()))?;
        Ok(family)
    }
}

/// Metric, or family of metrics with labels, that is made from its description.
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

/// Makes a struct of metrics, of which each field has its help as documentation, its labels in brackets, then its name
/// and buckets. `families`, for the module alone, registers all of them; so does the function that is named behind `by`.
/// A single label may have its values beside it: their series are there from the start.
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

/// Values for each host with its own label, and for all others: few, so comparing names costs less than a keyed hash.
pub struct PerHost<T> {
    named: BTreeMap<String, T>,
    other: T,
}

impl<T> PerHost<T> {
    /// Returns the value of `host`, which may carry the default port; the configuration names hosts without it.
    pub fn get(&self, host: &str) -> &T {
        let name = host.strip_suffix(":443").unwrap_or(host);
        self.named.get(name).unwrap_or(&self.other)
    }
}

/// Increment of a gauge for as long as it exists.
pub type Counted = ScopeGuard<IntGauge, fn(IntGauge)>;

pub fn counted(gauge: &IntGauge) -> Counted {
    gauge.inc();
    scopeguard::guard(gauge.clone(), |gauge| gauge.dec())
}
