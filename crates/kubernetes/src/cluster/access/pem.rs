//! Blocks of PEM. Malformed blocks, and blocks of another kind, are skipped, as by Go's `encoding/pem` and
//! `crypto/tls`.

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

/// Returns the certificates, in their order.
pub(super) fn certificates(text: &[u8]) -> Vec<CertificateDer<'static>> {
    let mut certificates = Vec::new();
    for block in blocks(text) {
        if let Ok(certificate) = CertificateDer::from_pem_slice(&block) {
            certificates.push(certificate);
        }
    }
    certificates
}

/// Returns the blocks with a certificate, as PEM; `None` if there is none.
pub(super) fn chain(text: &[u8]) -> Option<Vec<u8>> {
    let mut chain = Vec::new();
    for block in blocks(text) {
        if CertificateDer::from_pem_slice(&block).is_ok() {
            chain.extend_from_slice(&block);
            chain.push(b'\n');
        }
    }
    if chain.is_empty() { None } else { Some(chain) }
}

/// Returns the first block with a private key that is not encrypted, as PEM.
pub(super) fn key(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut blocks = blocks(text).into_iter();
    blocks.find(|block| PrivateKeyDer::from_pem_slice(block).is_ok())
}

/// Splits a text before each line that begins a block. Lines before the first block are dropped.
fn blocks(text: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut blocks = Vec::new();
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    for lines in lines.chunk_by(|_, next| !begins_block(next)) {
        if begins_block(lines[0]) {
            blocks.push(Zeroizing::new(lines.concat()));
        }
    }
    blocks
}

fn begins_block(line: &[u8]) -> bool {
    line.starts_with(b"-----BEGIN ")
}
