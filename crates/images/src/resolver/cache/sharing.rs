//! What is taken over from other replicas, and for how long they may have what is known here.

use tokio::time::Duration;

use super::{Cache, CacheSettings, Tag, key, millis};
use crate::credentials::CredentialId;
use crate::registry::Digest;
use crate::shared_cache::Entry;
use tolerarch_core::image::{ImageRef, Support};

impl CacheSettings {
    /// How long what a registry said of a tag may be of use.
    fn tag_life(&self) -> Duration {
        self.tag.saturating_add(self.stale_while_revalidate.max(self.stale_if_error))
    }
}

impl Cache {
    /// Takes over what another replica knows of an image, unless this one knows better.
    pub(in crate::resolver) fn adopt(&self, image: &ImageRef, access: CredentialId, entry: &Entry) {
        let Entry { digest, support, age } = *entry;
        if let Some(named) = image.digest() {
            return self.put_platforms(self.platforms_key(image, access, Digest::of_text(named)), support);
        }
        if age >= self.settings.tag_life() {
            return;
        }
        let now = self.now();
        let confirmed = self.early().saturating_sub(millis(age));
        match self.levels.tags.get(&*key(image, access)) {
            Some(Tag::Points { confirmed: own, .. }) if own >= confirmed => return,
            Some(Tag::Failed { until, .. }) if now < until => return,
            _ => {}
        }
        self.put_platforms(self.platforms_key(image, access, digest), support);
        self.put_tag(image, access, Tag::Points { to: digest, support, confirmed, retry: 0 });
    }

    /// Takes over the platforms of a digest that another replica knows.
    pub(in crate::resolver) fn adopt_digest(
        &self,
        image: &ImageRef,
        access: CredentialId,
        digest: Digest,
        support: Support,
    ) {
        self.put_platforms(self.platforms_key(image, access, digest), support);
    }

    /// How long what a registry says of a tag now may be shared; none if it may not.
    pub(in crate::resolver) fn shared_life(&self) -> Option<Duration> {
        self.is_current().then(|| self.settings.tag_life())
    }

    /// Whether the platforms of this digest are known.
    pub(in crate::resolver) fn knows(&self, image: &ImageRef, access: CredentialId, digest: Digest) -> bool {
        self.points_to(image, access) == Some(digest) || self.platforms_of(image, access, digest).is_some()
    }
}
