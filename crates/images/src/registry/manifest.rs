//! Parses the documents of a registry as strictly as containerd does (`core/images`, `validateMediaType`), with the
//! meaning that the OCI image specification gives them. Pure.

#[cfg(any(test, feature = "testing"))]
pub(super) mod fuzzing;

use serde::de::{Error, MapAccess};

use super::digest::Digest;
use tolerarch_core::image::{Platform, PlatformSet, Preference, Support, is_digest};
use tolerarch_text::json::First;
use tolerarch_text::json::go::{self, AnyText, Go, GoStruct, GoValue};

/// Maximum number of entries of one index.
pub(super) const ENTRIES: usize = 1000;

/// Accepted media types. Indexes come first, because old registries otherwise serve a single manifest.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// Reason why a runtime would refuse a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("larger than the limit")]
    TooLarge,
    #[error("not the JSON of a manifest or config")]
    Json,
    #[error("Content-Type and mediaType contradict each other")]
    Contradiction,
    #[error("neither an index nor a manifest")]
    MediaType,
    #[error("schema 1, which runtimes no longer pull")]
    Schema1,
    #[error("an index and a manifest in one")]
    Both,
    #[error("more than {} entries", ENTRIES)]
    Entries,
    #[error("indexes nested too deep or too wide")]
    Nesting,
    #[error("the content does not match its digest")]
    Digest,
    #[error("a descriptor without a well-formed digest")]
    Descriptor,
    #[error("the config names no os or architecture")]
    NoPlatform,
    #[error("a part of the image is missing")]
    Missing,
    #[error("a content encoding that was not requested")]
    Encoding,
}

/// Result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedImage {
    pub digest: Digest,
    pub support: Support,
    /// True if a document that the index names is missing. It may still appear: a mirror can have an index before the
    /// index's images.
    pub lacks_parts: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) media_type: String,
    pub(super) content: Content,
}

/// Content of a manifest that a Pod or an index points to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// An index or manifest list.
    Index(Vec<IndexEntry>),
    /// A single manifest, by the digest of its config.
    Image { config: String },
    /// A single manifest whose config is no image config.
    Artifact,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) preference: Preference,
    pub(super) kind: EntryKind,
    pub(super) info: EntryInfo,
}

/// What an entry of an index says, for people to read: texts that the registry sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryInfo {
    /// Digest of the entry; empty if malformed.
    pub digest: String,
    pub media_type: String,
    /// Normalised platform of the entry; empty if the entry names none.
    pub platform: String,
}

/// Reason why an entry of an index is no image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The entry is an attestation, which BuildKit puts beside an image.
    Attestation,
    /// The entry is for the platform `unknown`, as attestations and similar documents are.
    UnknownPlatform,
    /// The entry's config is not that of an image.
    Artifact,
    /// The entry has a media type that no runtime pulls.
    MediaType,
}

/// Meaning of an entry of an index to a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Skipped(Skip),
    /// The entry names the platform on which it runs.
    Runs {
        nodes: PlatformSet,
        /// True if the entry also says that it is no image. Nodes ignore that: the manifest decides.
        is_doubtful: bool,
    },
    /// The entry names no platform, so its config decides. The entry's digest is well-formed.
    Manifest,
    /// The entry is an index with a well-formed digest.
    Index,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Media {
    Index,
    Manifest,
    Schema1,
    /// No type, or one that does not say what the document is (`application/json`).
    Unspecific,
    Other,
}

fn media(text: &str) -> Media {
    match text {
        "application/vnd.oci.image.index.v1+json"
        | "application/vnd.docker.distribution.manifest.list.v2+json" => Media::Index,
        "application/vnd.oci.image.manifest.v1+json"
        | "application/vnd.docker.distribution.manifest.v2+json" => Media::Manifest,
        "application/vnd.docker.distribution.manifest.v1+json"
        | "application/vnd.docker.distribution.manifest.v1+prettyjws" => Media::Schema1,
        ""
        | "application/json"
        | "application/octet-stream"
        | "text/plain"
        | "binary/octet-stream" => Media::Unspecific,
        _ => Media::Other,
    }
}

fn is_image_config(media_type: &str) -> bool {
    matches!(
        media_type,
        "application/vnd.oci.image.config.v1+json"
            | "application/vnd.docker.container.image.v1+json"
    )
}

/// A document, as containerd reads it. containerd reads it twice: once for its members, and once for which members
/// there are, even if their value is `null`.
#[derive(Default)]
struct ManifestJson {
    schema_version: i64,
    media_type: String,
    manifests: Option<First<Go<DescriptorJson>, { ENTRIES }>>,
    config: DescriptorJson,
    has_manifests: bool,
    has_config: bool,
    has_layers: bool,
    has_fs_layers: bool,
}

impl GoStruct for ManifestJson {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        value: GoValue<'_, A>,
    ) -> Result<(), A::Error> {
        match name {
            "schemaversion" => value.read(&mut self.schema_version),
            "mediatype" => value.read(&mut self.media_type),
            // Go would merge the entries of two lists.
            "manifests" if self.has_manifests => Err(A::Error::duplicate_field("manifests")),
            "manifests" => {
                self.has_manifests = true;
                value.replace(&mut self.manifests)
            }
            "config" => {
                self.has_config = true;
                value.merge(&mut self.config)
            }
            "layers" => {
                self.has_layers = true;
                value.check::<First<Go<DescriptorJson>, 0>>()
            }
            "fslayers" => {
                self.has_fs_layers = true;
                value.skip()
            }
            "artifacttype" => value.check::<AnyText>(),
            "subject" => value.check::<Go<DescriptorJson>>(),
            "annotations" => value.check::<Go<Annotations>>(),
            _ => value.skip(),
        }
    }
}

#[derive(Default)]
struct DescriptorJson {
    media_type: String,
    digest: String,
    artifact_type: String,
    platform: Option<PlatformJson>,
    annotations: Annotations,
}

impl GoStruct for DescriptorJson {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        value: GoValue<'_, A>,
    ) -> Result<(), A::Error> {
        match name {
            "mediatype" => value.read(&mut self.media_type),
            "digest" => value.read(&mut self.digest),
            "artifacttype" => value.read(&mut self.artifact_type),
            "platform" => value.merge_pointer(&mut self.platform),
            "annotations" => value.merge(&mut self.annotations),
            "size" => value.check::<i64>(),
            "urls" => value.check::<Vec<Option<AnyText>>>(),
            _ => value.skip(),
        }
    }
}

/// The only annotation of an entry that is used; BuildKit sets it on attestations.
#[derive(Default)]
struct Annotations {
    kind: String,
}

impl GoStruct for Annotations {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        value: GoValue<'_, A>,
    ) -> Result<(), A::Error> {
        match name {
            "vnd.docker.reference.type" => value.read(&mut self.kind),
            _ => value.check::<AnyText>(),
        }
    }
}

/// A platform in a document.
#[derive(Default)]
struct PlatformJson {
    os: String,
    architecture: String,
    variant: String,
    /// Features that the node must have. A node with today's defaults has none (containerd/platforms `matcher.Match`).
    os_features: Option<Vec<Option<AnyText>>>,
}

impl GoStruct for PlatformJson {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        value: GoValue<'_, A>,
    ) -> Result<(), A::Error> {
        match name {
            "os" => value.read(&mut self.os),
            "architecture" => value.read(&mut self.architecture),
            "variant" => value.read(&mut self.variant),
            "os.features" => value.replace(&mut self.os_features),
            "os.version" => value.check::<AnyText>(),
            _ => value.skip(),
        }
    }
}

impl PlatformJson {
    fn platform(&self) -> Platform<'_> {
        Platform::new(&self.os, &self.architecture, &self.variant)
    }

    fn needs_features(&self) -> bool {
        match &self.os_features {
            Some(features) => !features.is_empty(),
            None => false,
        }
    }

    fn preference(&self) -> Preference {
        if self.needs_features() {
            Preference::NEVER
        } else {
            Preference::of(&self.platform())
        }
    }

    fn nodes(&self) -> PlatformSet {
        if self.needs_features() {
            PlatformSet::EMPTY
        } else {
            PlatformSet::serving(&self.platform())
        }
    }
}

pub(super) fn read(content_type: &str, body: &[u8]) -> Result<Manifest, ManifestError> {
    let essence = content_type.split(';').next().unwrap_or_default();
    let announced = essence.trim().to_ascii_lowercase();
    if media(&announced) == Media::Schema1 {
        return Err(ManifestError::Schema1);
    }
    let document: ManifestJson = go::read(body).map_err(|_| ManifestError::Json)?;
    if document.schema_version == 1 || document.has_fs_layers {
        return Err(ManifestError::Schema1);
    }
    let content = match kind(&announced, &document)? {
        Media::Index if document.has_config || document.has_layers => {
            return Err(ManifestError::Both);
        }
        Media::Manifest if document.has_manifests => return Err(ManifestError::Both),
        Media::Index => index(document.manifests)?,
        Media::Manifest if !document.has_config => return Err(ManifestError::Descriptor),
        Media::Manifest => image(document.config)?,
        Media::Schema1 => return Err(ManifestError::Schema1),
        Media::Unspecific | Media::Other => return Err(ManifestError::MediaType),
    };
    let media_type = if document.media_type.is_empty() {
        announced
    } else {
        document.media_type
    };
    Ok(Manifest {
        media_type,
        content,
    })
}

/// Returns the kind of a document: that of the announced type, or, if that is unspecific, that of `mediaType`.
fn kind(announced: &str, document: &ManifestJson) -> Result<Media, ManifestError> {
    match (media(announced), media(&document.media_type)) {
        (Media::Unspecific, written) => Ok(written),
        (Media::Index, Media::Manifest) | (Media::Manifest, Media::Index) => {
            Err(ManifestError::Contradiction)
        }
        // Docker's and OCI's types of one kind are interchangeable. Any other `mediaType` is ignored.
        (announced, _) => Ok(announced),
    }
}

fn index(
    descriptors: Option<First<Go<DescriptorJson>, { ENTRIES }>>,
) -> Result<Content, ManifestError> {
    let First(descriptors) = descriptors.unwrap_or(First(Vec::new()));
    if descriptors.len() > ENTRIES {
        return Err(ManifestError::Entries);
    }
    let mut entries = Vec::with_capacity(descriptors.len());
    for Go(descriptor) in descriptors {
        let mut entry = IndexEntry {
            preference: Preference::LAST,
            kind: entry_kind(&descriptor),
            info: EntryInfo {
                digest: descriptor.digest,
                media_type: descriptor.media_type,
                platform: String::new(),
            },
        };
        if let Some(platform) = &descriptor.platform {
            entry.preference = platform.preference();
            entry.info.platform = platform.platform().to_string();
        }
        if !is_digest(&entry.info.digest) {
            entry.info.digest = String::new();
            match &mut entry.kind {
                EntryKind::Manifest | EntryKind::Index => return Err(ManifestError::Descriptor),
                // A node that chooses the entry has nothing to pull.
                EntryKind::Runs { nodes, .. } => *nodes = PlatformSet::EMPTY,
                EntryKind::Skipped(_) => {}
            }
        }
        entries.push(entry);
    }
    Ok(Content::Index(entries))
}

/// Classifies an entry by its platform and media type, as nodes do (`images.Manifest`). Other members may be wrong:
/// go-containerregistry writes the media type of the config as the `artifactType` of each image, and nydus a type of
/// its own.
fn entry_kind(descriptor: &DescriptorJson) -> EntryKind {
    let is_attestation = descriptor.annotations.kind == "attestation-manifest";
    let platform = descriptor.platform.as_ref();
    if platform.is_some_and(|platform| platform.platform().is_unknown()) {
        return EntryKind::Skipped(if is_attestation {
            Skip::Attestation
        } else {
            Skip::UnknownPlatform
        });
    }
    let artifact_type = &descriptor.artifact_type;
    let is_artifact = !artifact_type.is_empty() && !is_image_config(artifact_type);
    match (media(&descriptor.media_type), platform) {
        (Media::Manifest, Some(platform)) => EntryKind::Runs {
            nodes: platform.nodes(),
            is_doubtful: is_attestation || is_artifact,
        },
        (Media::Manifest, None) => EntryKind::Manifest,
        (Media::Index, _) => EntryKind::Index,
        _ => EntryKind::Skipped(Skip::MediaType),
    }
}

/// Classifies a manifest by its config only. Nodes ignore an `artifactType` beside the config of an image.
fn image(config: DescriptorJson) -> Result<Content, ManifestError> {
    if !is_image_config(&config.media_type) {
        return Ok(Content::Artifact);
    }
    if !is_digest(&config.digest) {
        return Err(ManifestError::Descriptor);
    }
    Ok(Content::Image {
        config: config.digest,
    })
}

/// Returns the nodes on which an image with this config runs.
pub(super) fn read_config(body: &[u8]) -> Result<PlatformSet, ManifestError> {
    Ok(config_platform(body)?.nodes())
}

/// Returns the nodes of this config's architecture. The variant is ignored, because many builds leave it out.
pub(super) fn read_architecture(body: &[u8]) -> Result<PlatformSet, ManifestError> {
    let config = config_platform(body)?;
    Ok(PlatformSet::of_architecture_of(&config.platform()))
}

fn config_platform(body: &[u8]) -> Result<PlatformJson, ManifestError> {
    let platform: PlatformJson = go::read(body).map_err(|_| ManifestError::Json)?;
    if platform.os.is_empty() || platform.architecture.is_empty() {
        return Err(ManifestError::NoPlatform);
    }
    Ok(platform)
}
