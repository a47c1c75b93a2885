//! Digests of content.

use aws_lc_rs::digest::{SHA256, SHA512, digest};

use tolerarch_core::image::ImageRef;

/// SHA-256 of a manifest. It identifies content here, whatever algorithm a reference names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub(crate) [u8; 32]);

impl Digest {
    pub fn of_content(content: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, content).as_ref());
        Self(bytes)
    }

    /// Parses `sha256:…`. Hashes any other text, which thus equals only itself.
    pub fn of_text(text: &str) -> Self {
        match sha256(text) {
            Some(bytes) => Self(bytes),
            None => Self::of_content(text.as_bytes()),
        }
    }

    pub fn named_by(image: &ImageRef) -> Option<Self> {
        image.digest().map(Self::of_text)
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

fn sha256(text: &str) -> Option<[u8; 32]> {
    let hex = text.strip_prefix("sha256:")?;
    if hex.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        let digits = hex.get(2 * index..2 * index + 2)?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(bytes)
}

/// Returns whether `content` has this digest; false if the digest's algorithm is unknown.
pub(super) fn verifies(content: &[u8], named: &str) -> bool {
    let (computed, hex) = match named.split_once(':') {
        Some(("sha256", hex)) => (digest(&SHA256, content), hex),
        Some(("sha512", hex)) => (digest(&SHA512, content), hex),
        _ => return false,
    };
    let digits = computed
        .as_ref()
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| b"0123456789abcdef"[digit as usize])
        .eq(hex.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_verifies_digests() {
        let text = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert_eq!(Digest::of_text(text), Digest::of_content(b"hello"));
        assert_eq!(format!("{:?}", Digest::of_text(text)), text);
        assert!(verifies(b"hello", text));
        assert!(!verifies(b"hell", text));
        assert!(verifies(b"hello", &testregistry::sha512(b"hello")));
        assert!(!verifies(b"hello", "md5:5d41402abc4b2a76b9719d911017c592"));
        assert_ne!(
            Digest::of_text(&testregistry::sha512(b"hello")),
            Digest::of_content(b"hello")
        );
        assert_ne!(Digest::of_text("sha256:zz"), Digest::of_text("sha256:zy"));
    }
}
