//! Verifies registries' certificates: what is accepted beyond webpki, why, and why nobody can forge it.
//!
//! Nodes pull with Go's TLS (`crypto/tls`, `crypto/x509`). What they accept has to be accepted here, or an image that
//! runs would be reported as unreachable. webpki, the library of rustls, verifies the certificates. It is made for
//! servers of the public web, and refuses some certificates that Go accepts. Each claim below names its tests. They are
//! in `verifier/tests.rs`; those over a real handshake are in `registry/tests/connections.rs`.
//!
//! # What is accepted beyond webpki
//!
//! 1. **The server's own certificate**, if it is in the host's `caFile`, or in `ca` of the host's `hosts.toml`. With
//!    `openssl req -x509`, as in distribution's guide, a server is its own authority, which webpki refuses.
//!    - The certificate may be that of an authority, and anybody may have signed it
//!      (`configured_authority_is_a_server_for_its_names`, `configured_certificate_need_not_be_an_authority`).
//!    - The certificate's names, dates and usage are checked (`configured_authority_is_a_server_for_its_names`,
//!      `configured_certificates_dates_and_usage_are_checked`).
//!    - An authority that is not in those files is not accepted as a server. That holds for a foreign authority
//!      (`other_certificates_need_a_trusted_authority`) and for one of the system
//!      (`system_authority_is_not_accepted_as_a_server`).
//!    - A server that has the certificate but not the certificate's key is refused
//!      (`server_without_the_key_of_its_certificate_is_refused`).
//! 2. **Critical extensions about policies**: certificatePolicies, policyMappings, policyConstraints, inhibitAnyPolicy.
//!    Certificates of governments (the Federal PKI of the US), of issuers of qualified certificates in the EU and of
//!    inspection proxies have them. webpki refuses such certificates without reading the extensions. `original` gives
//!    webpki a copy in which these extensions are not critical, and `policies` judges them.
//!    - The copy differs from the original only in the critical flag, one byte for each such extension
//!      (`only_critical_flags_of_policies_are_relaxed`).
//!    - The signature is verified over the certificate that was presented. No byte of that can be changed, not even to
//!      the byte that the copy has (`changed_byte_in_a_relaxed_certificate_is_refused`). A text that merely equals the
//!      copy is not taken for the copy (`text_equal_to_the_relaxed_copy_is_verified_as_is`).
//!    - Any other critical extension that webpki does not know is refused. A chain that lacks a policy which an
//!      authority in the chain requires is refused, too (`errors_name_the_flawed_certificate_and_the_flaw`).
//!    - Go judges the chains of `e2e/conformance` in the same way (`accepts_the_chains_that_go_accepts`).
//! 3. **Certificates for any usage** (`anyExtendedKeyUsage`), which company authorities issue. A certificate for
//!    clients only is refused, both as the server's and as that of an authority
//!    (`any_usage_is_accepted_and_client_usage_is_refused`).
//! 4. **RSA keys of 1,024 to 2,047 bits**, which old authorities of companies and old servers have. Go accepts them
//!    under any authority; since Go 1.24 it accepts none below 1,024 bits, unless `GODEBUG=rsa1024min=0` is set. Here
//!    such keys are accepted only under an authority that the operator has named. Whoever can factor a key can forge
//!    all certificates below it, and the system has some hundred authorities, none of which the operator has chosen.
//!    - The operator's authorities are those of `caFile`, of `ca` in `hosts.toml`, and of `extraCAs` of the chart.
//!      Under them a short key may be the authority's, an intermediate's, or the server's, which signs the handshake
//!      (`short_rsa_key_is_accepted_under_operators_authority`, and over a handshake
//!      `handshake_with_short_rsa_key_needs_operators_authority`).
//!    - Under an authority of the system, a short key may be none of these. The error says which key is short, how many
//!      bits it has, and that `caFile` is the way out (`short_rsa_key_is_refused_under_systems_authority`, and over a
//!      handshake the same test as above).
//!    - If an authority is both the system's and in a file of the host, it counts as the operator's
//!      (`handshake_with_short_rsa_key_needs_operators_authority`). If it is both the system's and in `extraCAs`, it
//!      counts as the system's, because `extraCAs` may be a bundle of all public authorities
//!      (`extra_authorities_exclude_those_of_the_system`, in `trust/tests.rs`).
//!    - A key below 1,024 bits is never accepted (`rsa_key_below_1024_bits_is_refused`, and for the key of a server
//!      `short_rsa_key_of_a_server_is_verified_over_tls_1_2`).
//!    - A short key's signatures are accepted by PKCS #1 with SHA-256 or SHA-512, but not with SHA-384
//!      (`short_rsa_key_signs_by_sha_256_or_512_but_not_384`).
//!    - A server with a short key is verified over TLS 1.2 only, in a second handshake
//!      (`short_rsa_key_of_a_server_is_verified_over_tls_1_2`). In that handshake no authority of the system is
//!      trusted, whatever the server presents (`second_handshake_trusts_no_authority_of_the_system`).
//!
//! # What holds for all of them
//!
//! - The server's name is in its certificate (`configured_authority_is_a_server_for_its_names`,
//!   `other_certificates_need_a_trusted_authority`).
//! - The handshake is signed by the key of the certificate that was presented
//!   (`server_without_the_key_of_its_certificate_is_refused`, `short_rsa_key_of_a_server_is_verified_over_tls_1_2`).
//! - At most eight of the other certificates that a server presents are considered, those nearest to the server's own,
//!   so that hundreds of certificates cost little (`only_eight_of_many_intermediates_are_considered`,
//!   `unrelated_certificates_do_not_hide_the_issuer`).
//! - If the operator sets `skipVerify`, any certificate is accepted, but the handshake is still verified
//!   (`server_without_the_key_of_its_certificate_is_refused`).

mod chain;
mod objection;
mod original;
mod policies;
mod short_key;

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};
use webpki::EndEntityCert;

use chain::{Chain, issuers};
pub(super) use objection::Objection;
use objection::{Holder, unusable};
use original::{Relaxed, parse};
use short_key::AlsoShort;

/// Verifies a server's certificate, and that the key of that certificate has signed the handshake.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// Trusted authorities; with `None`, any certificate is accepted, as the operator may configure for a host.
    pub(super) trusted: Option<Arc<Trusted>>,
    /// True in the second handshake with a server whose short RSA key the first one revealed.
    pub(super) short_key: bool,
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
        let mut trusted_by = TrustedBy::Operator;
        if let Some(trusted) = &self.trusted {
            let presented: Vec<_> = [certificate].into_iter().chain(intermediates).collect();
            trusted_by = trusted.verify(&presented, name, now, &self.algorithms)?;
        }
        self.verify_key(certificate, trusted_by)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.short_key && short_key::verify_handshake(message, certificate, signed) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let relaxed = Relaxed::of(certificate).certificate;
        verify_tls12_signature(message, &relaxed, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let relaxed = Relaxed::of(certificate).certificate;
        verify_tls13_signature(message, &relaxed, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        if self.short_key {
            short_key::SCHEMES.to_vec()
        } else {
            self.algorithms.supported_schemes()
        }
    }
}

impl Verifier {
    /// Verifies that this certificate's key may sign a handshake.
    fn verify_key(
        &self,
        certificate: &CertificateDer<'_>,
        trusted_by: TrustedBy,
    ) -> Result<(), Objection> {
        if self.short_key {
            return match trusted_by {
                TrustedBy::Operator => Ok(()),
                // In the first handshake, the server presented a certificate that the operator's authorities vouch for.
                TrustedBy::System => {
                    let why = "it differs from that of the first handshake";
                    Err(Objection::Chain(why.into()))
                }
            };
        }
        let Some(bits) = parse(certificate).and_then(|parsed| short_key::bits(&parsed)) else {
            return Ok(());
        };
        if trusted_by == TrustedBy::Operator || bits < short_key::MIN_BITS {
            return Err(Objection::ShortKey(bits));
        }
        let files = self.trusted.as_ref().map(|trusted| trusted.files.clone());
        Err(Objection::ShortKeyOfSystem {
            holder: Holder::Presented(0),
            bits,
            files: files.unwrap_or_default(),
        })
    }
}

/// Authorities that are trusted for a host.
#[derive(Debug)]
pub(super) struct Trusted {
    pub(super) system: Arc<RootCertStore>,
    /// Authorities that the operator trusts, for this host or for all hosts.
    pub(super) operator: RootCertStore,
    /// Certificates that the operator names for this host: those of authorities, or the server's own.
    pub(super) configured: Vec<CertificateDer<'static>>,
    /// Names of the files that hold `configured`.
    pub(super) files: String,
}

/// Whose authorities vouch for a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrustedBy {
    Operator,
    System,
}

impl Trusted {
    /// Verifies the certificates that were presented, the server's own first.
    fn verify(
        &self,
        presented: &[&CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<TrustedBy, Objection> {
        let object = |error| Objection::of(&error, presented, now, &self.files);
        let relaxed = Relaxed::of(presented[0]);
        let server = EndEntityCert::try_from(&relaxed.certificate).map_err(object)?;
        let trusted_by = if self.configured.contains(presented[0]) {
            // Applies webpki's checks of a server's certificate, except basic constraints.
            let parsed = parse(presented[0]).ok_or_else(|| object(webpki::Error::BadDer))?;
            if let Some(flaw) = unusable(&parsed, now) {
                return Err(Objection::Flaw(0, flaw));
            }
            TrustedBy::Operator
        } else {
            let chain = Chain {
                server: &server,
                relaxed: &relaxed,
                issuers: issuers(&server, &presented[1..]),
                now,
            };
            self.verify_chain(&chain, presented, algorithms)?
        };
        server
            .verify_is_valid_for_subject_name(name)
            .map_err(object)?;
        Ok(trusted_by)
    }

    /// Verifies a chain twice: under the operator's authorities, where signatures by short keys count, and under the
    /// system's, where they do not.
    fn verify_chain(
        &self,
        chain: &Chain<'_>,
        presented: &[&CertificateDer<'_>],
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<TrustedBy, Objection> {
        let object = |error| Objection::of(&error, presented, chain.now, &self.files);
        let also_short: Vec<_> = algorithms.all.iter().copied().map(AlsoShort).collect();
        let also_short: Vec<&dyn SignatureVerificationAlgorithm> =
            also_short.iter().map(|algorithm| algorithm as _).collect();
        let Err(by_operator) = chain.verify(&self.operator, &also_short) else {
            return Ok(TrustedBy::Operator);
        };
        let Err(by_system) = chain.verify(&self.system, algorithms.all) else {
            return Ok(TrustedBy::System);
        };
        if by_operator != webpki::Error::UnknownIssuer {
            return Err(object(by_operator));
        }
        if by_system == webpki::Error::InvalidSignatureForPublicKey
            && chain.verify(&self.system, &also_short).is_ok()
            && let Some((holder, bits)) = self.find_short_key(chain, presented)
        {
            return Err(Objection::ShortKeyOfSystem {
                holder,
                bits,
                files: self.files.clone(),
            });
        }
        Err(object(by_system))
    }

    /// Returns the holder of a short key that would be accepted under an authority of the operator, and the key's bits.
    fn find_short_key(
        &self,
        chain: &Chain<'_>,
        presented: &[&CertificateDer<'_>],
    ) -> Option<(Holder, u32)> {
        for (index, certificate) in presented.iter().enumerate().skip(1) {
            let bits = parse(certificate).and_then(|parsed| short_key::bits(&parsed));
            if let Some(bits) = bits
                && bits >= short_key::MIN_BITS
            {
                return Some((Holder::Presented(index), bits));
            }
        }
        for authority in &self.system.roots {
            if let Some(bits) = short_key::bits_of_authority(authority)
                && bits >= short_key::MIN_BITS
                && chain.names_issuer(&authority.subject)
            {
                return Some((Holder::Authority, bits));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
