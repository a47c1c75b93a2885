use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, alg_id};

use super::original::{ChangedPart, OriginalVerifier};
use super::*;
use crate::registry::tests::short_key::{Hash, ShortKey};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};

/// Makes a certificate as `openssl req -x509 -addext subjectAltName=DNS:a.b` does.
fn certificate(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(["a.b".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    self_signed(&params)
}

fn self_signed(params: &CertificateParams) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().der().clone()
}

fn store(authorities: &[CertificateDer<'static>]) -> RootCertStore {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(authorities.iter().cloned());
    store
}

/// Makes a verifier for a host whose `caFile` holds these.
fn verifier(authorities: &[CertificateDer<'static>]) -> Verifier {
    trusting(Trusted {
        system: RootCertStore::empty().into(),
        operator: store(authorities),
        configured: authorities.to_vec(),
        files: "/ca.crt".into(),
    })
}

/// Makes a verifier for a host without a `caFile`, on a system that has these authorities.
fn verifier_of_system(authorities: &[CertificateDer<'static>]) -> Verifier {
    trusting(Trusted {
        system: store(authorities).into(),
        operator: RootCertStore::empty(),
        configured: Vec::new(),
        files: String::new(),
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

fn accepts(
    verifier: &Verifier,
    certificate: &CertificateDer<'_>,
    name: &str,
) -> Result<(), String> {
    accepts_chain(
        verifier,
        std::slice::from_ref(certificate),
        name,
        UnixTime::now(),
    )
}

/// Verifies `chain`, which begins with the server's certificate. An error is the explanation for people.
fn accepts_chain(
    verifier: &Verifier,
    chain: &[CertificateDer<'_>],
    name: &str,
    now: UnixTime,
) -> Result<(), String> {
    let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
    let Err(error) = verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], now) else {
        return Ok(());
    };
    match Objection::in_error(&error) {
        Some(objection) => Err(objection.explain("a.b")),
        None => Err(error.to_string()),
    }
}

#[test]
fn configured_authority_is_a_server_for_its_names() {
    let configured = certificate(|_| ());
    let verifier = verifier(std::slice::from_ref(&configured));
    for name in ["a.b", "A.b", "127.0.0.1"] {
        assert_eq!(accepts(&verifier, &configured, name), Ok(()), "{name}");
    }
    for name in ["c.d", "x.a.b", "b", "127.0.0.2", "::1"] {
        let error = accepts(&verifier, &configured, name).unwrap_err();
        assert!(error.contains("is not for this name"), "{name}: {error}");
    }
}

/// Nodes also accept the certificate, whatever its basic constraints are, and whoever has signed it.
#[test]
fn configured_certificate_need_not_be_an_authority() {
    let alone = certificate(|params| params.is_ca = IsCa::NoCa);
    let leaf = testregistry::Pki::new().leaf(&["a.b"]).cert_pem;
    let signed = CertificateDer::from_pem_slice(leaf.as_bytes()).unwrap();
    for configured in [
        alone,
        certificate(|params| params.is_ca = IsCa::ExplicitNoCa),
        signed,
    ] {
        let verifier = verifier(std::slice::from_ref(&configured));
        assert_eq!(accepts(&verifier, &configured, "a.b"), Ok(()));
        let error = accepts(&verifier, &configured, "c.d").unwrap_err();
        assert!(error.contains("is not for this name"), "{error}");
    }
}

#[test]
fn configured_certificates_dates_and_usage_are_checked() {
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
        let error = accepts(&verifier, &certificate, "a.b").unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let for_servers = certificate(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let verifier = verifier(std::slice::from_ref(&for_servers));
    assert_eq!(accepts(&verifier, &for_servers, "a.b"), Ok(()));
}

#[test]
fn other_certificates_need_a_trusted_authority() {
    let configured = certificate(|_| ());
    let other = certificate(|_| ());
    let verifier = verifier(&[configured]);
    let error = accepts(&verifier, &other, "a.b").unwrap_err();
    let expected =
        "is that of an authority; if it is the right one, add that very certificate to /ca.crt";
    assert!(error.contains(expected), "{error}");
    let pki = testregistry::Pki::new();
    let leaf = pki.leaf(&["a.b"]).cert_pem;
    let leaf = CertificateDer::from_pem_slice(leaf.as_bytes()).unwrap();
    let error = accepts(&verifier, &leaf, "a.b").unwrap_err();
    let expected = "is signed by no authority in /ca.crt, nor by one of the system";
    assert!(error.contains(expected), "{error}");
    let authority = CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap();
    let verifier = super::tests::verifier(&[authority]);
    assert_eq!(accepts(&verifier, &leaf, "a.b"), Ok(()));
    let error = accepts(&verifier, &leaf, "c.d").unwrap_err();
    assert!(error.contains("is not for this name"), "{error}");
}

#[derive(Deserialize)]
struct Chain {
    certificates: Vec<String>,
    taken: bool,
}

#[test]
fn accepts_the_chains_that_go_accepts() {
    // 2026-01-01
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_767_225_600));
    let answers = conformance::cases("certificates")
        .into_iter()
        .enumerate()
        .map(|(number, case): (usize, Chain)| {
            let decoded = case
                .certificates
                .iter()
                .map(|der| BASE64.decode(der).unwrap().into());
            let mut chain: Vec<CertificateDer<'static>> = decoded.collect();
            let verifier = verifier_of_system(&[chain.pop().unwrap()]);
            let result = accepts_chain(&verifier, &chain, "a.b", now);
            (
                format!("{number}: {result:?} {:?}", case.certificates),
                result.is_ok(),
                case.taken,
            )
        });
    conformance::assert_agreement(answers);
}

/// Makes a chain of these certificates. Each is signed by the next one, and the last one is trusted.
fn signed(links: Vec<CertificateParams>) -> (Verifier, Vec<CertificateDer<'static>>) {
    let keys: Vec<KeyPair> = links.iter().map(|_| KeyPair::generate().unwrap()).collect();
    let mut chain: Vec<CertificateDer<'static>> = Vec::new();
    for index in 0..links.len() {
        let issuer = (index + 1).min(links.len() - 1);
        let issuer = Issuer::from_params(&links[issuer], &keys[issuer]);
        let certificate = links[index].signed_by(&keys[index], &issuer).unwrap();
        chain.push(certificate.der().clone());
    }
    let verifier = verifier(&[chain.pop().unwrap()]);
    (verifier, chain)
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

/// The policies of a certificate that has only `anyPolicy`.
const POLICY: [u8; 10] = [48, 8, 48, 6, 6, 4, 85, 29, 32, 0];

#[test]
fn errors_name_the_flawed_certificate_and_the_flaw() {
    let now = UnixTime::now();
    let verify = |links: Vec<CertificateParams>| {
        let (verifier, chain) = signed(links);
        accepts_chain(&verifier, &chain, "a.b", now)
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
        let error = verify(links).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(error.len() < 400, "{error}");
    }
}

/// A chain in which one key is short, and the authority to which it leads.
struct ShortChain {
    holder: &'static str,
    authority: CertificateDer<'static>,
    chain: Vec<CertificateDer<'static>>,
}

/// Makes a chain whose authority has this key, one whose second certificate has it, and one whose server has it.
fn short_chains(key: &ShortKey) -> [ShortChain; 3] {
    let usual = KeyPair::generate().unwrap();
    let root = issuer("root");
    let short_root = Issuer::from_params(&root, key);
    let usual_root = Issuer::from_params(&root, &usual);
    let usual_authority = root.self_signed(&usual).unwrap().der().clone();
    let second = issuer("second");
    let short_second = Issuer::from_params(&second, key);
    let signed = |params: CertificateParams, issuer: &Issuer<'_, &ShortKey>| {
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, issuer).unwrap().der().clone()
    };
    [
        ShortChain {
            holder: "the authority that has signed the certificate of a.b",
            authority: root.self_signed(key).unwrap().der().clone(),
            chain: vec![signed(server(), &short_root)],
        },
        ShortChain {
            holder: "certificate 2 of the chain of a.b",
            authority: usual_authority.clone(),
            chain: vec![
                signed(server(), &short_second),
                second.signed_by(key, &usual_root).unwrap().der().clone(),
            ],
        },
        ShortChain {
            holder: "the certificate of a.b",
            authority: usual_authority,
            chain: vec![server().signed_by(key, &usual_root).unwrap().der().clone()],
        },
    ]
}

/// Verifies a chain, and if a second handshake is needed, verifies it as that does.
fn accepts_short(verifier: &Verifier, chain: &[CertificateDer<'_>]) -> Result<(), String> {
    let now = UnixTime::now();
    let result = accepts_chain(verifier, chain, "a.b", now);
    match result {
        Err(error) if error.contains("for which the server has no handshake") => {
            let verifier = Verifier {
                algorithms: verifier.algorithms,
                trusted: verifier.trusted.clone(),
                short_key: true,
            };
            accepts_chain(&verifier, chain, "a.b", now)
        }
        result => result,
    }
}

#[test]
fn short_rsa_key_is_accepted_under_operators_authority() {
    for ShortChain {
        holder,
        authority,
        chain,
    } in short_chains(&ShortKey::new())
    {
        let operator = verifier(std::slice::from_ref(&authority));
        assert_eq!(accepts_short(&operator, &chain), Ok(()), "{holder}");
        let both = trusting(Trusted {
            system: store(std::slice::from_ref(&authority)).into(),
            operator: store(&[authority]),
            configured: Vec::new(),
            files: String::new(),
        });
        assert_eq!(accepts_short(&both, &chain), Ok(()), "{holder}");
        for index in 0..chain.len() {
            let mut forged = chain.clone();
            let mut bytes = forged[index].to_vec();
            *bytes.last_mut().unwrap() ^= 1;
            forged[index] = bytes.into();
            assert!(accepts_short(&operator, &forged).is_err(), "{holder}");
        }
    }
}

#[test]
fn short_rsa_key_is_refused_under_systems_authority() {
    let other = certificate(|_| ());
    for ShortChain {
        holder,
        authority,
        chain,
    } in short_chains(&ShortKey::new())
    {
        let system = verifier_of_system(std::slice::from_ref(&authority));
        let expected = format!(
            "{holder} has an RSA key of 1024 bits, and below 2,048 bits a key counts only under an authority that you trust for this host yourself: set registries.hosts.\"a.b\".caFile to the authority"
        );
        let error = accepts_short(&system, &chain).unwrap_err();
        assert!(error.starts_with(&expected), "{expected}: {error}");
        let with_another_file = trusting(Trusted {
            system: store(&[authority]).into(),
            operator: store(std::slice::from_ref(&other)),
            configured: vec![other.clone()],
            files: "/ca.crt".into(),
        });
        let error = accepts_short(&with_another_file, &chain).unwrap_err();
        let expected = "add the authority to /ca.crt";
        assert!(error.contains(expected), "{holder}: {error}");
    }
}

#[test]
fn second_handshake_trusts_no_authority_of_the_system() {
    let (verifier, chain) = signed(vec![server(), issuer("root")]);
    let operator = verifier.trusted.unwrap();
    let trusted = Trusted {
        system: Arc::new(operator.operator.clone()),
        operator: RootCertStore::empty(),
        configured: Vec::new(),
        files: String::new(),
    };
    let mut verifier = trusting(trusted);
    let now = UnixTime::now();
    assert_eq!(accepts_chain(&verifier, &chain, "a.b", now), Ok(()));
    verifier.short_key = true;
    accepts_chain(&verifier, &chain, "a.b", now).unwrap_err();
}

#[test]
fn rsa_key_below_1024_bits_is_refused() {
    for ShortChain {
        holder,
        authority,
        chain,
    } in short_chains(&ShortKey::shortest())
    {
        // Only the handshake itself shows that a server's own key is too short.
        if holder != "the certificate of a.b" {
            let operator = verifier(std::slice::from_ref(&authority));
            assert!(accepts_short(&operator, &chain).is_err(), "{holder}");
        }
        let system = verifier_of_system(&[authority]);
        let error = accepts_short(&system, &chain).unwrap_err();
        assert!(
            !error.contains("under an authority that you trust"),
            "{holder}: {error}"
        );
    }
}

#[test]
fn short_rsa_key_signs_by_sha_256_or_512_but_not_384() {
    for (hash, is_accepted) in [
        (Hash::Sha256, true),
        (Hash::Sha384, false),
        (Hash::Sha512, true),
    ] {
        let [root, second, _] = short_chains(&ShortKey::new().signing_by(hash));
        for ShortChain {
            holder,
            authority,
            chain,
        } in [root, second]
        {
            let operator = verifier(&[authority]);
            let result = accepts_short(&operator, &chain);
            assert_eq!(
                result.is_ok(),
                is_accepted,
                "{holder}, {hash:?}: {result:?}"
            );
        }
    }
}

#[test]
fn system_authority_is_not_accepted_as_a_server() {
    let authority = certificate(|_| ());
    let system = verifier_of_system(std::slice::from_ref(&authority));
    let error = accepts(&system, &authority, "a.b").unwrap_err();
    let expected = "is that of an authority; if it is the right one, set registries.hosts.\"a.b\".caFile to that very certificate";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn any_usage_is_accepted_and_client_usage_is_refused() {
    for (usage, is_for_servers) in [
        (ExtendedKeyUsagePurpose::Any, true),
        (ExtendedKeyUsagePurpose::ServerAuth, true),
        (ExtendedKeyUsagePurpose::ClientAuth, false),
    ] {
        for index in 0..2 {
            let mut links = vec![server(), issuer("second"), issuer("root")];
            links[index].extended_key_usages = vec![usage.clone()];
            let (verifier, chain) = signed(links);
            let result = accepts_chain(&verifier, &chain, "a.b", UnixTime::now());
            assert_eq!(result.is_ok(), is_for_servers, "{usage:?}: {result:?}");
        }
    }
}

#[test]
fn changed_byte_in_a_relaxed_certificate_is_refused() {
    let mut links = vec![server(), issuer("second"), issuer("root")];
    for link in &mut links[..2] {
        link.custom_extensions = vec![critical(&[2, 5, 29, 32], POLICY.to_vec())];
    }
    let (verifier, chain) = signed(links);
    let now = UnixTime::now();
    assert_eq!(accepts_chain(&verifier, &chain, "a.b", now), Ok(()));
    for index in 0..chain.len() {
        assert!(Relaxed::of(&chain[index]).changed_part().is_some());
        for byte in 0..chain[index].len() {
            // 0xff turns the critical flag into the byte that the copy has.
            for change in [1, 0xff] {
                let mut forged = chain.clone();
                let mut bytes = forged[index].to_vec();
                bytes[byte] ^= change;
                forged[index] = bytes.into();
                let result = accepts_chain(&verifier, &forged, "a.b", now);
                assert!(result.is_err(), "certificate {index}, byte {byte}");
            }
        }
    }
}

#[test]
fn only_critical_flags_of_policies_are_relaxed() {
    let mut params = server();
    let lookalike = [&[6, 3, 85, 29, 32, 1, 1, 255, 4, 10][..], &POLICY].concat();
    params.custom_extensions = vec![
        CustomExtension::from_oid_content(&[1, 2, 3], lookalike),
        critical(&[2, 5, 29, 32], POLICY.to_vec()),
        critical(&[2, 5, 29, 33], vec![0; 200]),
        critical(&[2, 5, 29, 54], vec![0; 300]),
        critical(&[2, 5, 29, 99], vec![5, 0]),
    ];
    let certificate = self_signed(&params);
    let relaxed = Relaxed::of(&certificate);
    let pairs = certificate.iter().zip(relaxed.certificate.iter());
    let changed: Vec<_> = pairs.filter(|(before, after)| before != after).collect();
    assert_eq!(changed, vec![(&255, &0); 3]);
    assert_eq!(relaxed.certificate.len(), certificate.len());
    let before = parse(&certificate).unwrap();
    let after = parse(&relaxed.certificate).unwrap();
    for (before, after) in before.extensions().iter().zip(after.extensions()) {
        assert_eq!(before.oid, after.oid);
        assert_eq!(before.value, after.value);
        let is_critical = before.critical && !policies::is_about(&before.oid);
        assert_eq!(after.critical, is_critical, "{}", before.oid);
    }
}

/// An algorithm that accepts any signature of this one text.
#[derive(Debug)]
struct Signed(&'static [u8]);

impl SignatureVerificationAlgorithm for Signed {
    fn verify_signature(
        &self,
        _key: &[u8],
        message: &[u8],
        _signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        if message == self.0 {
            Ok(())
        } else {
            Err(InvalidSignature)
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ED25519
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ED25519
    }
}

#[test]
fn text_equal_to_the_relaxed_copy_is_verified_as_is() {
    let copy = b"copy".to_vec();
    let algorithm = OriginalVerifier {
        algorithm: &Signed(b"original"),
        changed_parts: &[ChangedPart {
            relaxed: &copy,
            original: b"original",
        }],
    };
    assert!(algorithm.verify_signature(&[], &copy, &[]).is_ok());
    let equal = copy.clone();
    assert!(algorithm.verify_signature(&[], &equal, &[]).is_err());
    assert!(algorithm.verify_signature(&[], b"original", &[]).is_ok());
}

/// Each of the certificates may be the issuer of each other, so webpki would try every order of six of them.
#[test]
fn only_eight_of_many_intermediates_are_considered() {
    let (verifier, mut chain) = signed(vec![server(), issuer("x"), issuer("root")]);
    chain.truncate(1);
    for _ in 0..300 {
        chain.push(self_signed(&issuer("x")));
    }
    let server = EndEntityCert::try_from(&chain[0]).unwrap();
    let presented: Vec<_> = chain.iter().collect();
    assert_eq!(issuers(&server, &presented[1..]).len(), 8);
    accepts_chain(&verifier, &chain, "a.b", UnixTime::now()).unwrap_err();
}

#[test]
fn unrelated_certificates_do_not_hide_the_issuer() {
    let (verifier, mut chain) = signed(vec![server(), issuer("x"), issuer("root")]);
    let others = (0..100).map(|number| self_signed(&issuer(&format!("other {number}"))));
    chain.splice(1..1, others);
    chain.push(CertificateDer::from(vec![48, 0]));
    assert_eq!(
        accepts_chain(&verifier, &chain, "a.b", UnixTime::now()),
        Ok(())
    );
}

#[test]
fn tests_named_in_the_module_docs_exist() {
    let page = include_str!("../verifier.rs");
    let tests = [
        include_str!("tests.rs"),
        include_str!("../trust/tests.rs"),
        include_str!("../../tests/connections.rs"),
    ]
    .concat();
    let lines: String = page
        .lines()
        .filter(|line| line.starts_with("//!"))
        .collect();
    let words = lines.split('`').skip(1).step_by(2);
    // Nothing else in backticks has so many underscores.
    let names: Vec<_> = words.filter(|word| word.matches('_').count() > 2).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(tests.contains(&format!("fn {name}() {{")), "{name}");
    }
}
