//! Platforms of an image, as `oci-client` reads them.
//!
//! The types for manifests, indexes and configs are another author's. The mapping to nodes shares only the names of the nodes
//! with the code under test.

use std::pin::Pin;

use oci_client::Reference;
use oci_client::client::Client;
use oci_client::config::ConfigFile;
use oci_client::manifest::{ImageIndexEntry, OciImageManifest, OciManifest};
use oci_client::secrets::RegistryAuth;
use tolerarch_core::image::PlatformSet;

type PlatformsFuture<'a> = Pin<Box<dyn Future<Output = Option<PlatformSet>> + Send + 'a>>;

/// Returns the nodes on which an image runs, or `None` if the manifest is not an image.
pub(crate) fn nodes<'a>(client: &'a Client, image: &'a Reference) -> PlatformsFuture<'a> {
    Box::pin(async move {
        let (manifest, _) = client
            .pull_manifest(image, &RegistryAuth::Anonymous)
            .await
            .unwrap();
        match manifest {
            OciManifest::Image(manifest) => nodes_of_image(client, image, &manifest).await,
            OciManifest::ImageIndex(index) => {
                let mut union = PlatformSet::EMPTY;
                let mut entries_without_platform = 0;
                // Every node chooses the first entry without a platform, whether it runs there or not.
                let may_be_chosen = |entry: &&ImageIndexEntry| {
                    entries_without_platform += usize::from(entry.platform.is_none());
                    entry.platform.is_some() || entries_without_platform == 1
                };
                for entry in index
                    .manifests
                    .iter()
                    .filter(|entry| is_image(entry))
                    .filter(may_be_chosen)
                {
                    union = union.union(nodes_of_entry(client, image, entry).await);
                }
                Some(union)
            }
        }
    })
}

/// Returns whether an entry is an image. Attestations are manifests for `unknown/unknown`.
fn is_image(entry: &ImageIndexEntry) -> bool {
    entry
        .platform
        .as_ref()
        .is_none_or(|platform| platform.os.to_string() != "unknown")
}

async fn nodes_of_entry(
    client: &Client,
    image: &Reference,
    entry: &ImageIndexEntry,
) -> PlatformSet {
    if let Some(platform) = &entry.platform {
        let variant = platform.variant.as_deref().unwrap_or_default();
        return named(
            &platform.os.to_string(),
            &platform.architecture.to_string(),
            variant,
        );
    }
    let part = Reference::with_digest(
        image.registry().to_owned(),
        image.repository().to_owned(),
        entry.digest.clone(),
    );
    nodes(client, &part).await.unwrap_or_default()
}

/// Reads the platform of a config. `oci-client` has no variant there.
async fn nodes_of_image(
    client: &Client,
    image: &Reference,
    manifest: &OciImageManifest,
) -> Option<PlatformSet> {
    if !matches!(
        manifest.config.media_type.as_str(),
        "application/vnd.oci.image.config.v1+json"
            | "application/vnd.docker.container.image.v1+json"
    ) {
        return None;
    }
    let mut config = Vec::new();
    client
        .pull_blob(image, &manifest.config, &mut config)
        .await
        .unwrap();
    let config: ConfigFile = serde_json::from_slice(&config).unwrap();
    Some(named(
        &config.os.to_string(),
        &config.architecture.to_string(),
        "",
    ))
}

/// Returns the nodes with this platform. There are none for some platforms, such as windows or amd64/v3.
fn named(os: &str, architecture: &str, variant: &str) -> PlatformSet {
    let name = match variant {
        "" => format!("{os}/{architecture}"),
        variant => format!("{os}/{architecture}/{variant}"),
    };
    name.parse().unwrap_or_default()
}
