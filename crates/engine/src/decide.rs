//! The decision on a Pod: which of its images are looked up, with which credentials, and until when.
//!
//! Both reviews and commands decide here, without HTTP. Each decision uses one [`Snapshot`], so that no decision mixes two
//! configurations.

mod batch;
mod examined;
mod lookup;
mod tags;
mod template;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use tokio::time::{Duration, Instant};

pub use batch::BatchLimits;
pub use examined::{BlockingImage, Examined, ImageState, PoolState};
pub use lookup::LookedUp;

use crate::lessons::{Lessons, Timestamp};
use tolerarch_core::decision::Decision;
use tolerarch_core::image::LookupError;
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::{ImageSupport, Policy};
use tolerarch_core::reason::Reason;
use tolerarch_images::credentials::Credentials;
use tolerarch_images::resolver::Resolver;

/// One consistent configuration. A decision uses exactly one.
#[derive(Clone)]
pub struct Snapshot {
    /// The policy of reviews without a profile.
    pub policy: Policy,
    /// The policies of reviews with a profile, by the profile's name.
    pub profiles: BTreeMap<String, Policy>,
    /// Maximum time for which a Pod waits for its images.
    pub budget: Duration,
    pub credentials: Credentials,
    /// Looks up images. A lookup continues under this snapshot after the review has been answered.
    pub resolver: Resolver,
    /// Images that failed on an architecture although their manifests include it, and owners that delete changed Pods.
    pub lessons: Arc<Lessons>,
}

/// The current snapshot. A decision keeps the snapshot that it started with.
pub type CurrentSnapshot = Arc<ArcSwap<Snapshot>>;

/// Time for which a Pod waits for its images.
#[derive(Clone, Copy)]
pub enum Wait<'a> {
    /// Until a deadline, or until one image decides.
    Until {
        deadline: Instant,
        /// UID of the review, for the log; `None` without a review.
        review: Option<&'a str>,
    },
    /// Until the lookups of all images have ended.
    ForAll(&'a BatchLimits),
}

impl Snapshot {
    /// Returns the policy for a profile, or for reviews without one; `None` if the profile does not exist.
    pub fn policy_for(&self, profile: Option<&str>) -> Option<&Policy> {
        match profile {
            Some(name) => self.profiles.get(name),
            None => Some(&self.policy),
        }
    }

    /// Decides on a Pod. In a review, looks up its images only until one of them decides.
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
        let is_decisive = |image: &ImageSupport<'_>| match wait {
            Wait::Until { .. } => policy.is_closed_by(pod, image),
            Wait::ForAll(_) => false,
        };
        let usages = pod.images();
        let lookup = self.look_up(policy, namespace, pod, &usages, wait, is_decisive);
        let looked_up = lookup.await;
        let rank = policy.rank(namespace, pod);
        let mut decision = Decision::of(policy, pod, rank, &looked_up.images);
        if let Some(image) = decision.image {
            decision.unused_secrets = looked_up.unused_secrets(image, decision.reason);
        }
        decision
    }

    /// Decides, and looks up every image, even if the decision does not depend on it. An internal error affects this
    /// decision only.
    pub async fn examine(
        &self,
        policy: &Policy,
        namespace: &str,
        pod: &Pod<'_>,
        limits: &BatchLimits,
    ) -> Examined {
        let examined = async {
            let usages = pod.images();
            let wait = Wait::ForAll(limits);
            let lookup = self.look_up(policy, namespace, pod, &usages, wait, |_| false);
            let looked_up = lookup.await;
            let images = &looked_up.images;
            let decision = match self.without_images(policy, namespace, pod) {
                Some(decision) => decision,
                None => Decision::of(policy, pod, policy.rank(namespace, pod), images),
            };
            let mut examined = Examined::of(policy, namespace, pod, decision, images);
            for state in &mut examined.images {
                if let Some(reason) = state.unknown {
                    state.unused_secrets = looked_up.unused_secrets(&state.image, reason);
                }
            }
            examined
        };
        match caught(examined).await {
            Some(examined) => examined,
            None => Examined {
                skipped: None,
                ..Examined::skipped(Reason::Unknown(LookupError::Internal))
            },
        }
    }

    /// Decides without the images if they cannot matter; `None` if they can.
    fn without_images(
        &self,
        policy: &Policy,
        namespace: &str,
        pod: &Pod<'_>,
    ) -> Option<Decision<'static>> {
        if let Some(decision) = Decision::without_images(policy, pod) {
            return Some(decision);
        }
        if self.lessons.is_empty() {
            return None;
        }
        let (kind, name) = pod.controller()?;
        let now = Timestamp::now();
        if !self.lessons.recreates(namespace, kind, name, now) {
            return None;
        }
        Some(Decision::unchanged(Reason::OwnerRecreates))
    }
}

/// Runs work on a Pod; `None` if it panics. After an internal error, the Pod is admitted unchanged.
pub fn caught<T>(work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    AssertUnwindSafe(work).catch_unwind().map(Result::ok)
}

#[cfg(test)]
mod tests;
