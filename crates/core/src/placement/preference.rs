//! Preferences of a Pod for nodes, beside its requirements: an architecture, or the nodes of an open pool.

use crate::image::PlatformSet;
use crate::pod::{ARCH_KEY, Expression, PodPreference, WeightedTerm};
use crate::policy::{Pool, Verdicts};

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
        let labels = pool.prefer.as_ref()?.labels.clone().into_iter();
        let expressions: Vec<_> = labels
            .map(|(key, value)| Expression::is_in(key, [value]))
            .collect();
        let term = WeightedTerm {
            weight: weight.into(),
            preference: expressions.into(),
        };
        Some(Self {
            term,
            name: format!("pool/{}={weight}", pool.name),
        })
    }

    /// Parses a name of the annotation; `None` if it is no managed preference.
    pub(super) fn named(name: &str, pools: &[Pool]) -> Option<Self> {
        let (what, weight) = name.split_once('=')?;
        let weight = weight.parse().ok()?;
        let Some(pool) = what.strip_prefix("pool/") else {
            let arch = PlatformSet::of_architecture(what).architectures().pop()?;
            return Some(Self::of_architecture(arch, weight));
        };
        Self::of_pool(pools.iter().find(|known| known.name == pool)?, weight)
    }
}

/// Returns the preferences that the images allow, whatever the Pod says of its nodes, sorted by name.
pub(super) fn possible(
    preference: PodPreference<'_>,
    verdicts: &Verdicts<'_, '_>,
    opened: &[&Pool],
) -> Vec<Preferred> {
    let Some(shared) = verdicts.shared() else {
        return Vec::new();
    };
    let rules = &verdicts.policy.placement;
    let runs_on = |platforms: PlatformSet| {
        let there = platforms.intersection(rules.platforms);
        shared.contains(if there.is_empty() { platforms } else { there })
    };
    let by_architecture = |platforms: PlatformSet, weight: u8| {
        let names = platforms.architectures().into_iter();
        names.map(move |name| Preferred::of_architecture(name, weight))
    };
    let mut all: Vec<Preferred> = match preference {
        PodPreference::None => Vec::new(),
        PodPreference::Architecture(platforms) if !runs_on(platforms) => Vec::new(),
        PodPreference::Architecture(platforms) => by_architecture(platforms, 100).collect(),
        PodPreference::Unset | PodPreference::Unknown(_) => {
            let fitting = rules
                .prefer
                .iter()
                .filter(|own| shared.contains(own.platform));
            fitting
                .flat_map(|own| by_architecture(own.platform, own.weight))
                .collect()
        }
    };
    let of_pool = |pool: &&Pool| Preferred::of_pool(pool, pool.prefer.as_ref()?.weight);
    all.extend(opened.iter().filter_map(of_pool));
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}
