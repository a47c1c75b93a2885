//! Fills the cache before the first lookup.

use super::Resolver;
use crate::credentials::CredentialId;
use crate::registry::ResolvedImage;
use tolerarch_core::image::ImageRef;

impl Resolver {
    /// Caches the result of an anonymous lookup.
    pub fn store(&self, image: &ImageRef, resolved: &ResolvedImage) {
        self.fetcher
            .cache
            .store(image, CredentialId::ANONYMOUS, resolved);
    }
}
