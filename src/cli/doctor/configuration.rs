//! The configuration of an installation, as its Pods have it.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::findings::{Exam, Findings, Status, some_of};
use super::installation::{Backend, deployments, serving};
use super::webhooks::{self, by_service};
use crate::cli::kubernetes::get;
use crate::config::{Config, Sources};
use tolerarch_core::policy::Mode;
use tolerarch_kubernetes::cluster::{RequestError, Scope, UserClient, Webhook};
use tolerarch_support::environment::Environment;

/// Time until a changed ConfigMap is in all Pods: the kubelet's sync period (60 s), the age of its cache, and a margin.
const ARRIVAL: SignedDuration = SignedDuration::from_secs(120);

/// Configuration of an installation, or of a file in its place.
#[derive(Default)]
pub(in crate::cli) struct Installed {
    pub(in crate::cli) namespace: String,
    /// Name of the ConfigMap or file, for the user.
    pub(in crate::cli) source: String,
    pub(in crate::cli) text: String,
    /// Environment of the Pods, which beats the text.
    pub(in crate::cli) environment: Environment,
    /// Note that replicas may still decide by an earlier text.
    pub(in crate::cli) change: Option<String>,
    /// Pods that are reviewed; none where only the configuration is read.
    pub(in crate::cli) reviewed: Scope,
}

/// Reads the configuration of the Pods: from the file if one is named, otherwise from the mounted ConfigMap.
pub(super) async fn check(exam: &mut Exam<'_>, backend: &Backend) -> Option<Config> {
    let Exam { client, config, findings, .. } = exam;
    let Installed { source, text, environment, change, .. } = match config {
        Some(file) => {
            let source = file.display().to_string();
            let text = findings.read("configuration", &source, std::fs::read_to_string(file))?;
            Installed { source, text, ..Installed::default() }
        }
        None => {
            let read = mounted(client, &backend.namespace, &backend.pods, &[]).await;
            read.map_err(|message| findings.unknown("configuration", message)).ok()?
        }
    };
    let has_arrived = change.is_none();
    if let Some(change) = change {
        let fix = "kubelets bring it to them within two minutes; then run this again";
        findings.add(Status::Unknown, "configuration", change, fix);
    }
    match (Sources { environment, ..Sources::default() }).read(&text) {
        Ok(loaded) => {
            findings.ok("configuration", format!("{source} is valid"));
            check_mode(&loaded.config, has_arrived, findings);
            Some(loaded.config)
        }
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let fix = "correct it: Pods that run keep the last valid one, new ones do not start";
            findings.failed("configuration", format!("{source} is not valid: {}", faults.join("; ")), fix);
            None
        }
    }
}

fn check_mode(config: &Config, has_arrived: bool, findings: &mut Findings) {
    let profiles = config.profiles.iter().map(|(name, profile)| (name.as_str(), profile.mode));
    let observe = [("the default profile", config.policy.mode)].into_iter().chain(profiles);
    let observe = observe.filter(|(_, mode)| *mode == Mode::Observe).map(|(name, _)| name);
    match some_of(observe).as_str() {
        "" if has_arrived => findings.ok("mode", "the configuration says enforce"),
        "" => findings.unknown("mode", "enforce, once all replicas have the configuration"),
        names => {
            let message =
                format!("observe ({names}): Pods are decided, counted and logged, and none is changed");
            let fix = "set it to enforce (config.mode in the chart) when the log says what you expect";
            findings.add(Status::Unknown, "mode", message, fix);
        }
    }
}

/// Returns a note on a change that kubelets may not have brought to all Pods yet.
fn on_its_way(source: &str, changed: Timestamp, pods: &[Pod]) -> Option<String> {
    let since = Timestamp::now().duration_since(changed);
    let mut started =
        pods.iter().filter_map(|pod| Some(pod.status.as_ref()?.start_time.as_ref()?.0 < changed));
    // Where the clock here is behind, nothing is said.
    let is_on_its_way = !since.is_negative() && since < ARRIVAL && started.any(|is_older| is_older);
    let since = since.as_secs();
    is_on_its_way
        .then(|| format!("{source} was changed {since} s ago: replicas may still decide by what it was"))
}

/// Reads the ConfigMap of the first of these Pods, or else Deployments, that has one; fails with the reason why there is
/// none.
async fn mounted(
    client: &UserClient,
    namespace: &str,
    pods: &[Pod],
    deployments: &[Deployment],
) -> Result<Installed, String> {
    let templates = deployments.iter().filter_map(|known| known.spec.as_ref()?.template.spec.as_ref());
    let specs = pods.iter().filter_map(|pod| pod.spec.as_ref()).chain(templates);
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
    let change = changed.and_then(|changed| on_its_way(&source, changed, pods));
    let (namespace, reviewed) = (namespace.to_owned(), Scope::default());
    Ok(Installed { namespace, source, text, environment, change, reviewed })
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
        let labels = found.spec.unwrap_or_default().selector.unwrap_or_default().into_iter().collect();
        Ok((serving(client, namespace, &labels).await?, labels))
    };
    let unread =
        |error: RequestError| format!("the Pods of Service {namespace}/{service} cannot be read: {error}");
    let (pods, labels) = read.await.map_err(unread)?;
    // Without a Pod, the template shows what the next one will mount.
    let is_known = pods.is_empty() && !labels.selects_all();
    let templates = if is_known { deployments(client, namespace, &labels).await } else { Vec::new() };
    let mut found = mounted(client, namespace, &pods, &templates).await?;
    if installed.len() > 1 {
        found.source += &format!(", the first of {} installations", installed.len());
    }
    found.reviewed = Scope::of(ours.into_iter().cloned());
    Ok(found)
}
