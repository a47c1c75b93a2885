//! What the commands that decide on Pods have in common: how they begin, how they decide, and which decisions a pipeline may
//! fail on.

use std::process::ExitCode;

use clap::ValueEnum;

use super::output::Progress;
use super::{Shared, fail};
use crate::decide::{self, BatchLimits, Decision, Snapshot, Wait, shortened};
use crate::patch;
use crate::pod::Pod;
use crate::reason::Reason;
use crate::registry::Traces;
use crate::serve;

/// What decides, and what goes on meanwhile.
pub(super) struct Asking {
    pub(super) snapshot: Snapshot,
    pub(super) limits: BatchLimits,
    pub(super) progress: Progress,
}

/// A decision that outlives its Pod.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) reason: Reason,
    /// What is done: `tolerated`, `retracted` or `unchanged`.
    pub(super) done: &'static str,
    /// The image that decided, shortened.
    pub(super) image: Option<String>,
    /// The pools that are open to the Pod through tolerarch.
    pub(super) pools: Vec<String>,
    /// The JSON patch, where one is wanted and something changes.
    pub(super) patch: Option<String>,
}

impl Asking {
    /// Decides as the webhook would, but waits for every image. The patch is written where `root` says where in its object
    /// the Pod stands.
    pub(super) async fn decide(&self, namespace: &str, pod: &Pod<'_>, root: Option<&str>) -> Decided {
        let decided = async {
            let decision = self.snapshot.decide(namespace, pod, Wait::ForAll(&self.limits)).await;
            let patch = root.map(|root| patch::build(root, pod, &decision.edits));
            let patch = patch.filter(|patch| !patch.is_empty());
            Decided { patch, ..Decided::of(&decision) }
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
            pools: decision.opened.iter().map(|pool| pool.name.clone()).collect(),
            patch: None,
        }
    }
}

/// Does work with what `serve` would decide by with this configuration; the status, where it has been told why there is
/// none. `traces` gets what registries are asked.
pub(super) fn ask<T>(
    shared: &Shared,
    traces: Option<Traces>,
    work: impl AsyncFnOnce(Asking) -> T,
) -> Result<T, ExitCode> {
    let config = shared.load().map_err(|error| fail(&error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| fail(&error))?;
    let progress = Progress::start(shared.log_level, shared.log_format);
    let limits = BatchLimits::new(&config.lookup);
    // Not a part of the work, which may be at something that does not let others in between.
    drop(runtime.spawn(interrupted(progress.clone())));
    let done = runtime.block_on(async {
        let snapshot = serve::snapshot(&config, traces).map_err(|error| fail(&error))?;
        Ok(work(Asking { snapshot, limits, progress }).await)
    });
    // Lookups that nobody waits for any more.
    runtime.shutdown_background();
    done
}

/// Ends the process by the interrupt, as if nobody had waited for it, but takes the line of the progress away before.
async fn interrupted(progress: Progress) {
    if tokio::signal::ctrl_c().await.is_ok() {
        progress.show("");
        // Does not come back.
        let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGINT);
    }
}

/// What of the decisions a pipeline may stumble over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FailOn {
    Unsupported,
    Unknown,
}

impl FailOn {
    /// What this reason is an example of. A Pod whose toleration was taken back is one of both: the reason does not tell
    /// whether an image has lost a platform or can no longer be asked for.
    pub(super) fn of(reason: Reason) -> &'static [Self] {
        match reason {
            Reason::PlatformMissing => &[Self::Unsupported],
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
            | Reason::AlreadyTolerated
            | Reason::Observed
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
