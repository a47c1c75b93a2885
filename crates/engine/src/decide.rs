//! Decides on a Pod: which of its images are looked up, with which credentials and until when.
//!
//! Reviews and commands decide here, without HTTP. Each decision takes one [`Snapshot`], so none sees half a change.

mod batch;
mod daemon_set;
mod examined;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use tokio::time::{Duration, Instant, timeout_at};

pub use batch::BatchLimits;
pub use examined::{Examined, ImageState, PoolState};

use crate::lessons::{Lessons, Timestamp};
use tolerarch_core::decision::Decision;
use tolerarch_core::image::{ImageRef, LookupError, Support};
use tolerarch_core::pod::{Pod, Usage};
use tolerarch_core::policy::{ImageSupport, Policy};
use tolerarch_core::reason::Reason;
use tolerarch_images::credentials::{Credentials, Keyring};
use tolerarch_images::resolver::{Outcome, Resolver, Tenant};

/// Maximal number of different images of one Pod that are looked up.
const IMAGES: usize = 64;

/// One consistent configuration. A decision uses exactly one.
#[derive(Clone)]
pub struct Snapshot {
    /// The policy of reviews without a profile.
    pub policy: Policy,
    /// The policies of the reviews with a profile, by its name.
    pub profiles: BTreeMap<String, Policy>,
    /// Maximal time for which a Pod waits for its images.
    pub budget: Duration,
    pub credentials: Credentials,
    /// Looks up images, and continues under this snapshot after the Pod has been answered.
    pub resolver: Resolver,
    /// Images that failed on an architecture although their manifests include it, and owners that delete changed Pods.
    pub lessons: Arc<Lessons>,
}

/// The current snapshot. Decisions that have begun end by the one that they began with.
pub type Current = Arc<ArcSwap<Snapshot>>;

/// Time for which a Pod waits for its images.
#[derive(Clone, Copy)]
pub enum Wait<'a> {
    /// The time until a deadline, but no longer than the decision depends on the images.
    Until(Instant),
    /// The time of all lookups.
    ForAll(&'a BatchLimits),
}

impl Snapshot {
    /// Returns the policy for a profile, or for reviews without one; `None` if the profile does not exist.
    pub fn policy_for(&self, profile: Option<&str>) -> Option<&Policy> {
        profile.map_or(Some(&self.policy), |name| self.profiles.get(name))
    }

    pub async fn decide<'a>(
        &'a self,
        policy: &'a Policy,
        namespace: &str,
        pod: &'a Pod<'_>,
        wait: Wait<'_>,
    ) -> Decision<'a> {
        if let Some(decision) = self.without_images(policy, namespace, pod) {
            return decision;
        }
        let closes = |image: &ImageSupport<'_>| {
            matches!(wait, Wait::Until(_)) && policy.is_closed_by(pod, image)
        };
        let looked_up = self
            .look_up_with_keyring(policy, namespace, pod, &pod.images(), wait, closes)
            .await;
        let mut decision =
            Decision::of(policy, pod, policy.rank(namespace, pod), &looked_up.images);
        decision.unused_secrets = decision
            .image
            .map(|image| looked_up.unused_secrets(image, decision.reason))
            .unwrap_or_default();
        decision
    }

    /// Decides, and looks up every image, whether or not the decision depends on it. An internal error affects this
    /// decision only.
    pub async fn examine(
        &self,
        policy: &Policy,
        namespace: &str,
        pod: &Pod<'_>,
        limits: &BatchLimits,
    ) -> Examined {
        let examined = async {
            let wait = Wait::ForAll(limits);
            let looked_up = self
                .look_up_with_keyring(policy, namespace, pod, &pod.images(), wait, |_| false)
                .await;
            let images = &looked_up.images;
            let decision = self.without_images(policy, namespace, pod);
            let decision = decision
                .unwrap_or_else(|| Decision::of(policy, pod, policy.rank(namespace, pod), images));
            let mut examined = Examined::of(policy, namespace, pod, decision, images);
            for state in &mut examined.images {
                let unused = state
                    .unknown
                    .map(|reason| looked_up.unused_secrets(&state.image, reason));
                state.unused_secrets = unused.unwrap_or_default();
            }
            examined
        };
        let failed = || Examined {
            skipped: None,
            ..Examined::skipped(Reason::Unknown(LookupError::Internal))
        };
        caught(examined).await.unwrap_or_else(failed)
    }

    fn without_images(
        &self,
        policy: &Policy,
        namespace: &str,
        pod: &Pod<'_>,
    ) -> Option<Decision<'static>> {
        let is_recreated = || {
            let (kind, name) = pod.controller().filter(|_| !self.lessons.is_empty())?;
            let is_known = self
                .lessons
                .recreates(namespace, kind, name, Timestamp::now());
            is_known.then(|| Decision::unchanged(Reason::OwnerRecreates))
        };
        Decision::without_images(policy, pod).or_else(is_recreated)
    }

    /// Looks up these images with the credentials that the Pod may use; stops as soon as one of them is enough.
    pub async fn look_up<'a>(
        &self,
        policy: &Policy,
        namespace: &str,
        pod: &Pod<'_>,
        usages: &[Usage<'a>],
        wait: Wait<'_>,
        is_enough: impl Fn(&ImageSupport<'_>) -> bool,
    ) -> Vec<ImageSupport<'a>> {
        self.look_up_with_keyring(policy, namespace, pod, usages, wait, is_enough)
            .await
            .images
    }

    async fn look_up_with_keyring<'a>(
        &self,
        policy: &Policy,
        namespace: &str,
        pod: &Pod<'_>,
        usages: &[Usage<'a>],
        wait: Wait<'_>,
        is_enough: impl Fn(&ImageSupport<'_>) -> bool,
    ) -> LookedUp<'a> {
        let support = |usage: &Usage<'a>, support, failure| {
            let Usage { given, purpose, .. } = *usage;
            ImageSupport {
                given,
                purpose,
                support,
                failure,
            }
        };
        let mut images: Vec<&ImageRef> = Vec::with_capacity(usages.len());
        let mut supports: Vec<Option<ImageSupport<'a>>> = vec![None; usages.len()];
        for (usage, place) in usages.iter().zip(&mut supports) {
            let known = match (policy.override_for(usage), &usage.image) {
                (Some(platforms), _) => Ok(Support::Index(platforms)),
                (None, Ok(image)) if images.contains(&image) => continue,
                (None, Ok(image)) if images.len() < IMAGES => {
                    images.push(image);
                    continue;
                }
                (None, Ok(_)) => Err(LookupError::TooMany),
                (None, Err(error)) => Err(*error),
            };
            if is_enough(place.insert(support(usage, known, None))) {
                let images = supports.into_iter().flatten().collect();
                return LookedUp {
                    images,
                    keyring: Keyring::default(),
                };
            }
        }
        let deadline = match wait {
            Wait::Until(deadline) => deadline,
            Wait::ForAll(limits) => Instant::now() + limits.time,
        };
        let keyring = self.keyring(namespace, pod, &images, deadline).await;
        let candidates = |image: &ImageRef| keyring.candidates(image);
        let failure = |image: &ImageRef| {
            let digest = self.resolver.digest(image, &candidates(image))?;
            self.lessons.failure(&digest, namespace, Timestamp::now())
        };
        let mut enough = |image: &ImageRef, outcome: Outcome| {
            let may_fail = outcome.is_ok() && !self.lessons.is_empty();
            let failure = may_fail.then(|| failure(image)).flatten();
            let mut is_settled = false;
            for (usage, place) in usages.iter().zip(&mut supports) {
                if place.is_none() && usage.image.as_ref() == Ok(image) {
                    is_settled |= is_enough(place.insert(support(usage, outcome, failure)));
                }
            }
            is_settled
        };
        match wait {
            Wait::Until(_) => {
                let tenant = Tenant::of(namespace);
                self.resolver
                    .resolve(tenant, &images, candidates, deadline, enough)
                    .await;
            }
            Wait::ForAll(limits) => {
                let outcomes = Box::pin(limits.resolve(&self.resolver, &images, candidates)).await;
                for (image, outcome) in images.iter().zip(outcomes) {
                    if let Some(outcome) = outcome {
                        enough(image, outcome);
                    }
                }
            }
        }
        LookedUp {
            images: supports.into_iter().flatten().collect(),
            keyring,
        }
    }

    /// Returns the credentials that the Pod may use. Its pull secrets are read only if an image is unknown without
    /// them. If they cannot be read in time, the operator's credentials have to do: the next Pod finds the secrets.
    async fn keyring(
        &self,
        namespace: &str,
        pod: &Pod<'_>,
        images: &[&ImageRef],
        deadline: Instant,
    ) -> Keyring {
        let credentials = &self.credentials;
        let shared = credentials.shared_keyring();
        let is_settled =
            |image: &&ImageRef| self.resolver.is_settled(image, &shared.candidates(image));
        let is_needed = credentials.reads_pull_secrets() && pod.pull_secrets().next().is_some();
        if !is_needed || images.iter().all(is_settled) {
            return shared;
        }
        let keyring = Box::pin(credentials.keyring(namespace, pod.pull_secrets()));
        timeout_at(deadline, keyring).await.unwrap_or(shared)
    }
}

/// Images of a Pod, and the credentials that they were looked up with.
struct LookedUp<'a> {
    images: Vec<ImageSupport<'a>>,
    keyring: Keyring,
}

impl LookedUp<'_> {
    /// Says why pull secrets of the Pod gave no credential for an image that its registry refuses for this reason.
    fn unused_secrets(&self, image: &str, reason: Reason) -> Vec<String> {
        let is_refused = matches!(
            reason,
            Reason::Unknown(LookupError::Denied | LookupError::NotFound)
        );
        let image = image.parse::<ImageRef>().ok().filter(|_| is_refused);
        image
            .map(|image| self.keyring.unused_pull_secrets(&image))
            .unwrap_or_default()
    }
}

/// Catches a panic of work on a Pod, and returns `None`. An internal error costs the change, and never the Pod.
pub fn caught<T>(work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    AssertUnwindSafe(work).catch_unwind().map(Result::ok)
}

#[cfg(test)]
mod tests;
