//! Certificates as webpki can judge them, with the signatures of the originals: see the page of [`super`].

use std::ops::Range;
use std::ptr;

use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;

use super::policies;

/// Tag of a boolean of DER, and its values.
const BOOLEAN: u8 = 1;
const TRUE: u8 = 0xff;
const FALSE: u8 = 0;

/// A certificate whose extensions about policies are not critical: webpki refuses critical ones unread, and skips
/// others; [`policies::are_valid`] reads them. The rest of the certificate is unchanged.
pub(super) struct Relaxed<'c> {
    pub(super) certificate: CertificateDer<'c>,
    original: &'c [u8],
    /// Signed part of the certificate; empty if nothing was changed.
    signed: Range<usize>,
}

impl<'c> Relaxed<'c> {
    pub(super) fn of(certificate: &'c CertificateDer<'_>) -> Self {
        let original: &'c [u8] = certificate;
        let unchanged = Self {
            certificate: CertificateDer::from(original),
            original,
            signed: 0..0,
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
        let start = place(signed, original);
        Self {
            certificate: bytes.into(),
            original,
            signed: start..start + signed.len(),
        }
    }

    /// Returns what is signed, if it was changed.
    pub(super) fn changed(&self) -> Option<Changed<'_>> {
        if self.signed.is_empty() {
            return None;
        }
        let signed = self.signed.clone();
        Some(Changed {
            relaxed: &self.certificate[signed.clone()],
            original: &self.original[signed],
        })
    }
}

/// Returns the places of the bytes by which the extensions about policies are critical.
fn critical_flags(original: &[u8], parsed: &X509Certificate<'_>) -> Vec<usize> {
    let mut flags = Vec::new();
    for extension in parsed.extensions() {
        if !extension.critical || !policies::is_about(&extension.oid) {
            continue;
        }
        // The flag follows the identifier, behind a tag and a length.
        let identifier = extension.oid.as_bytes();
        let flag = place(identifier, original) + identifier.len() + 2;
        let until = original.get(..=flag);
        if until.is_some_and(|until| until.ends_with(&[BOOLEAN, 1, TRUE])) {
            flags.push(flag);
        }
    }
    flags
}

/// Returns the place of a part in its whole.
fn place(part: &[u8], whole: &[u8]) -> usize {
    part.as_ptr().addr() - whole.as_ptr().addr()
}

/// What is signed of a [`Relaxed`] certificate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed<'a> {
    /// The text that webpki takes for signed.
    pub(super) relaxed: &'a [u8],
    pub(super) original: &'a [u8],
}

/// An algorithm that verifies the signature of a [`Relaxed`] certificate over its original.
#[derive(Debug)]
pub(super) struct Original<'a> {
    pub(super) algorithm: &'a dyn SignatureVerificationAlgorithm,
    pub(super) changed: &'a [Changed<'a>],
}

impl SignatureVerificationAlgorithm for Original<'_> {
    fn verify_signature(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        // By its place in memory: whoever presents a text that equals the copy has it verified as it is.
        let mut changed = self.changed.iter();
        let original = match changed.find(|changed| ptr::eq(changed.relaxed, message)) {
            Some(changed) => changed.original,
            None => message,
        };
        self.algorithm.verify_signature(key, original, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}

pub(super) fn parse<'c>(certificate: &'c CertificateDer<'_>) -> Option<X509Certificate<'c>> {
    Some(parse_x509_certificate(certificate).ok()?.1)
}
