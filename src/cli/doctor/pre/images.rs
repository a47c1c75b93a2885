//! Images whose index names the new platform but whose config names another, and images with unknown platforms.

use std::collections::{BTreeMap, BTreeSet};

use super::arrival::Arrival;
use crate::cli::doctor::findings::{Findings, Status, some_of};
use crate::cli::output::count;
use crate::cli::session::Session;
use crate::cli::survey::Survey;
use crate::config::Verify;
use tolerarch_core::image::{ImageRef, PlatformSet};
use tolerarch_core::pod::Pod;
use tolerarch_engine::decide::Examined;
use tolerarch_images::registry::trace::EntryOutcome;
use tolerarch_kubernetes::cluster::DaemonSet;

const CHECK: &str = "images";

pub(super) fn check(
    arrival: &Arrival<'_>,
    session: &Session,
    examined: &[Examined],
    survey: &Survey,
    sets: &[DaemonSet],
    findings: &mut Findings,
) {
    let of_sets = sets.iter().filter_map(|set| set.pod.as_ref());
    let of_pods = survey.shapes.iter().map(|shape| &shape.pod);
    let mut images = BTreeMap::<String, ImageRef>::new();
    for usage in of_sets.chain(of_pods).flat_map(Pod::images) {
        if let Ok(image) = usage.image {
            images.insert(usage.given.to_owned(), image);
        }
    }
    let before = findings.0.len();
    for (given, image) in &images {
        if let Some(actual) = contradiction(arrival, session, image) {
            report_contradiction(arrival, given, actual, findings);
        }
    }
    let states = examined.iter().flat_map(|examined| &examined.images);
    let unknown = states.filter(|state| state.unknown.is_some());
    let unknown: BTreeSet<&str> = unknown.map(|state| &*state.image).collect();
    if !unknown.is_empty() {
        let number = count(unknown.len() as u64, "image");
        let named = some_of(unknown.iter().copied());
        let why = format!("the platforms of {number} of Pods are unknown: {named}");
        let fix = "`tolerarch report` names the cause for each; its Pods stay where they are";
        findings.not_tried_with_fix(CHECK, why, fix);
    }
    if findings.0.len() == before && !images.is_empty() {
        let number = count(images.len() as u64, "image");
        findings.ok(
            CHECK,
            format!("{number} are for the platforms that they name"),
        );
    }
}

/// Returns the platforms of a config that contradicts the index, if the index names the new platform.
fn contradiction(
    arrival: &Arrival<'_>,
    session: &Session,
    image: &ImageRef,
) -> Option<PlatformSet> {
    let trace = session.traces.trace_of(image);
    trace.entries.iter().find_map(|entry| {
        let named: PlatformSet = entry.info.platform.parse().ok()?;
        match entry.outcome {
            EntryOutcome::Contradicted(actual) if named.intersects(arrival.platform) => {
                Some(actual)
            }
            _ => None,
        }
    })
}

fn report_contradiction(
    arrival: &Arrival<'_>,
    image: &str,
    actual: PlatformSet,
    findings: &mut Findings,
) {
    let platform = arrival.platform;
    let message = format!(
        "the index of {image} names {platform}, but the config of that entry names {actual}: its Pods fail there"
    );
    let fix = match arrival.verify {
        Verify::Config => {
            "have the image built again; with verify: config tolerarch adds no toleration for it"
        }
        Verify::Index | Verify::Manifests => {
            "have the image built again, or set verify: config, with which tolerarch adds no toleration for such images"
        }
    };
    let status = Status::failed_if(arrival.verify != Verify::Config);
    findings.add(status, CHECK, message, fix);
}
