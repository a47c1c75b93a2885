//! The certificate authorities of a PEM file. What cannot be read is passed over, as Go's `AppendCertsFromPEM` does, on which
//! nodes rely.

use std::path::Path;

use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{self, PemObject};
use tolerarch_support::file;

use super::trust::TlsFault;

/// Parts that are logged at a time: a file may have thousands of them.
const LOGGED: usize = 20;

/// Adds the authorities of a file, and returns them.
pub(super) fn add(roots: &mut RootCertStore, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let text = file::read(file).map_err(|cause| TlsFault::File(file.to_owned(), cause))?;
    let (mut added, mut passed) = (Vec::new(), 0_usize);
    for (line, part) in parts(&text) {
        let why = match CertificateDer::from_pem_slice(part) {
            Ok(certificate) => match roots.add(certificate.clone()) {
                Ok(()) => {
                    added.push(certificate);
                    continue;
                }
                Err(_) => "it is no certificate that can be read",
            },
            Err(pem::Error::NoItemsFound) => "it is no CERTIFICATE",
            Err(_) => "it is no PEM: its base64 is broken, or its end is missing",
        };
        passed += 1;
        if passed <= LOGGED {
            let file = file.display();
            tracing::warn!(%file, line, why, "a part of a file of certificate authorities is passed over");
        }
    }
    if let Some(more) = passed.checked_sub(LOGGED).filter(|more| *more > 0) {
        tracing::warn!(file = %file.display(), more, "more parts are passed over");
    }
    if added.is_empty() { Err(TlsFault::NoAuthority(file.to_owned())) } else { Ok(added) }
}

/// What begins as a part of PEM, up to the next one, and its line.
fn parts(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut begins = Vec::new();
    let mut at = 0;
    for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
        if line.starts_with(b"-----BEGIN ") {
            begins.push((number, at));
        }
        at += line.len();
    }
    let ends: Vec<usize> = begins.iter().skip(1).map(|(_, at)| *at).chain([at]).collect();
    begins.into_iter().zip(ends).map(|((line, begin), end)| (line, &text[begin..end]))
}

#[cfg(test)]
mod tests;
