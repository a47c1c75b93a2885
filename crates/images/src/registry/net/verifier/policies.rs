//! Certificate policies: RFC 5280 section 6.1, as in RFC 9618 and Go's `policiesValid`, where any policy will do.

use std::collections::BTreeSet;

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::oid_registry::{
    OID_X509_EXT_CERTIFICATE_POLICIES, OID_X509_EXT_INHIBIT_ANY_POLICY,
    OID_X509_EXT_POLICY_CONSTRAINTS, OID_X509_EXT_POLICY_MAPPINGS, Oid,
};
use x509_parser::parse_x509_certificate;

const ANY_POLICY: &[u8] = &[85, 29, 32, 0];

pub(super) fn is_about(extension: &Oid<'_>) -> bool {
    [
        OID_X509_EXT_CERTIFICATE_POLICIES,
        OID_X509_EXT_POLICY_MAPPINGS,
        OID_X509_EXT_POLICY_CONSTRAINTS,
        OID_X509_EXT_INHIBIT_ANY_POLICY,
    ]
    .contains(extension)
}

/// Returns whether the policies of a path are valid, which begins below its authority; `None` if one cannot be parsed.
pub(super) fn are_valid(path: &[CertificateDer<'_>]) -> Option<bool> {
    let path = path
        .iter()
        .map(|certificate| Some(parse_x509_certificate(certificate).ok()?.1));
    let path = path.collect::<Option<Vec<_>>>()?;
    let constraints = path.iter().map(|certificate| {
        let found = certificate
            .policy_constraints()
            .ok()?
            .map(|found| found.value);
        Some(found.map_or((None, None), |own| {
            (own.require_explicit_policy, own.inhibit_policy_mapping)
        }))
    });
    let constraints = constraints.collect::<Option<Vec<_>>>()?;
    if constraints.iter().all(|(required, _)| required.is_none()) {
        return Some(true);
    }
    // Numbers of further certificates after which each of these holds.
    let [mut explicit, mut no_mapping, mut no_any] = [u32::try_from(path.len()).ok()? + 1; 3];
    // Policies that the next certificate may have; with `any`, every other one as well.
    let (mut any, mut expected) = (true, BTreeSet::new());
    for (left, (certificate, (required, unmapped))) in
        (0..path.len()).rev().zip(path.iter().zip(constraints))
    {
        let is_self_issued = certificate.issuer().as_raw() == certificate.subject().as_raw();
        let own = policies(certificate)?;
        let takes_any = own.contains(ANY_POLICY) && (no_any > 0 || left > 0 && is_self_issued);
        let inherited = if takes_any {
            expected.clone()
        } else {
            BTreeSet::new()
        };
        let is_under = |policy: &&[u8]| *policy != ANY_POLICY && (any || expected.contains(policy));
        expected = own.into_iter().filter(is_under).chain(inherited).collect();
        any &= takes_any;
        if left == 0 {
            explicit = if required == Some(0) {
                0
            } else {
                explicit.saturating_sub(1)
            };
            break;
        }
        let mappings = certificate
            .policy_mappings()
            .ok()?
            .map_or(&[][..], |found| &found.value.mappings);
        let mappings = mappings.iter().map(|mapping| {
            (
                mapping.issuer_domain_policy.as_bytes(),
                mapping.subject_domain_policy.as_bytes(),
            )
        });
        let before = expected.clone();
        for (from, _) in mappings.clone() {
            expected.remove(from);
        }
        for (from, to) in mappings.filter(|_| no_mapping > 0) {
            if [from, to].contains(&ANY_POLICY) {
                return Some(false);
            }
            if any || before.contains(from) {
                expected.insert(to);
            }
        }
        let skipped = certificate
            .inhibit_anypolicy()
            .ok()?
            .map(|found| found.value.skip_certs);
        let step = u32::from(!is_self_issued);
        explicit = explicit
            .saturating_sub(step)
            .min(required.unwrap_or(u32::MAX));
        no_mapping = no_mapping
            .saturating_sub(step)
            .min(unmapped.unwrap_or(u32::MAX));
        no_any = no_any.saturating_sub(step).min(skipped.unwrap_or(u32::MAX));
    }
    Some(explicit > 0 || any || !expected.is_empty())
}

fn policies<'c>(certificate: &'c X509Certificate<'_>) -> Option<BTreeSet<&'c [u8]>> {
    let extension = certificate
        .get_extension_unique(&OID_X509_EXT_CERTIFICATE_POLICIES)
        .ok()?;
    match extension.map(|extension| extension.parsed_extension()) {
        None => Some(BTreeSet::new()),
        Some(ParsedExtension::CertificatePolicies(policies)) => Some(
            policies
                .iter()
                .map(|policy| policy.policy_id.as_bytes())
                .collect(),
        ),
        Some(_) => None,
    }
}
