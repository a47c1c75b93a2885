//! The lookups of a Pod's images, with the credentials that the Pod may use.

use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::{Snapshot, Wait};
use crate::lessons::Timestamp;
use tolerarch_core::image::{Failure, ImageRef, LookupError, Support};
use tolerarch_core::pod::{Pod, Usage};
use tolerarch_core::policy::{ImageSupport, Policy};
use tolerarch_core::reason::Reason;
use tolerarch_images::credentials::Keyring;
use tolerarch_images::resolver::{Outcome, Requester};

/// Maximum number of different images of one Pod that are looked up.
pub(super) const IMAGES: usize = 64;

/// The platforms of a Pod's images, and the credentials with which the images were looked up.
pub struct LookedUp<'a> {
    /// One item for each usage of an image, in the Pod's order, except for images that were not awaited.
    pub images: Vec<ImageSupport<'a>>,
    keyring: Keyring,
}

impl LookedUp<'_> {
    /// Returns the reasons why the Pod's pull secrets gave no credential for an image; empty unless `reason` says that the
    /// image's registry refused the lookup.
    pub(super) fn unused_secrets(&self, image: &str, reason: Reason) -> Vec<String> {
        let is_refused = matches!(
            reason,
            Reason::Unknown(LookupError::Denied | LookupError::NotFound)
        );
        if !is_refused {
            return Vec::new();
        }
        match image.parse() {
            Ok(image) => self.keyring.unused_pull_secrets(&image),
            Err(_) => Vec::new(),
        }
    }
}

impl Snapshot {
    /// Looks up the images of these usages, until all have an outcome, `is_decisive` holds for one, or the wait ends.
    pub async fn look_up<'a>(
        &self,
        policy: &Policy,
        namespace: &str,
        pod: &Pod<'_>,
        usages: &[Usage<'a>],
        wait: Wait<'_>,
        is_decisive: impl Fn(&ImageSupport<'_>) -> bool,
    ) -> LookedUp<'a> {
        let mut outcomes = Outcomes::of(usages);
        let Some(images) = outcomes.set_without_lookup(policy, &is_decisive) else {
            return outcomes.into_looked_up(Keyring::default());
        };
        let deadline = match wait {
            Wait::Until { deadline, .. } => deadline,
            Wait::ForAll(limits) => Instant::now() + limits.time,
        };
        let keyring = self.keyring(namespace, pod, &images, deadline).await;
        let candidates = |image: &ImageRef| keyring.candidates(image);
        let mut lookups = match wait {
            Wait::Until { review, .. } => {
                let requester = Requester {
                    namespace: Some(namespace),
                    review,
                };
                self.resolver
                    .lookups(requester, &images, candidates, deadline)
            }
            Wait::ForAll(limits) => limits.lookups(&self.resolver, &images, candidates),
        };
        let mut is_decided = false;
        while let Some((place, outcome)) = lookups.next().await {
            let image = images[place];
            let failure = self.failure(namespace, image, outcome, &keyring);
            for (index, usage) in usages.iter().enumerate() {
                if outcomes.is_set(index) || usage.image.as_ref() != Ok(image) {
                    continue;
                }
                let support = outcomes.set(index, outcome, failure);
                is_decided |= is_decisive(support);
            }
            // All outcomes that are ready by now count, so that the reason does not depend on the images' order.
            if is_decided && !lookups.is_next_ready() {
                break;
            }
        }
        outcomes.into_looked_up(keyring)
    }

    /// Returns the recorded failure of an image whose lookup succeeded, if there is one.
    fn failure(
        &self,
        namespace: &str,
        image: &ImageRef,
        outcome: Outcome,
        keyring: &Keyring,
    ) -> Option<Failure> {
        if outcome.is_err() || self.lessons.is_empty() {
            return None;
        }
        let digest = self.resolver.digest(image, &keyring.candidates(image))?;
        self.lessons.failure(&digest, namespace, Timestamp::now())
    }

    /// Returns the credentials that the Pod may use. The Pod's pull secrets are read only if an image is unknown without
    /// them. If they cannot be read in time, only the operator's credentials are used; the next Pod gets the secrets.
    pub(super) async fn keyring(
        &self,
        namespace: &str,
        pod: &Pod<'_>,
        images: &[&ImageRef],
        deadline: Instant,
    ) -> Keyring {
        let credentials = &self.credentials;
        let shared = credentials.shared_keyring();
        if !credentials.reads_pull_secrets() || pod.pull_secrets().next().is_none() {
            return shared;
        }
        let is_settled = |image: &&ImageRef| {
            let candidates = shared.candidates(image);
            self.resolver.is_settled(image, &candidates)
        };
        if images.iter().all(is_settled) {
            return shared;
        }
        let keyring = Box::pin(credentials.keyring(namespace, pod.pull_secrets()));
        timeout_at(deadline, keyring).await.unwrap_or(shared)
    }
}

/// The outcomes so far, one for each usage of an image.
struct Outcomes<'u, 'a> {
    usages: &'u [Usage<'a>],
    supports: Vec<Option<ImageSupport<'a>>>,
}

impl<'u, 'a> Outcomes<'u, 'a> {
    fn of(usages: &'u [Usage<'a>]) -> Self {
        Self {
            usages,
            supports: vec![None; usages.len()],
        }
    }

    /// Sets the outcomes that need no lookup, and returns the images to look up, each once; `None` if an outcome is
    /// decisive.
    fn set_without_lookup(
        &mut self,
        policy: &Policy,
        is_decisive: impl Fn(&ImageSupport<'_>) -> bool,
    ) -> Option<Vec<&'u ImageRef>> {
        let mut images: Vec<&ImageRef> = Vec::with_capacity(self.usages.len());
        for (index, usage) in self.usages.iter().enumerate() {
            let outcome = match (policy.override_for(usage), &usage.image) {
                (Some(platforms), _) => Ok(Support::Index(platforms)),
                (None, Ok(image)) if images.contains(&image) => continue,
                (None, Ok(image)) if images.len() < IMAGES => {
                    images.push(image);
                    continue;
                }
                (None, Ok(_)) => Err(LookupError::TooMany),
                (None, Err(error)) => Err(*error),
            };
            let support = self.set(index, outcome, None);
            if is_decisive(support) {
                return None;
            }
        }
        Some(images)
    }

    fn is_set(&self, index: usize) -> bool {
        self.supports[index].is_some()
    }

    fn set(
        &mut self,
        index: usize,
        support: Outcome,
        failure: Option<Failure>,
    ) -> &ImageSupport<'a> {
        let Usage { given, purpose, .. } = self.usages[index];
        self.supports[index].insert(ImageSupport {
            given,
            purpose,
            support,
            failure,
        })
    }

    fn into_looked_up(self, keyring: Keyring) -> LookedUp<'a> {
        let images = self.supports.into_iter().flatten().collect();
        LookedUp { images, keyring }
    }
}
