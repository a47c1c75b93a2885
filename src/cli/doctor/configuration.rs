//! The configuration of an installation, as its Pods have it.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodSpec, Service};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::findings::{Exam, Status};
use super::installation::{Backend, deployments, labels, serving};
use super::webhooks::{self, by_service};
use crate::cli::kubernetes::get;
use crate::config::{Config, Sources};
use tolerarch_kubernetes::cluster::{RequestError, Scope, UserClient, Webhook};
use tolerarch_support::environment::Environment;

/// Time until a changed ConfigMap is in all Pods: the kubelet's sync period (60 s), the age of its cache, and a margin.
const ARRIVAL: SignedDuration = SignedDuration::from_secs(120);

pub(in crate::cli) struct Installed {
    pub(in crate::cli) namespace: String,
    /// Name of the ConfigMap, for the user.
    pub(in crate::cli) source: String,
    pub(in crate::cli) text: String,
    /// Environment of the Pods, which beats the text.
    pub(in crate::cli) environment: Environment,
    /// Note that replicas may still decide by an earlier text.
    pub(in crate::cli) change: Option<String>,
    /// Pods that are reviewed.
    pub(in crate::cli) reviewed: Scope,
}

/// ConfigMap of Pods, and their environment.
struct Mounted {
    source: String,
    text: String,
    environment: Environment,
    changed: Option<Timestamp>,
}

/// Reads the configuration of the Pods: from the file if one is named, otherwise from the mounted ConfigMap. Returns also
/// whether all of them have it by now.
pub(super) async fn check(exam: &mut Exam<'_>, backend: &Backend) -> Option<(Config, bool)> {
    let Exam { client, config, findings, .. } = exam;
    let mut has_arrived = true;
    let read = match config {
        Some(file) => match std::fs::read_to_string(*file) {
            Ok(text) => Ok((file.display().to_string(), text, Environment::default())),
            Err(error) => Err(format!("{} cannot be read: {error}", file.display())),
        },
        None => {
            let specs = backend.pods.iter().filter_map(|pod| pod.spec.as_ref());
            let found = mounted(client, &backend.namespace, specs).await;
            found.map(|Mounted { source, text, environment, changed }| {
                if let Some(change) = on_its_way(&source, changed, &backend.pods) {
                    has_arrived = false;
                    let fix = "kubelets bring it to them within two minutes; then run this again";
                    findings.add(Status::Unknown, "configuration", change, fix);
                }
                (source, text, environment)
            })
        }
    };
    let read = read.map_err(|message| findings.unknown("configuration", message));
    let (source, text, environment) = read.ok()?;
    match (Sources { environment, ..Sources::default() }).read(&text) {
        Ok(loaded) => {
            findings.ok("configuration", format!("{source} is valid"));
            Some((loaded.config, has_arrived))
        }
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            findings.failed(
                "configuration",
                format!("{source} is not valid: {}", faults.join("; ")),
                "correct it: Pods that run keep the last valid one, new ones do not start",
            );
            None
        }
    }
}

/// Returns a note on a change that kubelets may not have brought to all Pods yet.
fn on_its_way(source: &str, changed: Option<Timestamp>, pods: &[Pod]) -> Option<String> {
    let changed = changed?;
    let since = Timestamp::now().duration_since(changed);
    let mut started =
        pods.iter().filter_map(|pod| Some(pod.status.as_ref()?.start_time.as_ref()?.0 < changed));
    // Where the clock here is behind, nothing is said.
    let is_on_its_way = !since.is_negative() && since < ARRIVAL && started.any(|is_older| is_older);
    let since = since.as_secs();
    is_on_its_way
        .then(|| format!("{source} was changed {since} s ago: replicas may still decide by what it was"))
}

/// Reads the ConfigMap of the first of these that has one; fails with the reason why there is none.
async fn mounted(
    client: &UserClient,
    namespace: &str,
    specs: impl Iterator<Item = &PodSpec>,
) -> Result<Mounted, String> {
    let mut mounting = specs.filter_map(|spec| {
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == "config");
        Some((spec, &volume?.config_map.as_ref()?.name))
    });
    let Some((spec, name)) = mounting.next() else {
        return Err("no Pod shows which ConfigMap it uses; name the file with --config".to_owned());
    };
    let variables = spec.containers.iter().take(1).flat_map(|container| container.env.iter().flatten());
    let variables = variables.filter_map(|variable| Some((&variable.name, variable.value.as_ref()?)));
    let environment: Environment = variables.filter(|(name, _)| name.starts_with(Sources::PREFIX)).collect();
    let mut source = format!("ConfigMap {namespace}/{name}");
    let found = get::<ConfigMap>(client, Some(namespace), name).await;
    let found = found.map_err(|error| format!("{source} cannot be read: {error}"))?;
    let changed = found.managed_fields().iter().filter_map(|fields| Some(fields.time.as_ref()?.0)).max();
    let text = found.data.and_then(|mut data| data.remove("config.yaml"));
    let text = text.ok_or_else(|| format!("{source} has no config.yaml"))?;
    if environment != Environment::default() {
        source += " with the environment of its Pods";
    }
    Ok(Mounted { source, text, environment, changed })
}

/// Reads the configuration of the first installation.
pub(in crate::cli) async fn configured(client: &UserClient) -> Result<Installed, String> {
    let all = webhooks::all(client).await;
    let all = all.map_err(|error| format!("the MutatingWebhookConfigurations cannot be read: {error}"))?;
    let ours: Vec<&Webhook> = all.iter().filter(|entry| entry.is_ours() && entry.is_for_pods()).collect();
    let installed = by_service(&ours);
    let entry = installed.first().ok_or("the cluster has no webhook of tolerarch")?;
    let (namespace, service, _) =
        entry.service().ok_or("its webhook calls a URL, so its Pods are not known")?;
    let read = async {
        let found = get::<Service>(client, Some(namespace), service).await?;
        let labels = labels(found.spec.unwrap_or_default());
        Ok((serving(client, namespace, &labels).await?, labels))
    };
    let unread =
        |error: RequestError| format!("the Pods of Service {namespace}/{service} cannot be read: {error}");
    let (pods, labels) = read.await.map_err(unread)?;
    // Without a Pod, the template shows what the next one will mount.
    let templates = if pods.is_empty() { deployments(client, namespace, &labels).await } else { Vec::new() };
    let templates = templates.iter().filter_map(|known| known.spec.as_ref()?.template.spec.as_ref());
    let specs = pods.iter().filter_map(|pod| pod.spec.as_ref()).chain(templates);
    let Mounted { mut source, text, environment, changed } = mounted(client, namespace, specs).await?;
    let change = on_its_way(&source, changed, &pods);
    if installed.len() > 1 {
        source += &format!(", the first of {} installations", installed.len());
    }
    let reviewed = Scope::of(ours.into_iter().cloned());
    Ok(Installed { namespace: namespace.to_owned(), source, text, environment, change, reviewed })
}
