//! Validates certificate policies by RFC 5280 section 6.1, in the way of RFC 9618 and Go's `policiesValid`. Any policy
//! is acceptable.

use std::collections::BTreeSet;
use std::mem;

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ParsedExtension, PolicyConstraints};
use x509_parser::oid_registry::{
    OID_X509_EXT_CERTIFICATE_POLICIES, OID_X509_EXT_INHIBIT_ANY_POLICY,
    OID_X509_EXT_POLICY_CONSTRAINTS, OID_X509_EXT_POLICY_MAPPINGS, Oid,
};
use x509_parser::parse_x509_certificate;

const ANY_POLICY: &[u8] = &[85, 29, 32, 0];

/// Returns whether an extension is about policies.
pub(super) fn is_about(extension: &Oid<'_>) -> bool {
    [
        OID_X509_EXT_CERTIFICATE_POLICIES,
        OID_X509_EXT_POLICY_MAPPINGS,
        OID_X509_EXT_POLICY_CONSTRAINTS,
        OID_X509_EXT_INHIBIT_ANY_POLICY,
    ]
    .contains(extension)
}

/// Returns whether the policies of a path are valid; `None` if a certificate cannot be parsed. The path begins below
/// the trusted authority and ends with the server's certificate.
pub(super) fn are_valid(path: &[CertificateDer<'_>]) -> Option<bool> {
    let mut certificates = Vec::with_capacity(path.len());
    let mut may_require_policy = false;
    for certificate in path {
        let (_, certificate) = parse_x509_certificate(certificate).ok()?;
        let required = constraints(&certificate)?.require_explicit_policy;
        may_require_policy |= required.is_some();
        certificates.push(certificate);
    }
    if !may_require_policy {
        return Some(true);
    }
    let unlimited = u32::try_from(path.len()).ok()? + 1;
    let mut state = State {
        explicit_policy: unlimited,
        no_mapping: unlimited,
        no_any_policy: unlimited,
        expected: BTreeSet::new(),
        any: true,
    };
    let (last, issuers) = certificates.split_last()?;
    for issuer in issuers {
        state.take_policies(issuer, is_self_issued(issuer))?;
        if !state.map_policies(issuer)? {
            return Some(false);
        }
        state.take_constraints(issuer)?;
    }
    state.take_policies(last, false)?;
    // The last certificate counts as well (RFC 5280 section 6.1.5).
    let requires_policy =
        state.explicit_policy <= 1 || constraints(last)?.require_explicit_policy == Some(0);
    Some(!requires_policy || state.any || !state.expected.is_empty())
}

/// State of the validation of a path, between two certificates (RFC 5280 section 6.1.2).
struct State<'c> {
    /// Number of certificates after which a policy is required.
    explicit_policy: u32,
    /// Number of certificates after which policies are no longer mapped.
    no_mapping: u32,
    /// Number of certificates after which `anyPolicy` no longer counts.
    no_any_policy: u32,
    /// Policies that the next certificate may have.
    expected: BTreeSet<&'c [u8]>,
    /// True if the next certificate may also have any other policy.
    any: bool,
}

impl<'c> State<'c> {
    /// Keeps the expected policies that a certificate has. Keeps all expected ones if the certificate has `anyPolicy`
    /// and that still counts: because of the certificate's position in the path, or by `always_any`.
    fn take_policies(
        &mut self,
        certificate: &'c X509Certificate<'_>,
        always_any: bool,
    ) -> Option<()> {
        let policies = policies(certificate)?;
        let takes_any = policies.contains(ANY_POLICY) && (self.no_any_policy > 0 || always_any);
        let expected = mem::take(&mut self.expected);
        for policy in policies {
            if policy != ANY_POLICY && (self.any || expected.contains(policy)) {
                self.expected.insert(policy);
            }
        }
        if takes_any {
            self.expected.extend(expected);
        }
        self.any &= takes_any;
        Some(())
    }

    /// Replaces policies by those to which an issuer maps them. Returns false if a mapping contains `anyPolicy`.
    fn map_policies(&mut self, issuer: &'c X509Certificate<'_>) -> Option<bool> {
        let Some(extension) = issuer.policy_mappings().ok()? else {
            return Some(true);
        };
        let mappings = &extension.value.mappings;
        let expected = self.expected.clone();
        for mapping in mappings {
            self.expected
                .remove(mapping.issuer_domain_policy.as_bytes());
        }
        if self.no_mapping == 0 {
            return Some(true);
        }
        for mapping in mappings {
            let from = mapping.issuer_domain_policy.as_bytes();
            let to = mapping.subject_domain_policy.as_bytes();
            if [from, to].contains(&ANY_POLICY) {
                return Some(false);
            }
            if self.any || expected.contains(from) {
                self.expected.insert(to);
            }
        }
        Some(true)
    }

    /// Decrements each number, unless the issuer is self-issued, and lowers it to the issuer's own number if that is
    /// less.
    fn take_constraints(&mut self, issuer: &X509Certificate<'_>) -> Option<()> {
        let any_policy = issuer.inhibit_anypolicy().ok()?;
        let constraints = constraints(issuer)?;
        let step = u32::from(!is_self_issued(issuer));
        let lower = |number: &mut u32, constraint: Option<u32>| {
            let constraint = constraint.unwrap_or(u32::MAX);
            *number = number.saturating_sub(step).min(constraint);
        };
        lower(
            &mut self.explicit_policy,
            constraints.require_explicit_policy,
        );
        lower(&mut self.no_mapping, constraints.inhibit_policy_mapping);
        lower(
            &mut self.no_any_policy,
            any_policy.map(|extension| extension.value.skip_certs),
        );
        Some(())
    }
}

fn is_self_issued(certificate: &X509Certificate<'_>) -> bool {
    certificate.issuer().as_raw() == certificate.subject().as_raw()
}

fn constraints(certificate: &X509Certificate<'_>) -> Option<PolicyConstraints> {
    let extension = certificate.policy_constraints().ok()?;
    let none = PolicyConstraints {
        require_explicit_policy: None,
        inhibit_policy_mapping: None,
    };
    Some(extension.map_or(none, |extension| extension.value.clone()))
}

fn policies<'c>(certificate: &'c X509Certificate<'_>) -> Option<BTreeSet<&'c [u8]>> {
    let extension = certificate.get_extension_unique(&OID_X509_EXT_CERTIFICATE_POLICIES);
    let Some(extension) = extension.ok()? else {
        return Some(BTreeSet::new());
    };
    let ParsedExtension::CertificatePolicies(policies) = extension.parsed_extension() else {
        return None;
    };
    let ids = policies.iter().map(|policy| policy.policy_id.as_bytes());
    Some(ids.collect())
}
