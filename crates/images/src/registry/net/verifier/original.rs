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
        let critical = parsed
            .extensions()
            .iter()
            .filter(|extension| extension.critical);
        let about = critical.filter(|extension| policies::is_about(&extension.oid));
        // The flag follows the identifier, behind a tag and a length.
        let flags = about
            .map(|extension| place(extension.oid.as_bytes()) + extension.oid.as_bytes().len() + 2);
        let is_flag = |flag: &usize| {
            original
                .get(..=*flag)
                .is_some_and(|until| until.ends_with(&[1, 1, 0xff]))
        };
        let flags: Vec<usize> = flags.filter(is_flag).collect();
        if !flags.is_empty() {
            let mut bytes = original.to_vec();
            flags.into_iter().for_each(|flag| bytes[flag] = 0);
            let signed = parsed.tbs_certificate.as_ref();
            relaxed.signed = place(signed)..place(signed) + signed.len();
            relaxed.certificate = bytes.into();
        }
        relaxed
    }

    /// Returns the text that webpki takes for signed, and the original; `None` if they are the same.
    pub(super) fn changed(&self) -> Option<(&[u8], &[u8])> {
        let signed = self.signed.clone();
        (!signed.is_empty()).then(|| (&self.certificate[signed.clone()], &self.original[signed]))
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
        let message = changed
            .find(|(relaxed, _)| *relaxed == message)
            .map_or(message, |(_, signed)| signed);
        let by_short_key =
            |error| match verify_short(self.signature_alg_id(), key, message, signature) {
                true => Ok(()),
                false => Err(error),
            };
        self.algorithm
            .verify_signature(key, message, signature)
            .or_else(by_short_key)
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
    RsaParameters::public_modulus_len(rsa_key(certificate)?)
        .ok()
        .filter(|bits| *bits < RSA_BITS)
}

fn rsa_key<'c>(certificate: &'c X509Certificate<'_>) -> Option<&'c [u8]> {
    let key = &certificate.tbs_certificate.subject_pki;
    (key.algorithm.algorithm == OID_PKCS1_RSAENCRYPTION).then_some(&*key.subject_public_key.data)
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
    let is_signed = |key: &[u8]| verify_short(algorithm, key, message, signed.signature());
    parse(certificate).is_some_and(|certificate| rsa_key(&certificate).is_some_and(is_signed))
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
