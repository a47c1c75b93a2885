//! What is preferred of a Pod's nodes, beside what is required: their architecture, or the nodes of an open pool.

use super::requirement::Requirement;
use crate::image::PlatformSet;
use crate::pod::{PodPreference, Scheduling, WeightedTerm, names_architecture};
use crate::policy::{Pool, Verdicts};

/// A weighted term of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferred {
    /// 1 to 100.
    pub weight: u8,
    /// What a node has to match.
    pub requirements: Vec<Requirement>,
    /// As the annotation says it: `arm64=80`, `pool/multi-arch=50`.
    pub name: String,
}

/// How what the node affinity prefers changes.
#[derive(Debug, PartialEq, Eq)]
pub enum PreferredEdit {
    /// There is nothing yet: it is created.
    Create(Vec<Preferred>),
    /// Places of terms that go, ascending, and terms that are appended.
    Items { remove: Vec<usize>, append: Vec<Preferred> },
    /// It has nothing but terms of ours, and goes.
    Remove,
}

impl PreferredEdit {
    pub(super) fn added(&self) -> &[Preferred] {
        match self {
            Self::Create(new) | Self::Items { append: new, .. } => new,
            Self::Remove => &[],
        }
    }
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

    fn is(&self, term: &WeightedTerm<'_>) -> bool {
        let expressions = term.expressions();
        let same = || self.requirements.iter().zip(expressions).all(|(own, there)| own.is(there));
        term.weight == Some(self.weight.into())
            && !term.has_fields()
            && expressions.len() == self.requirements.len()
            && same()
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
        let terms = scheduling.preferred();
        let mut own: Vec<(Preferred, usize)> = Vec::new();
        for marked in marked {
            // Of equal ones the last is ours: it was appended.
            let taken = |place: usize| own.iter().any(|(_, other)| *other == place);
            let place = (0..terms.map_or(0, <[_]>::len))
                .rev()
                .find(|&place| terms.is_some_and(|terms| marked.is(&terms[place])) && !taken(place));
            own.extend(place.map(|place| (marked, place)));
        }
        Self { terms: terms.unwrap_or_default(), own, is_there: terms.is_some() }
    }

    /// Whether a preference of the user's is about the same label.
    pub(super) fn contradict(&self, new: &Preferred) -> bool {
        let same = |own: &str, key: &str| own == key || names_architecture(own) && names_architecture(key);
        let users = (0..self.terms.len()).filter(|place| !self.own.iter().any(|(_, own)| own == place));
        let mut keys = users.flat_map(|place| self.terms[place].expressions()).map(|there| there.key());
        keys.any(|key| new.requirements.iter().any(|own| same(&own.key, key)))
    }

    /// How the list becomes what it would be if this had been preferred from the start.
    pub(super) fn edit(&self, wanted: Vec<Preferred>) -> Option<PreferredEdit> {
        let mut remove: Vec<usize> =
            self.own.iter().filter(|(own, _)| !wanted.contains(own)).map(|(_, place)| *place).collect();
        remove.sort_unstable();
        let mut append = wanted;
        append.retain(|new| !self.own.iter().any(|(own, _)| own == new));
        if remove.is_empty() && append.is_empty() {
            None
        } else if !self.is_there {
            Some(PreferredEdit::Create(append))
        } else if append.is_empty() && remove.len() == self.terms.len() {
            Some(PreferredEdit::Remove)
        } else {
            Some(PreferredEdit::Items { remove, append })
        }
    }
}
