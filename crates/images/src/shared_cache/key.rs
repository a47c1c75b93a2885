//! Under which keys answers are shared. Every key is a hash; with `keyFile` a keyed one, and then only can a credential
//! be a part of it: answers that a credential gave are shared among those who hold the same credential and the same key.

use aws_lc_rs::digest::{self, SHA256};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

use super::entry::FORMAT;
use crate::credentials::Credential;
use crate::registry::Digest;
use tolerarch_core::image::{ImageRef, PlatformSet};

/// Raised when the same documents come to mean other platforms.
const MODEL: &str = "1";

/// The key of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key(String);

impl Key {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Computes keys, and what proves values.
pub(super) struct Keys {
    prefix: String,
    /// What makes an answer another one, beside the image: how it is written, and which platforms are known.
    meaning: String,
    secret: Option<hmac::Key>,
}

impl Keys {
    pub(super) fn new(prefix: &str, secret: Option<&[u8]>) -> Self {
        Self {
            prefix: prefix.to_owned(),
            meaning: format!("{FORMAT} {MODEL} {}", PlatformSet::ALL),
            secret: secret.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret)),
        }
    }

    /// Of a tag, or of what a digest names, as it is known where answers are verified for nodes of these platforms. `None`
    /// if the answer must not be shared.
    pub(super) fn of(
        &self,
        image: &ImageRef,
        credential: Option<&Credential>,
        verified: PlatformSet,
    ) -> Option<Key> {
        match image.digest() {
            Some(digest) => self.of_digest(image, credential, Digest::of_text(digest), verified),
            None => self.key(["tag", image.target()], image, credential, verified),
        }
    }

    /// Of a digest in the image's repository, which must not be revealed to those who may not read it.
    pub(super) fn of_digest(
        &self,
        image: &ImageRef,
        credential: Option<&Credential>,
        digest: Digest,
        verified: PlatformSet,
    ) -> Option<Key> {
        self.key(["digest", &digest.to_string()], image, credential, verified)
    }

    fn key(
        &self,
        [kind, name]: [&str; 2],
        image: &ImageRef,
        credential: Option<&Credential>,
        verified: PlatformSet,
    ) -> Option<Key> {
        let [form, user, secret] = match credential {
            None => ["anonymous", "", ""],
            Some(_) if self.secret.is_none() => return None,
            Some(credential) => credential.parts(),
        };
        let verified = verified.to_string();
        let (meaning, host, repository) = (&self.meaning, image.host(), image.repository());
        let parts = ["key", meaning, &verified, kind, host, repository, name, form, user, secret];
        let hash = self.hash(&parts.map(str::as_bytes));
        Some(Key(format!("{}{}", self.prefix, BASE64.encode(hash))))
    }

    /// What proves that this content was written under this key: with `keyFile` by a replica, else by anyone.
    pub(super) fn proof(&self, key: &Key, content: &[u8]) -> [u8; 32] {
        self.hash(&[b"value", key.0.as_bytes(), content])
    }

    /// The hash of these parts, each preceded by its length, so that no two lists are hashed alike.
    fn hash(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hash = [0; 32];
        match &self.secret {
            Some(secret) => {
                let mut context = hmac::Context::with_key(secret);
                for part in parts {
                    context.update(&(part.len() as u64).to_be_bytes());
                    context.update(part);
                }
                hash.copy_from_slice(context.sign().as_ref());
            }
            None => {
                let mut context = digest::Context::new(&SHA256);
                for part in parts {
                    context.update(&(part.len() as u64).to_be_bytes());
                    context.update(part);
                }
                hash.copy_from_slice(context.finish().as_ref());
            }
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BELIEVED: PlatformSet = PlatformSet::EMPTY;
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
        let digest = format!("r.test/app@sha256:{}", "0".repeat(64));
        let (alice, bob) = (password("alice", "x"), password("bob", "x"));
        let token = Credential::Identity("x".to_owned().into());
        let keys = [
            own.of(&app, None, BELIEVED),
            own.of(&image("r.test/app:2"), None, BELIEVED),
            own.of(&image("s.test/app:1"), None, BELIEVED),
            own.of(&image("r.test/app/1:1"), None, BELIEVED),
            own.of(&image(&digest), None, BELIEVED),
            own.of(&image(&digest.replace("app", "other")), None, BELIEVED),
            own.of(&app, Some(&alice), BELIEVED),
            own.of(&app, Some(&bob), BELIEVED),
            own.of(&app, Some(&password("alice", "y")), BELIEVED),
            own.of(&app, Some(&password("alicex", "")), BELIEVED),
            own.of(&app, Some(&token), BELIEVED),
            own.of(&app, None, PlatformSet::AMD64_AND_ARM64),
            Keys::new("p:", Some(b"fedcba9876543210")).of(&app, None, BELIEVED),
            Keys::new("p:", None).of(&app, None, BELIEVED),
            Keys::new("q:", Some(SECRET)).of(&app, None, BELIEVED),
        ];
        let keys: Vec<Key> = keys.into_iter().map(Option::unwrap).collect();
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "key {at}");
        }
        assert_eq!(
            own.of(&app, Some(&alice), BELIEVED),
            own.of(&app, Some(&password("alice", "x")), BELIEVED)
        );
        assert_eq!(
            own.of(&image(&digest), None, BELIEVED),
            own.of_digest(&image(&digest), None, Digest::of_text(&digest["r.test/app@".len()..]), BELIEVED),
            "what a tag pointed to is found by its digest"
        );
    }

    #[test]
    fn what_a_credential_gave_is_shared_only_under_the_operators_key() {
        let own = Keys::new("p:", None);
        assert_eq!(own.of(&image("r.test/app:1"), Some(&password("alice", "x")), BELIEVED), None);
        assert!(own.of(&image("r.test/app:1"), None, BELIEVED).is_some());
    }
}
