use super::*;

mod keys;

const NOW: Duration = Duration::from_secs(1_800_000_000);

fn keys(secret: Option<&str>) -> Keys {
    Keys::new("tolerarch:", secret.map(str::as_bytes))
}

fn key(keys: &Keys, image: &str) -> String {
    let image: ImageRef = image.parse().unwrap();
    keys.of(&image, None, None, VerifiedPlatforms::default())
        .unwrap()
}

fn resolved(support: Support) -> ResolvedImage {
    ResolvedImage {
        digest: Digest::of_content(b"x"),
        support,
        lacks_parts: false,
    }
}

#[test]
fn every_entry_round_trips_and_ages() {
    let replica = keys(None);
    let key = key(&replica, "app");
    for support in [
        Support::Index(PlatformSet::AMD64_AND_ARM64),
        Support::Single(PlatformSet::ALL),
        Support::Single(PlatformSet::EMPTY),
        Support::Artifact,
    ] {
        let bytes = encode(resolved(support), &replica, &key, NOW);
        let at = |now| decode(&bytes, &replica, &key, now);
        let age = Duration::from_secs(7);
        assert_eq!(at(NOW + age), Some((resolved(support), age)));
        // The clock of this replica is behind.
        assert_eq!(
            at(NOW - Duration::from_secs(30)),
            Some((resolved(support), Duration::ZERO))
        );
        assert_eq!(at(NOW - Duration::from_secs(300)), None);
    }
}

#[test]
fn changed_entry_is_ignored() {
    for secret in [None, Some("the operator's own secret, 32 by")] {
        let replica = keys(secret);
        let cache_key = key(&replica, "app");
        let bytes = encode(
            resolved(Support::Index(PlatformSet::AMD64_AND_ARM64)),
            &replica,
            &cache_key,
            NOW,
        );
        assert!(decode(&bytes, &replica, &cache_key, NOW).is_some());
        for bit in 0..8 * LENGTH {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                decode(&changed, &replica, &cache_key, NOW),
                None,
                "bit {bit}"
            );
        }
        for length in 0..LENGTH {
            assert_eq!(decode(&bytes[..length], &replica, &cache_key, NOW), None);
        }
        assert_eq!(
            decode(&[&bytes[..], b"\0"].concat(), &replica, &cache_key, NOW),
            None
        );
        assert_eq!(
            decode(&bytes, &replica, &key(&replica, "other"), NOW),
            None,
            "copied to another key"
        );
    }
}

/// Content that no version writes, with a valid proof: without `keyFile` anyone can compute the proof.
#[test]
fn well_formed_false_entry_is_ignored() {
    let replica = keys(None);
    let cache_key = key(&replica, "app");
    let good = encode(
        resolved(Support::Index(PlatformSet::AMD64_AND_ARM64)),
        &replica,
        &cache_key,
        NOW,
    );
    let forged = |change: fn(&mut [u8])| {
        let mut bytes = good;
        change(&mut bytes[..CONTENT]);
        let proof = replica.proof(&cache_key, &bytes[..CONTENT]);
        bytes[CONTENT..].copy_from_slice(&proof);
        decode(&bytes, &replica, &cache_key, NOW)
    };
    assert!(forged(|_| {}).is_some());
    let changes: [fn(&mut [u8]); 5] = [
        |bytes| bytes[0] = FORMAT - 1,
        |bytes| bytes[0] = FORMAT + 1,
        |bytes| bytes[1] = 3,
        |bytes| bytes[2] = 0x80,
        |bytes| bytes[6..14].copy_from_slice(&u64::MAX.to_be_bytes()),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert_eq!(forged(change), None, "change {number}");
    }
}

#[test]
fn entry_of_another_key_file_is_ignored() {
    let replica = keys(Some("one secret of at least 16 bytes"));
    let other = keys(Some("another secret, as long"));
    let cache_key = key(&replica, "app");
    let bytes = encode(resolved(Support::Artifact), &other, &cache_key, NOW);
    assert_eq!(decode(&bytes, &replica, &cache_key, NOW), None);
    let bytes = encode(resolved(Support::Artifact), &keys(None), &cache_key, NOW);
    assert_eq!(decode(&bytes, &replica, &cache_key, NOW), None);
}
