//! Fills the cache before the first lookup.

use super::Resolver;
use crate::credentials::CredentialId;
use crate::registry::Found;
use tolerarch_core::image::ImageRef;

impl Resolver {
    /// Caches what anonymous access found for an image.
    pub fn learn(&self, image: &ImageRef, found: &Found) {
        self.fetcher
            .cache
            .store(image, CredentialId::ANONYMOUS, found);
    }
}
