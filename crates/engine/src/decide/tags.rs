//! Lists of tags, with the credentials that a Pod may use.

use tokio::time::Instant;

use super::{BatchLimits, Snapshot};
use tolerarch_core::image::ImageRef;
use tolerarch_core::pod::Pod;
use tolerarch_images::registry::{Error, TagList};

impl Snapshot {
    /// Lists the tags of an image's repository with the Pod's credentials. A list counts as a lookup for the limits.
    ///
    /// # Errors
    /// The failure of the list's first page.
    pub async fn tags(
        &self,
        namespace: &str,
        pod: &Pod<'_>,
        image: &ImageRef,
        limits: &BatchLimits,
    ) -> Result<TagList, Error> {
        let deadline = Instant::now() + limits.time;
        let keyring = self.keyring(namespace, pod, &[image], deadline).await;
        let permit = limits.permit(image).await.map_err(|_| Error::Crowded)?;
        let list = self.resolver.tags(image, keyring.candidates(image)).await;
        drop(permit);
        list
    }
}
