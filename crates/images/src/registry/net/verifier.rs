//! Which certificates of registries are taken where the operator says more than the system.
//!
//! A registry's certificate may be its own authority, as `openssl req -x509` makes it and distribution's guide says. webpki
//! refuses every server with the certificate of an authority; Go, and so the node, takes it where it is trusted itself.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::parse_x509_certificate;

/// The handshake is always made with the key of the certificate that was presented.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// `None` takes any certificate, for hosts where the operator wants it so.
    pub(super) trusted: Option<Trusted>,
}

/// The operator's own are taken as those of servers as well, for their names, dates and usage; all others as webpki does.
#[derive(Debug)]
pub(super) struct Trusted {
    webpki: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// `own` are those among the roots that the operator configured, never the system's.
    pub(super) fn new(
        provider: Arc<CryptoProvider>,
        roots: RootCertStore,
        own: Vec<CertificateDer<'static>>,
    ) -> Result<Self, Error> {
        let algorithms = provider.signature_verification_algorithms;
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        // It fails without authorities, and there are some.
        let webpki = webpki.build().map_err(|error| Error::General(error.to_string()))?;
        Ok(Self { algorithms, trusted: Some(Trusted { webpki, own }) })
    }
}

/// What webpki checks of any certificate of a server, but for its basic constraints.
fn verify(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
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

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.trusted {
            Some(Trusted { webpki, own }) if !own.contains(certificate) => {
                return webpki.verify_server_cert(certificate, intermediates, name, ocsp, now);
            }
            Some(_) => verify(certificate, name, now)?,
            None => {}
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
