//! Common parts of the commands that query registries or an API server: start, lookups, and outcomes for `--fail-on`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clap::ValueEnum;
use ipnet::IpNet;
use tokio::runtime::Builder;

use super::configured::Configured;
use super::inventory::ClusterNodes;
use super::kubernetes::Access;
use super::output::{Colour, Progress, print_error};
use super::{Failure, Shared};
use crate::config::Config;
use crate::serve;
use tolerarch_core::image::{ImageRef, canonical_host};
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::Policy;
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_engine::decide::{BatchLimits, Examined, Snapshot};
use tolerarch_images::registry::trace::{Trace, TracedRequest};
use tolerarch_images::registry::{HostSettings, Traces};
use tolerarch_kubernetes::cluster::UserClient;

/// Decision engine of a command, with the progress line and the traces of its lookups.
pub(super) struct Session {
    pub(super) snapshot: Snapshot,
    /// Policy of the profile that the command names, or that of no profile.
    pub(super) policy: Policy,
    pub(super) limits: BatchLimits,
    pub(super) progress: Progress,
    pub(super) traces: Traces,
    /// Notes for the user on the pools of the cluster, and on objects that could not be read.
    pub(super) notes: Vec<String>,
}

/// Runs `work` with a progress line. Ctrl-C ends the process.
pub(super) fn run<T>(
    shared: &Shared,
    work: impl AsyncFnOnce(Progress) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let progress = Progress::start(shared.log_level, shared.log_format);
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        tokio::spawn(progress.clone().end_on_interrupt());
        work(progress.clone()).await
    });
    // Lookups may still run, but their results are no longer needed.
    runtime.shutdown_background();
    progress.show("");
    result
}

/// Runs `work` in a session for these images that does not read the pools of a cluster. If `cluster` is given, the
/// configuration may come from there.
pub(super) fn run_without_cluster_pools<T>(
    shared: &Shared,
    cluster: Option<&Access>,
    profile: Option<&str>,
    images: impl IntoIterator<Item = ImageRef>,
    work: impl AsyncFnOnce(Session) -> T,
) -> Result<T, Failure> {
    run(shared, async |progress| {
        let mut configured = match cluster {
            Some(cluster) => cluster.configured_if_named(shared).await?,
            None => shared.load(None, None)?,
        };
        if configured.config.discover.is_on() {
            configured.notes.push("this command reads no pools from a cluster: `discover` has no effect, and the pools are those of the configuration".to_owned());
        }
        for note in &configured.notes {
            print_error(&format!("tolerarch: note: {note}"));
        }
        let session = Session::start(shared, configured, progress, None, images).await?;
        let Some(policy) = session.snapshot.policy_for(profile).cloned() else {
            let name = profile.unwrap_or_default();
            return Err(unknown_profile(name, &session.snapshot));
        };
        Ok(work(Session { policy, ..session }).await)
    })
}

fn unknown_profile(name: &str, snapshot: &Snapshot) -> Failure {
    let names: Vec<&str> = snapshot.profiles.keys().map(String::as_str).collect();
    let names = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    Failure::Usage(format!(
        "--profile {name:?}: `profiles` of the configuration has {names}"
    ))
}

impl Session {
    /// Makes a session that decides as `serve` would with this configuration. With a `client`, it also has the pools that
    /// the cluster shows. `images` are those that the session will look up.
    pub(super) async fn start(
        shared: &Shared,
        configured: Configured,
        progress: Progress,
        client: Option<&UserClient>,
        images: impl IntoIterator<Item = ImageRef>,
    ) -> Result<Self, Failure> {
        let Configured {
            mut config,
            lessons,
            mut notes,
            ..
        } = configured;
        let mut cluster_state = None;
        if let Some(client) = client {
            if config.discover.is_on() {
                let pools = &config.policy.pools;
                let cluster_nodes = ClusterNodes::read(client, config.discover, pools).await?;
                let (state, warnings) = cluster_nodes.discovered(pools);
                cluster_state = Some(state);
                notes.extend(warnings);
            }
            notes.extend(client.take_left_out());
        }
        // A loopback name in a remote cluster does not mean this machine.
        if client.is_none_or(|client| client.is_local) {
            allow_loopback(&mut config, images);
        }
        let traces = Traces::default();
        let snapshot = serve::snapshot(
            &config,
            &shared.environment,
            Some(traces.clone()),
            cluster_state.as_ref(),
        )?;
        let snapshot = Snapshot {
            lessons: lessons.into(),
            ..snapshot
        };
        Ok(Self {
            policy: snapshot.policy.clone(),
            snapshot,
            limits: BatchLimits::new(&config.lookup),
            progress,
            traces,
            notes,
        })
    }

    /// Decides as the webhook would, and looks up every image.
    pub(super) async fn examine(
        &self,
        policy: &Policy,
        namespace: &str,
        pod: &Pod<'_>,
    ) -> Examined {
        let limits = &self.limits;
        let mut examined = self.snapshot.examine(policy, namespace, pod, limits).await;
        for image in &mut examined.images {
            if image.unknown.is_none() {
                continue;
            }
            image.cause = match image.image.parse() {
                Ok(reference) => self.cause(&reference, &image.unused_secrets),
                Err(_invalid) => None,
            };
        }
        examined
    }

    pub(super) fn lacks_pull_secrets(&self, reason: Reason, pod: &Pod<'_>) -> bool {
        let is_refused = matches!(
            reason,
            Reason::Unknown(LookupError::Denied | LookupError::NotFound)
        );
        let are_read = self.snapshot.credentials.reads_pull_secrets();
        is_refused && !are_read && pod.pull_secrets().next().is_some()
    }

    pub(super) fn cause(&self, image: &ImageRef, unused_secrets: &[String]) -> Option<String> {
        cause(&self.traces.trace_of(image), unused_secrets)
    }
}

/// Returns why a lookup failed: with host and status of the last failed request, which may have gone to a mirror, and
/// with the pull secrets that had no credential for it.
pub(super) fn cause(trace: &Trace, unused_secrets: &[String]) -> Option<String> {
    let error = trace.error.as_ref()?;
    let failed = |request: &&TracedRequest| !matches!(request.outcome, None | Some(Ok(..400)));
    let Some(request) = trace.requests.iter().rev().find(failed) else {
        return Some(error.clone());
    };
    let TracedRequest {
        method,
        kind,
        credential_kind,
        ..
    } = request;
    let host = request.url.host_str();
    let is_named = host.is_some_and(|host| error.contains(host));
    let answer = match request.outcome {
        Some(Err(_)) if is_named => return Some(error.clone()),
        Some(Ok(status)) => format!("answered {status} to"),
        _ => "gave no answer to".to_owned(),
    };
    let mut with = match credential_kind {
        Some(source) if !source.is_empty() => format!("with {source}"),
        _ if unused_secrets.is_empty() => "with no credential".to_owned(),
        _ => "without one".to_owned(),
    };
    for secret in unused_secrets {
        with += "; ";
        with += secret;
    }
    let host = request.url.origin().ascii_serialization();
    Some(format!(
        "{error} ({host} {answer} {method} {}, {with})",
        kind.as_str()
    ))
}

/// Allows registries on the user's own machine, which a webhook must never contact. They are used without TLS, as by
/// containerd, unless the configuration has settings for the host.
fn allow_loopback(config: &mut Config, images: impl IntoIterator<Item = ImageRef>) {
    for image in images {
        let name = match image.host().rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => name,
            _ => image.host(),
        };
        let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
        if name != "localhost" && !address.as_ref().is_ok_and(|address| address.is_loopback()) {
            continue;
        }
        let allow = &mut config.network.allow;
        allow.push(IpAddr::from(Ipv4Addr::LOCALHOST).into());
        allow.push(IpAddr::from(Ipv6Addr::LOCALHOST).into());
        allow.extend(address.map(IpNet::from));
        let hosts = &mut config.registries.hosts;
        let settings = hosts.entry(canonical_host(image.host()));
        settings.or_insert_with(|| HostSettings {
            plain_http: true,
            ..HostSettings::default()
        });
    }
}

impl Progress {
    /// Removes the progress line on Ctrl-C, and ends the process as if there were no handler, also as PID 1 of a
    /// container. Runs in its own task, because the work may not yield.
    async fn end_on_interrupt(self) {
        if tokio::signal::ctrl_c().await.is_ok() {
            self.show("");
            // Ends the process by the signal itself, because shells evaluate that. Does not return.
            let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGINT);
        }
    }
}

/// Outcomes on which `check --fail-on` exits with status 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FailOn {
    Unsupported,
    Unknown,
    NotLookedAt,
}

impl FailOn {
    /// Returns the outcomes that a reason stands for. `retracted` stands for two: the reason does not show whether an
    /// image lost a platform or became unknown.
    pub(super) fn of(reason: Reason) -> &'static [Self] {
        match reason {
            Reason::PlatformMissing
            | Reason::FailedThere
            | Reason::OwnerRecreates
            | Reason::NoCommonPlatform => &[Self::Unsupported],
            Reason::Retracted => &[Self::Unsupported, Self::Unknown],
            Reason::Unknown(_) => &[Self::Unknown],
            _ => &[],
        }
    }
}

pub(super) fn colour(reason: Reason) -> Colour {
    match (reason, FailOn::of(reason)) {
        (Reason::Tolerated | Reason::Placed | Reason::AlreadyTolerated | Reason::Observed, _) => {
            Colour::Green
        }
        (_, [FailOn::Unsupported, ..]) => Colour::Red,
        (_, [FailOn::Unknown, ..]) => Colour::Yellow,
        _ => Colour::Faint,
    }
}
