//! Entries of the shared cache and their keys. Every key is a hash. With `keyFile` it is a keyed hash, and only then
//! may a credential be part of it: replicas with the same credential and the same `keyFile` share the answers to that
//! credential. An entry has 46 bytes of content and 32 bytes that authenticate it. An entry of another version, of a
//! writer without the key of `keyFile`, or copied from another key is ignored.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use tokio::time::Duration;

use crate::credentials::{Credential, hash_parts};
use crate::registry::{Digest, ResolvedImage, VerifiedPlatforms};
use tolerarch_core::image::{ImageRef, PlatformSet, Support};

/// Version of entries. It changes with their layout, or with the meaning of any part.
const FORMAT: u8 = 1;
/// Version of the model. It is raised when the same documents come to mean other platforms.
const MODEL: &str = "1";
/// Bytes of the content: format, kind, platforms, time, digest.
const CONTENT: usize = 1 + 1 + 4 + 8 + 32;
pub(super) const LENGTH: usize = CONTENT + 32;
/// Maximum difference between the clocks of replicas.
const SKEW: Duration = Duration::from_secs(60);

pub(super) struct Keys {
    prefix: String,
    /// Versions and all platforms of the model: an answer means something else if one of them differs.
    meaning: String,
    /// The operator's key; without `keyFile` it is empty, which is no secret.
    key: hmac::Key,
    has_secret: bool,
}

impl Keys {
    pub(super) fn new(prefix: &str, secret: Option<&[u8]>) -> Self {
        Self {
            prefix: prefix.to_owned(),
            meaning: format!("{FORMAT} {MODEL} {}", PlatformSet::ALL),
            key: hmac::Key::new(hmac::HMAC_SHA256, secret.unwrap_or_default()),
            has_secret: secret.is_some(),
        }
    }

    /// Returns the key of a digest in the image's repository; without a digest, the key of the image's tag. The key
    /// contains the repository, as whoever may not read it must not learn its content. Answers that are verified for
    /// nodes of other platforms have other keys. `None` means that the answer must not be shared.
    pub(super) fn of(
        &self,
        image: &ImageRef,
        digest: Option<Digest>,
        credential: Option<&Credential>,
        verified: VerifiedPlatforms,
    ) -> Option<String> {
        let [form, user, secret] = match credential {
            None => ["anonymous", "", ""],
            Some(_) if !self.has_secret => return None,
            Some(credential) => credential.parts(),
        };
        let digest = digest.map(|digest| digest.to_string());
        let [kind, name] = match &digest {
            Some(digest) => ["digest", digest.as_str()],
            None => ["tag", image.target()],
        };
        let verified = format!("{} {}", verified.manifests, verified.configs);
        let parts = [
            "key",
            &self.meaning,
            &verified,
            kind,
            image.host(),
            image.repository(),
            name,
            form,
            user,
            secret,
        ];
        let hash = hash_parts(&self.key, parts.map(str::as_bytes));
        Some(format!("{}{}", self.prefix, BASE64.encode(hash)))
    }

    /// Computes the proof that this content was written under this key. With `keyFile` only a replica can have written
    /// it, without `keyFile` anyone.
    fn proof(&self, key: &str, content: &[u8]) -> [u8; 32] {
        hash_parts(&self.key, [b"value".as_slice(), key.as_bytes(), content])
    }
}

/// Returns the bytes to store under this key. `now` is the time since the Unix epoch.
pub(super) fn encode(
    resolved: ResolvedImage,
    keys: &Keys,
    key: &str,
    now: Duration,
) -> [u8; LENGTH] {
    let (kind, platforms) = match resolved.support {
        Support::Index(set) => (0, set),
        Support::Single(set) => (1, set),
        Support::Artifact => (2, PlatformSet::EMPTY),
        // Invalid for other replicas: a partial answer is soon looked up again.
        Support::Partial { .. } => (u8::MAX, PlatformSet::EMPTY),
    };
    let mut bytes = [0; LENGTH];
    bytes[0] = FORMAT;
    bytes[1] = kind;
    bytes[2..6].copy_from_slice(&platforms.bits().to_be_bytes());
    let written = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    bytes[6..14].copy_from_slice(&written.to_be_bytes());
    bytes[14..CONTENT].copy_from_slice(&resolved.digest.0);
    let proof = keys.proof(key, &bytes[..CONTENT]);
    bytes[CONTENT..].copy_from_slice(&proof);
    bytes
}

/// Decodes the platforms and their age; `None` unless [`encode`] returned these bytes for this key.
#[warn(clippy::arithmetic_side_effects)]
pub(super) fn decode(
    bytes: &[u8],
    keys: &Keys,
    key: &str,
    now: Duration,
) -> Option<(ResolvedImage, Duration)> {
    let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
    let (content, proof) = bytes.split_at(CONTENT);
    verify_slices_are_equal(&keys.proof(key, content), proof).ok()?;
    let bits = u32::from_be_bytes(content[2..6].try_into().ok()?);
    let set = PlatformSet::from_bits(bits)?;
    let support = match (content[0], content[1]) {
        (FORMAT, 0) => Support::Index(set),
        (FORMAT, 1) => Support::Single(set),
        (FORMAT, 2) if set.is_empty() => Support::Artifact,
        _ => return None,
    };
    let millis = u64::from_be_bytes(content[6..14].try_into().ok()?);
    let written = Duration::from_millis(millis);
    if written > now.saturating_add(SKEW) {
        return None;
    }
    let resolved = ResolvedImage {
        digest: Digest(content[14..].try_into().ok()?),
        support,
        lacks_parts: false,
    };
    Some((resolved, now.saturating_sub(written)))
}

#[cfg(test)]
mod tests;
