//! Whether ResourceQuotas have room for the Pods that DaemonSets create on a new node.

use super::arrival::Arrival;
use crate::cli::doctor::findings::{Findings, some_of};
use tolerarch_core::pod::Fit;
use tolerarch_kubernetes::cluster::{DaemonSet, ResourceQuota, Shortage};

const CHECK: &str = "quotas";

/// Checks the quotas. `sets` is `None` if the DaemonSets cannot be read.
pub(super) async fn check(
    arrival: &Arrival<'_>,
    sets: Option<&[DaemonSet]>,
    findings: &mut Findings,
) {
    if arrival.nodes.is_empty() {
        return findings.not_tried(CHECK, "nothing shows which node would come");
    }
    let Some(sets) = sets else {
        return findings.not_tried(CHECK, "the DaemonSets cannot be read");
    };
    let mut coming = Vec::new();
    for set in sets {
        if arrival.receives(set) {
            coming.push(set);
        }
    }
    let (path, scope) = match arrival.only {
        Some(namespace) => (
            format!("/api/v1/namespaces/{namespace}/resourcequotas"),
            format!("-n {namespace}"),
        ),
        None => (ResourceQuota::PATH.to_owned(), "-A".to_owned()),
    };
    match arrival.client.list::<ResourceQuota>(&path).await {
        Ok(quotas) => report(&quotas, &coming, findings),
        Err(error) => {
            let why = format!(
                "the ResourceQuotas cannot be read: {error}; have someone with that right run: kubectl get \
                 resourcequotas {scope}"
            );
            findings.not_tried(CHECK, why);
        }
    }
}

fn report(quotas: &[ResourceQuota], coming: &[&DaemonSet], findings: &mut Findings) {
    let mut has_room = true;
    for quota in quotas {
        let shortages = quota.shortages(coming.iter().copied());
        if shortages.is_empty() {
            continue;
        }
        has_room = false;
        let mut sets: Vec<&str> = Vec::new();
        for name in shortages.iter().flat_map(|shortage| &shortage.sets) {
            if !sets.contains(&name.as_str()) {
                sets.push(name);
            }
        }
        let sets = some_of(sets);
        let short: Vec<String> = shortages.iter().map(Shortage::to_string).collect();
        let short = short.join("; ");
        let namespace = quota.namespace();
        let name = quota.name();
        let message = format!(
            "the ResourceQuota {namespace}/{name} refuses Pods of the DaemonSets {sets} on a new node: {short}"
        );
        let fix = format!(
            "raise it for as many nodes as may come: kubectl -n {namespace} edit resourcequota {name}"
        );
        findings.failed(CHECK, message, fix);
    }
    if has_room {
        let message = match coming.len() {
            0 => "no DaemonSet that was read would run on a new node".to_owned(),
            1 => {
                "the quotas have room for a Pod of the DaemonSet that runs on a new node".to_owned()
            }
            count => {
                format!(
                    "the quotas have room for a Pod of each of the {count} DaemonSets that run on a new node"
                )
            }
        };
        findings.ok(CHECK, message);
    }
}

impl Arrival<'_> {
    /// Returns whether a Pod of the DaemonSet would run on a new node.
    fn receives(&self, set: &DaemonSet) -> bool {
        let Some(pod) = &set.pod else {
            return false;
        };
        let mut nodes = self.nodes.iter();
        nodes.any(|node| {
            node.closed_by(pod.tolerations()).is_none() && pod.fits(&node.labels) == Fit::Yes
        })
    }
}
