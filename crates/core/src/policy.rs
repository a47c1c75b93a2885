//! From the platforms of a Pod's images to a verdict for each pool: pure, and from scratch for each review. Everything
//! fails open here and only here: an image whose platforms are unknown opens no pool.

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

/// Name in metrics of profiles that do not exist; no profile has this name.
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
    /// Set if a Pod that stays closed gets an annotation that says why.
    pub explain: bool,
    /// Set if the templates of DaemonSets are decided like Pods.
    pub daemon_sets: bool,
}

/// Platforms that the operator states for some images, so that no registry is contacted for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Override {
    pub images: NamePattern,
    pub platforms: PlatformSet,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Enforce,
    /// Decisions are counted and logged, and change nothing.
    Observe,
}

/// A group of nodes behind taints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The pool's name, as in the annotation of opened Pods.
    pub name: String,
    /// The platforms that the pool's nodes can have: an image has to run on all of them.
    pub platforms: PlatformSet,
    pub tolerations: Vec<Toleration<'static>>,
    /// Share of the workloads to which the pool is open if they could use it, in percent.
    pub share: u8,
    /// Preference for the pool's nodes, for Pods to which the pool is opened.
    pub prefer: Option<PoolPreference>,
}

impl Pool {
    /// The share of all workloads.
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
        }
    }
}

/// Returns whether `name` can name a pool in the annotation.
pub fn is_pool_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    (1..=63).contains(&name.len()) && name.bytes().all(allowed)
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
    /// Returns the nodes on which the Pod could use this image; an error if that is unknown of some.
    pub fn nodes(&self) -> Result<PlatformSet, LookupError> {
        let (nodes, unknown) = self.parts();
        unknown.map_or(Ok(nodes), |(_, why)| Err(why))
    }

    /// Returns the nodes on which the Pod could use this image, and those of which that is unknown.
    fn parts(&self) -> (PlatformSet, Option<(PlatformSet, LookupError)>) {
        let wholly = |why| (PlatformSet::EMPTY, Some((PlatformSet::ALL, why)));
        let (nodes, unknown) = match (self.support, self.purpose) {
            (Err(why), _) => wholly(why),
            (Ok(Support::Index(set)), _) | (Ok(Support::Single(set)), Purpose::Run) => (set, None),
            (Ok(Support::Partial { runs, unknown, why }), _) => (runs, Some((unknown, why))),
            (Ok(Support::Artifact), Purpose::Run) => wholly(LookupError::BadManifest),
            // As a volume, only an index is bound to architectures (KEP-4639).
            (Ok(Support::Single(_) | Support::Artifact), Purpose::Mount) => {
                (PlatformSet::ALL, None)
            }
        };
        let failed = self.failure.filter(|_| self.purpose == Purpose::Run);
        (
            failed.map_or(nodes, |failure| nodes.difference(failure.platforms)),
            unknown,
        )
    }

    /// Returns the nodes on which the Pod may be able to use the image.
    fn possible(&self) -> PlatformSet {
        let (nodes, unknown) = self.parts();
        unknown.map_or(nodes, |(unknown, _)| nodes.union(unknown))
    }

    /// Returns what keeps the image from nodes with all of these platforms, if anything; for none, whatever is unknown.
    fn blocker(&self, platforms: PlatformSet) -> Option<Blocker<'a>> {
        let lacks = platforms.difference(self.possible());
        let failed = self
            .failure
            .filter(|failure| failure.platforms.contains(lacks));
        let cause = if lacks.is_empty() {
            let (unknown, why) = self.parts().1?;
            let matters = platforms.is_empty() || unknown.intersects(platforms);
            Cause::Unknown(matters.then_some(why)?)
        } else {
            failed.map_or(Cause::Lacks(lacks), |failed| {
                Cause::Failed(Failure {
                    platforms: lacks,
                    ..failed
                })
            })
        };
        Some(Blocker {
            image: self.given,
            cause,
        })
    }
}

/// Reason why an image keeps a pool closed.
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
                write!(
                    f,
                    "failed on {platforms} at {}",
                    humantime::format_rfc3339_seconds(*since)
                )
            }
            Self::Unknown(error) => Reason::Unknown(*error).fmt(f),
        }
    }
}

/// An image that keeps a pool closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocker<'a> {
    pub image: &'a str,
    pub cause: Cause,
}

#[derive(Clone, Copy, Debug)]
pub struct Verdicts<'a, 'i> {
    pub(crate) policy: &'a Policy,
    rank: Rank,
    images: &'i [ImageSupport<'a>],
}

impl Policy {
    /// Judges `images`, one for each image of the Pod that counts. Some may be missing if one image closes every pool.
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

    pub fn override_for(&self, usage: &Usage<'_>) -> Option<PlatformSet> {
        if self.overrides.is_empty() {
            return None;
        }
        let image = match &usage.image {
            Ok(image) => Cow::Borrowed(image),
            // The node has an image that is never pulled; the operator knows on which platforms it runs.
            Err(_) => Cow::Owned(usage.given.parse().ok()?),
        };
        self.overrides
            .iter()
            .find(|known| known.images.covers(&image))
            .map(|known| known.platforms)
    }

    pub fn mode_for(&self, pod: &Pod<'_>) -> Mode {
        match pod.mode() {
            PodMode::Enforce => Mode::Enforce,
            PodMode::Observe => Mode::Observe,
            PodMode::Unset | PodMode::Unknown(_) | PodMode::Off => self.mode,
        }
    }

    /// Returns whether this image alone closes every pool and prevents steering, so that no other has to be awaited.
    pub fn is_closed_by(&self, pod: &Pod<'_>, image: &ImageSupport<'_>) -> bool {
        let (pools, rules) = (&self.pools, &self.placement);
        let prevents_steering = || match (image.nodes(), rules.require) {
            (Ok(_), Require::Off) => !rules.steer(pod),
            (Ok(nodes), _) => rules.within(nodes).is_empty(),
            (Err(_), require) => require == Require::Off || rules.when_unknown.is_empty(),
        };
        pools
            .iter()
            .all(|pool| image.blocker(pool.platforms).is_some())
            && prevents_steering()
    }

    /// Returns the rank of a Pod's workload; computed only if a pool needs it.
    pub fn rank(&self, namespace: &str, pod: &Pod<'_>) -> Rank {
        if self.pools.iter().all(|pool| pool.share == Pool::ALL) {
            return Rank::FIRST;
        }
        let (kind, name) = pod.workload();
        Rank::of(namespace, kind, name)
    }
}

impl<'a> Verdicts<'a, '_> {
    /// Returns whether every image runs on every platform of the pool, and the pool is open to the Pod's workload.
    pub fn is_open(&self, pool: &Pool) -> bool {
        self.fit(pool) && self.rank.is_within(pool.share)
    }

    /// Returns the platforms on which every image runs; `None` if one is unknown, or without images.
    pub fn shared(&self) -> Option<PlatformSet> {
        (!self.images.is_empty() && self.unknown().is_none()).then(|| self.known())
    }

    /// Returns the platforms on which every image runs, as far as is known.
    fn known(&self) -> PlatformSet {
        self.images
            .iter()
            .map(ImageSupport::possible)
            .fold(PlatformSet::ALL, PlatformSet::intersection)
    }

    /// Returns the platforms on which the Pod may run if an image is unknown; `None` if none is.
    pub fn possible(&self) -> Option<PlatformSet> {
        self.unknown().map(|_| self.known())
    }

    /// Returns the first image that is unknown.
    pub fn unknown(&self) -> Option<Blocker<'a>> {
        self.images
            .iter()
            .find_map(|image| image.blocker(PlatformSet::EMPTY))
    }

    /// Returns the platforms of the cluster's nodes that the images allow, none of them if the set is empty; `None` if
    /// they are unknown. If known images leave no nodes, unknown ones change nothing.
    pub(crate) fn nodes(&self) -> Option<PlatformSet> {
        let (rules, known) = (&self.policy.placement, self.known());
        let allowed = rules.within(known);
        if self.images.is_empty() {
            return None;
        }
        if allowed.is_empty() || self.unknown().is_none() {
            return Some(allowed);
        }
        Some(rules.within(known.intersection(rules.when_unknown)))
            .filter(|allowed| !allowed.is_empty())
    }

    /// Returns the first image that lacks some of the cluster's platforms, or else the first that is unknown.
    pub(crate) fn narrowing(&self) -> Option<Blocker<'a>> {
        let platforms = self.policy.placement.platforms;
        let blockers = || {
            self.images
                .iter()
                .filter_map(|image| image.blocker(platforms))
        };
        blockers()
            .find(|blocker| blocker.cause.lacks().is_some())
            .or_else(|| blockers().next())
    }

    fn fit(&self, pool: &Pool) -> bool {
        !self.images.is_empty()
            && self
                .images
                .iter()
                .all(|image| image.blocker(pool.platforms).is_none())
    }

    /// Returns the first pool that the Pod could use, but that is not open to its workload yet.
    pub(crate) fn held_back(&self) -> Option<&'a Pool> {
        self.policy
            .pools
            .iter()
            .find(|pool| self.fit(pool) && !self.rank.is_within(pool.share))
    }

    /// Returns the blocker that decides: `None` if every pool is open. If known images close every pool, unknown ones
    /// change nothing, so that the blocker does not depend on which image was looked up first.
    pub fn decisive(&self) -> Option<Blocker<'a>> {
        let (pools, images) = (&self.policy.pools, self.images);
        let lacks = |image: &ImageSupport<'a>, pool: &Pool| {
            image
                .blocker(pool.platforms)
                .filter(|blocker| blocker.cause.lacks().is_some())
        };
        let lacking = |pool: &Pool| images.iter().find_map(|image| lacks(image, pool));
        let closes_all =
            |image: &&ImageSupport<'a>| pools.iter().all(|pool| lacks(image, pool).is_some());
        let alone = images
            .iter()
            .find(closes_all)
            .and_then(|image| lacks(image, pools.first()?));
        let is_closed = pools.iter().all(|pool| lacking(pool).is_some());
        let unknown = if is_closed { None } else { self.unknown() };
        alone.or(unknown).or_else(|| pools.iter().find_map(lacking))
    }

    /// Returns every image that keeps the Pod closed, each once and in the Pod's order, with all that it lacks.
    pub fn blockers(&self) -> Vec<Blocker<'a>> {
        if self.policy.pools.iter().any(|pool| self.fit(pool)) {
            return Vec::new();
        }
        let wanted: PlatformSet = self
            .policy
            .pools
            .iter()
            .map(|pool| pool.platforms)
            .collect();
        // A Pod may name one image under thousands of tags that its digest overrides.
        let mut told = HashSet::new();
        let blockers = self.images.iter().filter_map(|image| image.blocker(wanted));
        blockers.filter(|blocker| told.insert(*blocker)).collect()
    }
}

#[cfg(test)]
mod tests;
