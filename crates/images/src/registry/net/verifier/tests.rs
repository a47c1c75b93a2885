use std::time::{Duration, SystemTime};

use super::*;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};

/// As `openssl req -x509 -addext subjectAltName=DNS:a.b` makes it.
fn certificate(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(["a.b".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}

fn verifier(authorities: &[CertificateDer<'static>]) -> Verifier {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Verifier::new(provider, roots, authorities.to_vec()).unwrap()
}

fn takes(verifier: &Verifier, certificate: &CertificateDer<'_>, name: &str) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Debug| format!("{error:?}");
    let name = ServerName::try_from(name).map_err(|error| text(&error))?;
    let verified = verifier.verify_server_cert(certificate, &[], &name, &[], UnixTime::now());
    verified.map(|_| ()).map_err(|error| text(&error))
}

#[test]
fn an_own_authority_is_a_server_for_its_names() {
    let own = certificate(|_| ());
    let verifier = verifier(std::slice::from_ref(&own));
    for name in ["a.b", "A.b", "127.0.0.1"] {
        assert_eq!(takes(&verifier, &own, name), Ok(()), "{name}");
    }
    for name in ["c.d", "x.a.b", "b", "127.0.0.2", "::1"] {
        let error = takes(&verifier, &own, name).unwrap_err();
        assert!(error.contains("NotValidForName"), "{name}: {error}");
    }
}

/// Whatever its basic constraints say, and whoever has signed it: the node takes it, too.
#[test]
fn the_servers_own_certificate_need_not_be_an_authority() {
    let alone = certificate(|params| params.is_ca = IsCa::NoCa);
    let leaf = testregistry::Pki::new().leaf(&["a.b"]).cert_pem;
    let signed = rustls_pki_types::pem::PemObject::from_pem_slice(leaf.as_bytes()).unwrap();
    for own in [alone, certificate(|params| params.is_ca = IsCa::ExplicitNoCa), signed] {
        let verifier = verifier(std::slice::from_ref(&own));
        assert_eq!(takes(&verifier, &own, "a.b"), Ok(()));
        assert!(takes(&verifier, &own, "c.d").unwrap_err().contains("NotValidForName"));
    }
}

#[test]
fn its_dates_and_usage_count() {
    let day = Duration::from_secs(24 * 3600);
    let now = SystemTime::now();
    for (expected, certificate) in [
        ("Expired", certificate(|params| params.not_after = (now - day).into())),
        ("NotValidYet", certificate(|params| params.not_before = (now + day).into())),
        (
            "InvalidPurpose",
            certificate(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
        ),
    ] {
        let verifier = verifier(std::slice::from_ref(&certificate));
        let error = takes(&verifier, &certificate, "a.b").unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let for_servers =
        certificate(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    assert_eq!(takes(&verifier(std::slice::from_ref(&for_servers)), &for_servers, "a.b"), Ok(()));
}

#[test]
fn any_other_certificate_is_judged_as_ever() {
    let (own, other) = (certificate(|_| ()), certificate(|_| ()));
    let verifier = verifier(&[own]);
    assert!(takes(&verifier, &other, "a.b").unwrap_err().contains("CaUsedAsEndEntity"));
    let pki = testregistry::Pki::new();
    let leaf = pki.leaf(&["a.b"]).cert_pem;
    let leaf = rustls_pki_types::pem::PemObject::from_pem_slice(leaf.as_bytes()).unwrap();
    assert!(takes(&verifier, &leaf, "a.b").unwrap_err().contains("UnknownIssuer"));
    let authority = rustls_pki_types::pem::PemObject::from_pem_slice(pki.ca_pem().as_bytes()).unwrap();
    let verifier = super::tests::verifier(&[authority]);
    assert_eq!(takes(&verifier, &leaf, "a.b"), Ok(()));
    assert!(takes(&verifier, &leaf, "c.d").unwrap_err().contains("NotValidForName"));
}
