//! Differences that change a key, and answers that are not shared at all.

use super::*;

const BELIEVED: VerifiedPlatforms = VerifiedPlatforms {
    manifests: PlatformSet::EMPTY,
    configs: PlatformSet::EMPTY,
};
const SECRET: &[u8] = b"0123456789abcdef";

fn image(text: &str) -> ImageRef {
    text.parse().unwrap()
}

fn password(user: &str, password: &str) -> Credential {
    Credential::Basic {
        user: user.into(),
        password: password.to_owned().into(),
    }
}

#[test]
fn every_part_of_an_answers_identity_changes_its_key() {
    let own = Keys::new("p:", Some(SECRET));
    let app = image("r.test/app:1");
    let named = Digest::of_content(b"x");
    let alice = password("alice", "x");
    let bob = password("bob", "x");
    let token = Credential::Identity("x".to_owned().into());
    let keys = [
        own.of(&app, None, None, BELIEVED),
        own.of(&image("r.test/app:2"), None, None, BELIEVED),
        own.of(&image("s.test/app:1"), None, None, BELIEVED),
        own.of(&image("r.test/app/1:1"), None, None, BELIEVED),
        own.of(&app, Some(named), None, BELIEVED),
        own.of(&image("r.test/other:1"), Some(named), None, BELIEVED),
        own.of(&app, None, Some(&alice), BELIEVED),
        own.of(&app, None, Some(&bob), BELIEVED),
        own.of(&app, None, Some(&password("alice", "y")), BELIEVED),
        own.of(&app, None, Some(&password("alicex", "")), BELIEVED),
        own.of(&app, None, Some(&token), BELIEVED),
        own.of(
            &app,
            None,
            None,
            VerifiedPlatforms {
                manifests: PlatformSet::AMD64_AND_ARM64,
                ..BELIEVED
            },
        ),
        own.of(
            &app,
            None,
            None,
            VerifiedPlatforms {
                configs: PlatformSet::AMD64_AND_ARM64,
                ..BELIEVED
            },
        ),
        Keys::new("p:", Some(b"fedcba9876543210")).of(&app, None, None, BELIEVED),
        Keys::new("p:", None).of(&app, None, None, BELIEVED),
        Keys::new("q:", Some(SECRET)).of(&app, None, None, BELIEVED),
    ];
    let keys: Vec<String> = keys.into_iter().map(Option::unwrap).collect();
    for (at, key) in keys.iter().enumerate() {
        assert!(!keys[..at].contains(key), "key {at}");
    }
    assert_eq!(
        own.of(&app, None, Some(&alice), BELIEVED),
        own.of(&app, None, Some(&password("alice", "x")), BELIEVED)
    );
}

#[test]
fn credential_answers_need_the_operators_key() {
    let own = Keys::new("p:", None);
    assert_eq!(
        own.of(
            &image("r.test/app:1"),
            None,
            Some(&password("alice", "x")),
            BELIEVED
        ),
        None
    );
    assert!(
        own.of(&image("r.test/app:1"), None, None, BELIEVED)
            .is_some()
    );
}
