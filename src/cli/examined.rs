//! View of a decision: the facts about each image of a Pod, and about each pool.

use serde::Serialize;

use super::session::Session;
use tolerarch_core::image::{Failure, PlatformSet};
use tolerarch_core::placement::is_tolerated;
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::{Policy, Pool};
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_engine::decide;
use tolerarch_text::escape::shortened;

/// Decision with the facts behind it, in the form of `-o json`. Members are added, never renamed.
#[derive(Serialize)]
pub(super) struct Examined {
    pub(super) decision: &'static str,
    pub(super) reason: Reason,
    pub(super) warnings: Vec<String>,
    /// True if access failed for a Pod that names pull secrets, which are not read.
    #[serde(skip)]
    pub(super) lacks_pull_secrets: bool,
    pub(super) pools: Vec<PoolState>,
    /// Images in the order of the Pod, each once.
    pub(super) images: Vec<ImageState>,
}

#[derive(Serialize)]
pub(super) struct PoolState {
    pub(super) name: String,
    pub(super) platforms: PlatformSet,
    /// True if every image runs there, and the pool is open to the workload.
    #[serde(rename = "open")]
    pub(super) is_open: bool,
    #[serde(rename = "tolerated")]
    pub(super) is_tolerated: bool,
    /// Platforms of the pool that some image lacks; `None` if an image is unknown.
    pub(super) lacks: Option<PlatformSet>,
}

#[derive(Default, Serialize)]
pub(super) struct ImageState {
    pub(super) image: String,
    /// Platforms of nodes on which the image runs, without those where the image has failed.
    pub(super) platforms: Option<PlatformSet>,
    /// Recorded failure on platforms of pools, whatever the manifest says.
    pub(super) failed: Option<Failure>,
    /// Platforms of any pool that the image lacks.
    pub(super) lacks: PlatformSet,
    #[serde(rename = "reason")]
    pub(super) unknown: Option<Reason>,
    #[serde(rename = "error")]
    pub(super) cause: Option<String>,
}

impl Examined {
    pub(super) fn unchanged(reason: Reason) -> Self {
        let (warnings, pools, images) = Default::default();
        Self { decision: "unchanged", reason, warnings, lacks_pull_secrets: false, pools, images }
    }

    pub(super) fn open_pools(&self) -> Vec<&str> {
        self.pools.iter().filter(|pool| pool.is_open).map(|pool| pool.name.as_str()).collect()
    }
}

impl Session {
    /// Decides as the webhook would, and looks up every image. An internal error affects this decision only.
    pub(super) async fn examine(&self, policy: &Policy, namespace: &str, pod: &Pod<'_>) -> Examined {
        let examined = decide::caught(self.examined(policy, namespace, pod)).await;
        examined.unwrap_or_else(|| Examined::unchanged(Reason::Unknown(LookupError::Internal)))
    }

    async fn examined(&self, policy: &Policy, namespace: &str, pod: &Pod<'_>) -> Examined {
        let (decision, known) = self.snapshot.examine(policy, namespace, pod, &self.limits).await;
        let verdicts = policy.verdicts(policy.rank(namespace, pod), &known);
        let state = |pool: &Pool| PoolState {
            name: pool.name.clone(),
            platforms: pool.platforms,
            is_open: verdicts.is_open(pool),
            is_tolerated: is_tolerated(pod, pool),
            lacks: verdicts.shared().map(|shared| pool.platforms.difference(shared)),
        };
        let wanted = policy.pools.iter().fold(PlatformSet::EMPTY, |all, pool| all.union(pool.platforms));
        let mut images: Vec<ImageState> = Vec::new();
        for known in &known {
            let image = shortened(known.given).to_owned();
            if images.iter().any(|known| known.image == image) {
                continue;
            }
            let (platforms, unknown) = (known.nodes().ok(), known.nodes().err().map(Reason::Unknown));
            let cause = unknown.and_then(|_| self.cause(&known.given.parse().ok()?));
            let lacks = platforms.map_or(PlatformSet::EMPTY, |nodes| wanted.difference(nodes));
            let failed = known
                .failure
                .map(|failure| Failure { platforms: failure.platforms.intersection(wanted), ..failure });
            let failed = failed.filter(|failure| !failure.platforms.is_empty());
            images.push(ImageState { image, platforms, failed, lacks, unknown, cause });
        }
        Examined {
            decision: decision.done(),
            reason: decision.reason,
            warnings: decision.warnings,
            lacks_pull_secrets: self.lacks_pull_secrets(decision.reason, pod),
            pools: policy.pools.iter().map(state).collect(),
            images,
        }
    }
}
