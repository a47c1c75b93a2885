//! What is preferred of a Pod's nodes, beside what is required: their architecture, or the nodes of an open pool.

use super::requirement::Requirement;
use crate::image::PlatformSet;
use crate::pod::{PodPreference, Scheduling, WeightedTerm, names_architecture};
use crate::policy::{Pool, Verdicts};

/// A weighted term of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Preferred {
    /// 1 to 100.
    pub(super) weight: u8,
    /// What a node has to match.
    pub(super) requirements: Vec<Requirement>,
    /// As the annotation says it: `arm64=80`, `pool/multi-arch=50`.
    pub(super) name: String,
}

impl Preferred {
    fn of_architecture(name: &'static str, weight: u8) -> Self {
        let requirements = vec![Requirement::of_architectures(&[name])];
        Self { weight, requirements, name: format!("{name}={weight}") }
    }

    fn of_pool(pool: &Pool, weight: u8) -> Option<Self> {
        let labels = &pool.prefer.as_ref()?.labels;
        let of_label = |(key, value): (&String, &String)| Requirement {
            key: key.clone().into(),
            values: vec![value.clone().into()],
        };
        let requirements = labels.iter().map(of_label).collect();
        Some(Self { weight, requirements, name: format!("pool/{}={weight}", pool.name) })
    }

    /// What the annotation means by this name, if it is one of ours.
    pub(super) fn named(name: &str, pools: &[Pool]) -> Option<Self> {
        let (what, weight) = name.split_once('=')?;
        let weight = weight.parse().ok()?;
        let Some(pool) = what.strip_prefix("pool/") else {
            let arch = PlatformSet::of_architecture(what).architectures().pop()?;
            return Some(Self::of_architecture(arch, weight));
        };
        Self::of_pool(pools.iter().find(|known| known.name == pool)?, weight)
    }

    fn term<'p>(&self) -> WeightedTerm<'p> {
        WeightedTerm::new(self.weight, self.requirements.iter().map(Requirement::expression).collect())
    }
}

/// What the images allow to prefer, whatever the Pod says of its nodes, sorted by name.
pub(super) fn possible(
    preference: PodPreference<'_>,
    verdicts: &Verdicts<'_, '_>,
    opened: &[&Pool],
) -> Vec<Preferred> {
    let Some(shared) = verdicts.shared else { return Vec::new() };
    let rules = verdicts.rules();
    let runs_on = |platforms: PlatformSet| {
        let there = platforms.intersection(rules.platforms);
        shared.contains_all(if there.is_empty() { platforms } else { there })
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
            let fitting = rules.prefer.iter().filter(|own| shared.contains_all(own.platform));
            fitting.flat_map(|own| by_architecture(own.platform, own.weight)).collect()
        }
    };
    let of_pool = |pool: &&Pool| Preferred::of_pool(pool, pool.prefer.as_ref()?.weight);
    all.extend(opened.iter().filter_map(of_pool));
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// A Pod's weighted terms, and which of them an earlier pass added.
pub(super) struct WeightedTerms<'p> {
    terms: &'p [WeightedTerm<'p>],
    /// Places of what is marked.
    own: Vec<(Preferred, usize)>,
    is_there: bool,
}

impl<'p> WeightedTerms<'p> {
    /// `marked` is what the Pod says that an earlier pass preferred.
    pub(super) fn of(scheduling: &'p Scheduling<'p>, marked: impl Iterator<Item = Preferred>) -> Self {
        let (is_there, terms) =
            (scheduling.preferred().is_some(), scheduling.preferred().unwrap_or_default());
        let mut own: Vec<(Preferred, usize)> = Vec::new();
        for marked in marked {
            // Of equal ones the last is ours: it was appended.
            let (term, taken) = (marked.term(), |place: usize| own.iter().any(|(_, other)| *other == place));
            let place = (0..terms.len()).rev().find(|&place| terms[place] == term && !taken(place));
            own.extend(place.map(|place| (marked, place)));
        }
        Self { terms, own, is_there }
    }

    /// Whether a preference of the user's is about the same label.
    pub(super) fn contradict(&self, new: &Preferred) -> bool {
        let same = |own: &str, key: &str| own == key || names_architecture(own) && names_architecture(key);
        let users = (0..self.terms.len()).filter(|place| !self.own.iter().any(|(_, own)| own == place));
        let mut keys = users.flat_map(|place| self.terms[place].expressions()).map(|there| there.key());
        keys.any(|key| new.requirements.iter().any(|own| same(&own.key, key)))
    }

    /// What the list would be if this had been preferred from the start, and whether something is added; `None` is no list.
    pub(super) fn edit(&self, wanted: &[Preferred]) -> (Option<Vec<WeightedTerm<'p>>>, bool) {
        let stays = |place: &usize| self.own.iter().all(|(own, at)| at != place || wanted.contains(own));
        let kept = (0..self.terms.len()).filter(stays).map(|place| self.terms[place].clone());
        let is_new = |new: &&Preferred| !self.own.iter().any(|(own, _)| own == *new);
        let mut added = wanted.iter().filter(is_new).map(Preferred::term).peekable();
        let adds = added.peek().is_some();
        let terms: Vec<_> = kept.chain(added).collect();
        let was_empty = self.is_there && self.terms.is_empty();
        ((was_empty || !terms.is_empty()).then_some(terms), adds)
    }
}
