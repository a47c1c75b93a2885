//! RSA keys of 1,024 to 2,047 bits. rustls verifies no signature by such keys; Go does (`crypto/rsa`, whose minimum is
//! 1,024 bits). They are accepted only under an authority of the operator: see [`super`].

use aws_lc_rs::signature::{
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    RsaParameters, UnparsedPublicKey,
};
use rustls::{DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm,
    TrustAnchor, alg_id,
};
use x509_parser::asn1_rs::BitString;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::OID_PKCS1_RSAENCRYPTION;
use x509_parser::prelude::FromDer;
use x509_parser::x509::AlgorithmIdentifier as KeyAlgorithm;

use super::original::parse;

/// Minimum bits of an RSA key whose signatures rustls verifies.
const USUAL_MIN_BITS: u32 = 2048;
/// Minimum bits of an RSA key whose signatures [`verify`] verifies.
pub(super) const MIN_BITS: u32 = 1024;

/// Signature schemes of handshakes that can be verified with short keys.
pub(super) const SCHEMES: [SignatureScheme; 2] = [
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
];

/// An algorithm that also accepts signatures by short keys.
#[derive(Debug)]
pub(super) struct AlsoShort(pub(super) &'static dyn SignatureVerificationAlgorithm);

impl SignatureVerificationAlgorithm for AlsoShort {
    fn verify_signature(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let result = self.0.verify_signature(key, message, signature);
        if result.is_err() && verify(self.signature_alg_id(), key, message, signature) {
            return Ok(());
        }
        result
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.0.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0.signature_alg_id()
    }
}

/// Returns whether the certificate's short key has signed the handshake.
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
    let key = &certificate.tbs_certificate.subject_pki;
    rsa_key(&key.algorithm, &key.subject_public_key)
        .is_some_and(|key| verify(algorithm, key, message, signed.signature()))
}

/// Verifies a signature by an RSA key of at least 1,024 bits. For such keys, aws-lc verifies neither PKCS #1 with
/// SHA-384 nor PSS.
fn verify(algorithm: AlgorithmIdentifier, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let parameters = match algorithm {
        alg_id::RSA_PKCS1_SHA256 => &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        alg_id::RSA_PKCS1_SHA512 => &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        _ => return false,
    };
    UnparsedPublicKey::new(parameters, key)
        .verify(message, signature)
        .is_ok()
}

/// Returns the bits of a certificate's RSA key, if they are too few for rustls.
pub(super) fn bits(certificate: &X509Certificate<'_>) -> Option<u32> {
    let key = &certificate.tbs_certificate.subject_pki;
    short_bits(&key.algorithm, &key.subject_public_key)
}

/// Returns the bits of an authority's RSA key, if they are too few for rustls.
pub(super) fn bits_of_authority(authority: &TrustAnchor<'_>) -> Option<u32> {
    let (rest, algorithm) = KeyAlgorithm::from_der(&authority.subject_public_key_info).ok()?;
    let (_, key) = BitString::from_der(rest).ok()?;
    short_bits(&algorithm, &key)
}

fn short_bits(algorithm: &KeyAlgorithm<'_>, key: &BitString<'_>) -> Option<u32> {
    let bits = RsaParameters::public_modulus_len(rsa_key(algorithm, key)?).ok()?;
    if bits >= USUAL_MIN_BITS {
        return None;
    }
    Some(bits)
}

fn rsa_key<'k>(algorithm: &KeyAlgorithm<'_>, key: &'k BitString<'_>) -> Option<&'k [u8]> {
    if algorithm.algorithm != OID_PKCS1_RSAENCRYPTION {
        return None;
    }
    Some(&key.data)
}
