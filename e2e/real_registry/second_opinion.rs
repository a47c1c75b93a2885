//! Where an image runs, as `oci-client` reads its documents: another author's types for manifests, indexes and configs,
//! and a mapping to nodes that shares nothing with the one under test but the names of the nodes.

use std::pin::Pin;

use oci_client::Reference;
use oci_client::client::Client;
use oci_client::config::ConfigFile;
use oci_client::manifest::{ImageIndexEntry, OciImageManifest, OciManifest};
use oci_client::secrets::RegistryAuth;
use tolerarch_core::image::PlatformSet;

type Opinion<'a> = Pin<Box<dyn Future<Output = Option<PlatformSet>> + Send + 'a>>;

/// The nodes on which an image runs; `None` if it is none.
pub(crate) fn nodes<'a>(client: &'a Client, image: &'a Reference) -> Opinion<'a> {
    Box::pin(async move {
        let (manifest, _) = client
            .pull_manifest(image, &RegistryAuth::Anonymous)
            .await
            .unwrap();
        match manifest {
            OciManifest::Image(manifest) => nodes_of_image(client, image, &manifest).await,
            OciManifest::ImageIndex(index) => {
                let mut all = PlatformSet::EMPTY;
                let mut unnamed = 0;
                // Of the entries without a platform every node takes the first, whether that runs there or not.
                let is_taken = |entry: &&ImageIndexEntry| {
                    unnamed += usize::from(entry.platform.is_none());
                    entry.platform.is_some() || unnamed == 1
                };
                for entry in index
                    .manifests
                    .iter()
                    .filter(|entry| is_image(entry))
                    .filter(is_taken)
                {
                    all = all.union(nodes_of_entry(client, image, entry).await);
                }
                Some(all)
            }
        }
    })
}

/// Attestations are manifests for `unknown/unknown`.
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

/// `oci-client` knows no variant in a config.
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

/// The nodes of this name, none if there are none: a windows or amd64/v3 image.
fn named(os: &str, architecture: &str, variant: &str) -> PlatformSet {
    let name = match variant {
        "" => format!("{os}/{architecture}"),
        variant => format!("{os}/{architecture}/{variant}"),
    };
    name.parse().unwrap_or_default()
}
