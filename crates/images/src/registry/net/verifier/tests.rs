use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

use super::*;
use crate::registry::tests::short_key::ShortKey;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};

/// Makes a certificate as `openssl req -x509 -addext subjectAltName=DNS:a.b` does.
fn certificate(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(["a.b".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    params
        .self_signed(&KeyPair::generate().unwrap())
        .unwrap()
        .der()
        .clone()
}

fn verifier(authorities: &[CertificateDer<'static>]) -> Verifier {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    trusting(Trusted {
        roots,
        configured: authorities.to_vec(),
        files: "/ca.crt".into(),
    })
}

fn trusting(trusted: Trusted) -> Verifier {
    let algorithms =
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    Verifier {
        algorithms,
        trusted: Some(Arc::new(trusted)),
        short_key: false,
    }
}

fn takes(verifier: &Verifier, certificate: &CertificateDer<'_>, name: &str) -> Result<(), String> {
    takes_chain(
        verifier,
        std::slice::from_ref(certificate),
        name,
        UnixTime::now(),
    )
}

/// Verifies `chain`, which begins with the server's certificate; the error is the explanation for people.
fn takes_chain(
    verifier: &Verifier,
    chain: &[CertificateDer<'_>],
    name: &str,
    now: UnixTime,
) -> Result<(), String> {
    let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
    let verified = verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], now);
    verified
        .map(|_| ())
        .map_err(|error| match Objection::in_error(&error) {
            Some(objection) => objection.explain("a.b"),
            None => error.to_string(),
        })
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
        assert!(error.contains("is not for this name"), "{name}: {error}");
    }
}

/// Nodes accept the certificate, too, whatever its basic constraints say, and whoever has signed it.
#[test]
fn the_servers_own_certificate_need_not_be_an_authority() {
    let alone = certificate(|params| params.is_ca = IsCa::NoCa);
    let leaf = testregistry::Pki::new().leaf(&["a.b"]).cert_pem;
    let signed = rustls_pki_types::pem::PemObject::from_pem_slice(leaf.as_bytes()).unwrap();
    for own in [
        alone,
        certificate(|params| params.is_ca = IsCa::ExplicitNoCa),
        signed,
    ] {
        let verifier = verifier(std::slice::from_ref(&own));
        assert_eq!(takes(&verifier, &own, "a.b"), Ok(()));
        assert!(
            takes(&verifier, &own, "c.d")
                .unwrap_err()
                .contains("is not for this name")
        );
    }
}

#[test]
fn its_dates_and_usage_count() {
    let day = Duration::from_secs(24 * 3600);
    let now = SystemTime::now();
    for (expected, certificate) in [
        (
            "has expired",
            certificate(|params| params.not_after = (now - day).into()),
        ),
        (
            "is not valid yet",
            certificate(|params| params.not_before = (now + day).into()),
        ),
        (
            "is not for servers",
            certificate(|params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            }),
        ),
    ] {
        let verifier = verifier(std::slice::from_ref(&certificate));
        let error = takes(&verifier, &certificate, "a.b").unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let for_servers = certificate(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert_eq!(
        takes(
            &verifier(std::slice::from_ref(&for_servers)),
            &for_servers,
            "a.b"
        ),
        Ok(())
    );
}

#[test]
fn any_other_certificate_is_judged_as_ever() {
    let own = certificate(|_| ());
    let other = certificate(|_| ());
    let verifier = verifier(&[own]);
    assert!(takes(&verifier, &other, "a.b").unwrap_err().contains(
        "is that of an authority; if it is the right one, add that very certificate to /ca.crt"
    ));
    let pki = testregistry::Pki::new();
    let leaf = pki.leaf(&["a.b"]).cert_pem;
    let leaf = rustls_pki_types::pem::PemObject::from_pem_slice(leaf.as_bytes()).unwrap();
    assert!(
        takes(&verifier, &leaf, "a.b")
            .unwrap_err()
            .contains("is signed by no authority in /ca.crt, nor by one of the system")
    );
    let authority =
        rustls_pki_types::pem::PemObject::from_pem_slice(pki.ca_pem().as_bytes()).unwrap();
    let verifier = super::tests::verifier(&[authority]);
    assert_eq!(takes(&verifier, &leaf, "a.b"), Ok(()));
    assert!(
        takes(&verifier, &leaf, "c.d")
            .unwrap_err()
            .contains("is not for this name")
    );
}

#[derive(Deserialize)]
struct Chain {
    certificates: Vec<String>,
    taken: bool,
}

#[test]
fn takes_the_chains_that_go_takes() {
    // 2026-01-01
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_767_225_600));
    let answers = upstream::cases("certificates").into_iter().enumerate().map(
        |(number, case): (usize, Chain)| {
            let decoded = case
                .certificates
                .iter()
                .map(|der| BASE64.decode(der).unwrap().into());
            let mut chain: Vec<CertificateDer<'static>> = decoded.collect();
            let mut roots = RootCertStore::empty();
            roots.add(chain.pop().unwrap()).unwrap();
            let verifier = trusting(Trusted {
                roots,
                configured: Vec::new(),
                files: String::new(),
            });
            let taken = takes_chain(&verifier, &chain, "a.b", now);
            (
                format!("{number}: {taken:?} {:?}", case.certificates),
                taken.is_ok(),
                case.taken,
            )
        },
    );
    upstream::assert_agreement(answers);
}

/// Makes a chain of these, of which each is signed by the next one, and the last one is trusted.
fn signed(links: Vec<CertificateParams>) -> (Verifier, Vec<CertificateDer<'static>>) {
    let keys: Vec<KeyPair> = links.iter().map(|_| KeyPair::generate().unwrap()).collect();
    let mut chain: Vec<CertificateDer<'static>> = Vec::new();
    for place in 0..links.len() {
        let issuer = (place + 1).min(links.len() - 1);
        let issuer = Issuer::from_params(&links[issuer], &keys[issuer]);
        chain.push(
            links[place]
                .signed_by(&keys[place], &issuer)
                .unwrap()
                .der()
                .clone(),
        );
    }
    let mut roots = RootCertStore::empty();
    roots.add(chain.pop().unwrap()).unwrap();
    (
        trusting(Trusted {
            roots,
            configured: Vec::new(),
            files: "/ca.crt".into(),
        }),
        chain,
    )
}

fn server() -> CertificateParams {
    CertificateParams::new(["a.b".to_owned()]).unwrap()
}

fn issuer(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn critical(oid: &[u64], content: Vec<u8>) -> CustomExtension {
    let mut extension = CustomExtension::from_oid_content(oid, content);
    extension.set_criticality(true);
    extension
}

/// A certificate's policies: one, which is any.
const POLICY: [u8; 10] = [48, 8, 48, 6, 6, 4, 85, 29, 32, 0];

#[test]
fn it_says_which_certificate_is_wrong_and_why() {
    let now = UnixTime::now();
    let told = |links: Vec<CertificateParams>| {
        let (verifier, chain) = signed(links);
        takes_chain(&verifier, &chain, "a.b", now)
    };
    let mut unknown = issuer("b");
    let mut explicit = issuer("b");
    let mut client = issuer("b");
    unknown.custom_extensions = vec![critical(&[2, 5, 29, 99], vec![5, 0])];
    explicit.custom_extensions = vec![critical(&[2, 5, 29, 36], vec![48, 3, 128, 1, 0])];
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let mut long = server();
    long.custom_extensions = vec![critical(&[1; 3000], vec![5, 0])];
    let mut old = issuer("b");
    old.not_after = (SystemTime::now() - Duration::from_secs(9)).into();
    for (links, expected) in [
        (
            vec![server(), unknown, issuer("c")],
            "certificate 2 of the chain of a.b has the critical extension 2.5.29.99",
        ),
        (
            vec![long, issuer("c")],
            "the certificate of a.b has the critical extension of an unknown kind, which",
        ),
        (
            vec![server(), explicit, issuer("c")],
            "requires a certificate policy (requireExplicitPolicy)",
        ),
        (
            vec![server(), client, issuer("c")],
            "certificate 2 of the chain of a.b is not for servers",
        ),
        (
            vec![server(), old, issuer("c")],
            "certificate 2 of the chain of a.b has expired",
        ),
    ] {
        let error = told(links).unwrap_err();
        assert!(
            error.contains(expected) && error.len() < 400,
            "{expected}: {error}"
        );
    }
}

#[test]
fn an_authority_may_sign_with_a_short_rsa_key() {
    let authority = issuer("short");
    let key = ShortKey::new();
    let root = authority.self_signed(&key).unwrap().der().clone();
    let leaf = server();
    let signed = leaf
        .signed_by(
            &KeyPair::generate().unwrap(),
            &Issuer::from_params(&authority, &key),
        )
        .unwrap();
    let own = std::slice::from_ref(&root);
    assert_eq!(takes(&verifier(own), signed.der(), "a.b"), Ok(()));
    let mut forged = signed.der().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    assert!(takes(&verifier(own), &forged.into(), "a.b").is_err());
}

#[test]
fn nothing_but_critical_flags_of_policies_is_relaxed() {
    let mut params = server();
    let lookalike = [&[6, 3, 85, 29, 32, 1, 1, 255, 4, 10][..], &POLICY].concat();
    params.custom_extensions = vec![
        CustomExtension::from_oid_content(&[1, 2, 3], lookalike),
        critical(&[2, 5, 29, 32], POLICY.to_vec()),
        critical(&[2, 5, 29, 33], vec![0; 200]),
        critical(&[2, 5, 29, 54], vec![0; 300]),
        critical(&[2, 5, 29, 99], vec![5, 0]),
    ];
    let certificate = params
        .self_signed(&KeyPair::generate().unwrap())
        .unwrap()
        .der()
        .clone();
    let relaxed = Relaxed::of(&certificate);
    let pairs = certificate.iter().zip(relaxed.certificate.iter());
    let changed: Vec<_> = pairs.filter(|(before, after)| before != after).collect();
    assert_eq!(
        (changed, relaxed.certificate.len()),
        (vec![(&255, &0); 3], certificate.len())
    );
    let before = parse(&certificate).unwrap();
    let after = parse(&relaxed.certificate).unwrap();
    for (before, after) in before.extensions().iter().zip(after.extensions()) {
        assert_eq!((&before.oid, before.value), (&after.oid, after.value));
        assert_eq!(
            after.critical,
            before.critical && !policies::is_about(&before.oid),
            "{}",
            before.oid
        );
    }
}

/// Each may be the issuer of each: webpki would try every order of six of them.
#[test]
fn hundreds_of_certificates_cost_little() {
    let (verifier, mut chain) = signed(vec![server(), issuer("x"), issuer("root")]);
    chain.truncate(1);
    chain.extend((0..300).map(|_| {
        issuer("x")
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .der()
            .clone()
    }));
    let server = EndEntityCert::try_from(&chain[0]).unwrap();
    assert_eq!(issuers(&server, &chain[1..]).len(), ISSUERS);
    takes_chain(&verifier, &chain, "a.b", UnixTime::now()).unwrap_err();
}

#[test]
fn certificates_that_lead_nowhere_are_in_nobodys_way() {
    let (verifier, mut chain) = signed(vec![server(), issuer("x"), issuer("root")]);
    let others = (0..100).map(|number| issuer(&format!("other {number}")));
    let others = others.map(|other| {
        other
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .der()
            .clone()
    });
    chain.splice(1..1, others);
    chain.push(CertificateDer::from(vec![48, 0]));
    assert_eq!(
        takes_chain(&verifier, &chain, "a.b", UnixTime::now()),
        Ok(())
    );
}
