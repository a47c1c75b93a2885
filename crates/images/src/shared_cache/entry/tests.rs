use super::*;

mod keys;

const NOW: Duration = Duration::from_secs(1_800_000_000);

fn keys(secret: Option<&str>) -> Keys {
    Keys::new("tolerarch:", secret.map(str::as_bytes))
}

fn key(keys: &Keys, image: &str) -> String {
    let image: ImageRef = image.parse().unwrap();
    keys.of(&image, None, None, Verified::default()).unwrap()
}

fn found(support: Support) -> Found {
    Found {
        digest: Digest::of_content(b"x"),
        support,
        lacks_parts: false,
    }
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
        assert_eq!(
            at(NOW - Duration::from_secs(30)),
            Some((found(support), Duration::ZERO))
        );
        assert_eq!(at(NOW - Duration::from_secs(300)), None);
    }
}

#[test]
fn whatever_is_changed_counts_as_nothing() {
    for secret in [None, Some("the operator's own secret, 32 by")] {
        let own = keys(secret);
        let place = key(&own, "app");
        let bytes = encode(
            found(Support::Index(PlatformSet::AMD64_AND_ARM64)),
            &own,
            &place,
            NOW,
        );
        assert!(decode(&bytes, &own, &place, NOW).is_some());
        for bit in 0..8 * LENGTH {
            let mut lie = bytes;
            lie[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&lie, &own, &place, NOW), None, "bit {bit}");
        }
        for length in 0..LENGTH {
            assert_eq!(decode(&bytes[..length], &own, &place, NOW), None);
        }
        assert_eq!(
            decode(&[&bytes[..], b"\0"].concat(), &own, &place, NOW),
            None
        );
        assert_eq!(
            decode(&bytes, &own, &key(&own, "other"), NOW),
            None,
            "copied to another key"
        );
    }
}

/// Content that a version would not write, with a checksum that fits: anyone can compute that without `keyFile`.
#[test]
fn lies_of_the_right_form_count_as_nothing() {
    let own = keys(None);
    let place = key(&own, "app");
    let good = encode(
        found(Support::Index(PlatformSet::AMD64_AND_ARM64)),
        &own,
        &place,
        NOW,
    );
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
    let own = keys(Some("one secret of at least 16 bytes"));
    let other = keys(Some("another secret, as long"));
    let place = key(&own, "app");
    let bytes = encode(found(Support::Artifact), &other, &place, NOW);
    assert_eq!(decode(&bytes, &own, &place, NOW), None);
    let bytes = encode(found(Support::Artifact), &keys(None), &place, NOW);
    assert_eq!(decode(&bytes, &own, &place, NOW), None);
}
