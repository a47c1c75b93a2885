//! An RSA key of 1,024 bits, which no library here makes or signs with. Company authorities and old servers have such keys.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{ServerConfig, SignatureAlgorithm, SignatureScheme, SupportedProtocolVersion};
use rustls_pki_types::CertificateDer;
use x509_parser::num_bigint::BigUint;

/// Made by `openssl genrsa 1024` for these tests; it protects nothing.
const MODULUS: &str = "e28c698b0ddb63c37df1f43359c51ad524365fdab1318f9840234f6949d11ae9049155f9e185fc4a230fc08ea2ad1a39\
    2963d2a9ae2fb2722edd5c87c03fd5d2fd3257ba5a5b1dcb63092153e2877bcafb606cd2b5a161b8e2856805df3344f9\
    45f2184b22d517e044ce4585b35bbb995b73bb50939af723fd6331a6ee357f5d";
const PRIVATE_EXPONENT: &str = "57a693bf252158bbee228aa4c37aab2303dbb5c25b041dd67e1a2b4345380dfd51b3195c9090d247acc10f732025711b\
    e493a691d7bec47fc0fa0c2ec986e926fa3f8b4203954c28f663e3c3de583e02800c6c6e67199ddd08f6fee7812feeeb\
    197c840ccb703a04ab5b719cf306886edf74225fec59bfe94d86194c1d1e6c51";
const BYTES: usize = 128;
/// Prefix of a SHA-256 in a signature of PKCS #1 (RFC 8017 section 9.2).
const DIGEST_INFO: [u8; 19] = [
    48, 49, 48, 13, 6, 9, 96, 134, 72, 1, 101, 3, 4, 2, 1, 5, 0, 4, 32,
];

#[derive(Clone, Debug)]
pub(in crate::registry) struct ShortKey {
    public: Vec<u8>,
}

impl ShortKey {
    pub(in crate::registry) fn new() -> Self {
        let mut public = vec![48, 129, 137, 2, 129, 129, 0];
        public.extend(number(MODULUS).to_bytes_be());
        public.extend([2, 3, 1, 0, 1]);
        Self { public }
    }

    fn signature(message: &[u8]) -> Vec<u8> {
        let digest = digest(&SHA256, message);
        let info = [&DIGEST_INFO, digest.as_ref()].concat();
        let mut padded = vec![0xff; BYTES - info.len()];
        padded[..2].copy_from_slice(&[0, 1]);
        *padded.last_mut().unwrap() = 0;
        padded.extend(info);
        let signed =
            BigUint::from_bytes_be(&padded).modpow(&number(PRIVATE_EXPONENT), &number(MODULUS));
        let signed = signed.to_bytes_be();
        [vec![0; BYTES - signed.len()], signed].concat()
    }

    /// Makes a server with this certificate.
    pub(in crate::registry) fn server(
        self,
        certificate: CertificateDer<'static>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap();
        let key = CertifiedKey::new(vec![certificate], Arc::new(self));
        builder
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(key)))
    }
}

fn number(text: &str) -> BigUint {
    BigUint::parse_bytes(text.as_bytes(), 16).unwrap()
}

impl rcgen::PublicKeyData for ShortKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_RSA_SHA256
    }
}

impl rcgen::SigningKey for ShortKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(Self::signature(message))
    }
}

impl SigningKey for ShortKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let able = [
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PKCS1_SHA256,
        ];
        let scheme = offered.iter().find(|scheme| able.contains(scheme))?;
        Some(Box::new(Signature(*scheme)))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }
}

#[derive(Debug)]
struct Signature(SignatureScheme);

impl Signer for Signature {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        // Nobody looks at a signature of PSS: the certificate is refused before.
        Ok(if self.0 == SignatureScheme::RSA_PSS_SHA256 {
            vec![0; BYTES]
        } else {
            ShortKey::signature(message)
        })
    }

    fn scheme(&self) -> SignatureScheme {
        self.0
    }
}
