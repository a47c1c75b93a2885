//! The decision, as data: pure, recomputed from scratch for each review, so that the same Pod gets the same image.
//!
//! Everything fails open here and only here: whatever is unknown about an image opens no pool.

use crate::image::{LookupError, PlatformSet, Support};
use crate::pod::{Pod, Purpose, Toleration};
use crate::reason::Reason;

/// What decides over Pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether decisions are carried out.
    pub mode: Mode,
    /// The pools, in the order of the configuration; at least one.
    pub pools: Vec<Pool>,
}

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Pods are changed.
    Enforce,
    /// Decisions are counted and logged, and change nothing.
    Observe,
}

/// A group of nodes behind taints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name, as the annotation of opened Pods shows it.
    pub name: String,
    /// The platforms that its nodes can have: an image has to run on all of them.
    pub platforms: PlatformSet,
    /// What opens it.
    pub tolerations: Vec<Toleration<'static>>,
}

/// What is known of one image of a Pod.
#[derive(Clone, Copy, Debug)]
pub struct ImageSupport<'a> {
    /// The image as the Pod names it.
    pub given: &'a str,
    /// What the Pod does with it.
    pub purpose: Purpose,
    /// Where it runs, or why nobody can say.
    pub support: Result<Support, LookupError>,
}

impl ImageSupport<'_> {
    /// The nodes on which the Pod could use this image.
    fn nodes(&self) -> Result<PlatformSet, LookupError> {
        match self.purpose {
            Purpose::Run => self.support?.runs_on().ok_or(LookupError::BadManifest),
            Purpose::Mount => Ok(self.support?.mounts_on()),
        }
    }
}

/// What becomes of one Pod.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// What, in one word.
    pub reason: Reason,
    /// The image that decided, as the Pod names it; `None` where none did.
    pub image: Option<&'a str>,
    /// The pools that are open to the Pod through tolerarch, after this pass.
    pub pools: Vec<&'a str>,
    /// What is to be changed, if anything.
    pub change: Option<Change<'a>>,
}

/// What is to be changed in a Pod.
#[derive(Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// Places in the Pod's list of tolerations, ascending: what an earlier pass added and is wrong by now.
    pub remove: Vec<usize>,
    /// Tolerations to append.
    pub add: Vec<&'a Toleration<'static>>,
    /// The new value of the annotation, empty for none; `None` leaves it as it is.
    pub annotation: Option<String>,
}

impl<'a> Decision<'a> {
    /// Leaves the Pod as it is.
    pub fn unchanged(reason: Reason) -> Self {
        Self { reason, image: None, pools: Vec::new(), change: None }
    }

    /// What is done: `tolerated`, `retracted` or `unchanged`.
    pub fn done(&self) -> &'static str {
        match &self.change {
            None => "unchanged",
            Some(change) if change.add.is_empty() => "retracted",
            Some(_) => "tolerated",
        }
    }
}

impl Policy {
    /// The decision, where it needs no look at the images: the Pod is left alone, or it tolerates every pool.
    pub fn decide_unseen(&self, pod: &Pod<'_>) -> Option<Decision<'static>> {
        if let Some(reason) = pod.skipped() {
            return Some(Decision::unchanged(reason));
        }
        if !pod.has_containers() {
            return Some(Decision::unchanged(Reason::Malformed));
        }
        let foreign = pod.opened_pools().next().is_none();
        let covered = |own: &Toleration<'_>| pod.tolerations().iter().any(|there| there.covers(own));
        let tolerated = |pool: &Pool| pool.tolerations.iter().all(covered);
        if foreign && self.pools.iter().all(tolerated) {
            return Some(Decision::unchanged(Reason::AlreadyTolerated));
        }
        None
    }

    /// Whether this image alone keeps every pool closed, so that no other needs to be waited for.
    pub fn is_settled_by(&self, image: &ImageSupport<'_>) -> bool {
        match image.nodes() {
            Ok(nodes) => !self.pools.iter().any(|pool| nodes.contains_all(pool.platforms)),
            Err(_) => true,
        }
    }

    /// The decision. `images` has one image for each image of the Pod that counts; some may be missing where one
    /// of them settles the case.
    pub fn decide<'a>(&'a self, pod: &Pod<'_>, images: &[ImageSupport<'a>]) -> Decision<'a> {
        let cause = self.cause(images);
        let claimed = self.claimed(pod);
        let tolerations = pod.tolerations();
        let covered_by_others = |own: &Toleration<'_>| {
            (0..).zip(tolerations).any(|(place, there)| there.covers(own) && !claimed.contains(&place))
        };
        let supported = || self.pools.iter().filter(|pool| supports(images, pool));
        // A pool is opened with all its tolerations or not at all: the annotation names pools, so what is taken back
        // later must be all of a pool, and nothing that was there before.
        let closed = |pool: &&Pool| !pool.tolerations.iter().all(covered_by_others);
        let to_open: Vec<&Pool> = supported().filter(closed).collect();
        let opened: Vec<&str> = to_open.iter().map(|pool| pool.name.as_str()).collect();
        let mut add = distinct(to_open.into_iter());

        let stays = |place: &usize| add.iter().any(|own| tolerations[*place].same(own));
        let remove: Vec<usize> = claimed.iter().copied().filter(|place| !stays(place)).collect();
        add.retain(|own| !claimed.iter().any(|&place| tolerations[place].same(own)));
        let annotation = self.annotation(pod, &opened);

        let reason = match (&cause, annotation.is_some() || !remove.is_empty()) {
            _ if !add.is_empty() => Reason::Tolerated,
            (_, true) => Reason::Retracted,
            _ if supported().next().is_some() => Reason::AlreadyTolerated,
            (Some((reason, _)), false) => *reason,
            (None, false) => Reason::Internal,
        };
        let image = cause.map(|(_, image)| image).filter(|_| reason != Reason::Tolerated);
        if annotation.as_ref().is_some_and(|pools| !pod.has_room_for(pools)) {
            return Decision::unchanged(Reason::NoRoom);
        }
        let changes = annotation.is_some() || !add.is_empty() || !remove.is_empty();
        if changes && self.mode == Mode::Observe {
            return Decision { reason: Reason::Observed, image, pools: opened, change: None };
        }
        Decision {
            reason,
            image,
            pools: opened,
            change: changes.then_some(Change { remove, add, annotation }),
        }
    }

    /// The image that keeps pools closed, and how; `None` if each pool is open. Where what is known closes every pool,
    /// what is not known changes nothing: so the cause does not depend on which image was there first.
    fn cause<'a>(&self, images: &[ImageSupport<'a>]) -> Option<(Reason, &'a str)> {
        let lacks = |image: &ImageSupport<'a>, pool: &Pool| {
            image.nodes().is_ok_and(|nodes| !nodes.contains_all(pool.platforms))
        };
        let lacking = |pool: &Pool| images.iter().find(|image| lacks(image, pool));
        let missing = || {
            let alone = images.iter().find(|image| self.pools.iter().all(|pool| lacks(image, pool)));
            let first = || self.pools.iter().find_map(lacking);
            Some((Reason::PlatformMissing, alone.or_else(first)?.given))
        };
        let unknown = |image: &ImageSupport<'a>| Some((Reason::from(image.nodes().err()?), image.given));
        if self.pools.iter().all(|pool| lacking(pool).is_some()) {
            return missing();
        }
        images.iter().find_map(unknown).or_else(missing)
    }

    /// The places of the tolerations that an earlier pass added, ascending: those of the pools that the annotation
    /// names. Anything else in the list is somebody else's.
    fn claimed(&self, pod: &Pod<'_>) -> Vec<usize> {
        let named = self.pools.iter().filter(|pool| pod.opened_pools().any(|name| name == pool.name));
        let place = |own: &&Toleration<'_>| pod.tolerations().iter().position(|there| there.same(own));
        let mut claimed: Vec<usize> = distinct(named).iter().filter_map(place).collect();
        claimed.sort_unstable();
        claimed
    }

    /// The annotation's new value, if it has to change. Pools that only another version of the configuration knows
    /// stay named: what was added for them cannot be told from here.
    fn annotation(&self, pod: &Pod<'_>, opened: &[&str]) -> Option<String> {
        let before: Vec<&str> = pod.opened_pools().collect();
        let others = before.iter().copied().filter(|name| !self.pools.iter().any(|pool| pool.name == *name));
        let after: Vec<&str> = others.chain(opened.iter().copied()).collect();
        // Sorted, as the annotation may be long: it comes from strangers.
        let sorted = |names: &[&str]| {
            let mut names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            names.sort_unstable();
            names
        };
        let same = before.len() == after.len() && sorted(&before) == sorted(&after);
        (!same).then(|| after.join(","))
    }
}

fn supports(images: &[ImageSupport<'_>], pool: &Pool) -> bool {
    !images.is_empty()
        && images.iter().all(|image| image.nodes().is_ok_and(|nodes| nodes.contains_all(pool.platforms)))
}

/// The tolerations of these pools, each once.
fn distinct<'a>(pools: impl Iterator<Item = &'a Pool>) -> Vec<&'a Toleration<'static>> {
    let mut all: Vec<&Toleration<'static>> = Vec::new();
    for own in pools.flat_map(|pool| &pool.tolerations) {
        if !all.iter().any(|other| other.same(own)) {
            all.push(own);
        }
    }
    all
}

#[cfg(test)]
mod tests;
