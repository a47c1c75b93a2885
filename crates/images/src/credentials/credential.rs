//! Credentials, whose secrets are never displayed, and the IDs that distinguish them.

use std::fmt;
use std::sync::LazyLock;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use serde::Deserialize;
use zeroize::Zeroizing;

/// Text that is never displayed, and wiped when dropped.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Sensitive(Zeroizing<String>);

impl Sensitive {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Sensitive {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    Basic {
        user: String,
        password: Sensitive,
    },
    /// OAuth2 refresh token, which Docker calls an identity token.
    Identity(Sensitive),
    /// Token that is sent unchanged, which Docker calls a registry token.
    Bearer(Sensitive),
}

impl Credential {
    pub fn id(&self) -> CredentialId {
        CredentialId::of(&self.parts())
    }

    /// Returns the parts that distinguish the credential, secrets included, for keyed hashes.
    pub(crate) fn parts(&self) -> [&str; 3] {
        match self {
            Self::Basic { user, password } => ["basic", user, password.reveal()],
            Self::Identity(token) => ["identity", "", token.reveal()],
            Self::Bearer(token) => ["bearer", "", token.reveal()],
        }
    }

    /// Returns the length of the user or of the secret in bytes, whichever is longer.
    pub(super) fn longest(&self) -> usize {
        let [_, user, secret] = self.parts();
        user.len().max(secret.len())
    }
}

/// Identifies the credential that gave an answer, or anonymous access. The keys of caches and of lookups in flight
/// contain the ID, so that one tenant's answers never reach another. The ID is an HMAC-SHA-256 under a random key of
/// this process, truncated to 128 bits, and reveals nothing of the credential.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CredentialId(pub(crate) u128);

impl CredentialId {
    /// Anonymous access, whose answers are shared by all tenants.
    pub(crate) const ANONYMOUS: Self = Self(0);

    /// Returns the ID of the same credential if a Pod holds it. A Pod's credential goes to more token servers than the
    /// operator's, and so may get another answer. Applied twice, returns the operator's ID again.
    pub(super) fn of_pod(self) -> Self {
        Self(!self.0)
    }

    pub fn of(parts: &[&str]) -> Self {
        // AWS-LC aborts the process if the system has no randomness, so the empty key is never used.
        static KEY: LazyLock<hmac::Key> = LazyLock::new(|| {
            hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
                .unwrap_or_else(|_| hmac::Key::new(hmac::HMAC_SHA256, &[]))
        });
        let hash = hash_parts(&KEY, parts.iter().map(|part| part.as_bytes()));
        let mut id = [0; size_of::<u128>()];
        id.copy_from_slice(&hash[..size_of::<u128>()]);
        Self(u128::from_be_bytes(id))
    }
}

/// Returns the keyed hash of these parts. Each part is preceded by its length, so that different lists never give the
/// same input.
pub(crate) fn hash_parts<'p>(
    key: &hmac::Key,
    parts: impl IntoIterator<Item = &'p [u8]>,
) -> [u8; 32] {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.sign().as_ref());
    hash
}

impl fmt::Debug for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::ANONYMOUS {
            "anonymous"
        } else {
            "[credential]"
        })
    }
}

#[cfg(test)]
mod tests;
