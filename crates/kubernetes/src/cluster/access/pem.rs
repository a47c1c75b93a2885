//! Parts of PEM, of which malformed and foreign ones are passed over, as by Go's `encoding/pem` and `crypto/tls`.

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

/// Returns the certificates, in their order.
pub(super) fn certificates(text: &[u8]) -> Vec<CertificateDer<'static>> {
    parts(text)
        .iter()
        .filter_map(|part| CertificateDer::from_pem_slice(part).ok())
        .collect()
}

/// Returns the parts with a certificate, as PEM; `None` if there is none.
pub(super) fn chain(text: &[u8]) -> Option<Vec<u8>> {
    let mut chain = Vec::new();
    for part in parts(text) {
        if CertificateDer::from_pem_slice(&part).is_ok() {
            chain.extend_from_slice(&part);
            chain.push(b'\n');
        }
    }
    if chain.is_empty() { None } else { Some(chain) }
}

/// Returns the first part with a private key that is not encrypted, as PEM.
pub(super) fn key(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut parts = parts(text).into_iter();
    parts.find(|part| PrivateKeyDer::from_pem_slice(part).is_ok())
}

/// Splits a text before each line that begins a part.
fn parts(text: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let is_begin = |line: &[u8]| line.starts_with(b"-----BEGIN ");
    let parts = lines
        .chunk_by(|_, next| !is_begin(next))
        .filter(|part| is_begin(part[0]));
    parts.map(|part| Zeroizing::new(part.concat())).collect()
}
