//! Accepts the certificates of registries that nodes accept, whose TLS is Go's (`crypto/tls`, `crypto/x509`). webpki
//! refuses some of these: a registry's certificate that is its own authority, as `openssl req -x509` makes it and
//! distribution's guide says; critical extensions about policies; certificates for any usage; RSA keys of 1,024 to
//! 2,047 bits. This module accepts them by Go's rules, and nothing beyond these.

mod objection;
mod original;
mod policies;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};
use webpki::{
    EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, KeyUsage,
    RequiredEkuNotFoundContext, VerifiedPath,
};
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

pub(super) use objection::Objection;
use original::{Original, Relaxed};

/// Maximal number of certificates of a server's chain that are considered: webpki tries their permutations.
const ISSUERS: usize = 8;
const SERVER_AUTH: KeyPurposeId<'_> = KeyPurposeId::new(&[43, 6, 1, 5, 5, 7, 3, 1]);
const ANY_USAGE: KeyPurposeId<'_> = KeyPurposeId::new(&[85, 29, 37, 0]);

/// Verifies certificates. The handshake is always verified with the key of the certificate that was presented.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// Authorities; `None` accepts any certificate, for hosts where the operator wants that.
    pub(super) trusted: Option<Arc<Trusted>>,
    /// True if the server has a short RSA key, which only a first handshake reveals.
    pub(super) short_key: bool,
}

/// Trusted certificates. The operator's own are accepted as those of servers as well, by their names, dates and usage.
#[derive(Debug)]
pub(super) struct Trusted {
    pub(super) roots: RootCertStore,
    /// Roots that the operator configured, never the system's.
    pub(super) own: Vec<CertificateDer<'static>>,
    /// List of the files of `own`.
    pub(super) files: String,
}

impl Trusted {
    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), webpki::Error> {
        let relaxed = Relaxed::of(certificate);
        let server = EndEntityCert::try_from(&relaxed.certificate)?;
        if self.own.contains(certificate) {
            verify_own(certificate, now)?;
            return server.verify_is_valid_for_subject_name(name);
        }
        let issuers = issuers(&server, intermediates);
        let changed: Vec<_> = issuers.iter().chain([&relaxed]).filter_map(Relaxed::changed).collect();
        let changed = &changed;
        let algorithms: Vec<_> =
            algorithms.all.iter().map(|&algorithm| Original { algorithm, changed }).collect();
        let algorithms: Vec<&dyn SignatureVerificationAlgorithm> =
            algorithms.iter().map(|algorithm| algorithm as _).collect();
        let issuers: Vec<CertificateDer<'_>> =
            issuers.iter().map(|relaxed| relaxed.certificate.clone()).collect();
        let (anchors, policies) = (&self.roots.roots, Some(&has_valid_policies as _));
        server.verify_for_usage(&algorithms, anchors, &issuers, now, ForServers, None, policies)?;
        server.verify_is_valid_for_subject_name(name)
    }
}

/// Returns, by their names, certificates by which the server's may lead to an authority; of many, the nearest.
fn issuers<'c>(server: &EndEntityCert<'_>, intermediates: &'c [CertificateDer<'_>]) -> Vec<Relaxed<'c>> {
    let named = |relaxed: Relaxed<'c>| {
        let parsed = EndEntityCert::try_from(&relaxed.certificate).ok()?;
        let (subject, issuer) = (parsed.subject().to_vec(), parsed.issuer().to_vec());
        Some((relaxed, subject, issuer))
    };
    let mut rest: Vec<_> = intermediates.iter().map(Relaxed::of).filter_map(named).collect();
    let (mut found, mut wanted) = (Vec::new(), VecDeque::from([server.issuer().to_vec()]));
    while let Some(name) = wanted.pop_front().filter(|_| found.len() < ISSUERS) {
        for (relaxed, _, issuer) in rest.extract_if(.., |(_, subject, _)| *subject == name) {
            found.push(relaxed);
            wanted.push_back(issuer);
        }
    }
    found.truncate(ISSUERS);
    found
}

/// Checks what webpki checks of any certificate of a server, except for basic constraints.
fn verify_own(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), webpki::Error> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|_| webpki::Error::BadDer)?;
    let at = |time: ASN1Time| {
        let seconds = u64::try_from(time.timestamp()).unwrap_or_default();
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    };
    let (not_before, not_after) = (at(parsed.validity().not_before), at(parsed.validity().not_after));
    if now < not_before {
        return Err(webpki::Error::CertNotValidYet { time: now, not_before });
    }
    if now > not_after {
        return Err(webpki::Error::CertExpired { time: now, not_after });
    }
    let usage = parsed.extended_key_usage().map_err(|_| webpki::Error::ExtensionValueInvalid)?;
    if usage.is_some_and(|usage| !(usage.value.server_auth || usage.value.any)) {
        return Err(not_for_servers(Vec::new()));
    }
    Ok(())
}

fn not_for_servers(present: Vec<Vec<usize>>) -> webpki::Error {
    let required = KeyUsage::server_auth();
    webpki::Error::RequiredEkuNotFoundContext(RequiredEkuNotFoundContext { required, present })
}

/// Go's `checkChainForKeyUsage`: without the extension a certificate is for any usage, too.
struct ForServers;

impl ExtendedKeyUsageValidator for ForServers {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let purposes = purposes.collect::<Result<Vec<_>, _>>()?;
        if purposes.is_empty() || purposes.iter().any(|purpose| [SERVER_AUTH, ANY_USAGE].contains(purpose)) {
            return Ok(());
        }
        Err(not_for_servers(purposes.iter().map(KeyPurposeId::to_decoded_oid).collect()))
    }
}

fn has_valid_policies(path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
    let issuers = path.intermediate_certificates().rev().map(|issuer| issuer.der());
    let certificates: Vec<_> = issuers.chain([path.end_entity().der()]).collect();
    let are_valid = policies::are_valid(&certificates).unwrap_or(false);
    if are_valid { Ok(()) } else { Err(webpki::Error::UnsupportedCriticalExtension) }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(trusted) = &self.trusted {
            let verified = trusted.verify(certificate, intermediates, name, now, &self.algorithms);
            let chain = || [certificate].into_iter().chain(intermediates);
            verified.map_err(|error| Objection::of(error, chain(), &trusted.files))?;
        }
        match original::short_key(certificate) {
            Some(bits) if !self.short_key => Err(Objection::ShortKey(bits).into()),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.short_key && original::verify_handshake(message, certificate, signed) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls12_signature(message, &Relaxed::of(certificate).certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, &Relaxed::of(certificate).certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        if self.short_key { original::SCHEMES.to_vec() } else { self.algorithms.supported_schemes() }
    }
}

#[cfg(test)]
mod tests;
