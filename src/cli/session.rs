//! What the commands that decide on Pods have in common: how they begin, how they decide, and which decisions a pipeline may
//! fail on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use ipnet::IpNet;
use tokio::sync::Notify;

use super::inventory::Shown;
use super::output::{Progress, shown, tell};
use super::{Shared, fail};
use crate::config::{Config, Discover};
use crate::serve;
use tolerarch_core::decision::Decision;
use tolerarch_core::image::{ImageRef, PlatformSet, canonical_host};
use tolerarch_core::patch;
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::{Blocker, Cause};
use tolerarch_core::reason::Reason;
use tolerarch_core::review::DaemonSet;
use tolerarch_engine::decide::{self, BatchLimits, Snapshot, Wait};
use tolerarch_images::registry::trace::{Trace, TracedRequest};
use tolerarch_images::registry::{HostSettings, Traces};
use tolerarch_text::escape::shortened;

/// A note where a cluster is asked and no configuration is named.
const NO_FILE: &str = "no configuration file is named: if the cluster has one, name it with --config";

/// What decides, and what goes on meanwhile.
pub(super) struct Session {
    pub(super) snapshot: Snapshot,
    pub(super) limits: BatchLimits,
    pub(super) progress: Progress,
    /// What registries were asked.
    pub(super) traces: Traces,
    /// What the user should know of what the cluster shows, and of what it does not.
    pub(super) notes: Vec<String>,
    /// Whether pull secrets are read.
    pull_secrets: bool,
    pub(super) interrupts: Arc<Interrupts>,
}

/// A decision that outlives its Pod.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) reason: Reason,
    /// What is done: `tolerated`, `placed`, `retracted` or `unchanged`.
    pub(super) done: &'static str,
    /// The image that decided, shortened.
    pub(super) image: Option<String>,
    /// Every image that keeps the Pod closed.
    pub(super) blockers: Vec<BlockingImage>,
    /// The pools that are open to the Pod through tolerarch.
    pub(super) pools: Vec<String>,
    /// What the creator of the Pod would be told.
    pub(super) warnings: Vec<String>,
    /// The JSON patch, where one is wanted and something changes.
    pub(super) patch: Option<String>,
    /// Why the platforms of that image are unknown, as the registry was asked.
    pub(super) cause: Option<String>,
    /// Whether access failed for a Pod that names pull secrets, which are not read.
    pub(super) lacks_pull_secrets: bool,
}

/// An image that keeps a Pod closed.
#[derive(Clone, Debug)]
pub(super) struct BlockingImage {
    /// As the Pod names it, shortened.
    pub(super) image: String,
    pub(super) reason: Reason,
    /// The platforms of pools that it lacks; none where its platforms are unknown.
    pub(super) lacks: PlatformSet,
}

impl From<Blocker<'_>> for BlockingImage {
    fn from(blocker: Blocker<'_>) -> Self {
        let lacks = if let Cause::Lacks(platforms) = blocker.cause { platforms } else { PlatformSet::EMPTY };
        Self { image: shortened(blocker.image).to_owned(), reason: blocker.into(), lacks }
    }
}

impl Session {
    /// The same, deciding by a profile throughout.
    fn under(mut self, profile: Option<&str>) -> Result<Self, ExitCode> {
        let Some(name) = profile else { return Ok(self) };
        let Snapshot { policy, profiles, .. } = &mut self.snapshot;
        let Some(found) = profiles.remove(name) else {
            let known: Vec<&str> = profiles.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let message = format!("--profile {name:?}: `profiles` of the configuration has {known}");
            tell(&format!("tolerarch: {}", shown(&message)));
            return Err(ExitCode::from(2));
        };
        *policy = found;
        Ok(self)
    }

    /// Decides as the webhook would, but waits for every image. The patch is written where `root` says where in its object
    /// the Pod stands.
    pub(super) async fn decide(&self, namespace: &str, pod: &Pod<'_>, root: Option<&str>) -> Decided {
        let Self { snapshot, limits, .. } = self;
        let decision = snapshot.decide(&snapshot.policy, namespace, pod, Wait::ForAll(limits));
        self.decided(decision, pod, root).await
    }

    /// The same for a DaemonSet.
    pub(super) async fn decide_daemon_set(
        &self,
        namespace: &str,
        set: &DaemonSet<'_>,
        root: Option<&str>,
    ) -> Decided {
        let Self { snapshot, limits, .. } = self;
        let decision = snapshot.decide_daemon_set(&snapshot.policy, namespace, set, Wait::ForAll(limits));
        self.decided(decision, &set.template.pod, root).await
    }

    async fn decided<'a>(
        &self,
        decision: impl Future<Output = Decision<'a>>,
        pod: &Pod<'_>,
        root: Option<&str>,
    ) -> Decided {
        let decided = async {
            let decision = decision.await;
            let patch = root.map(|root| patch::build(root, pod, &decision.edits));
            let patch = patch.filter(|patch| !patch.is_empty());
            let unknown = FailOn::of(decision.reason).contains(&FailOn::Unknown);
            let image = decision.image.filter(|_| unknown).and_then(|image| image.parse().ok());
            let cause = image.and_then(|image| cause(&self.traces.of(&image)));
            let refused = matches!(decision.reason, Reason::Denied | Reason::NotFound);
            let lacks_pull_secrets = refused && !self.pull_secrets && pod.pull_secrets().next().is_some();
            Decided { patch, cause, lacks_pull_secrets, ..Decided::of(&decision) }
        };
        decide::caught(decided).await.unwrap_or_else(|| Decided::unchanged(Reason::Internal))
    }
}

impl Decided {
    pub(super) fn unchanged(reason: Reason) -> Self {
        Self::of(&Decision::unchanged(reason))
    }

    fn of(decision: &Decision<'_>) -> Self {
        Self {
            reason: decision.reason,
            done: decision.done(),
            image: decision.image.map(|image| shortened(image).to_owned()),
            blockers: decision.blockers.iter().copied().map(BlockingImage::from).collect(),
            pools: decision.opened.iter().map(|pool| pool.name.clone()).collect(),
            warnings: decision.warnings.clone(),
            patch: None,
            cause: None,
            lacks_pull_secrets: false,
        }
    }
}

/// Why a lookup failed, with the last answer that says so: a mirror's is not the registry's own.
pub(super) fn cause(trace: &Trace) -> Option<String> {
    let error = trace.error.as_ref()?;
    let failed = |request: &&TracedRequest| !matches!(request.outcome, None | Some(Ok(..400)));
    let Some(request) = trace.requests.iter().rev().find(failed) else { return Some(error.clone()) };
    let TracedRequest { method, kind, credential, .. } = request;
    let answer = match request.outcome {
        Some(Ok(status)) => format!("answered {status} to"),
        _ => "gave no answer to".to_owned(),
    };
    let with = credential.filter(|source| !source.is_empty()).unwrap_or("no credential");
    let host = request.url.origin().ascii_serialization();
    Some(format!("{error} ({host} {answer} {method} {}, with {with})", kind.as_str()))
}

/// Does work with what `serve` would decide by with this configuration and for this profile, about these images; the exit
/// status, where that is impossible and the user has been told why.
pub(super) fn ask<T>(
    shared: &Shared,
    profile: Option<&str>,
    images: &[ImageRef],
    work: impl AsyncFnOnce(Session) -> T,
) -> Result<T, ExitCode> {
    let read = async |_: &Progress, discover: Discover| {
        if discover.is_on() {
            tell(
                "tolerarch: note: this command asks no cluster: pools are those of the configuration, whatever `discover` finds",
            );
        }
        Ok(Read { images: images.to_vec(), shown: None, rest: () })
    };
    ask_about(shared, read, async |session, ()| Ok(work(session.under(profile)?).await))?
}

/// What was read before anything is looked up.
pub(super) struct Read<R> {
    /// The images, as far as registries on this machine may have them.
    pub(super) images: Vec<ImageRef>,
    /// What the cluster shows of pools, where that is asked.
    pub(super) shown: Option<Shown>,
    pub(super) rest: R,
}

/// The same about what has to be read first.
pub(super) fn ask_about<R, T>(
    shared: &Shared,
    read: impl AsyncFnOnce(&Progress, Discover) -> Result<Read<R>, ExitCode>,
    work: impl AsyncFnOnce(Session, R) -> T,
) -> Result<T, ExitCode> {
    let mut config = shared.load().map_err(|error| fail(&error))?;
    let traces = Traces::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| fail(&error))?;
    let pull_secrets = config.credentials.pull_secrets;
    let progress = Progress::start(shared.log_level, shared.log_format);
    let limits = BatchLimits::new(&config.lookup);
    let interrupts = Arc::new(Interrupts::default());
    // Not a part of the work, which may be at something that does not let others in between.
    drop(runtime.spawn(interrupted(progress.clone(), Arc::clone(&interrupts))));
    let done = runtime.block_on(async {
        let Read { images, shown, rest } = read(&progress, config.discover).await?;
        admit_loopback(&mut config, &images);
        let (discovered, notes) = shown.map(|shown| shown.noted(&config.policy.pools)).unzip();
        let snapshot =
            serve::snapshot(&config, &shared.environment, Some(traces.clone()), discovered.as_ref())
                .map_err(|error| fail(&error))?;
        let mut notes = notes.unwrap_or_default();
        if shared.config.is_none() {
            notes.push(NO_FILE.to_owned());
        }
        let session = Session { snapshot, limits, progress, traces, notes, pull_secrets, interrupts };
        Ok(work(session, rest).await)
    });
    // Lookups may still run; their results are no longer needed.
    runtime.shutdown_background();
    done
}

/// Lets a person ask the registries on their own machine, which a webhook must not be led to: without TLS, as containerd
/// does, unless the configuration says something about the host.
fn admit_loopback(config: &mut Config, images: &[ImageRef]) {
    for image in images {
        let name = match image.host().rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => name,
            _ => image.host(),
        };
        let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
        if name != "localhost" && !address.as_ref().is_ok_and(|address| address.is_loopback()) {
            continue;
        }
        config.network.allow.extend([
            IpNet::from(IpAddr::from(Ipv4Addr::LOCALHOST)),
            IpAddr::from(Ipv6Addr::LOCALHOST).into(),
        ]);
        config.network.allow.extend(address.map(IpNet::from));
        let plain = HostSettings { plain_http: true, ..HostSettings::default() };
        config.registries.hosts.entry(canonical_host(image.host())).or_insert(plain);
    }
}

/// What Ctrl-C means to the work at hand.
#[derive(Default)]
pub(super) struct Interrupts {
    /// Whether the work ends by itself.
    is_expected: AtomicBool,
    came: Notify,
}

impl Interrupts {
    /// Comes back when the user interrupts, for work that has something to show by then. A second time ends the process.
    pub(super) async fn next(&self) {
        self.is_expected.store(true, Ordering::SeqCst);
        self.came.notified().await;
    }

    /// From here on an interrupt ends the process.
    pub(super) fn end(&self) {
        self.is_expected.store(false, Ordering::SeqCst);
    }
}

/// Clears the progress line, then ends the process by the signal itself, as without a handler.
async fn interrupted(progress: Progress, interrupts: Arc<Interrupts>) {
    while tokio::signal::ctrl_c().await.is_ok() {
        if interrupts.is_expected.swap(false, Ordering::SeqCst) {
            interrupts.came.notify_one();
            continue;
        }
        progress.show("");
        end_by_interrupt();
    }
}

/// Ends the process by the signal, as shells look at that.
pub(super) fn end_by_interrupt() {
    // Does not come back.
    let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGINT);
}

/// What of the decisions a pipeline may stumble over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FailOn {
    Unsupported,
    Unknown,
    NotLookedAt,
}

impl FailOn {
    /// What this reason is an example of. A Pod whose toleration was taken back is one of both: the reason does not tell
    /// whether an image has lost a platform or can no longer be asked for.
    pub(super) fn of(reason: Reason) -> &'static [Self] {
        match reason {
            Reason::PlatformMissing | Reason::NoCommonPlatform => &[Self::Unsupported],
            Reason::Retracted => &[Self::Unsupported, Self::Unknown],
            Reason::ImageInvalid
            | Reason::PullNever
            | Reason::NotFound
            | Reason::Denied
            | Reason::Throttled
            | Reason::Timeout
            | Reason::BudgetExceeded
            | Reason::Unreachable
            | Reason::BadManifest
            | Reason::RegistryNotAllowed
            | Reason::AddressNotAllowed
            | Reason::CircuitOpen
            | Reason::Overloaded
            | Reason::TooManyImages
            | Reason::Internal => &[Self::Unknown],
            Reason::Tolerated
            | Reason::Placed
            | Reason::AlreadyTolerated
            | Reason::Observed
            | Reason::NotInShare
            | Reason::ProfileUnknown
            | Reason::OptedOut
            | Reason::MirrorPod
            | Reason::NodeAssigned
            | Reason::DaemonSet
            | Reason::Windows
            | Reason::NotApplicable
            | Reason::NoRoom
            | Reason::Malformed => &[],
        }
    }
}
