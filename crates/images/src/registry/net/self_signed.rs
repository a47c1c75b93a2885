//! A registry whose certificate is its own authority, as `openssl req -x509` makes it and distribution's guide says. webpki
//! refuses every server with the certificate of an authority; Go, and so the node, takes it where it is trusted itself.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::certificate::X509Certificate;

/// Takes the operator's own authorities as certificates of servers as well, for their names, dates and usage; all others as
/// webpki does.
#[derive(Debug)]
pub(super) struct SelfSigned {
    webpki: Arc<WebPkiServerVerifier>,
    authorities: Vec<CertificateDer<'static>>,
}

impl SelfSigned {
    /// `authorities` are those that the operator configured, never the system's.
    pub(super) fn new(
        webpki: Arc<WebPkiServerVerifier>,
        mut authorities: Vec<CertificateDer<'static>>,
    ) -> Self {
        authorities.retain(|authority| parse(authority).is_ok_and(|parsed| parsed.is_ca()));
        Self { webpki, authorities }
    }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    let parsed = x509_parser::parse_x509_certificate(certificate);
    parsed.map(|(_, certificate)| certificate).map_err(|_| CertificateError::BadEncoding.into())
}

/// What webpki checks of any certificate of a server, but for its basic constraints.
fn verify(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    let parsed = parse(certificate)?;
    let time = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if time < parsed.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if time > parsed.validity().not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let usage = parsed.extended_key_usage().map_err(|_| Error::from(CertificateError::BadEncoding))?;
    if usage.is_some_and(|usage| !usage.value.server_auth) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
}

impl ServerCertVerifier for SelfSigned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.authorities.contains(certificate) {
            return verify(certificate, name, now).map(|()| ServerCertVerified::assertion());
        }
        self.webpki.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
