//! Managed preferences of a Pod for nodes: for an architecture, or for the nodes of an open pool.

use crate::image::PlatformSet;
use crate::pod::{ARCH_KEY, Expression, PodPreference, WeightedTerm};
use crate::policy::{Pool, Verdicts};

/// Prefix of the name of a preference for a pool.
const POOL: &str = "pool/";

/// A managed weighted term.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Preferred {
    pub(super) term: WeightedTerm<'static>,
    /// The name in the annotation: `arm64=80`, `pool/multi-arch=50`.
    pub(super) name: String,
}

impl Preferred {
    fn of_architecture(name: &'static str, weight: u8) -> Self {
        let preference = vec![Expression::is_in(ARCH_KEY, [name])].into();
        let term = WeightedTerm {
            weight: weight.into(),
            preference,
        };
        Self {
            term,
            name: format!("{name}={weight}"),
        }
    }

    fn of_pool(pool: &Pool, weight: u8) -> Option<Self> {
        let mut expressions = Vec::new();
        for (key, value) in pool.prefer.as_ref()?.labels.clone() {
            expressions.push(Expression::is_in(key, [value]));
        }
        let term = WeightedTerm {
            weight: weight.into(),
            preference: expressions.into(),
        };
        Some(Self {
            term,
            name: format!("{POOL}{}={weight}", pool.name),
        })
    }

    /// Returns whether the preference stays while an image is unknown: its pool is open, or its architecture has one of
    /// these platforms.
    pub(super) fn lasts(&self, platforms: PlatformSet, opened: &[&Pool]) -> bool {
        let Some((target, _)) = self.name.split_once('=') else {
            return false;
        };
        match target.strip_prefix(POOL) {
            Some(pool) => opened.iter().any(|opened| opened.name == pool),
            None => PlatformSet::of_architecture(target).intersects(platforms),
        }
    }

    /// Parses a name of the annotation; `None` if it names no managed preference.
    pub(super) fn named(name: &str, pools: &[Pool]) -> Option<Self> {
        let (target, weight) = name.split_once('=')?;
        let weight = weight.parse().ok()?;
        if let Some(name) = target.strip_prefix(POOL) {
            let pool = pools.iter().find(|pool| pool.name == name)?;
            return Self::of_pool(pool, weight);
        }
        let architecture = PlatformSet::of_architecture(target).architectures().pop()?;
        Some(Self::of_architecture(architecture, weight))
    }
}

/// Returns the preferences that the images allow, sorted by name. The user's constraints on nodes are not considered.
pub(super) fn possible(
    preference: PodPreference<'_>,
    verdicts: &Verdicts<'_, '_>,
    opened: &[&Pool],
) -> Vec<Preferred> {
    let Some(shared) = verdicts.shared() else {
        return Vec::new();
    };
    let rules = &verdicts.policy.placement;
    let mut all: Vec<Preferred> = Vec::new();
    let mut prefer = |platforms: PlatformSet, weight: u8| {
        for name in platforms.architectures() {
            all.push(Preferred::of_architecture(name, weight));
        }
    };
    match preference {
        PodPreference::None => {}
        PodPreference::Architecture(platforms) => {
            let mut nodes = platforms.intersection(rules.platforms);
            if nodes.is_empty() {
                nodes = platforms;
            }
            if shared.contains(nodes) {
                prefer(platforms, 100);
            }
        }
        PodPreference::Unset | PodPreference::Unknown(_) => {
            for preferred in &rules.prefer {
                if shared.contains(preferred.platform) {
                    prefer(preferred.platform, preferred.weight);
                }
            }
        }
    }
    for pool in opened {
        if let Some(preference) = &pool.prefer {
            all.extend(Preferred::of_pool(pool, preference.weight));
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}
