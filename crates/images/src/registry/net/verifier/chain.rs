//! The chain from a server's certificate to an authority, which webpki finds and verifies.

use std::collections::VecDeque;

use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use webpki::{
    EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, KeyUsage,
    RequiredEkuNotFoundContext, VerifiedPath,
};

use super::original::{OriginalVerifier, Relaxed};
use super::policies;

/// Maximum number of certificates of a server's chain that are considered, because webpki tries their permutations.
const MAX_ISSUERS: usize = 8;
const SERVER_AUTH: KeyPurposeId<'_> = KeyPurposeId::new(&[43, 6, 1, 5, 5, 7, 3, 1]);
const ANY_USAGE: KeyPurposeId<'_> = KeyPurposeId::new(&[85, 29, 37, 0]);

pub(super) struct Chain<'c> {
    pub(super) server: &'c EndEntityCert<'c>,
    /// The server's certificate, from which `server` was parsed.
    pub(super) relaxed: &'c Relaxed<'c>,
    pub(super) issuers: Vec<Relaxed<'c>>,
    pub(super) now: UnixTime,
}

impl Chain<'_> {
    /// Verifies that the chain leads to one of these authorities, that its certificates are for servers, and that its
    /// policies are valid. Only signatures by these algorithms count.
    pub(super) fn verify(
        &self,
        authorities: &RootCertStore,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), webpki::Error> {
        let issuers = self.issuers.iter();
        let mut changed_parts: Vec<_> = issuers.filter_map(Relaxed::changed_part).collect();
        changed_parts.extend(self.relaxed.changed_part());
        let originals: Vec<_> = algorithms
            .iter()
            .map(|&algorithm| OriginalVerifier {
                algorithm,
                changed_parts: &changed_parts,
            })
            .collect();
        let originals: Vec<&dyn SignatureVerificationAlgorithm> =
            originals.iter().map(|algorithm| algorithm as _).collect();
        // Borrowed and not cloned, because [`OriginalVerifier`] recognises a copy by its address in memory.
        let issuers: Vec<CertificateDer<'_>> = self
            .issuers
            .iter()
            .map(|issuer| CertificateDer::from(&*issuer.certificate))
            .collect();
        self.server.verify_for_usage(
            &originals,
            &authorities.roots,
            &issuers,
            self.now,
            ForServers,
            None,
            Some(&has_valid_policies),
        )?;
        Ok(())
    }

    /// Returns whether a certificate of the chain names this issuer.
    pub(super) fn names_issuer(&self, name: &[u8]) -> bool {
        let mut certificates = vec![&self.relaxed.certificate];
        certificates.extend(self.issuers.iter().map(|issuer| &issuer.certificate));
        certificates.into_iter().any(|certificate| {
            EndEntityCert::try_from(certificate).is_ok_and(|parsed| parsed.issuer() == name)
        })
    }
}

/// Returns the certificates through which the server's may lead to an authority, as their names say. If there are too
/// many, returns those nearest to the server's.
pub(super) fn issuers<'c>(
    server: &EndEntityCert<'_>,
    intermediates: &[&'c CertificateDer<'c>],
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
    while nearest.len() < MAX_ISSUERS
        && let Some(name) = wanted.pop_front()
    {
        for (relaxed, _, issuer) in rest.extract_if(.., |(_, subject, _)| *subject == name) {
            nearest.push(relaxed);
            wanted.push_back(issuer);
        }
    }
    nearest.truncate(MAX_ISSUERS);
    nearest
}

/// Checks the extended key usage as Go's `checkChainForKeyUsage` does: a certificate without the extension is for any
/// usage.
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
