//! Certificates as webpki can judge them, with the signatures of the originals.

use std::ops::Range;

use aws_lc_rs::signature::{
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    RsaParameters, UnparsedPublicKey,
};
use rustls::{DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm, alg_id,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::OID_PKCS1_RSAENCRYPTION;
use x509_parser::parse_x509_certificate;

use super::policies;

/// Fewest bits of the RSA keys that rustls verifies.
const RSA_BITS: u32 = 2048;

/// Signatures of handshakes by shorter keys.
pub(super) const SCHEMES: [SignatureScheme; 2] = [
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
];

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
        let mut relaxed = Self {
            certificate: CertificateDer::from(original),
            original,
            signed: 0..0,
        };
        let Some(parsed) = parse(certificate) else {
            return relaxed;
        };
        let place = |part: &[u8]| part.as_ptr().addr() - original.as_ptr().addr();
        let mut flags = Vec::new();
        for extension in parsed.extensions() {
            if !extension.critical || !policies::is_about(&extension.oid) {
                continue;
            }
            // The flag follows the identifier, behind a tag and a length.
            let identifier = extension.oid.as_bytes();
            let flag = place(identifier) + identifier.len() + 2;
            let until = original.get(..=flag);
            if until.is_some_and(|until| until.ends_with(&[1, 1, 0xff])) {
                flags.push(flag);
            }
        }
        if flags.is_empty() {
            return relaxed;
        }
        let mut bytes = original.to_vec();
        for flag in flags {
            bytes[flag] = 0;
        }
        let signed = parsed.tbs_certificate.as_ref();
        relaxed.signed = place(signed)..place(signed) + signed.len();
        relaxed.certificate = bytes.into();
        relaxed
    }

    /// Returns the text that webpki takes for signed, and the original; `None` if they are the same.
    pub(super) fn changed(&self) -> Option<(&[u8], &[u8])> {
        if self.signed.is_empty() {
            return None;
        }
        let signed = self.signed.clone();
        Some((&self.certificate[signed.clone()], &self.original[signed]))
    }
}

/// An algorithm for certificates that may be [`Relaxed`], and may be signed by short keys.
#[derive(Debug)]
pub(super) struct Original<'a> {
    pub(super) algorithm: &'static dyn SignatureVerificationAlgorithm,
    pub(super) changed: &'a [(&'a [u8], &'a [u8])],
}

impl SignatureVerificationAlgorithm for Original<'_> {
    fn verify_signature(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let mut changed = self.changed.iter();
        let message = match changed.find(|(relaxed, _)| *relaxed == message) {
            Some((_, original)) => original,
            None => message,
        };
        let result = self.algorithm.verify_signature(key, message, signature);
        if result.is_err() && verify_short(self.signature_alg_id(), key, message, signature) {
            return Ok(());
        }
        result
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

/// Returns the bits of a certificate's RSA key, if fewer than rustls verifies.
pub(super) fn short_key(certificate: &X509Certificate<'_>) -> Option<u32> {
    let bits = RsaParameters::public_modulus_len(rsa_key(certificate)?).ok()?;
    if bits >= RSA_BITS {
        return None;
    }
    Some(bits)
}

fn rsa_key<'c>(certificate: &'c X509Certificate<'_>) -> Option<&'c [u8]> {
    let key = &certificate.tbs_certificate.subject_pki;
    if key.algorithm.algorithm != OID_PKCS1_RSAENCRYPTION {
        return None;
    }
    Some(&*key.subject_public_key.data)
}

/// Returns whether the handshake is signed by the certificate's short key.
pub(super) fn verify_handshake(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> bool {
    let algorithm = match signed.scheme {
        SignatureScheme::RSA_PKCS1_SHA256 => alg_id::RSA_PKCS1_SHA256,
        SignatureScheme::RSA_PKCS1_SHA512 => alg_id::RSA_PKCS1_SHA512,
        _ => return false,
    };
    let Some(certificate) = parse(certificate) else {
        return false;
    };
    let key = rsa_key(&certificate);
    key.is_some_and(|key| verify_short(algorithm, key, message, signed.signature()))
}

/// Verifies a signature by an RSA key of 1,024 bits at least, which is what Go's `crypto/rsa` takes.
fn verify_short(
    algorithm: AlgorithmIdentifier,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    let parameters = match algorithm {
        alg_id::RSA_PKCS1_SHA256 => &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        alg_id::RSA_PKCS1_SHA512 => &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        _ => return false,
    };
    UnparsedPublicKey::new(parameters, key)
        .verify(message, signature)
        .is_ok()
}
