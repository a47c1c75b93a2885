//! RSA keys of 1,024 bits and fewer, which company authorities and old servers have. No library here makes such keys or
//! signs with them.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, SHA384, SHA512, digest};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{ServerConfig, SignatureAlgorithm, SignatureScheme, SupportedProtocolVersion};
use rustls_pki_types::CertificateDer;
use x509_parser::num_bigint::BigUint;

/// Modulus of a key made by `openssl genrsa 1024` for these tests; it protects nothing.
const MODULUS: &str = "e28c698b0ddb63c37df1f43359c51ad524365fdab1318f9840234f6949d11ae9049155f9e185fc4a230fc08ea2ad1a39\
    2963d2a9ae2fb2722edd5c87c03fd5d2fd3257ba5a5b1dcb63092153e2877bcafb606cd2b5a161b8e2856805df3344f9\
    45f2184b22d517e044ce4585b35bbb995b73bb50939af723fd6331a6ee357f5d";
const PRIVATE_EXPONENT: &str = "57a693bf252158bbee228aa4c37aab2303dbb5c25b041dd67e1a2b4345380dfd51b3195c9090d247acc10f732025711b\
    e493a691d7bec47fc0fa0c2ec986e926fa3f8b4203954c28f663e3c3de583e02800c6c6e67199ddd08f6fee7812feeeb\
    197c840ccb703a04ab5b719cf306886edf74225fec59bfe94d86194c1d1e6c51";
/// Modulus of a key made by `openssl genrsa 768`, which everybody refuses.
const SHORTEST_MODULUS: &str = "c1827838bce729311f1dc48afbffbfe45f1acf17ab12a78db67b75c26097b4658da70ba1bd272319722d550e7ce0d264\
    9604b10389845d6ff1ab212073805e3b7d37034cfa90a1bc7484fbe453bab1bbe42b2086f44ccd70d5b274af0da2f0dd";
const SHORTEST_PRIVATE_EXPONENT: &str = "a93649a273ad3fdbf075bb543da01a50bcc958a63db606466977f43590f99789e620588f8a341b0139526\
    2ba5480d3f812ac55a8e66c85db1a614503703f9cb0bf8ea9773a3ecb23f6b4887de01ef7bc4b85c4ca9ac409c7c86ba03dedfa1f01";
/// Prefix of a digest in a PKCS #1 signature, for each hash (RFC 8017 section 9.2).
const SHA256_INFO: [u8; 19] = [
    48, 49, 48, 13, 6, 9, 96, 134, 72, 1, 101, 3, 4, 2, 1, 5, 0, 4, 32,
];
const SHA384_INFO: [u8; 19] = [
    48, 65, 48, 13, 6, 9, 96, 134, 72, 1, 101, 3, 4, 2, 2, 5, 0, 4, 48,
];
const SHA512_INFO: [u8; 19] = [
    48, 81, 48, 13, 6, 9, 96, 134, 72, 1, 101, 3, 4, 2, 3, 5, 0, 4, 64,
];

/// Algorithm by which a key signs certificates and handshakes.
#[derive(Clone, Copy, Debug)]
pub(in crate::registry) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

#[derive(Clone, Debug)]
pub(in crate::registry) struct ShortKey {
    modulus: BigUint,
    private_exponent: BigUint,
    public: Vec<u8>,
    hash: Hash,
}

impl ShortKey {
    /// Makes the key of 1,024 bits, which signs by SHA-256.
    pub(in crate::registry) fn new() -> Self {
        Self::of(MODULUS, PRIVATE_EXPONENT)
    }

    /// Makes the key of 768 bits.
    pub(in crate::registry) fn shortest() -> Self {
        Self::of(SHORTEST_MODULUS, SHORTEST_PRIVATE_EXPONENT)
    }

    pub(in crate::registry) fn signing_by(self, hash: Hash) -> Self {
        Self { hash, ..self }
    }

    fn of(modulus: &str, private_exponent: &str) -> Self {
        let modulus = number(modulus);
        let mut integer = vec![0];
        integer.extend(modulus.to_bytes_be());
        let mut public = der(2, &integer);
        public.extend([2, 3, 1, 0, 1]);
        Self {
            modulus,
            private_exponent: number(private_exponent),
            public: der(48, &public),
            hash: Hash::Sha256,
        }
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let info = match self.hash {
            Hash::Sha256 => [&SHA256_INFO, digest(&SHA256, message).as_ref()].concat(),
            Hash::Sha384 => [&SHA384_INFO, digest(&SHA384, message).as_ref()].concat(),
            Hash::Sha512 => [&SHA512_INFO, digest(&SHA512, message).as_ref()].concat(),
        };
        let bytes = self.modulus.to_bytes_be().len();
        let mut padded = vec![0xff; bytes - info.len()];
        padded[..2].copy_from_slice(&[0, 1]);
        *padded.last_mut().unwrap() = 0;
        padded.extend(info);
        let padded = BigUint::from_bytes_be(&padded);
        let signed = padded.modpow(&self.private_exponent, &self.modulus);
        let signed = signed.to_bytes_be();
        [vec![0; bytes - signed.len()], signed].concat()
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

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    let mut der = vec![tag];
    if length >= 128 {
        der.push(0x81);
    }
    der.push(length);
    der.extend(content);
    der
}

fn number(text: &str) -> BigUint {
    BigUint::parse_bytes(text.as_bytes(), 16).unwrap()
}

impl rcgen::PublicKeyData for ShortKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        match self.hash {
            Hash::Sha256 => &rcgen::PKCS_RSA_SHA256,
            Hash::Sha384 => &rcgen::PKCS_RSA_SHA384,
            Hash::Sha512 => &rcgen::PKCS_RSA_SHA512,
        }
    }
}

impl rcgen::SigningKey for ShortKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(self.signature(message))
    }
}

impl SigningKey for ShortKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let supported = [
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PKCS1_SHA256,
        ];
        let scheme = offered.iter().find(|scheme| supported.contains(scheme))?;
        Some(Box::new(Signature {
            key: self.clone(),
            scheme: *scheme,
        }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }
}

#[derive(Debug)]
struct Signature {
    key: ShortKey,
    scheme: SignatureScheme,
}

impl Signer for Signature {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        // A PSS signature is never verified, because the certificate is refused before.
        Ok(if self.scheme == SignatureScheme::RSA_PSS_SHA256 {
            vec![0; self.key.modulus.to_bytes_be().len()]
        } else {
            self.key.signature(message)
        })
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}
