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

/// What is known of a Pod's images, and the credentials that they were looked up with.
pub struct LookedUp<'a> {
    /// One for each usage of an image, in the Pod's order; those that were not awaited are missing.
    pub images: Vec<ImageSupport<'a>>,
    keyring: Keyring,
}

impl LookedUp<'_> {
    /// Says why pull secrets of the Pod gave no credential for an image that its registry refuses for this reason.
    pub(super) fn unused_secrets(&self, image: &str, reason: Reason) -> Vec<String> {
        let (Reason::Unknown(LookupError::Denied | LookupError::NotFound), Ok(image)) =
            (reason, image.parse())
        else {
            return Vec::new();
        };
        self.keyring.unused_pull_secrets(&image)
    }
}

impl Snapshot {
    /// Looks up the images of these usages, until all are known, one of them is enough, or the wait ends.
    pub async fn look_up<'a>(
        &self,
        policy: &Policy,
        namespace: &str,
        pod: &Pod<'_>,
        usages: &[Usage<'a>],
        wait: Wait<'_>,
        is_enough: impl Fn(&ImageSupport<'_>) -> bool,
    ) -> LookedUp<'a> {
        let mut supports = Supports::of(usages);
        let Some(images) = supports.set_known(policy, &is_enough) else {
            return supports.into_looked_up(Keyring::default());
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
            for (place, usage) in usages.iter().enumerate() {
                if !supports.is_set(place) && usage.image.as_ref() == Ok(image) {
                    is_decided |= is_enough(supports.set(place, outcome, failure));
                }
            }
            // Outcomes that are known now all count, so that the reason does not depend on the images' order.
            if is_decided && !lookups.is_next_known() {
                break;
            }
        }
        supports.into_looked_up(keyring)
    }

    /// Returns the recorded failure of an image that was found, whatever its manifest says.
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

    /// Returns the credentials that the Pod may use. Its pull secrets are read only if an image is unknown without
    /// them. If they cannot be read in time, the operator's credentials have to do: the next Pod finds the secrets.
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
        let is_settled =
            |image: &&ImageRef| self.resolver.is_settled(image, &shared.candidates(image));
        if images.iter().all(is_settled) {
            return shared;
        }
        let keyring = Box::pin(credentials.keyring(namespace, pod.pull_secrets()));
        timeout_at(deadline, keyring).await.unwrap_or(shared)
    }
}

/// The outcome for each usage of an image, as far as it has come.
struct Supports<'u, 'a> {
    usages: &'u [Usage<'a>],
    outcomes: Vec<Option<ImageSupport<'a>>>,
}

impl<'u, 'a> Supports<'u, 'a> {
    fn of(usages: &'u [Usage<'a>]) -> Self {
        Self {
            usages,
            outcomes: vec![None; usages.len()],
        }
    }

    /// Sets what is known without a lookup, and returns the images to look up, each once; `None` if one is enough.
    fn set_known(
        &mut self,
        policy: &Policy,
        is_enough: impl Fn(&ImageSupport<'_>) -> bool,
    ) -> Option<Vec<&'u ImageRef>> {
        let mut images: Vec<&ImageRef> = Vec::with_capacity(self.usages.len());
        for (place, usage) in self.usages.iter().enumerate() {
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
            if is_enough(self.set(place, known, None)) {
                return None;
            }
        }
        Some(images)
    }

    fn is_set(&self, place: usize) -> bool {
        self.outcomes[place].is_some()
    }

    fn set(
        &mut self,
        place: usize,
        support: Outcome,
        failure: Option<Failure>,
    ) -> &ImageSupport<'a> {
        let Usage { given, purpose, .. } = self.usages[place];
        self.outcomes[place].insert(ImageSupport {
            given,
            purpose,
            support,
            failure,
        })
    }

    fn into_looked_up(self, keyring: Keyring) -> LookedUp<'a> {
        LookedUp {
            images: self.outcomes.into_iter().flatten().collect(),
            keyring,
        }
    }
}
