//! Keys of the shared cache. Every key is a hash; with `keyFile` it is a keyed one, and only then may a credential be
//! part of it: answers by a credential are shared among holders of the same credential and the same key.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

use crate::credentials::{Credential, hash_parts};
use crate::registry::{Digest, Verified};
use tolerarch_core::image::{ImageRef, PlatformSet};

/// Version of entries: changed with their layout, or with the meaning of any part.
pub(super) const FORMAT: u8 = 1;
/// Version of the model: raised when the same documents come to mean other platforms.
const MODEL: &str = "1";

pub(super) struct Keys {
    prefix: String,
    /// Format of entries and known platforms: an answer means something else with others.
    meaning: String,
    /// The operator's key; without `keyFile` an empty one, which everybody knows.
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

    /// Returns the key of a digest in the image's repository, which must not be revealed to those who may not read it;
    /// without a digest, the key of the image's tag. Answers that are verified for nodes of other platforms have other
    /// keys. `None` means that the answer must not be shared.
    pub(super) fn of(
        &self,
        image: &ImageRef,
        digest: Option<Digest>,
        credential: Option<&Credential>,
        verified: Verified,
    ) -> Option<String> {
        let [form, user, secret] = match credential {
            None => ["anonymous", "", ""],
            Some(_) if !self.has_secret => return None,
            Some(credential) => credential.parts(),
        };
        let digest = digest.map(|digest| digest.to_string());
        let [kind, name] = digest.as_ref().map_or(["tag", image.target()], |digest| ["digest", digest]);
        let verified = format!("{} {}", verified.manifests, verified.configs);
        let (meaning, host, repository) = (&self.meaning, image.host(), image.repository());
        let parts = ["key", meaning, &verified, kind, host, repository, name, form, user, secret];
        let hash = hash_parts(&self.key, parts.map(str::as_bytes));
        Some(format!("{}{}", self.prefix, BASE64.encode(hash)))
    }

    /// Computes the proof that this content was written under this key: with `keyFile` by a replica, else by anyone.
    pub(super) fn proof(&self, key: &str, content: &[u8]) -> [u8; 32] {
        hash_parts(&self.key, [b"value".as_slice(), key.as_bytes(), content])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BELIEVED: Verified = Verified { manifests: PlatformSet::EMPTY, configs: PlatformSet::EMPTY };
    const SECRET: &[u8] = b"0123456789abcdef";

    fn image(text: &str) -> ImageRef {
        text.parse().unwrap()
    }

    fn password(user: &str, password: &str) -> Credential {
        Credential::Basic { user: user.into(), password: password.to_owned().into() }
    }

    #[test]
    fn everything_that_makes_another_answer_makes_another_key() {
        let (own, app) = (Keys::new("p:", Some(SECRET)), image("r.test/app:1"));
        let named = Digest::of_content(b"x");
        let (alice, bob) = (password("alice", "x"), password("bob", "x"));
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
            own.of(&app, None, None, Verified { manifests: PlatformSet::AMD64_AND_ARM64, ..BELIEVED }),
            own.of(&app, None, None, Verified { configs: PlatformSet::AMD64_AND_ARM64, ..BELIEVED }),
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
    fn what_a_credential_gave_is_shared_only_under_the_operators_key() {
        let own = Keys::new("p:", None);
        assert_eq!(own.of(&image("r.test/app:1"), None, Some(&password("alice", "x")), BELIEVED), None);
        assert!(own.of(&image("r.test/app:1"), None, None, BELIEVED).is_some());
    }
}
