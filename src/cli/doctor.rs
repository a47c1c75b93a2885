//! `tolerarch doctor`: whether an installation works from end to end, and what to do where it does not. It reads with the
//! rights of the person who runs it, and changes nothing: all it creates are dry runs and access reviews.

mod certificate;
mod controller;
mod findings;
mod installation;
mod objects;
mod pools;
mod probe;
mod registries;
mod rights;
mod version;
mod webhooks;

use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use super::output::{Look, Output, Progress, document, print};
use super::{Shared, fail};
use findings::Findings;
use installation::{Backend, Entry, Settings};
use objects::{Namespace, WebhookConfiguration};
use tolerarch_kubernetes::cluster::{RequestError, UserClient};

/// Something is wrong.
const FAILED: u8 = 3;

#[derive(Debug, Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    access: super::kubernetes::Access,
    /// How the result is written: a line for each check, or one JSON document
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Doctor {
    pub(super) fn run(self, shared: &Shared) -> ExitCode {
        let progress = Progress::start(shared.log_level, shared.log_format);
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return fail(&error),
        };
        let findings = runtime.block_on(async {
            progress.show("asking the API server");
            let client = self.access.connect(&shared.environment).await.map_err(|error| fail(&error))?;
            let only = self.access.namespace.as_deref();
            let examined = examine(&client, only, shared.config.as_deref()).await;
            progress.show("");
            examined.map_err(|error| fail(&error))
        });
        let findings = match findings {
            Ok(findings) => findings,
            Err(status) => return status,
        };
        let text = match self.output {
            Output::Table => findings.table(Look::of_stdout(&shared.environment)),
            Output::Json => document(&format!("{:#}", findings.json())),
        };
        match print(&text) {
            Ok(()) if findings.any_failed() => FAILED.into(),
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        }
    }
}

/// All checks. With a namespace only the webhooks that select it.
///
/// # Errors
/// The API server cannot be asked at all.
async fn examine(
    client: &UserClient,
    only: Option<&str>,
    config: Option<&Path>,
) -> Result<Findings, RequestError> {
    let mut findings = Findings::default();
    check_all(client, only, config, &mut findings).await?;
    for note in client.take_left_out() {
        findings.unknown("unread", note);
    }
    Ok(findings)
}

async fn check_all(
    client: &UserClient,
    only: Option<&str>,
    config: Option<&Path>,
    findings: &mut Findings,
) -> Result<(), RequestError> {
    version::check_cluster(client, findings).await?;
    let namespaces = installation::namespaces(client, only, findings).await;
    let all: Vec<WebhookConfiguration> = match client.list(installation::WEBHOOKS).await {
        Ok(all) => all,
        Err(error) => {
            findings.unread("webhook", "the MutatingWebhookConfigurations", &error);
            return Ok(());
        }
    };
    let ours: Vec<Entry<'_>> = all.iter().flat_map(installation::entries).collect();
    let mut entries: Vec<Entry<'_>> = ours.iter().copied().filter(Entry::is_for_pods).collect();
    if only.is_some() && !namespaces.is_empty() {
        entries.retain(|entry| namespaces.iter().any(|namespace| entry.selects(namespace)));
    }
    if entries.is_empty() {
        nothing(!ours.is_empty(), only, findings);
        return Ok(());
    }
    for &entry in &entries {
        webhooks::check_calls(entry, findings);
        webhooks::check_scope(entry, &namespaces, findings);
    }
    webhooks::check_overlaps(&entries, &namespaces, findings);
    for &entry in &entries {
        webhooks::check_order(entry, &all, &namespaces, findings);
    }
    for &entry in &entries {
        let roots = certificate::check_bundle(entry, findings);
        if let (Some(url), Some(roots)) = (&entry.webhook.client_config.url, roots) {
            certificate::check_url(url, roots, findings).await;
        }
    }
    let mut backends = Vec::new();
    for entry in installation::by_service(&entries) {
        let backend = Backend::of(client, entry, findings).await;
        certificate::check_replicas(client, &backend, findings).await;
        version::check_pods(&backend, findings);
        registries::check(client, &backend, findings).await;
        backends.push((entry, backend));
    }
    for &entry in &entries {
        let selected = by_preference(client, entry, &namespaces);
        if !selected.is_empty() {
            probe::check(client, entry, &selected, findings).await;
        }
    }
    for (entry, backend) in &backends {
        if let Some(settings) = Settings::read(client, backend, config, findings).await {
            let own = ours.iter().filter(|other| other.belongs_with(*entry)).copied();
            webhooks::check_profiles(&own.collect::<Vec<_>>(), &settings.profiles, findings);
            check_settings(client, *entry, backend, &settings, &namespaces, findings).await;
        }
    }
    Ok(())
}

/// What the configuration needs of the cluster.
async fn check_settings(
    client: &UserClient,
    entry: Entry<'_>,
    backend: &Backend,
    settings: &Settings,
    namespaces: &[Namespace],
    findings: &mut Findings,
) {
    let selected = by_preference(client, entry, namespaces);
    rights::check(client, backend, settings, &selected, findings).await;
    controller::check(client, backend, settings, findings).await;
    let pools = &settings.config.policy.pools;
    let tolerations: Vec<_> = pools.iter().flat_map(|pool| pool.tolerations.clone()).collect();
    rights::check_restrictions(client, &tolerations, &selected, findings).await;
    let cluster = pools::Cluster::read(client, findings).await;
    cluster.check(&settings.config, findings);
}

/// There is no webhook to look at.
fn nothing(installed: bool, only: Option<&str>, findings: &mut Findings) {
    match only.filter(|_| installed) {
        Some(namespace) => findings.failed(
            "scope",
            format!("no webhook of tolerarch selects namespace {namespace}: its Pods are not looked at"),
            format!(
                "compare the labels of {namespace} with the namespaceSelectors; tolerarch.io/mode=off opts a namespace out"
            ),
        ),
        None => findings.failed(
            "webhook",
            "no MutatingWebhookConfiguration calls tolerarch",
            "install it: helm install, or kubectl apply -k manifests",
        ),
    }
}

/// The namespaces that a webhook selects: the person's own first, as there are most likely rights in it.
fn by_preference<'a>(
    client: &UserClient,
    entry: Entry<'_>,
    namespaces: &'a [Namespace],
) -> Vec<&'a Namespace> {
    let mut selected: Vec<&Namespace> =
        namespaces.iter().filter(|namespace| entry.selects(namespace)).collect();
    let own = client.namespace();
    selected.sort_by_key(|namespace| {
        let name = namespace.metadata.name.as_str();
        (name != own, name != "default")
    });
    selected
}

#[cfg(test)]
mod tests;
