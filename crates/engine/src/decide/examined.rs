//! View of a decision: the facts about each image of a Pod, and about each pool.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use tolerarch_core::decision::Decision;
use tolerarch_core::image::{Failure, PlatformSet};
use tolerarch_core::placement::{contradicted, is_tolerated};
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::{Blocker, Cause, ImageSupport, Policy, Pool, Verdicts};
use tolerarch_core::reason::Reason;
use tolerarch_text::escape::shortened;

/// A decision with the facts behind it, as the commands print it as JSON. Users parse it: add members, never rename one.
#[derive(Serialize)]
pub struct Examined {
    pub decision: &'static str,
    pub reason: Reason,
    pub warnings: Vec<String>,
    pub pools: Vec<PoolState>,
    /// Images in the order of the Pod, each once.
    pub images: Vec<ImageState>,
    /// Reason why the Pod is not decided on; `None` if it is.
    #[serde(skip)]
    pub skipped: Option<Reason>,
    /// Images that keep the Pod ineligible for every pool.
    #[serde(skip)]
    pub blockers: Vec<BlockingImage>,
}

/// An image that keeps a Pod ineligible, as commands print it.
#[derive(Clone)]
pub struct BlockingImage {
    /// Image as the Pod names it, shortened.
    pub image: String,
    pub cause: Cause,
}

impl BlockingImage {
    pub fn of(blocker: &Blocker<'_>) -> Self {
        Self {
            image: shortened(blocker.image).to_owned(),
            cause: blocker.cause,
        }
    }

    pub fn reason(&self) -> Reason {
        self.cause.into()
    }

    /// Returns the platforms of pools that the image lacks; none if the image's platforms are unknown.
    pub fn lacks(&self) -> PlatformSet {
        self.cause.lacks().unwrap_or_default()
    }
}

impl Serialize for BlockingImage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_struct("BlockingImage", 3)?;
        members.serialize_field("image", &self.image)?;
        members.serialize_field("reason", &self.reason())?;
        members.serialize_field("lacks", &self.lacks())?;
        members.end()
    }
}

#[derive(Serialize)]
pub struct PoolState {
    pub name: String,
    pub platforms: PlatformSet,
    /// Set if every image runs on the pool, the pool is open to the workload, and the Pod's own node labels allow it.
    #[serde(rename = "open")]
    pub is_open: bool,
    #[serde(rename = "tolerated")]
    pub is_tolerated: bool,
    /// Platforms of the pool that some image lacks; `None` if an image is unknown, or without images.
    pub lacks: Option<PlatformSet>,
}

#[derive(Default, Serialize)]
pub struct ImageState {
    /// Image as the Pod names it, shortened.
    pub image: String,
    /// Platforms of nodes on which the image runs, except for those where the image has failed.
    pub platforms: Option<PlatformSet>,
    /// Recorded failure on platforms of pools.
    pub failed: Option<Failure>,
    /// Platforms of any pool that the image lacks.
    pub lacks: PlatformSet,
    #[serde(rename = "reason")]
    pub unknown: Option<Reason>,
    /// Reasons why the Pod's pull secrets gave no credential for the image, if its registry refused it.
    #[serde(skip)]
    pub unused_secrets: Vec<String>,
    /// Message of a failed lookup; set by commands that record its requests.
    #[serde(rename = "error")]
    pub cause: Option<String>,
}

impl Examined {
    /// Returns the result for a skipped Pod.
    pub fn skipped(reason: Reason) -> Self {
        Self {
            decision: "unchanged",
            reason,
            warnings: Vec::new(),
            pools: Vec::new(),
            images: Vec::new(),
            skipped: Some(reason),
            blockers: Vec::new(),
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
        let mut pools = Vec::with_capacity(policy.pools.len());
        let contradicted = contradicted(pod, &policy.pools);
        for pool in &policy.pools {
            let mut state = PoolState::of(pool, pod, &verdicts);
            state.is_open &= !contradicted.contains(&pool);
            pools.push(state);
        }
        let wanted = policy.pool_platforms();
        let mut states: Vec<ImageState> = Vec::new();
        for image in images {
            let name = shortened(image.given);
            if !states.iter().any(|state| state.image == name) {
                states.push(ImageState::of(image, wanted));
            }
        }
        // A report keeps the states of all different Pods.
        states.shrink_to_fit();
        let blocking = verdicts.blockers();
        let mut blockers = Vec::with_capacity(blocking.len());
        for blocker in &blocking {
            blockers.push(BlockingImage::of(blocker));
        }
        let mut skipped = pod.skipped();
        if skipped.is_none() && !pod.has_containers() {
            skipped = Some(Reason::Malformed);
        }
        Self {
            decision: decision.outcome(),
            reason: decision.reason,
            warnings: decision.warnings,
            pools,
            images: states,
            skipped,
            blockers,
        }
    }

    pub fn open_pools(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for pool in &self.pools {
            if pool.is_open {
                names.push(pool.name.as_str());
            }
        }
        names
    }
}

impl PoolState {
    fn of(pool: &Pool, pod: &Pod<'_>, verdicts: &Verdicts<'_, '_>) -> Self {
        let mut lacks = None;
        if let Some(shared) = verdicts.shared() {
            lacks = Some(pool.platforms.difference(shared));
        }
        Self {
            name: pool.name.clone(),
            platforms: pool.platforms,
            is_open: verdicts.is_open(pool),
            is_tolerated: is_tolerated(pod, pool),
            lacks,
        }
    }
}

impl ImageState {
    /// Returns the state of an image; `wanted` has the platforms of all pools.
    fn of(image: &ImageSupport<'_>, wanted: PlatformSet) -> Self {
        let mut state = Self {
            image: shortened(image.given).to_owned(),
            ..Self::default()
        };
        match image.nodes() {
            Ok(nodes) => {
                state.platforms = Some(nodes);
                state.lacks = wanted.difference(nodes);
            }
            Err(error) => state.unknown = Some(Reason::Unknown(error)),
        }
        if let Some(failure) = image.failure
            && failure.platforms.intersects(wanted)
        {
            state.failed = Some(Failure {
                platforms: failure.platforms.intersection(wanted),
                ..failure
            });
        }
        state
    }
}
