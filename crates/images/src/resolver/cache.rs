//! Cache of images with two levels: a tag points to a digest for a while, and a digest has its platforms until
//! eviction. quick_cache bounds both levels, and keeps the working set through a flood. It has no lifetimes, so the
//! values have them. An answer is cached only for the credential that gave it: the [`CredentialId`] is part of the keys
//! of both levels. So neither a hit, a miss nor a failure reveals what another tenant may access. A failure is never
//! stored as platforms, and never replaces a good answer that may still be served.

use quick_cache::sync::Cache as Bounded;
use std::borrow::Cow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::{Duration, Instant};

use super::metrics::{PLATFORMS, ResolverMetrics, TAG};
use crate::credentials::CredentialId;
use crate::registry::{Digest, Error, ResolvedImage};
use crate::ttl_cache::Weight;
use tolerarch_core::image::{ImageRef, LookupError, Support};

/// Longest time for which a registry's `Retry-After` is honoured.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// Divisor of lifetimes: each is shortened by up to a tenth, so that replicas do not revalidate at the same time.
const JITTER: Millis = 10;
/// Bytes of a key that count as one entry; a longer key counts as several.
const KEY_BYTES: usize = 256;

pub type Outcome = Result<Support, LookupError>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Maximum number of images.
    pub capacity: usize,
    /// Time for which a tag is assumed to point to the same digest; the content of a digest never changes.
    pub tag: Duration,
    /// Time after `tag` for which an answer is still served at once, while a refresh runs in the background.
    pub stale_while_revalidate: Duration,
    /// Time after `tag` for which an answer is served while the registry fails.
    pub stale_if_error: Duration,
    pub not_found: Duration,
    pub denied: Duration,
    /// Minimum time; longer if `Retry-After` demands it.
    pub throttled: Duration,
    pub timeout: Duration,
    pub unreachable: Duration,
    pub bad_manifest: Duration,
}

impl Default for CacheSettings {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            capacity: 100_000,
            tag: 60 * minute,
            stale_while_revalidate: 10 * minute,
            stale_if_error: 24 * 60 * minute,
            not_found: minute,
            denied: minute,
            throttled: minute,
            timeout: minute / 4,
            unreachable: minute / 4,
            bad_manifest: minute,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cached {
    /// A good answer, or a recent failure, within its lifetime.
    Fresh(Outcome),
    /// A good answer that is served at once; `due` if it is to be refreshed.
    Stale {
        support: Support,
        due: bool,
    },
    /// A good answer that is served only if the registry fails.
    Expired(Support),
    Nothing,
}

/// Answers, and their lifetimes under one configuration.
pub(super) struct Cache {
    levels: Arc<Levels>,
    settings: CacheSettings,
    /// Number of the configuration. A lookup under a former configuration stores nothing: its registry may be denied by
    /// now.
    generation: u64,
}

type Level<K, V> = Bounded<K, V, Weight<K, V>>;

struct Levels {
    tags: Level<Box<str>, Tag>,
    platforms: Level<PlatformsKey, Support>,
    /// Hasher of repositories and credentials for [`PlatformsKey`]; keyed, so that nobody can construct collisions.
    repositories: std::hash::RandomState,
    metrics: ResolverMetrics,
    began: Instant,
    latest: AtomicU64,
}

/// Milliseconds since the cache was made; negative for older answers of other replicas.
pub(super) type Millis = i64;

#[derive(Clone, Copy, Debug)]
enum Tag {
    Points {
        to: Digest,
        /// Platforms of that digest, so that a hit reads one map once.
        support: Support,
        /// Time at which the registry last confirmed the digest, minus the jitter.
        confirmed: Millis,
        /// Time of the next refresh after the registry failed; 0 if it did not fail.
        retry: Millis,
    },
    /// A failure, or an answer with a part that is missing or unknown.
    Brief { outcome: Outcome, until: Millis },
}

/// Hash of repository and credential, and a digest: whoever may not read a repository must not learn its content.
type PlatformsKey = (u64, Digest);

/// Durations of the pauses that a 429 causes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    pub(super) repository: Duration,
    /// Maximum for the registry.
    pub(super) registry: Duration,
}

impl Cache {
    pub(super) fn new(settings: CacheSettings, metrics: ResolverMetrics) -> Self {
        let items = settings.capacity;
        let capacity = settings.capacity as u64;
        let levels = Levels {
            tags: Level::with_weighter(
                items,
                capacity,
                Weight(|key, _| 1 + (key.len() / KEY_BYTES) as u64),
            ),
            platforms: Level::with_weighter(items, capacity, Weight(|_, _| 1)),
            repositories: std::hash::RandomState::new(),
            metrics,
            began: Instant::now(),
            latest: AtomicU64::new(0),
        };
        Self {
            levels: Arc::new(levels),
            settings,
            generation: 0,
        }
    }

    /// Makes the cache of another configuration, with the same capacity. From now on cached answers have the new
    /// lifetimes, and only lookups under the new configuration are stored. Unless `keeps_answers`, the two caches share
    /// nothing: if the cache were only cleared, a lookup that ends during the change could still store its answer.
    pub(super) fn reconfigured(&self, settings: CacheSettings, keeps_answers: bool) -> Self {
        let settings = CacheSettings {
            capacity: self.settings.capacity,
            ..settings
        };
        if !keeps_answers {
            return Self::new(settings, self.levels.metrics.clone());
        }
        let generation = self.levels.latest.fetch_add(1, Ordering::Relaxed) + 1;
        Self {
            levels: self.levels.clone(),
            settings,
            generation,
        }
    }

    pub(super) fn get(&self, image: &ImageRef, access: CredentialId) -> Cached {
        self.get_at(image, access, self.now())
    }

    /// Returns what is cached at `now`, for callers with several images: reading the clock takes longer than a hit.
    pub(super) fn get_at(&self, image: &ImageRef, access: CredentialId, now: Millis) -> Cached {
        if let Some(digest) = Digest::named_by(image) {
            let key = self.platforms_key(image, access, digest);
            if let Some(support) = self.levels.platforms.get(&key) {
                return Cached::Fresh(Ok(support));
            }
        }
        match self.levels.tags.get(&*key(image, access)) {
            Some(Tag::Points {
                support,
                confirmed,
                retry,
                ..
            }) => self.by_age(support, now, confirmed, retry),
            Some(Tag::Brief { outcome, until }) if now < until => Cached::Fresh(outcome),
            _ => Cached::Nothing,
        }
    }

    fn by_age(&self, support: Support, now: Millis, confirmed: Millis, retry: Millis) -> Cached {
        let CacheSettings {
            tag,
            stale_while_revalidate,
            stale_if_error,
            ..
        } = self.settings;
        let age = now - confirmed;
        let fresh = millis(tag);
        let at_once = millis(stale_while_revalidate);
        if age < fresh {
            return Cached::Fresh(Ok(support));
        }
        // A registry that failed a moment ago probably still fails: no Pod waits for that.
        let is_failing = retry > 0 && now < retry + at_once;
        let is_usable = age < fresh + millis(stale_if_error);
        if age < fresh + at_once || is_failing && is_usable {
            let due = now >= retry;
            return Cached::Stale { support, due };
        }
        if is_usable {
            Cached::Expired(support)
        } else {
            Cached::Nothing
        }
    }

    /// Returns the digest to which the tag pointed last, however long ago: a HEAD request can confirm it.
    pub(super) fn last_digest(&self, image: &ImageRef, access: CredentialId) -> Option<Digest> {
        let Tag::Points { to, .. } = self.levels.tags.get(&*key(image, access))? else {
            return None;
        };
        Some(to)
    }

    /// Records that the registry reports this digest for the tag. Returns the digest's platforms if they are cached.
    pub(super) fn confirm(
        &self,
        image: &ImageRef,
        access: CredentialId,
        digest: Digest,
    ) -> Option<Support> {
        let support = match self.levels.tags.get(&*key(image, access)) {
            Some(Tag::Points { to, support, .. }) if to == digest => support,
            _ => {
                let key = self.platforms_key(image, access, digest);
                self.levels.platforms.get(&key)?
            }
        };
        self.point(image, access, digest, support);
        Some(support)
    }

    /// Stores a registry's answer.
    pub(super) fn store(&self, image: &ImageRef, access: CredentialId, resolved: &ResolvedImage) {
        if resolved.lacks_parts {
            // The answer expires like a tag's, even if the image names a digest, so that the missing parts are looked
            // up.
            let tag = Tag::Brief {
                outcome: Ok(resolved.support),
                until: self.now() + jittered(self.settings.tag),
            };
            return self.put_tag(image, access, tag);
        }
        self.put_platforms(image, access, resolved.digest, resolved.support);
        match Digest::named_by(image) {
            // The named digest may have another algorithm than `resolved.digest`, which is a SHA-256.
            Some(named) => self.put_platforms(image, access, named, resolved.support),
            None => self.point(image, access, resolved.digest, resolved.support),
        }
    }

    /// Stores the answer of another replica with its age, unless this replica has a newer answer or a recent failure.
    pub(super) fn adopt(
        &self,
        image: &ImageRef,
        access: CredentialId,
        resolved: &ResolvedImage,
        age: Duration,
    ) {
        let ResolvedImage {
            digest, support, ..
        } = *resolved;
        if let Some(named) = Digest::named_by(image) {
            return self.put_platforms(image, access, named, support);
        }
        let now = self.now();
        let confirmed = self.jittered_now() - millis(age);
        match self.levels.tags.get(&*key(image, access)) {
            Some(Tag::Points {
                confirmed: recorded,
                ..
            }) if recorded >= confirmed => return,
            Some(Tag::Brief { until, .. }) if now < until => return,
            _ => {}
        }
        self.put_platforms(image, access, digest, support);
        let tag = Tag::Points {
            to: digest,
            support,
            confirmed,
            retry: 0,
        };
        self.put_tag(image, access, tag);
    }

    /// Returns the time for which an answer about a tag may be used.
    pub(super) fn tag_life(&self) -> Duration {
        let CacheSettings {
            tag,
            stale_while_revalidate,
            stale_if_error,
            ..
        } = self.settings;
        tag.saturating_add(stale_while_revalidate.max(stale_if_error))
    }

    /// Records a failed lookup, beside the last good answer if that may be served.
    pub(super) fn fail(&self, image: &ImageRef, access: CredentialId, error: &Error) {
        let why = LookupError::from(error);
        let settings = &self.settings;
        let life = match why {
            LookupError::NotFound => settings.not_found,
            LookupError::Denied => settings.denied,
            LookupError::Throttled => self.pauses(error).repository,
            LookupError::Timeout => settings.timeout,
            LookupError::BadManifest => settings.bad_manifest,
            LookupError::Unreachable
            | LookupError::AddressNotAllowed
            | LookupError::NotAllowed
            | LookupError::Overloaded
            | LookupError::BudgetExceeded
            | LookupError::CircuitOpen
            | LookupError::Invalid
            | LookupError::PullNever
            | LookupError::TooMany
            | LookupError::Internal => settings.unreachable,
        };
        let until = self.now() + jittered(life);
        let serves_older =
            !error.class().ends_older_answers() && self.last_good(image, access).is_some();
        let tag = match self.levels.tags.get(&*key(image, access)) {
            Some(Tag::Points {
                to,
                support,
                confirmed,
                ..
            }) if serves_older => Tag::Points {
                to,
                support,
                confirmed,
                retry: until.max(1),
            },
            _ => {
                let outcome = match *error {
                    Error::Partial { runs, unknown, .. } => {
                        Ok(Support::Partial { runs, unknown, why })
                    }
                    _ => Err(why),
                };
                Tag::Brief { outcome, until }
            }
        };
        self.put_tag(image, access, tag);
    }

    /// Returns for how long a 429 pauses its repository and the registry. `Retry-After` may prolong the pause of the
    /// repository.
    pub(super) fn pauses(&self, error: &Error) -> Pauses {
        let registry = self.settings.throttled;
        let mut repository = registry;
        if let Error::Throttled(Some(retry_after)) = error.cause() {
            let honoured = (*retry_after).min(RETRY_AFTER_MAX);
            repository = repository.max(honoured);
        }
        Pauses {
            repository,
            registry,
        }
    }

    /// Returns the good answer that may be served while the registry fails.
    pub(super) fn last_good(&self, image: &ImageRef, access: CredentialId) -> Option<Support> {
        match self.get(image, access) {
            Cached::Fresh(outcome) => outcome.ok(),
            Cached::Stale { support, .. } | Cached::Expired(support) => Some(support),
            Cached::Nothing => None,
        }
    }

    fn point(&self, image: &ImageRef, access: CredentialId, to: Digest, support: Support) {
        let tag = Tag::Points {
            to,
            support,
            confirmed: self.jittered_now(),
            retry: 0,
        };
        self.put_tag(image, access, tag);
    }

    fn jittered_now(&self) -> Millis {
        let tag = self.settings.tag;
        self.now() - (millis(tag) - jittered(tag))
    }

    fn put_tag(&self, image: &ImageRef, access: CredentialId, tag: Tag) {
        self.put(TAG, &self.levels.tags, key(image, access).into(), tag);
    }

    fn put_platforms(
        &self,
        image: &ImageRef,
        access: CredentialId,
        digest: Digest,
        support: Support,
    ) {
        self.put(
            PLATFORMS,
            &self.levels.platforms,
            self.platforms_key(image, access, digest),
            support,
        );
    }

    fn put<K: Clone + Eq + Hash, V: Clone>(
        &self,
        level: &str,
        entries: &Level<K, V>,
        key: K,
        value: V,
    ) {
        if !self.is_current() {
            return;
        }
        let is_new = !entries.contains_key(&key);
        let without_eviction = entries.len() + usize::from(is_new);
        entries.insert(key, value);
        let count = entries.len();
        let evicted = without_eviction.saturating_sub(count);
        self.levels.metrics.set_cache_entries(level, count, evicted);
    }

    /// Returns whether this is the latest configuration.
    pub(super) fn is_current(&self) -> bool {
        self.generation == self.levels.latest.load(Ordering::Relaxed)
    }

    fn platforms_key(
        &self,
        image: &ImageRef,
        access: CredentialId,
        digest: Digest,
    ) -> PlatformsKey {
        let repository = (image.host(), image.repository(), access);
        (self.levels.repositories.hash_one(repository), digest)
    }

    pub(super) fn now(&self) -> Millis {
        millis(self.levels.began.elapsed())
    }
}

/// Returns the key of an image for one credential: for anonymous access the image itself. No image contains a space.
fn key(image: &ImageRef, access: CredentialId) -> Cow<'_, str> {
    match access {
        CredentialId::ANONYMOUS => Cow::Borrowed(image.as_str()),
        access => Cow::Owned(format!("{image} {:x}", access.0)),
    }
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 4)
}

fn jittered(life: Duration) -> Millis {
    let life = millis(life);
    life - fastrand::i64(0..=life / JITTER)
}

#[cfg(test)]
mod tests;
