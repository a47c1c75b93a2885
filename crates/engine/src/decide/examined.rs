//! View of a decision: the facts about each image of a Pod, and about each pool.

use serde::Serialize;

use tolerarch_core::decision::Decision;
use tolerarch_core::image::{Failure, PlatformSet};
use tolerarch_core::placement::is_tolerated;
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::{Cause, ImageSupport, Policy, Pool};
use tolerarch_core::reason::Reason;
use tolerarch_text::escape::shortened;

/// Decision with the facts behind it, in the form of the commands' JSON. Members are added, never renamed.
#[derive(Serialize)]
pub struct Examined {
    pub decision: &'static str,
    pub reason: Reason,
    pub warnings: Vec<String>,
    pub pools: Vec<PoolState>,
    /// Images in the order of the Pod, each once.
    pub images: Vec<ImageState>,
    /// Reason why the Pod is not decided on, if it is not.
    #[serde(skip)]
    pub skipped: Option<Reason>,
    /// Images that keep the Pod from every pool, shortened.
    #[serde(skip)]
    pub blockers: Vec<(String, Cause)>,
}

#[derive(Serialize)]
pub struct PoolState {
    pub name: String,
    pub platforms: PlatformSet,
    /// True if every image runs there, and the pool is open to the workload.
    #[serde(rename = "open")]
    pub is_open: bool,
    #[serde(rename = "tolerated")]
    pub is_tolerated: bool,
    /// Platforms of the pool that some image lacks; `None` if an image is unknown.
    pub lacks: Option<PlatformSet>,
}

#[derive(Default, Serialize)]
pub struct ImageState {
    /// Image as the Pod names it, shortened.
    pub image: String,
    /// Platforms of nodes on which the image runs, without those where the image has failed.
    pub platforms: Option<PlatformSet>,
    /// Recorded failure on platforms of pools, whatever the manifest says.
    pub failed: Option<Failure>,
    /// Platforms of any pool that the image lacks.
    pub lacks: PlatformSet,
    #[serde(rename = "reason")]
    pub unknown: Option<Reason>,
    /// Why pull secrets of the Pod give no credential for the image, where its registry refuses it.
    #[serde(skip)]
    pub unused_secrets: Vec<String>,
    /// Message of a failed lookup; set by commands that record its requests.
    #[serde(rename = "error")]
    pub cause: Option<String>,
}

impl Examined {
    /// Returns that a Pod is not decided on, for this reason.
    pub fn skipped(reason: Reason) -> Self {
        let (warnings, pools, images, blockers) = Default::default();
        Self {
            decision: "unchanged",
            reason,
            warnings,
            pools,
            images,
            skipped: Some(reason),
            blockers,
        }
    }

    pub(crate) fn of(
        policy: &Policy,
        namespace: &str,
        pod: &Pod<'_>,
        decision: Decision<'_>,
        images: &[ImageSupport<'_>],
    ) -> Self {
        let verdicts = policy.verdicts(policy.rank(namespace, pod), images);
        let state = |pool: &Pool| PoolState {
            name: pool.name.clone(),
            platforms: pool.platforms,
            is_open: verdicts.is_open(pool),
            is_tolerated: is_tolerated(pod, pool),
            lacks: verdicts
                .shared()
                .map(|shared| pool.platforms.difference(shared)),
        };
        let wanted: PlatformSet = policy.pools.iter().map(|pool| pool.platforms).collect();
        let mut states: Vec<ImageState> = Vec::new();
        for known in images {
            let image = shortened(known.given).to_owned();
            if states.iter().any(|known| known.image == image) {
                continue;
            }
            let (platforms, unknown) =
                (known.nodes().ok(), known.nodes().err().map(Reason::Unknown));
            let lacks = platforms.map_or(PlatformSet::EMPTY, |nodes| wanted.difference(nodes));
            let failed = known.failure.map(|failure| Failure {
                platforms: failure.platforms.intersection(wanted),
                ..failure
            });
            let failed = failed.filter(|failure| !failure.platforms.is_empty());
            let unused_secrets = Vec::new();
            states.push(ImageState {
                image,
                platforms,
                failed,
                lacks,
                unknown,
                unused_secrets,
                cause: None,
            });
        }
        // A report keeps the states of all different Pods.
        states.shrink_to_fit();
        let blockers = verdicts.blockers().into_iter();
        Self {
            decision: decision.done(),
            reason: decision.reason,
            warnings: decision.warnings,
            pools: policy.pools.iter().map(state).collect(),
            images: states,
            skipped: pod
                .skipped()
                .or((!pod.has_containers()).then_some(Reason::Malformed)),
            blockers: blockers
                .map(|own| (shortened(own.image).to_owned(), own.cause))
                .collect(),
        }
    }

    pub fn open_pools(&self) -> Vec<&str> {
        self.pools
            .iter()
            .filter(|pool| pool.is_open)
            .map(|pool| pool.name.as_str())
            .collect()
    }
}
