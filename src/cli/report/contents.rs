//! What a report says, before it has a form.

use std::collections::BTreeMap;

use clap::ValueEnum;

use super::bill::Bill;
use super::comparison::Comparison;
use super::newer::Newer;
use tolerarch_engine::census::Summary;

/// What is ranked by what is kept from the pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    Workload,
    #[default]
    Image,
    Namespace,
}

#[derive(Default)]
pub(super) struct Report<'p> {
    pub(super) summary: Summary<'p>,
    /// Scope and time of the report.
    pub(super) of: String,
    /// Time of the report, as RFC 3339.
    pub(super) time: String,
    pub(super) namespace: Option<String>,
    /// Whether an installation of tolerarch was found: without one Pods that are created again get nothing.
    pub(super) is_installed: bool,
    /// Flags for a shell that choose the same cluster, each after a blank; empty for the current one.
    pub(super) cluster_flags: String,
    /// When tolerarch was installed, in seconds since 1970; `None` if that is not known.
    pub(super) installed: Option<i64>,
    /// Costs, if there are prices.
    pub(super) bill: Option<Bill>,
    /// What has changed since an earlier report, if there is one.
    pub(super) comparison: Option<Comparison>,
    /// Messages on failed lookups, by the image.
    pub(super) causes: BTreeMap<&'p str, String>,
    /// Number of requests that each registry lets pass before it throttles.
    pub(super) rate_limits: BTreeMap<String, u32>,
    /// Newer tags of images, if they were asked for.
    pub(super) newer: Option<&'p [Newer]>,
    pub(super) notes: Vec<String>,
}
