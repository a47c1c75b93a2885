//! Contents of a report, independent of its format.

use std::collections::BTreeMap;

use clap::ValueEnum;

use super::bill::Bill;
use super::comparison::Comparison;
use super::newer::Newer;
use tolerarch_engine::census::Summary;

/// Ranking of what is kept from the pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Ranking {
    Workload,
    #[default]
    Image,
    Namespace,
}

#[derive(Default)]
pub(super) struct Report<'p> {
    pub(super) summary: Summary<'p>,
    /// Scope and time of the report, as a sentence.
    pub(super) scope: String,
    /// Time of the report, as RFC 3339.
    pub(super) time: String,
    pub(super) namespace: Option<String>,
    /// Whether an installation of tolerarch was found. Without one, new Pods get no tolerations.
    pub(super) is_installed: bool,
    /// Flags for a shell that choose the same cluster, each after a blank; empty for the current context.
    pub(super) cluster_flags: String,
    /// When tolerarch was installed, in seconds since 1970; `None` if unknown.
    pub(super) installed: Option<i64>,
    /// Costs, if there are prices.
    pub(super) bill: Option<Bill>,
    /// Changes since an earlier report, if there is one.
    pub(super) comparison: Option<Comparison>,
    /// Messages on failed lookups by image.
    pub(super) causes: BTreeMap<&'p str, String>,
    /// Number of requests that each registry still allows before it throttles.
    pub(super) rate_limits: BTreeMap<String, u32>,
    /// Newer tags of images, with `--newer`.
    pub(super) newer: Option<&'p [Newer]>,
    pub(super) notes: Vec<String>,
}
