//! Binary form of an entry of the shared cache: 46 bytes of content and 32 that authenticate it. An entry of another
//! version, of a writer without the key of `keyFile`, or copied from another key is ignored.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use tokio::time::Duration;

use super::key::{FORMAT, Keys};
use crate::registry::{Digest, Found};
use tolerarch_core::image::{PlatformSet, Support};

/// Bytes of the content: format, kind, platforms, time, digest.
const CONTENT: usize = 1 + 1 + 4 + 8 + 32;
pub(super) const LENGTH: usize = CONTENT + 32;
/// Maximal difference between the clocks of replicas.
const SKEW: Duration = Duration::from_secs(60);

/// Returns the bytes to store under this key. `now` is the time since the Unix epoch.
pub(super) fn encode(found: Found, keys: &Keys, key: &str, now: Duration) -> [u8; LENGTH] {
    let (kind, platforms) = match found.support {
        Support::Index(set) => (0, set),
        Support::Single(set) => (1, set),
        Support::Artifact => (2, PlatformSet::EMPTY),
        // Not for other replicas: a partial answer is soon looked up again.
        Support::Partial { .. } => (u8::MAX, PlatformSet::EMPTY),
    };
    let mut bytes = [0; LENGTH];
    bytes[0] = FORMAT;
    bytes[1] = kind;
    bytes[2..6].copy_from_slice(&platforms.bits().to_be_bytes());
    bytes[6..14].copy_from_slice(&u64::try_from(now.as_millis()).unwrap_or(u64::MAX).to_be_bytes());
    bytes[14..CONTENT].copy_from_slice(&found.digest.0);
    let proof = keys.proof(key, &bytes[..CONTENT]);
    bytes[CONTENT..].copy_from_slice(&proof);
    bytes
}

/// Reads the found platforms and their age; `None` unless [`encode`] gave these bytes for this key.
pub(super) fn decode(bytes: &[u8], keys: &Keys, key: &str, now: Duration) -> Option<(Found, Duration)> {
    let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
    let (content, proof) = bytes.split_at(CONTENT);
    verify_slices_are_equal(&keys.proof(key, content), proof).ok()?;
    let set = PlatformSet::of_bits(u32::from_be_bytes(content[2..6].try_into().ok()?))?;
    let support = match (content[0], content[1]) {
        (FORMAT, 0) => Support::Index(set),
        (FORMAT, 1) => Support::Single(set),
        (FORMAT, 2) if set.is_empty() => Support::Artifact,
        _ => return None,
    };
    let said = Duration::from_millis(u64::from_be_bytes(content[6..14].try_into().ok()?));
    let digest = Digest(content[14..].try_into().ok()?);
    (said <= now + SKEW).then(|| (Found { digest, support, lacks_parts: false }, now.saturating_sub(said)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Verified;
    use tolerarch_core::image::ImageRef;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn keys(secret: Option<&str>) -> Keys {
        Keys::new("tolerarch:", secret.map(str::as_bytes))
    }

    fn key(keys: &Keys, image: &str) -> String {
        let image: ImageRef = image.parse().unwrap();
        keys.of(&image, None, None, Verified::default()).unwrap()
    }

    fn found(support: Support) -> Found {
        Found { digest: Digest::of_content(b"x"), support, lacks_parts: false }
    }

    #[test]
    fn every_entry_comes_back_and_ages() {
        let own = keys(None);
        let key = key(&own, "app");
        for support in [
            Support::Index(PlatformSet::AMD64_AND_ARM64),
            Support::Single(PlatformSet::ALL),
            Support::Single(PlatformSet::EMPTY),
            Support::Artifact,
        ] {
            let bytes = encode(found(support), &own, &key, NOW);
            let at = |now| decode(&bytes, &own, &key, now);
            let age = Duration::from_secs(7);
            assert_eq!(at(NOW + age), Some((found(support), age)));
            // A replica whose clock is behind.
            assert_eq!(at(NOW - Duration::from_secs(30)), Some((found(support), Duration::ZERO)));
            assert_eq!(at(NOW - Duration::from_secs(300)), None);
        }
    }

    #[test]
    fn whatever_is_changed_counts_as_nothing() {
        for secret in [None, Some("the operator's own secret, 32 by")] {
            let own = keys(secret);
            let place = key(&own, "app");
            let bytes = encode(found(Support::Index(PlatformSet::AMD64_AND_ARM64)), &own, &place, NOW);
            assert!(decode(&bytes, &own, &place, NOW).is_some());
            for bit in 0..8 * LENGTH {
                let mut lie = bytes;
                lie[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(&lie, &own, &place, NOW), None, "bit {bit}");
            }
            for length in 0..LENGTH {
                assert_eq!(decode(&bytes[..length], &own, &place, NOW), None);
            }
            assert_eq!(decode(&[&bytes[..], b"\0"].concat(), &own, &place, NOW), None);
            assert_eq!(decode(&bytes, &own, &key(&own, "other"), NOW), None, "copied to another key");
        }
    }

    /// Content that a version would not write, with a checksum that fits: anyone can compute that without `keyFile`.
    #[test]
    fn lies_of_the_right_form_count_as_nothing() {
        let own = keys(None);
        let place = key(&own, "app");
        let good = encode(found(Support::Index(PlatformSet::AMD64_AND_ARM64)), &own, &place, NOW);
        let forged = |change: fn(&mut [u8])| {
            let mut bytes = good;
            change(&mut bytes[..CONTENT]);
            let proof = own.proof(&place, &bytes[..CONTENT]);
            bytes[CONTENT..].copy_from_slice(&proof);
            decode(&bytes, &own, &place, NOW)
        };
        assert!(forged(|_| {}).is_some());
        let lies: [fn(&mut [u8]); 5] = [
            |lie| lie[0] = FORMAT - 1,
            |lie| lie[0] = FORMAT + 1,
            |lie| lie[1] = 3,
            |lie| lie[2] = 0x80,
            |lie| lie[6..14].copy_from_slice(&u64::MAX.to_be_bytes()),
        ];
        for (at, lie) in lies.into_iter().enumerate() {
            assert_eq!(forged(lie), None, "lie {at}");
        }
    }

    #[test]
    fn without_the_operators_key_nothing_is_believed() {
        let (own, other) =
            (keys(Some("one secret of at least 16 bytes")), keys(Some("another secret, as long")));
        let place = key(&own, "app");
        let bytes = encode(found(Support::Artifact), &other, &place, NOW);
        assert_eq!(decode(&bytes, &own, &place, NOW), None);
        let bytes = encode(found(Support::Artifact), &keys(None), &place, NOW);
        assert_eq!(decode(&bytes, &own, &place, NOW), None);
    }
}
