//! What the commands that ask the webhook have in common: how they begin, the review they ask with, and what of the
//! answers a pipeline may stumble over.

use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::{Value, json};

use super::output::Progress;
use super::{Shared, fail};
use crate::admission::{BatchLimits, Webhook};
use crate::reason::Reason;
use crate::registry::Traces;
use crate::serve;

/// Who is asked, and what goes on meanwhile.
pub(super) struct Asking {
    pub(super) webhook: Webhook,
    pub(super) limits: BatchLimits,
    pub(super) progress: Progress,
}

/// Asks the webhook that `serve` would be with this configuration; the status, where it has been told why there is none.
/// `traces` gets what registries are asked.
pub(super) fn ask<T>(
    shared: &Shared,
    traces: Option<Traces>,
    work: impl AsyncFnOnce(Asking) -> T,
) -> Result<T, ExitCode> {
    let config = shared.sources([]).load().map_err(|error| fail(&error))?.config;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| fail(&error))?;
    let progress = Progress::start(shared.log_level, shared.log_format);
    let limits = BatchLimits::new(&config.lookup);
    // Not a part of the work, which may be at something that does not let others in between.
    drop(runtime.spawn(interrupted(progress.clone())));
    let done = runtime.block_on(async {
        let webhook = serve::webhook(&config, traces).map_err(|error| fail(&error))?;
        Ok(work(Asking { webhook, limits, progress }).await)
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

/// The review that the API server sends when a Pod is created.
pub(super) fn review_of(pod: &Value, namespace: &str) -> Vec<u8> {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "00000000-0000-0000-0000-000000000000",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "namespace": namespace,
            "object": pod,
        },
    })
    .to_string()
    .into_bytes()
}
