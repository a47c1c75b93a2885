//! Copies of certificates that webpki can judge. Signatures are verified over the originals, see [`super`].

use std::ops::Range;
use std::ptr;

use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;

use super::policies;

/// Tag and values of a boolean in DER.
const BOOLEAN: u8 = 1;
const TRUE: u8 = 0xff;
const FALSE: u8 = 0;

/// A copy of a certificate in which no extension about policies is critical. webpki refuses a critical extension of
/// this kind without reading it, and skips one that is not critical. [`policies::are_valid`] reads these extensions.
/// The rest of the certificate is unchanged.
pub(super) struct Relaxed<'c> {
    pub(super) certificate: CertificateDer<'c>,
    original: &'c [u8],
    /// Range of the signed part of the certificate; empty if nothing was changed.
    signed_range: Range<usize>,
}

impl<'c> Relaxed<'c> {
    pub(super) fn of(certificate: &'c CertificateDer<'_>) -> Self {
        let original: &'c [u8] = certificate;
        let unchanged = Self {
            certificate: CertificateDer::from(original),
            original,
            signed_range: 0..0,
        };
        let Some(parsed) = parse(certificate) else {
            return unchanged;
        };
        let flags = critical_flags(original, &parsed);
        if flags.is_empty() {
            return unchanged;
        }
        let mut bytes = original.to_vec();
        for flag in flags {
            bytes[flag] = FALSE;
        }
        let signed = parsed.tbs_certificate.as_ref();
        let start = offset(signed, original);
        Self {
            certificate: bytes.into(),
            original,
            signed_range: start..start + signed.len(),
        }
    }

    /// Returns the signed part if it was changed.
    pub(super) fn changed_part(&self) -> Option<ChangedPart<'_>> {
        if self.signed_range.is_empty() {
            return None;
        }
        let range = self.signed_range.clone();
        Some(ChangedPart {
            relaxed: &self.certificate[range.clone()],
            original: &self.original[range],
        })
    }
}

/// Returns the indices of the bytes that make extensions about policies critical.
fn critical_flags(original: &[u8], parsed: &X509Certificate<'_>) -> Vec<usize> {
    let mut flags = Vec::new();
    for extension in parsed.extensions() {
        if !extension.critical || !policies::is_about(&extension.oid) {
            continue;
        }
        // The flag follows the identifier, after a tag and a length.
        let identifier = extension.oid.as_bytes();
        let flag = offset(identifier, original) + identifier.len() + 2;
        if let Some(until_flag) = original.get(..=flag)
            && until_flag.ends_with(&[BOOLEAN, 1, TRUE])
        {
            flags.push(flag);
        }
    }
    flags
}

/// Returns the offset of `part` in `whole`. The part must be a slice of the whole.
fn offset(part: &[u8], whole: &[u8]) -> usize {
    part.as_ptr().addr() - whole.as_ptr().addr()
}

/// The changed signed part of a [`Relaxed`] certificate.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChangedPart<'a> {
    /// The part in the copy. webpki wants the signature verified over this part.
    pub(super) relaxed: &'a [u8],
    /// The same part in the original.
    pub(super) original: &'a [u8],
}

/// An algorithm that verifies the signature of a [`Relaxed`] certificate over the original certificate.
#[derive(Debug)]
pub(super) struct OriginalVerifier<'a> {
    pub(super) algorithm: &'a dyn SignatureVerificationAlgorithm,
    pub(super) changed_parts: &'a [ChangedPart<'a>],
}

impl SignatureVerificationAlgorithm for OriginalVerifier<'_> {
    fn verify_signature(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        // The copy is recognised by its address in memory. A message that merely equals the copy is verified as it is.
        for part in self.changed_parts {
            if ptr::eq(part.relaxed, message) {
                let original = part.original;
                return self.algorithm.verify_signature(key, original, signature);
            }
        }
        self.algorithm.verify_signature(key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}

pub(super) fn parse<'c>(certificate: &'c CertificateDer<'_>) -> Option<X509Certificate<'c>> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    Some(parsed)
}
