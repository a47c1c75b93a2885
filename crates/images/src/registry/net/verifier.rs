//! Accepts the certificates of registries that nodes accept, whose TLS is Go's (`crypto/tls`, `crypto/x509`). webpki
//! refuses some of these: a registry's certificate that is its own authority, as `openssl req -x509` makes it and
//! distribution's guide says; critical extensions about policies; certificates for any usage; RSA keys of 1,024 to
//! 2,047 bits. This module accepts them by Go's rules, and nothing beyond these.

mod objection;
mod original;
mod policies;

use std::collections::VecDeque;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};
use webpki::{
    EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, KeyUsage,
    RequiredEkuNotFoundContext, VerifiedPath,
};

pub(super) use objection::Objection;
use objection::unusable;
use original::{Original, Relaxed, parse};

/// Maximum number of certificates of a server's chain that are considered: webpki tries their permutations.
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
    pub(super) configured: Vec<CertificateDer<'static>>,
    /// List of the files of `configured`.
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
    ) -> Result<(), Objection> {
        let presented = [certificate].into_iter().chain(intermediates);
        let object = |error| Objection::of(&error, presented.clone(), now, &self.files);
        let relaxed = Relaxed::of(certificate);
        let server = EndEntityCert::try_from(&relaxed.certificate).map_err(object)?;
        if self.configured.contains(certificate) {
            // Applies webpki's checks of a server's certificate, except basic constraints.
            let parsed = parse(certificate).ok_or_else(|| object(webpki::Error::BadDer))?;
            if let Some(flaw) = unusable(&parsed, now) {
                return Err(Objection::Flaw(0, flaw));
            }
        } else {
            let issuers = issuers(&server, intermediates);
            let mut changed: Vec<_> = issuers.iter().filter_map(Relaxed::changed).collect();
            changed.extend(relaxed.changed());
            let originals = algorithms.all.iter().map(|&algorithm| Original {
                algorithm,
                changed: &changed,
            });
            self.verify_chain(&server, &issuers, now, &originals.collect::<Vec<_>>())
                .map_err(object)?;
        }
        server
            .verify_is_valid_for_subject_name(name)
            .map_err(object)
    }

    /// Verifies that the certificates lead from the server's to an authority, for servers and with valid policies.
    fn verify_chain(
        &self,
        server: &EndEntityCert<'_>,
        issuers: &[Relaxed<'_>],
        now: UnixTime,
        algorithms: &[Original<'_>],
    ) -> Result<(), webpki::Error> {
        let algorithms: Vec<&dyn SignatureVerificationAlgorithm> =
            algorithms.iter().map(|algorithm| algorithm as _).collect();
        let issuers: Vec<CertificateDer<'_>> = issuers
            .iter()
            .map(|issuer| issuer.certificate.clone())
            .collect();
        server.verify_for_usage(
            &algorithms,
            &self.roots.roots,
            &issuers,
            now,
            ForServers,
            None,
            Some(&has_valid_policies),
        )?;
        Ok(())
    }
}

/// Returns, by their names, certificates by which the server's may lead to an authority; of many, the nearest.
fn issuers<'c>(
    server: &EndEntityCert<'_>,
    intermediates: &'c [CertificateDer<'_>],
) -> Vec<Relaxed<'c>> {
    let mut rest = Vec::with_capacity(intermediates.len());
    for certificate in intermediates {
        let relaxed = Relaxed::of(certificate);
        let Ok(parsed) = EndEntityCert::try_from(&relaxed.certificate) else {
            continue;
        };
        let subject = parsed.subject().to_vec();
        let issuer = parsed.issuer().to_vec();
        rest.push((relaxed, subject, issuer));
    }
    let mut nearest = Vec::new();
    let mut wanted = VecDeque::from([server.issuer().to_vec()]);
    while nearest.len() < ISSUERS
        && let Some(name) = wanted.pop_front()
    {
        for (relaxed, _, issuer) in rest.extract_if(.., |(_, subject, _)| *subject == name) {
            nearest.push(relaxed);
            wanted.push_back(issuer);
        }
    }
    nearest.truncate(ISSUERS);
    nearest
}

/// Go's `checkChainForKeyUsage`: without the extension a certificate is for any usage, too.
struct ForServers;

impl ExtendedKeyUsageValidator for ForServers {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let purposes = purposes.collect::<Result<Vec<_>, _>>()?;
        let is_for_servers =
            |purpose: &KeyPurposeId<'_>| *purpose == SERVER_AUTH || *purpose == ANY_USAGE;
        if purposes.is_empty() || purposes.iter().any(is_for_servers) {
            return Ok(());
        }
        let context = RequiredEkuNotFoundContext {
            required: KeyUsage::server_auth(),
            present: Vec::new(),
        };
        Err(webpki::Error::RequiredEkuNotFoundContext(context))
    }
}

fn has_valid_policies(path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
    let issuers = path.intermediate_certificates().rev();
    let mut certificates: Vec<_> = issuers.map(|issuer| issuer.der()).collect();
    certificates.push(path.end_entity().der());
    match policies::are_valid(&certificates) {
        Some(true) => Ok(()),
        _ => Err(webpki::Error::UnsupportedCriticalExtension),
    }
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
            trusted.verify(certificate, intermediates, name, now, &self.algorithms)?;
        }
        match parse(certificate).and_then(|server| original::short_key(&server)) {
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
        verify_tls12_signature(
            message,
            &Relaxed::of(certificate).certificate,
            signed,
            &self.algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            &Relaxed::of(certificate).certificate,
            signed,
            &self.algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        if self.short_key {
            original::SCHEMES.to_vec()
        } else {
            self.algorithms.supported_schemes()
        }
    }
}

#[cfg(test)]
mod tests;
