//! `tolerarch doctor` checks an installation from end to end, and advises how to fix each fault. It reads with the user's
//! own rights and changes nothing: it creates only dry-run Pods and access reviews.

mod configuration;
mod findings;
mod installation;
mod pools;
mod pre;
mod probe;
mod processes;
mod replicas;
mod version;
mod webhooks;

use std::process::ExitCode;

use clap::Args;
use k8s_openapi::api::core::v1::Namespace;

use super::installed;
use super::output::{Output, json, print};
use super::session::run;
use super::{Failure, Shared};
use findings::{Exam, Findings, Status, Verdict};
use installation::Backend;
use tolerarch_kubernetes::cluster::{RequestError, Webhook};

/// Exit status if there are faults.
const FAULTS: u8 = Verdict::Failed as u8;

#[derive(Debug, Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    access: super::kubernetes::Access,
    /// The format of the result: a line for each check, or one JSON document
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    pre: pre::Pre,
}

impl Doctor {
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        if self.pre.is_on {
            return self.run_pre(shared);
        }
        let findings = run(shared, async |progress| {
            progress.show("querying the API server");
            let client = self.access.connect(&shared.environment)?;
            let only = self.access.namespace.as_deref();
            let config = shared.config.as_deref();
            Ok(examine(Exam {
                client: &client,
                only,
                config,
                findings: Findings::default(),
            })
            .await?)
        })?;
        print(&match self.output {
            Output::Table => findings.table(),
            Output::Json => json(&findings.json())?,
        })?;
        Ok(ExitCode::from(findings.verdict() as u8))
    }

    fn run_pre(self, shared: &Shared) -> Result<ExitCode, Failure> {
        let findings = run(shared, async |progress| {
            self.pre.examine(shared, &self.access, progress).await
        })?;
        print(&match self.output {
            Output::Table => findings.table(),
            Output::Json => json(&pre::document(&findings))?,
        })?;
        Ok(ExitCode::from(if findings.has_failed() {
            FAULTS
        } else {
            0
        }))
    }
}

/// Runs all checks. If the checks are limited to a namespace, only the webhooks that select it are checked.
async fn examine(mut exam: Exam<'_>) -> Result<Findings, RequestError> {
    version::check(&mut exam).await?;
    check_all(&mut exam).await;
    for note in exam.client.take_left_out() {
        exam.findings.unknown("unread", note);
    }
    Ok(exam.findings)
}

async fn check_all(exam: &mut Exam<'_>) {
    let only = exam.only;
    let namespaces = installation::namespaces(exam).await;
    let all = installed::webhooks(exam.client).await;
    let configurations = "the MutatingWebhookConfigurations";
    let Some(all) = exam.findings.read("webhook", configurations, all) else {
        return probe::check_unread(exam).await;
    };
    let mut managed: Vec<&Webhook> = all.iter().filter(|entry| entry.is_of_tolerarch()).collect();
    let is_installed = managed.iter().any(|entry| entry.is_for_pods());
    if only.is_some() && !namespaces.is_empty() {
        managed.retain(|entry| namespaces.iter().any(|namespace| entry.selects(namespace)));
    }
    managed.sort_by_key(|entry| (entry.service(), !entry.is_for_pods()));
    let mut entries = managed.clone();
    entries.retain(|entry| entry.is_for_pods());
    if entries.is_empty() {
        return report_no_webhook(only, is_installed, &mut exam.findings);
    }
    exam.findings
        .merge(managed.iter().map(|entry| webhooks::check_calls(entry)));
    for entry in &entries {
        webhooks::check_namespaces(entry, &namespaces, &mut exam.findings);
        webhooks::check_pods(exam, entry, &namespaces).await;
    }
    webhooks::check_labels(exam, &entries, &namespaces);
    webhooks::check_overlaps(&entries, &namespaces, &mut exam.findings);
    let order = |entry: &&Webhook| webhooks::check_order(entry, &all, &namespaces);
    exam.findings.merge(entries.iter().map(order));
    for callers in managed.chunk_by(|one, other| one.service() == other.service()) {
        check_service(exam, callers, &all, &namespaces).await;
    }
    if namespaces.is_empty() {
        probe::check_unread(exam).await;
    }
}

fn report_no_webhook(only: Option<&str>, is_installed: bool, findings: &mut Findings) {
    if is_installed && let Some(namespace) = only {
        let message = format!(
            "no webhook of tolerarch selects namespace {namespace}: its Pods are not reviewed"
        );
        let fix = format!(
            "compare the labels of {namespace} with the namespaceSelectors; tolerarch.io/mode=off opts a namespace out"
        );
        findings.failed("scope", message, fix);
    } else {
        let message = "no MutatingWebhookConfiguration calls tolerarch";
        let fix = "install it: helm upgrade --install tolerarch manifests/helm/tolerarch --namespace tolerarch, or kubectl apply -k of your overlay";
        findings.failed("webhook", message, fix);
    }
}

/// Checks the Service that the webhooks `callers` call and the processes behind it: first the Pods, without which nothing
/// works.
async fn check_service(
    exam: &mut Exam<'_>,
    callers: &[&Webhook],
    all: &[Webhook],
    namespaces: &[Namespace],
) {
    let [entry, ..] = callers else { return };
    let backend = Backend::of(exam, entry, namespaces).await;
    replicas::check(exam, &backend).await;
    if entry.is_for_pods()
        && let Some(config) = configuration::check(exam, &backend).await
    {
        // The entries of one installation are in one configuration. Those that select no namespace count as well.
        let entries = all
            .iter()
            .filter(|other| other.is_of_tolerarch() && other.configuration == entry.configuration);
        let called = entries.filter_map(Webhook::profile).collect();
        let configured = config.profiles.keys().map(String::as_str).collect();
        webhooks::check_profiles(&called, &configured, &mut exam.findings);
        processes::check(exam, &backend, &config).await;
        processes::check_controller(exam, &backend, &config).await;
        probe::check_restrictions(exam, &backend, &config.policy.pools).await;
        pools::check(exam, &config).await;
    }
    // Dry runs show whether a caBundle has the right CA, so they run before its check. Their findings are listed after
    // it, because they may be a consequence of the other faults.
    let before = exam.findings.0.len();
    let mut tried = Vec::new();
    for entry in callers.iter().filter(|entry| entry.is_for_pods()) {
        let status = probe::check(exam, entry, namespaces, !backend.leads_nowhere).await;
        tried.push((entry.bundle(), status));
        // If one webhook fails, all that call the Service fail, and each may wait for a timeout.
        if status == Status::Failed {
            break;
        }
    }
    let dry_runs = exam.findings.0.split_off(before);
    let bundle = |entry: &&Webhook| webhooks::check_bundle(entry, &tried);
    exam.findings.merge(callers.iter().map(bundle));
    exam.findings.0.extend(dry_runs);
}

#[cfg(test)]
mod tests;
