//! Verification of registries' certificates: what is accepted beyond webpki, why, and why nobody can forge it.
//!
//! Nodes pull by Go's TLS (`crypto/tls`, `crypto/x509`). What they accept is accepted here, or an image that runs would
//! be called unreachable. Certificates are verified by webpki, the library of rustls, which is made for servers of the
//! public web and refuses some that Go accepts. After each claim stand its tests: they are in `verifier/tests.rs`, and
//! those over a real handshake in `registry/tests/connections.rs`.
//!
//! # What is accepted beyond webpki
//!
//! 1. **The server's own certificate**, if it is in the host's `caFile`, or `ca` of its `hosts.toml`. By
//!    `openssl req -x509`, as in distribution's guide, a server is its own authority, which webpki refuses.
//!    - It may be an authority's, or signed by whomever (`an_own_authority_is_a_server_for_its_names`,
//!      `the_servers_own_certificate_need_not_be_an_authority`).
//!    - Its names, its dates and its usage count (`its_dates_and_usage_count`).
//!    - An authority that is not in those files is no server: not another one
//!      (`any_other_certificate_is_judged_as_ever`), nor one of the system (`an_authority_of_the_system_is_no_server`).
//!    - A server that has the certificate and not its key is refused
//!      (`a_server_has_the_key_of_the_certificate_that_it_presents`).
//! 2. **Critical extensions about policies**: certificatePolicies, policyMappings, policyConstraints, inhibitAnyPolicy,
//!    as governments (the Federal PKI of the US), issuers of qualified certificates in the EU and inspection proxies
//!    have them. webpki refuses them unread. `original` gives it a copy in which they are not critical, and `policies`
//!    judges them.
//!    - The copy differs in that flag alone, one byte for each such extension
//!      (`nothing_but_critical_flags_of_policies_is_relaxed`).
//!    - The signature is verified over the certificate that was presented: no byte of that can be changed, not even to
//!      that of the copy (`no_byte_of_a_relaxed_certificate_can_be_changed`), and what merely looks like the copy is
//!      not taken for it (`a_text_that_equals_the_copy_is_not_the_copy`).
//!    - Any other critical extension that webpki does not know is refused, and so is a chain that lacks a policy which
//!      an authority in it requires (`it_says_which_certificate_is_wrong_and_why`).
//!    - Go judges the chains of `e2e/conformance` alike (`takes_the_chains_that_go_takes`).
//! 3. **Certificates for any usage** (`anyExtendedKeyUsage`), which company authorities issue. One for clients alone is
//!    refused, of a server and of its authorities
//!    (`a_certificate_for_any_usage_is_for_servers_and_one_for_clients_is_not`).
//! 4. **RSA keys of 1,024 to 2,047 bits**, which old authorities of companies and old servers have. Go takes them under
//!    any authority; since Go 1.24 it takes none below 1,024 (`GODEBUG=rsa1024min=0` brings these back). Here they
//!    count only under an authority that the operator has named: whoever can factor one forges certificates of all that
//!    is below it, and the system has some hundred authorities, none of which the operator has chosen.
//!    - The operator's authorities are those of `caFile`, of `ca` in `hosts.toml`, and of `extraCAs` of the chart.
//!      Under them a short key may be the authority's, an intermediate's, or the server's, which signs the handshake
//!      (`a_short_rsa_key_counts_under_an_authority_of_the_operator`, and over a handshake
//!      `a_short_rsa_key_counts_where_the_operator_trusts_its_authority`).
//!    - Under an authority of the system it may be none of these, and the error says which key it is, how many bits it
//!      has, and that `caFile` is the way out (`a_short_rsa_key_counts_nowhere_under_an_authority_of_the_system`, and
//!      over a handshake the same test as above).
//!    - An authority that the system has as well is the operator's if a file of the host has it
//!      (`a_short_rsa_key_counts_where_the_operator_trusts_its_authority`), and the system's if `extraCAs` has it,
//!      which may be a bundle with all public ones (`extra_authorities_are_those_that_the_system_does_not_have`, in
//!      `trust/tests.rs`).
//!    - Below 1,024 bits a key counts nowhere (`an_rsa_key_below_1024_bits_counts_nowhere`, and of a server
//!      `a_short_rsa_key_of_a_server_is_verified_over_tls_1_2`).
//!    - It signs by PKCS #1 with SHA-256 or SHA-512, and not with SHA-384
//!      (`a_short_rsa_key_signs_by_sha_256_or_sha_512_and_not_by_sha_384`).
//!    - A server with such a key is verified over TLS 1.2 alone, by a second handshake
//!      (`a_short_rsa_key_of_a_server_is_verified_over_tls_1_2`). That handshake knows no authority of the system,
//!      whatever the server presents in it (`the_second_handshake_knows_no_authority_of_the_system`).
//!
//! # What holds for all of them
//!
//! - The server's name is in its certificate (`an_own_authority_is_a_server_for_its_names`,
//!   `any_other_certificate_is_judged_as_ever`).
//! - The handshake is signed by the key of the certificate that was presented
//!   (`a_server_has_the_key_of_the_certificate_that_it_presents`,
//!   `a_short_rsa_key_of_a_server_is_verified_over_tls_1_2`).
//! - Of the certificates that a server presents beside its own eight are considered, those nearest to it, so that
//!   hundreds cost little (`hundreds_of_certificates_cost_little`,
//!   `certificates_that_lead_nowhere_are_in_nobodys_way`).
//! - Where the operator sets `skipVerify` any certificate is accepted, and the handshake is verified all the same
//!   (`a_server_has_the_key_of_the_certificate_that_it_presents`).

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

/// Verifies a server's certificate, and its handshake with the key of that certificate.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// Authorities; `None` accepts any certificate, for hosts where the operator wants that.
    pub(super) trusted: Option<Arc<Trusted>>,
    /// True if the server has a short RSA key, which only a first handshake reveals.
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
    /// Verifies that a handshake may be signed by this certificate's key.
    fn verify_key(
        &self,
        certificate: &CertificateDer<'_>,
        trusted_by: TrustedBy,
    ) -> Result<(), Objection> {
        if self.short_key {
            return match trusted_by {
                TrustedBy::Operator => Ok(()),
                // In the first handshake the server's certificate was one of the operator's authorities.
                TrustedBy::System => Err(Objection::Chain("it is another one than before".into())),
            };
        }
        let Some(bits) = parse(certificate).and_then(|parsed| short_key::bits(&parsed)) else {
            return Ok(());
        };
        if trusted_by == TrustedBy::Operator || bits < short_key::FEWEST {
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
    /// Authorities that the operator trusts, for this host or for all.
    pub(super) operator: RootCertStore,
    /// Certificates that the operator names for this host, of authorities or the server's own.
    pub(super) configured: Vec<CertificateDer<'static>>,
    /// List of the files of `configured`.
    pub(super) files: String,
}

/// Whose trust a server's certificate rests on.
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
            let own = parse(presented[0]).ok_or_else(|| object(webpki::Error::BadDer))?;
            if let Some(flaw) = unusable(&own, now) {
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

    /// Verifies a chain twice: with signatures by short keys under the operator's authorities alone, and without these
    /// under the system's.
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

    /// Returns the holder of a key that would count under an authority of the operator, and its bits.
    fn find_short_key(
        &self,
        chain: &Chain<'_>,
        presented: &[&CertificateDer<'_>],
    ) -> Option<(Holder, u32)> {
        for (place, certificate) in presented.iter().enumerate().skip(1) {
            let bits = parse(certificate).and_then(|parsed| short_key::bits(&parsed));
            if let Some(bits) = bits.filter(|bits| *bits >= short_key::FEWEST) {
                return Some((Holder::Presented(place), bits));
            }
        }
        for authority in &self.system.roots {
            if let Some(bits) = short_key::bits_of_authority(authority)
                && bits >= short_key::FEWEST
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
