//! The configuration of an installation, as its Pods have it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::findings::{Exam, Findings, Status, some_of};
use super::installation::{Backend, Workload};
use super::webhooks;
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

/// Reason why no configuration is known.
#[derive(Debug)]
pub(in crate::cli) enum Unconfigured {
    /// Nothing is installed that has one.
    Absent(String),
    /// There may be one, and something on the way to it cannot be read.
    Unread(String),
}

impl Unconfigured {
    /// Makes the reason of an object that has not been read.
    fn of(what: &str, error: &RequestError) -> Self {
        let why = format!("{what} cannot be read: {error}");
        if error.is_missing() {
            Self::Absent(why)
        } else {
            Self::Unread(why)
        }
    }

    fn absent(why: impl Into<String>) -> Self {
        Self::Absent(why.into())
    }
}

/// Reads the configuration of the Pods: from the file if one is named, otherwise from the mounted ConfigMap.
pub(super) async fn check(exam: &mut Exam<'_>, backend: &Backend<'_>) -> Option<Config> {
    let Exam {
        client,
        config,
        findings,
        ..
    } = exam;
    let Installed {
        source,
        text,
        environment,
        change,
        ..
    } = match config {
        Some(file) => {
            let source = file.display().to_string();
            let text = findings.read("configuration", &source, std::fs::read_to_string(file))?;
            Installed {
                source,
                text,
                ..Installed::default()
            }
        }
        None => {
            let read = mounted(client, &backend.namespace, &backend.workload).await;
            match read {
                Ok(installed) => installed,
                Err(Unconfigured::Absent(why) | Unconfigured::Unread(why)) => {
                    findings.unknown("configuration", why);
                    return None;
                }
            }
        }
    };
    let has_arrived = change.is_none();
    if let Some(change) = change {
        let fix = "kubelets bring it to them within two minutes; then run this again";
        findings.add(Status::Unknown, "configuration", change, fix);
    }
    match (Sources {
        environment,
        ..Sources::default()
    })
    .read(&text)
    {
        Ok(loaded) => {
            findings.ok("configuration", format!("{source} is valid"));
            check_mode(&loaded.config, has_arrived, findings);
            Some(loaded.config)
        }
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let fix = "correct it: Pods that run keep the last valid one, new ones do not start";
            findings.failed(
                "configuration",
                format!("{source} is not valid: {}", faults.join("; ")),
                fix,
            );
            None
        }
    }
}

fn check_mode(config: &Config, has_arrived: bool, findings: &mut Findings) {
    let profiles = config
        .profiles
        .iter()
        .map(|(name, profile)| (name.as_str(), profile.mode));
    let observe = [("the default profile", config.policy.mode)]
        .into_iter()
        .chain(profiles);
    let observe = observe
        .filter(|(_, mode)| *mode == Mode::Observe)
        .map(|(name, _)| name);
    match some_of(observe).as_str() {
        "" if has_arrived => findings.ok("mode", "the configuration says enforce"),
        "" => findings.unknown("mode", "enforce, once all replicas have the configuration"),
        names => {
            let message = format!(
                "observe ({names}): Pods are decided, counted and logged, and none is changed"
            );
            let fix =
                "set it to enforce (config.mode in the chart) when the log says what you expect";
            findings.add(Status::Unknown, "mode", message, fix);
        }
    }
}

/// Returns a note on a change that kubelets may not have brought to all Pods yet.
fn on_its_way(source: &str, changed: Timestamp, pods: &[Pod]) -> Option<String> {
    let since = Timestamp::now().duration_since(changed);
    let mut started = pods
        .iter()
        .filter_map(|pod| Some(pod.status.as_ref()?.start_time.as_ref()?.0));
    // Where the clock here is behind, nothing is said.
    let is_on_its_way =
        (SignedDuration::ZERO..ARRIVAL).contains(&since) && started.any(|start| start < changed);
    let since = since.as_secs();
    is_on_its_way.then(|| {
        format!("{source} was changed {since} s ago: replicas may still decide by what it was")
    })
}

/// Reads the ConfigMap of the first Pod that has one; fails with the reason why there is none.
async fn mounted(
    client: &UserClient,
    namespace: &str,
    workload: &Workload,
) -> Result<Installed, Unconfigured> {
    let mounting = workload.specs().find_map(|spec| {
        let volume = spec
            .volumes
            .iter()
            .flatten()
            .find(|volume| volume.name == "config");
        Some((spec, &volume?.config_map.as_ref()?.name))
    });
    let Some((spec, name)) = mounting else {
        return Err(match &workload.unread {
            Some(error) => {
                Unconfigured::of(&format!("the Deployments of namespace {namespace}"), error)
            }
            None => Unconfigured::absent(
                "no Pod shows which ConfigMap it uses; name the file with --config",
            ),
        });
    };
    let variables = spec
        .containers
        .iter()
        .take(1)
        .flat_map(|container| container.env.iter().flatten());
    let variables =
        variables.filter_map(|variable| Some((&variable.name, variable.value.as_ref()?)));
    let environment: Environment = variables
        .filter(|(name, _)| name.starts_with(Sources::PREFIX))
        .collect();
    let mut source = format!("ConfigMap {namespace}/{name}");
    let found = get::<ConfigMap>(client, Some(namespace), name).await;
    let found = found.map_err(|error| Unconfigured::of(&source, &error))?;
    let changed = found
        .managed_fields()
        .iter()
        .filter_map(|fields| Some(fields.time.as_ref()?.0))
        .max();
    let text = found.data.and_then(|mut data| data.remove("config.yaml"));
    let text = text.ok_or_else(|| Unconfigured::absent(format!("{source} has no config.yaml")))?;
    if environment != Environment::default() {
        source += " with the environment of its Pods";
    }
    let change = changed.and_then(|changed| on_its_way(&source, changed, &workload.pods));
    let (namespace, reviewed) = (namespace.to_owned(), Scope::default());
    Ok(Installed {
        namespace,
        source,
        text,
        environment,
        change,
        reviewed,
    })
}

/// Reads the configuration of the first installation.
pub(in crate::cli) async fn configured(client: &UserClient) -> Result<Installed, Unconfigured> {
    let all = webhooks::all(client).await;
    let all = all.map_err(|error| Unconfigured::of("the MutatingWebhookConfigurations", &error))?;
    let ours: Vec<&Webhook> = all
        .iter()
        .filter(|entry| entry.is_ours() && entry.is_for_pods())
        .collect();
    let Some(entry) = ours.first() else {
        return Err(Unconfigured::absent(
            "the cluster has no webhook of tolerarch",
        ));
    };
    let Some((namespace, service, _)) = entry.service() else {
        return Err(Unconfigured::absent(
            "its webhook calls a URL, so its Pods are not known",
        ));
    };
    let read = async {
        let found = get::<Service>(client, Some(namespace), service).await?;
        let labels = found.spec.unwrap_or_default().selector.unwrap_or_default();
        Workload::read(client, namespace, &labels.into_iter().collect()).await
    };
    let pods = format!("the Pods of Service {namespace}/{service}");
    let workload = read
        .await
        .map_err(|error| Unconfigured::of(&pods, &error))?;
    let mut found = mounted(client, namespace, &workload).await?;
    let installed: BTreeSet<_> = ours.iter().map(|entry| entry.service()).collect();
    if installed.len() > 1 {
        found.source += &format!(", the first of {} installations", installed.len());
    }
    found.reviewed = Scope::of(ours.into_iter().cloned());
    Ok(found)
}
