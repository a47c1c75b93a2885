//! From the platforms of a Pod's images to a verdict for each pool. Pure, and without state between reviews. An unknown
//! platform never fails a Pod: the Pod only gets no tolerations.

mod rules;
mod share;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

pub use rules::{PlacementRules, Preference, Require};
pub use share::Rank;

use crate::image::{Failure, LookupError, NamePattern, PlatformSet, Support};
use crate::pod::{Pod, PodMode, Purpose, Toleration, Usage};
use crate::reason::Reason;

/// Name in metrics for all profiles that do not exist. No profile may have this name.
pub const UNKNOWN_PROFILE: &str = "unknown";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Mode of Pods without a mode of their own.
    pub mode: Mode,
    /// The pools, in the order of the configuration; a profile may have none.
    pub pools: Vec<Pool>,
    pub placement: PlacementRules,
    /// Platforms of images for which no registry is contacted; the first match counts.
    pub overrides: Vec<Override>,
    /// Set if a Pod that stays ineligible gets an annotation that says why.
    pub explain: bool,
    /// Set if templates of DaemonSets are decided on like Pods.
    pub daemon_sets: bool,
    /// Set if PodTemplates are decided on like Pods.
    pub pod_templates: bool,
}

/// Platforms that the operator configures for some images. No registry is contacted for these images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Override {
    pub images: NamePattern,
    pub platforms: PlatformSet,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Enforce,
    /// Decisions are counted and logged, but change nothing.
    Observe,
}

/// A group of nodes with taints, and the tolerations for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The pool's name, as annotations of Pods name it.
    pub name: String,
    /// The platforms that the pool's nodes can have. An eligible image runs on all of them.
    pub platforms: PlatformSet,
    pub tolerations: Vec<Toleration<'static>>,
    /// Share of the eligible workloads to which the pool is open, in percent.
    pub share: u8,
    /// Preference for the pool's nodes, added with the pool's tolerations.
    pub prefer: Option<PoolPreference>,
    /// Labels of the pool's nodes, added to the node selector with the pool's tolerations; empty if tolerations suffice.
    pub select: BTreeMap<String, String>,
}

impl Pool {
    /// The share that has all workloads.
    pub const ALL: u8 = 100;
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            pools: vec![Pool::default()],
            placement: PlacementRules::default(),
            overrides: Vec::new(),
            explain: false,
            daemon_sets: false,
            pod_templates: false,
        }
    }
}

impl Default for Pool {
    fn default() -> Self {
        let exists = Toleration {
            key: "tolerarch.io/multi-arch".to_owned().into(),
            operator: "Exists".to_owned().into(),
            effect: "NoSchedule".to_owned().into(),
            ..Toleration::default()
        };
        Self {
            name: "multi-arch".into(),
            platforms: PlatformSet::AMD64_AND_ARM64,
            tolerations: vec![exists],
            share: Self::ALL,
            prefer: None,
            select: BTreeMap::new(),
        }
    }
}

/// Returns whether an annotation can name a pool by `name`.
pub fn is_pool_name(name: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    (1..=63).contains(&name.len()) && name.bytes().all(is_allowed)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolPreference {
    /// A number from 1 to 100.
    pub weight: u8,
    /// Labels of the pool's nodes; at least one.
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug)]
pub struct ImageSupport<'a> {
    /// The image as the Pod names it.
    pub given: &'a str,
    pub purpose: Purpose,
    pub support: Result<Support, LookupError>,
    pub failure: Option<Failure>,
}

impl<'a> ImageSupport<'a> {
    /// Returns the nodes on which the Pod can use this image; an error if some nodes are unknown.
    pub fn nodes(&self) -> Result<PlatformSet, LookupError> {
        let usable = self.usable();
        match usable.error {
            Some(error) => Err(error),
            None => Ok(usable.nodes),
        }
    }

    fn usable(&self) -> Usable {
        let mut usable = match (self.support, self.purpose) {
            (Err(error), _) => Usable::unknown(error),
            (Ok(Support::Index(nodes)), _) | (Ok(Support::Single(nodes)), Purpose::Run) => {
                Usable::on(nodes)
            }
            (Ok(Support::Partial { runs, unknown, why }), _) => Usable {
                nodes: runs,
                unknown,
                error: Some(why),
            },
            (Ok(Support::Artifact), Purpose::Run) => Usable::unknown(LookupError::BadManifest),
            // As a volume, only an index is bound to architectures (KEP-4639).
            (Ok(Support::Single(_) | Support::Artifact), Purpose::Mount) => {
                Usable::on(PlatformSet::ALL)
            }
        };
        // A failure says nothing about other nodes: unknown nodes stay unknown.
        if let Some(failure) = self.failure
            && self.purpose == Purpose::Run
        {
            usable.nodes = usable.nodes.difference(failure.platforms);
        }
        usable
    }

    /// Returns the nodes on which the Pod may be able to use the image.
    fn possible_nodes(&self) -> PlatformSet {
        let usable = self.usable();
        usable.nodes.union(usable.unknown)
    }

    /// Returns the image as a blocker if its platforms are unknown.
    fn unknown(&self) -> Option<Blocker<'a>> {
        let cause = Cause::Unknown(self.usable().error?);
        Some(Blocker {
            image: self.given,
            cause,
        })
    }

    /// Returns the image as a blocker if it certainly lacks a platform of the pool.
    fn lacking(&self, pool: &Pool) -> Option<Blocker<'a>> {
        let blocker = self.blocker(pool.platforms)?;
        if !blocker.is_certain() {
            return None;
        }
        Some(blocker)
    }

    /// Returns the image as a blocker unless it runs on all of these platforms. If `platforms` is empty, only an unknown
    /// image is a blocker.
    fn blocker(&self, platforms: PlatformSet) -> Option<Blocker<'a>> {
        Some(Blocker {
            image: self.given,
            cause: self.cause(platforms)?,
        })
    }

    fn cause(&self, platforms: PlatformSet) -> Option<Cause> {
        let usable = self.usable();
        let possible = usable.nodes.union(usable.unknown);
        let lacks = platforms.difference(possible);
        if lacks.is_empty() {
            if platforms.is_empty() || usable.unknown.intersects(platforms) {
                return Some(Cause::Unknown(usable.error?));
            }
            return None;
        }
        if let Some(failure) = self.failure
            && failure.platforms.contains(lacks)
        {
            return Some(Cause::Failed(Failure {
                platforms: lacks,
                ..failure
            }));
        }
        Some(Cause::Lacks(lacks))
    }
}

/// The nodes on which a Pod can use an image.
struct Usable {
    nodes: PlatformSet,
    /// Nodes on which the Pod may be able to use the image.
    unknown: PlatformSet,
    /// Reason why nodes are unknown; `None` if none are.
    error: Option<LookupError>,
}

impl Usable {
    fn on(nodes: PlatformSet) -> Self {
        Self {
            nodes,
            unknown: PlatformSet::EMPTY,
            error: None,
        }
    }

    fn unknown(error: LookupError) -> Self {
        Self {
            nodes: PlatformSet::EMPTY,
            unknown: PlatformSet::ALL,
            error: Some(error),
        }
    }
}

/// Reason why an image is a blocker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The image does not run on these platforms of the pool.
    Lacks(PlatformSet),
    /// The image has failed on these platforms of the pool.
    Failed(Failure),
    Unknown(LookupError),
}

impl Cause {
    /// Returns the platforms of the pool on which the image does not run; `None` if that is unknown.
    pub fn lacks(self) -> Option<PlatformSet> {
        match self {
            Self::Lacks(platforms) | Self::Failed(Failure { platforms, .. }) => Some(platforms),
            Self::Unknown(_) => None,
        }
    }
}

/// Writes `lacks linux/arm64`, `failed on linux/arm64 at 2026-01-01T00:00:00Z`, or why the lookup failed.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lacks(platforms) => write!(f, "lacks {platforms}"),
            Self::Failed(Failure { platforms, since }) => {
                let since = humantime::format_rfc3339_seconds(*since);
                write!(f, "failed on {platforms} at {since}")
            }
            Self::Unknown(error) => Reason::Unknown(*error).fmt(f),
        }
    }
}

/// An image that keeps a Pod ineligible, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocker<'a> {
    pub image: &'a str,
    pub cause: Cause,
}

impl Blocker<'_> {
    /// Returns whether the image certainly does not run on some platform, rather than being unknown.
    fn is_certain(&self) -> bool {
        self.cause.lacks().is_some()
    }
}

/// The images of a Pod, judged for each pool of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Verdicts<'a, 'i> {
    pub(crate) policy: &'a Policy,
    rank: Rank,
    images: &'i [ImageSupport<'a>],
}

impl Policy {
    /// Judges `images`, one for each usage of an image in the Pod. Some may be missing if one image closes every pool.
    pub fn verdicts<'a, 'i>(
        &'a self,
        rank: Rank,
        images: &'i [ImageSupport<'a>],
    ) -> Verdicts<'a, 'i> {
        Verdicts {
            policy: self,
            rank,
            images,
        }
    }

    /// Returns the platforms that the operator has configured for an image, if there are any.
    pub fn override_for(&self, usage: &Usage<'_>) -> Option<PlatformSet> {
        if self.overrides.is_empty() {
            return None;
        }
        let image = match &usage.image {
            Ok(image) => Cow::Borrowed(image),
            // An override also covers an image that is never pulled: the operator may know its platforms.
            Err(_) => Cow::Owned(usage.given.parse().ok()?),
        };
        for configured in &self.overrides {
            if configured.images.covers(&image) {
                return Some(configured.platforms);
            }
        }
        None
    }

    pub fn mode_for(&self, pod: &Pod<'_>) -> Mode {
        match pod.mode() {
            PodMode::Enforce => Mode::Enforce,
            PodMode::Observe => Mode::Observe,
            PodMode::Unset | PodMode::Unknown(_) | PodMode::Off => self.mode,
        }
    }

    /// Returns whether this image alone closes every pool and prevents steering. If so, no other image is awaited.
    pub fn is_closed_by(&self, pod: &Pod<'_>, image: &ImageSupport<'_>) -> bool {
        for pool in &self.pools {
            if image.blocker(pool.platforms).is_none() {
                return false;
            }
        }
        let rules = &self.placement;
        match (image.nodes(), rules.require) {
            (Ok(_), Require::Off) => !rules.steer(pod),
            (Err(_), Require::Off) => true,
            (Ok(nodes), _) => rules.within(nodes).is_empty(),
            (Err(_), _) => rules.when_unknown.is_empty(),
        }
    }

    /// Returns the platforms of all pools.
    pub fn pool_platforms(&self) -> PlatformSet {
        let mut platforms = PlatformSet::EMPTY;
        for pool in &self.pools {
            platforms |= pool.platforms;
        }
        platforms
    }

    /// Returns the policy for a Pod that exists. Such a Pod can get no node selector, so the policy has no pools whose
    /// nodes are selected by labels.
    pub fn for_existing(&self) -> Cow<'_, Self> {
        if self.pools.iter().all(|pool| pool.select.is_empty()) {
            return Cow::Borrowed(self);
        }
        let mut policy = self.clone();
        policy.pools.retain(|pool| pool.select.is_empty());
        Cow::Owned(policy)
    }

    /// Returns the rank of a Pod's workload. The rank is computed only if a pool needs it.
    pub fn rank(&self, namespace: &str, pod: &Pod<'_>) -> Rank {
        let is_needed = self.pools.iter().any(|pool| pool.share != Pool::ALL);
        if !is_needed {
            return Rank::FIRST;
        }
        let (kind, name) = pod.workload();
        Rank::of(namespace, kind, name)
    }
}

impl<'a> Verdicts<'a, '_> {
    /// Returns whether the Pod is eligible for the pool, and the pool is open to the Pod's workload.
    pub fn is_open(&self, pool: &Pool) -> bool {
        self.is_eligible(pool) && self.rank.is_within(pool.share)
    }

    /// Returns the platforms on which every image runs; `None` if one is unknown, or without images.
    pub fn shared(&self) -> Option<PlatformSet> {
        if self.images.is_empty() || self.unknown().is_some() {
            return None;
        }
        Some(self.possible_nodes())
    }

    /// Returns the platforms on which every image may run. An unknown image may run on any platform.
    fn possible_nodes(&self) -> PlatformSet {
        let mut nodes = PlatformSet::ALL;
        for image in self.images {
            nodes = nodes.intersection(image.possible_nodes());
        }
        nodes
    }

    /// Returns the platforms on which the Pod may run if an image is unknown; `None` if none is.
    pub fn possible_if_unknown(&self) -> Option<PlatformSet> {
        self.unknown()?;
        Some(self.possible_nodes())
    }

    /// Returns the first image that is unknown.
    pub fn unknown(&self) -> Option<Blocker<'a>> {
        let mut images = self.images.iter();
        images.find_map(ImageSupport::unknown)
    }

    /// Returns the platforms of the cluster's nodes that the images allow, which may be none; `None` if they are unknown.
    /// If the known images allow none, unknown images do not matter.
    pub(crate) fn nodes(&self) -> Option<PlatformSet> {
        if self.images.is_empty() {
            return None;
        }
        let rules = &self.policy.placement;
        let possible = self.possible_nodes();
        let allowed = rules.within(possible);
        if allowed.is_empty() || self.unknown().is_none() {
            return Some(allowed);
        }
        let allowed = rules.within(possible.intersection(rules.when_unknown));
        if allowed.is_empty() {
            return None;
        }
        Some(allowed)
    }

    /// Returns the first image that lacks some of the cluster's platforms, or else the first unknown image.
    pub(crate) fn narrowing_image(&self) -> Option<Blocker<'a>> {
        let mut unknown = None;
        for image in self.images {
            let Some(blocker) = image.blocker(self.policy.placement.platforms) else {
                continue;
            };
            if blocker.is_certain() {
                return Some(blocker);
            }
            if unknown.is_none() {
                unknown = Some(blocker);
            }
        }
        unknown
    }

    /// Returns whether every image runs on every platform of the pool.
    fn is_eligible(&self, pool: &Pool) -> bool {
        for image in self.images {
            if image.blocker(pool.platforms).is_some() {
                return false;
            }
        }
        !self.images.is_empty()
    }

    /// Returns the first pool for which the Pod is eligible, but which is not open to the Pod's workload yet.
    pub(crate) fn held_back(&self) -> Option<&'a Pool> {
        let mut pools = self.policy.pools.iter();
        pools.find(|pool| self.is_eligible(pool) && !self.rank.is_within(pool.share))
    }

    /// Returns the decisive blocker; `None` if no image keeps the Pod ineligible for a pool. If known images close every
    /// pool, unknown images do not matter, so that the result does not depend on the order of the awaited images.
    pub fn decisive(&self) -> Option<Blocker<'a>> {
        let pools = &self.policy.pools;
        let first = pools.first()?;
        for image in self.images {
            if pools.iter().all(|pool| image.lacking(pool).is_some()) {
                return image.lacking(first);
            }
        }
        let is_closed = pools.iter().all(|pool| self.lacking(pool).is_some());
        if !is_closed && let Some(unknown) = self.unknown() {
            return Some(unknown);
        }
        pools.iter().find_map(|pool| self.lacking(pool))
    }

    /// Returns the first image that certainly does not run on every platform of the pool.
    fn lacking(&self, pool: &Pool) -> Option<Blocker<'a>> {
        self.images.iter().find_map(|image| image.lacking(pool))
    }

    /// Returns every image that keeps the Pod ineligible, each once and in the Pod's order, with all platforms that it
    /// lacks.
    pub fn blockers(&self) -> Vec<Blocker<'a>> {
        if self.policy.pools.iter().any(|pool| self.is_eligible(pool)) {
            return Vec::new();
        }
        let wanted = self.policy.pool_platforms();
        // A list would be slow: a Pod may name one image thousands of times, with different tags beside one digest.
        let mut listed = HashSet::new();
        let mut blockers = Vec::new();
        for image in self.images {
            if let Some(blocker) = image.blocker(wanted)
                && listed.insert(blocker)
            {
                blockers.push(blocker);
            }
        }
        blockers
    }
}

#[cfg(test)]
mod tests;
