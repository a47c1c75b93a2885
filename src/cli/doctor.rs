//! `tolerarch doctor`: checks an installation from end to end, and advises where something does not work. Reads with
//! the user's own rights, and changes nothing: it creates only dry runs and access reviews.

mod configuration;
mod controller;
mod findings;
mod installation;
mod pools;
mod probe;
mod replicas;
mod rights;
mod scope;
mod webhooks;

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::version::Info;

use super::output::{Output, json, print};
use super::session::run;
use super::{Failure, Shared};
pub(super) use configuration::{Installed, configured};
use findings::{Exam, Finding, Findings, some_of};
use installation::Backend;
use probe::Outcome;
pub(super) use scope::ignored_labels;
use tolerarch_kubernetes::cluster::{RequestError, UserClient, Webhook};
use webhooks::by_service;

/// First minor version of Kubernetes with all that the manifests use (matchConditions).
const KUBERNETES: u32 = 30;

#[derive(Debug, Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    access: super::kubernetes::Access,
    /// How the result is written: a line for each check, or one JSON document
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Doctor {
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        let findings = run(shared, async |progress| {
            progress.show("asking the API server");
            let client = self.access.connect(&shared.environment)?;
            Ok(examine(&client, self.access.namespace.as_deref(), shared.config.as_deref()).await?)
        })?;
        print(&match self.output {
            Output::Table => findings.table(),
            Output::Json => json(&findings.json())?,
        })?;
        Ok(ExitCode::from(findings.verdict() as u8))
    }
}

/// Runs all checks; with a namespace, only of the webhooks that select it.
async fn examine(
    client: &UserClient,
    only: Option<&str>,
    config: Option<&Path>,
) -> Result<Findings, RequestError> {
    let mut exam = Exam { client, only, config, findings: Findings::default() };
    check_cluster(&mut exam).await?;
    check_all(&mut exam).await;
    for note in client.take_left_out() {
        exam.findings.unknown("unread", note);
    }
    Ok(exam.findings)
}

/// Checks the API server's version; fails if the API server does not answer.
async fn check_cluster(Exam { client, findings, .. }: &mut Exam<'_>) -> Result<(), RequestError> {
    let version = match client.get::<Info>("/version").await {
        Err(error) if !error.is_forbidden() => return Err(error),
        version => findings.read("version", "the version of the API server", version),
    };
    let Some(Info { minor, git_version, .. }) = version else { return Ok(()) };
    // Some providers add a plus to the minor version.
    if minor.trim_end_matches('+').parse::<u32>().is_ok_and(|minor| minor < KUBERNETES) {
        let fix = format!("upgrade the cluster to 1.{KUBERNETES} or later, which has matchConditions");
        findings.failed("version", format!("Kubernetes {git_version} is too old"), fix);
    } else {
        findings.ok("version", format!("Kubernetes {git_version}"));
    }
    Ok(())
}

async fn check_all(exam: &mut Exam<'_>) {
    let (client, only) = (exam.client, exam.only);
    let namespaces = installation::namespaces(exam).await;
    let all = webhooks::all(client).await;
    let Some(all) = exam.findings.read("webhook", "the MutatingWebhookConfigurations", all) else {
        return probe::check_unseen(exam).await;
    };
    let mut ours: Vec<&Webhook> = all.iter().filter(|entry| entry.is_ours()).collect();
    let is_installed = ours.iter().any(|entry| entry.is_for_pods());
    if only.is_some() && !namespaces.is_empty() {
        ours.retain(|entry| namespaces.iter().any(|namespace| entry.selects(namespace)));
    }
    ours.sort_by_key(|entry| !entry.is_for_pods());
    let entries: Vec<&Webhook> = ours.iter().copied().filter(|entry| entry.is_for_pods()).collect();
    if entries.is_empty() {
        return nothing(is_installed, only, &mut exam.findings);
    }
    each(&ours, &mut exam.findings, webhooks::check_calls);
    for entry in &entries {
        scope::check_namespaces(entry, &namespaces, &mut exam.findings);
        scope::check_pods(exam, entry, &namespaces).await;
    }
    scope::check_labels(exam, &entries, &namespaces);
    webhooks::check_overlaps(&entries, &namespaces, &mut exam.findings);
    each(&entries, &mut exam.findings, |entry, findings| {
        webhooks::check_order(entry, &all, &namespaces, findings);
    });
    // Pods come first, as nothing else works without them.
    let mut backends = Vec::new();
    for entry in by_service(&ours) {
        backends.push((entry, Backend::of(exam, entry).await));
    }
    // Dry runs also show whether a caBundle is the right one. What they find may be the consequence of the rest.
    let before = exam.findings.0.len();
    let proven = probe_all(exam, &entries, &backends, &namespaces).await;
    let probed = exam.findings.0.split_off(before);
    for (_, backend) in &backends {
        replicas::check(exam, backend).await;
    }
    for (entry, backend) in backends.iter().filter(|(entry, _)| entry.is_for_pods()) {
        let Some(config) = configuration::check(exam, backend).await else { continue };
        // The entries of one installation are in one configuration, whether or not a namespace selects each.
        let own = all.iter().filter(|other| other.is_ours() && other.configuration == entry.configuration);
        webhooks::check_profiles(own, config.profiles.keys(), &mut exam.findings);
        let selected: Vec<_> = namespaces.iter().filter(|namespace| entry.selects(namespace)).collect();
        rights::check(exam, backend, &config, &selected).await;
        controller::check(exam, backend, &config).await;
        rights::check_restrictions(exam, &config.policy.pools, &selected).await;
        pools::check(exam, &config).await;
    }
    // A bundle may lack what nothing issues.
    each(&ours, &mut exam.findings, |entry, findings| webhooks::check_bundle(entry, &proven, findings));
    exam.findings.0.extend(probed);
}

/// Proves by dry runs that the webhooks answer. Returns the caBundles of those that did.
async fn probe_all<'a>(
    exam: &mut Exam<'_>,
    entries: &[&'a Webhook],
    backends: &[(&Webhook, Backend)],
    namespaces: &[Namespace],
) -> Vec<&'a [u8]> {
    if namespaces.is_empty() {
        probe::check_unseen(exam).await;
    }
    let (mut broken, mut proven): (Vec<&Webhook>, Vec<&[u8]>) = Default::default();
    for entry in entries {
        let service = entry.service();
        let selected: Vec<_> = namespaces.iter().filter(|namespace| entry.selects(namespace)).collect();
        // A Service that cannot be called costs one time-out, not one for each webhook that calls it.
        let is_broken = service.is_some() && broken.iter().any(|known| known.service() == service);
        if selected.is_empty() || is_broken {
            continue;
        }
        let leads_nowhere =
            |(known, backend): &(&Webhook, Backend)| known.service() == service && backend.leads_nowhere;
        match probe::check(exam, entry, &selected, !backends.iter().any(leads_nowhere)).await {
            Outcome::Answered => proven.push(entry.bundle()),
            Outcome::Unproven => {}
            Outcome::Broken => broken.push(entry),
        }
    }
    // An answer may have come by a connection from before.
    proven.retain(|bundle| !broken.iter().any(|entry| entry.bundle() == *bundle));
    proven
}

/// Runs a check for each webhook; findings that differ in nothing but the webhook are merged.
fn each(entries: &[&Webhook], findings: &mut Findings, mut check: impl FnMut(&Webhook, &mut Findings)) {
    let mut told: Vec<(Finding, String, Vec<String>)> = Vec::new();
    for entry in entries {
        let mut own = Findings::default();
        check(entry, &mut own);
        let name = entry.name();
        for finding in own.0 {
            let text = finding.message.replace(&name, "") + &finding.fix;
            match told.iter_mut().find(|(_, known, _)| *known == text) {
                Some((.., others)) => others.push(name.clone()),
                None => told.push((finding, text, Vec::new())),
            }
        }
    }
    findings.0.extend(told.into_iter().map(|(mut finding, _, others)| {
        if !others.is_empty() {
            finding.message += &format!("; so for {}", some_of(others.iter().map(String::as_str)));
        }
        finding
    }));
}

fn nothing(installed: bool, only: Option<&str>, findings: &mut Findings) {
    if let Some(namespace) = only.filter(|_| installed) {
        let message =
            format!("no webhook of tolerarch selects namespace {namespace}: its Pods are not looked at");
        let fix = format!(
            "compare the labels of {namespace} with the namespaceSelectors; tolerarch.io/mode=off opts a namespace out"
        );
        findings.failed("scope", message, fix);
    } else {
        let fix = "install it: helm upgrade --install tolerarch manifests/helm/tolerarch --namespace tolerarch, or kubectl apply -k of your overlay";
        findings.failed("webhook", "no MutatingWebhookConfiguration calls tolerarch", fix);
    }
}

#[cfg(test)]
mod tests;
