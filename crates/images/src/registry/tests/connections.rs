//! Registries that need special TLS or cannot be reached, and the errors that explain it.

use std::net::SocketAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, version};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use testregistry::Leaf;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::short_key::ShortKey;
use super::*;

/// Makes a certificate as in distribution's guide: `openssl req -newkey rsa:4096 -nodes -x509 -addext
/// subjectAltName=…`.
fn self_signed(name: &str) -> Leaf {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    Leaf {
        cert_pem: params.self_signed(&key).unwrap().pem(),
        key_pem: key.serialize_pem(),
    }
}

async fn serving(leaf: &Leaf) -> Remote {
    let remote = Remote::builder().leaf(leaf.clone()).start().await;
    remote.repo("team/app").index(Some("v1"), BOTH);
    remote
}

fn settings(remote: &Remote, host: HostSettings) -> Settings {
    Settings {
        hosts: [(remote.address(), host)].into(),
        guard: AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        },
        ..Settings::default()
    }
}

async fn fetch(settings: Settings, remote: &Remote) -> Result<Support, Error> {
    let client = Registry::load(settings, registry_metrics()).unwrap();
    let image = remote.repo("team/app").reference("v1").parse().unwrap();
    client.fetch(&image, None).await.map(|found| found.support)
}

#[tokio::test]
async fn ca_file_may_hold_the_registrys_own_certificate() {
    let own = self_signed("127.0.0.1");
    let misnamed = self_signed("a.b");
    let other = self_signed("127.0.0.1");
    let dir = tempfile::tempdir().unwrap();
    let both = format!("{:?}", Support::Index(platforms(&BOTH)));
    for (name, presented, configured, expected) in [
        ("its own", &own, Some(&own), &*both),
        (
            "for another name",
            &misnamed,
            Some(&misnamed),
            "unreachable",
        ),
        ("another one", &other, Some(&own), "unreachable"),
        ("none", &own, None, "unreachable"),
    ] {
        let remote = serving(presented).await;
        let file = dir.path().join("ca.crt");
        let text = configured.map(|configured| configured.cert_pem.clone());
        std::fs::write(&file, text.as_deref().unwrap_or_default()).unwrap();
        let host = HostSettings {
            ca_file: text.map(|_| file),
            ..HostSettings::default()
        };
        let fetched = fetch(settings(&remote, host), &remote).await;
        assert_eq!(kind(&fetched), expected, "{name}");
    }
    let remote = serving(&own).await;
    let directory = dir.path().join(remote.address().replace(':', "_") + "_");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("own.crt"), &own.cert_pem).unwrap();
    std::fs::write(directory.join("hosts.toml"), "ca = 'own.crt'").unwrap();
    let settings = Settings {
        hosts_dir: Some(dir.path().into()),
        ..settings(&remote, HostSettings::default())
    };
    assert_eq!(kind(&fetch(settings, &remote).await), both, "in hosts.toml");
}

#[tokio::test]
async fn blank_content_encoding_is_ignored() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("v1"), BOTH);
    let body = r#"{"schemaVersion":2,"manifests":[]}"#;
    for (encoding, expected) in [
        ("", "Index"),
        (" ", "Index"),
        ("identity", "Index"),
        ("Identity", "Index"),
        ("gzip", "Encoding"),
    ] {
        let reply = Reply::new(200)
            .header("content-type", OCI_INDEX)
            .header("content-encoding", encoding);
        repo.fault(Some(Fault::reply(reply.body(body))));
        let result = kind(&lookup(&remote, &repo, "v1").await);
        assert!(result.starts_with(expected), "{encoding:?}: {result}");
    }
}

#[tokio::test]
async fn tls_errors_explain_the_flaw_and_the_fix() {
    let own = self_signed("127.0.0.1");
    let pki = std::sync::Arc::new(testregistry::Pki::new());
    let now = std::time::SystemTime::now();
    let hour = Duration::from_secs(3600);
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, pki.ca_pem()).unwrap();
    for (leaf, is_plain, expected) in [
        (
            Some(testregistry::Pki::new().leaf(&["127.0.0.1"])),
            false,
            "is signed by no authority in CA, nor by one of the system; if it should be trusted, add its authority there",
        ),
        (
            Some(own),
            false,
            "is that of an authority; if it is the right one, add that very certificate to CA",
        ),
        (Some(pki.leaf(&["a.b"])), false, "is not for this name"),
        (
            Some(pki.leaf_until(&["127.0.0.1"], now - hour)),
            false,
            "has expired",
        ),
        (
            Some(pki.leaf_from(&["127.0.0.1"], now + hour)),
            false,
            "is not valid yet",
        ),
        (
            None,
            true,
            "does not speak TLS; if it speaks plain HTTP, set registries.hosts.HOST.plainHttp: true",
        ),
    ] {
        let builder = Remote::builder().pki(pki.clone());
        let builder = if is_plain {
            builder.plain_http()
        } else {
            builder
        };
        let remote = match leaf {
            Some(leaf) => builder.leaf(leaf).start().await,
            None => builder.start().await,
        };
        let host = HostSettings {
            ca_file: Some(ca.clone()),
            ..HostSettings::default()
        };
        let error = fetch(settings(&remote, host), &remote).await.unwrap_err();
        assert!(matches!(error, Error::NoConnection(_)), "{error:?}");
        assert!(error.class().is_fault(), "{error:?}");
        let expected = expected.replace("HOST", &format!("{:?}", remote.address()));
        let expected = expected.replace("CA", &ca.display().to_string());
        let text = error.to_string();
        assert!(text.contains(&remote.address()), "{text}");
        assert!(text.contains(&expected), "{expected}: {text}");
    }
}

#[tokio::test]
async fn errors_without_a_ca_file_name_its_setting() {
    for (leaf, expected) in [
        (
            None,
            "is not trusted; if it should be, set registries.hosts.HOST.caFile to its authority, or extraCAs",
        ),
        (
            Some(self_signed("127.0.0.1")),
            "is that of an authority; if it is the right one, set registries.hosts.HOST.caFile to that very certificate",
        ),
    ] {
        let remote = match leaf {
            Some(leaf) => serving(&leaf).await,
            None => Remote::start().await,
        };
        let error = fetch(settings(&remote, HostSettings::default()), &remote)
            .await
            .unwrap_err()
            .to_string();
        let expected = expected.replace("HOST", &format!("{:?}", remote.address()));
        assert!(error.contains(&expected), "{expected}: {error}");
    }
}

#[tokio::test]
async fn refused_connection_is_explained() {
    let remote = Remote::start().await;
    let closed = settings(&remote, HostSettings::default());
    let image = remote.repo("team/app").reference("v1").parse().unwrap();
    let address = remote.address();
    drop(remote);
    let client = Registry::load(closed, registry_metrics()).unwrap();
    let refused = async || {
        let result = client.fetch(&image, None).await;
        result.unwrap_err().to_string()
    };
    let expected = format!("failed: {address} cannot be reached: it refuses the connection");
    let mut text = refused().await;
    // The listener closes when its task runs the next time.
    while text != expected {
        tokio::task::yield_now().await;
        text = refused().await;
    }
}

/// Starts a TLS proxy in front of a registry without TLS. Connections with a failed handshake are dropped.
async fn tls_proxy(remote: &Remote, config: ServerConfig) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let behind = remote.address();
    let acceptor = TlsAcceptor::from(std::sync::Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let Ok(mut tls) = acceptor.accept(tcp).await else {
                continue;
            };
            let mut behind = TcpStream::connect(&behind).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut tls, &mut behind).await });
        }
    });
    address
}

async fn fetch_at(address: SocketAddr, host: HostSettings) -> Result<Support, Error> {
    let settings = settings_at(address, host);
    fetch_trusting(Authorities::load(), address, settings).await
}

fn settings_at(address: SocketAddr, host: HostSettings) -> Settings {
    Settings {
        hosts: [(address.to_string(), host)].into(),
        guard: AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        },
        ..Settings::default()
    }
}

async fn fetch_trusting(
    authorities: Authorities,
    address: SocketAddr,
    settings: Settings,
) -> Result<Support, Error> {
    let client = Registry::trusting(authorities, settings, registry_metrics()).unwrap();
    let image = format!("{address}/team/app:v1").parse().unwrap();
    client.fetch(&image, None).await.map(|found| found.support)
}

#[tokio::test]
async fn short_rsa_key_of_a_server_is_verified_over_tls_1_2() {
    let remote = Remote::builder().plain_http().start().await;
    remote.repo("team/app").index(Some("v1"), BOTH);
    let pki = testregistry::Pki::new();
    let issuer = KeyPair::from_pem(&pki.ca_key_pem()).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&pki.ca_pem(), issuer).unwrap();
    let leaf = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let leaf = CertificateDer::from(leaf.signed_by(&ShortKey::new(), &issuer).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, pki.ca_pem()).unwrap();
    let trusting = || HostSettings {
        ca_file: Some(ca.clone()),
        ..HostSettings::default()
    };
    let both = &*format!("{:?}", Support::Index(platforms(&BOTH)));
    for (versions, host, expected) in [
        (rustls::DEFAULT_VERSIONS, trusting(), both),
        (&[&version::TLS12], trusting(), both),
        (
            &[&version::TLS12],
            HostSettings {
                skip_verify: true,
                ..HostSettings::default()
            },
            both,
        ),
        (&[&version::TLS12], HostSettings::default(), "unreachable"),
        (&[&version::TLS13], trusting(), "unreachable"),
    ] {
        let address = tls_proxy(&remote, ShortKey::new().server(leaf.clone(), versions)).await;
        assert_eq!(
            kind(&fetch_at(address, host).await),
            expected,
            "{versions:?}"
        );
    }
    let shortest = ShortKey::shortest();
    let weak = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let weak = weak.signed_by(&shortest, &issuer).unwrap().into();
    let address = tls_proxy(&remote, shortest.server(weak, &[&version::TLS12])).await;
    let fetched = fetch_at(address, trusting()).await;
    assert_eq!(kind(&fetched), "unreachable", "768 bits");
    let address = tls_proxy(&remote, ShortKey::new().server(leaf, &[&version::TLS13])).await;
    let error = fetch_at(address, trusting()).await.unwrap_err().to_string();
    let expected = format!("the certificate of {address} has an RSA key of 1024 bits, for which");
    assert!(error.contains(&expected), "{error}");
    let other =
        CertificateDer::from_pem_slice(pki.leaf(&["127.0.0.1"]).cert_pem.as_bytes()).unwrap();
    let address = tls_proxy(&remote, ShortKey::new().server(other, &[&version::TLS12])).await;
    assert_eq!(
        kind(&fetch_at(address, trusting()).await),
        "unreachable",
        "the key of another certificate"
    );
}

/// A server in whose chain one key is short, and the authority of its certificate.
struct ShortServer {
    holder: &'static str,
    authority: CertificateDer<'static>,
    config: ServerConfig,
}

/// Makes a server whose authority has a short key, one whose second certificate has it, and one that has it itself.
fn short_servers() -> [ShortServer; 3] {
    let short = ShortKey::new();
    let usual = KeyPair::generate().unwrap();
    let issuer = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let root = issuer("root");
    let second = issuer("second");
    let leaf = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let config = |chain: Vec<CertificateDer<'static>>| {
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = std::sync::Arc::new(net::provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        builder
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap()
    };
    let by_short_root = Issuer::from_params(&root, &short);
    let by_usual_root = Issuer::from_params(&root, &usual);
    let by_short_second = Issuer::from_params(&second, &short);
    let usual_root = root.self_signed(&usual).unwrap().der().clone();
    [
        ShortServer {
            holder: "the authority that has signed the certificate of",
            authority: root.self_signed(&short).unwrap().der().clone(),
            config: config(vec![leaf.signed_by(&key, &by_short_root).unwrap().into()]),
        },
        ShortServer {
            holder: "certificate 2 of the chain of",
            authority: usual_root.clone(),
            config: config(vec![
                leaf.signed_by(&key, &by_short_second).unwrap().into(),
                second.signed_by(&short, &by_usual_root).unwrap().into(),
            ]),
        },
        ShortServer {
            holder: "the certificate of",
            authority: usual_root,
            config: ShortKey::new().server(
                leaf.signed_by(&short, &by_usual_root).unwrap().into(),
                rustls::DEFAULT_VERSIONS,
            ),
        },
    ]
}

#[tokio::test]
async fn handshake_with_short_rsa_key_needs_operators_authority() {
    let remote = Remote::builder().plain_http().start().await;
    remote.repo("team/app").index(Some("v1"), BOTH);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    let both = format!("{:?}", Support::Index(platforms(&BOTH)));
    for ShortServer {
        holder,
        authority,
        config,
    } in short_servers()
    {
        let address = tls_proxy(&remote, config).await;
        let pem = BASE64.encode(&authority);
        let pem = format!("-----BEGIN CERTIFICATE-----\n{pem}\n-----END CERTIFICATE-----\n");
        std::fs::write(&file, pem).unwrap();
        let of_system = || Authorities::of(vec![authority.clone()], &[]);
        let extra = Authorities::of(vec![authority.clone()], std::slice::from_ref(&authority));
        let trusting = HostSettings {
            ca_file: Some(file.clone()),
            ..HostSettings::default()
        };
        let directory = dir.path().join(address.to_string().replace(':', "_") + "_");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("hosts.toml"), "ca = '../ca.crt'").unwrap();
        let plain = || settings_at(address, HostSettings::default());
        let in_directory = Settings {
            hosts_dir: Some(dir.path().into()),
            ..plain()
        };
        for (name, authorities, settings) in [
            ("caFile", of_system(), settings_at(address, trusting)),
            ("hosts.toml", of_system(), in_directory),
            ("extraCAs", extra, plain()),
        ] {
            let fetched = fetch_trusting(authorities, address, settings).await;
            assert_eq!(kind(&fetched), both, "{holder}, {name}");
        }
        let refused = fetch_trusting(of_system(), address, plain()).await;
        let error = refused.unwrap_err().to_string();
        let expected = format!(
            "{holder} {address} has an RSA key of 1024 bits, and below 2,048 bits a key counts only under an authority that you trust for this host yourself: set registries.hosts.\"{address}\".caFile to the authority"
        );
        assert!(error.contains(&expected), "{expected}: {error}");
    }
}

#[tokio::test]
async fn server_without_the_key_of_its_certificate_is_refused() {
    let remote = Remote::builder().plain_http().start().await;
    remote.repo("team/app").index(Some("v1"), BOTH);
    let own = self_signed("127.0.0.1");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    std::fs::write(&file, &own.cert_pem).unwrap();
    let both = format!("{:?}", Support::Index(platforms(&BOTH)));
    let other = self_signed("127.0.0.1");
    for version in [&version::TLS12, &version::TLS13] {
        for (leaf, expected) in [(&own, &*both), (&other, "unreachable")] {
            let provider = std::sync::Arc::new(net::provider());
            let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).unwrap();
            let key = provider.key_provider.load_private_key(key).unwrap();
            let certificate = CertificateDer::from_pem_slice(own.cert_pem.as_bytes()).unwrap();
            let pair = CertifiedKey::new(vec![certificate], key);
            let config = ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .unwrap()
                .with_no_client_auth()
                .with_cert_resolver(std::sync::Arc::new(SingleCertAndKey::from(pair)));
            let address = tls_proxy(&remote, config).await;
            let trusting = HostSettings {
                ca_file: Some(file.clone()),
                ..HostSettings::default()
            };
            let unverified = HostSettings {
                skip_verify: true,
                ..HostSettings::default()
            };
            for host in [trusting, unverified] {
                let fetched = fetch_at(address, host.clone()).await;
                assert_eq!(kind(&fetched), expected, "{version:?}, {host:?}");
            }
        }
    }
}

/// A server may support only one of the groups that Go's clients offer.
#[tokio::test]
async fn key_exchange_works_over_each_group_of_nodes() {
    use rustls::NamedGroup::{
        X25519, X25519MLKEM768, secp256r1, secp256r1MLKEM768, secp384r1, secp521r1,
    };
    let remote = Remote::builder().plain_http().start().await;
    remote.repo("team/app").index(Some("v1"), BOTH);
    let pki = testregistry::Pki::new();
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, pki.ca_pem()).unwrap();
    let leaf = pki.leaf(&["127.0.0.1"]);
    let both = format!("{:?}", Support::Index(platforms(&BOTH)));
    let curves = [X25519, secp256r1, secp384r1, secp521r1].map(|curve| (&version::TLS12, curve));
    let groups = [
        X25519,
        secp256r1,
        secp384r1,
        secp521r1,
        X25519MLKEM768,
        secp256r1MLKEM768,
    ];
    let groups = groups.map(|group| (&version::TLS13, group));
    for (version, group) in curves.into_iter().chain(groups) {
        let mut provider = net::provider();
        provider
            .kx_groups
            .retain(|supported| supported.name() == group);
        assert_eq!(provider.kx_groups.len(), 1, "{group:?}");
        let builder = ServerConfig::builder_with_provider(std::sync::Arc::new(provider));
        let builder = builder
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth();
        let certificate = CertificateDer::from_pem_slice(leaf.cert_pem.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).unwrap();
        let config = builder.with_single_cert(vec![certificate], key).unwrap();
        let address = tls_proxy(&remote, config).await;
        let host = HostSettings {
            ca_file: Some(ca.clone()),
            ..HostSettings::default()
        };
        let fetched = fetch_at(address, host).await;
        assert_eq!(kind(&fetched), both, "{group:?} of {version:?}");
    }
}

/// Over TLS 1.3 the server demands the certificate only after the handshake.
#[tokio::test]
async fn missing_client_certificate_is_explained() {
    let pki = testregistry::Pki::new();
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, pki.ca_pem()).unwrap();
    let leaf = pki.leaf(&["127.0.0.1"]);
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap())
        .unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let verifier = verifier.build().unwrap();
    for version in [&version::TLS12, &version::TLS13] {
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(&[version]).unwrap();
        let builder = builder.with_client_cert_verifier(verifier.clone());
        let certificate = CertificateDer::from_pem_slice(leaf.cert_pem.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).unwrap();
        let config = builder.with_single_cert(vec![certificate], key).unwrap();
        let acceptor = TlsAcceptor::from(std::sync::Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let host = HostSettings {
            ca_file: Some(ca.clone()),
            ..HostSettings::default()
        };
        let refusing = async {
            let (tcp, _) = listener.accept().await.unwrap();
            let (_, mut tcp) = acceptor.accept(tcp).into_fallible().await.unwrap_err();
            tcp.shutdown().await.unwrap();
            // Closing with unread bytes would reset the connection.
            while tcp.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {}
        };
        let (error, ()) = tokio::join!(fetch_at(address, host), refusing);
        let error = error.unwrap_err().to_string();
        let expected = format!("set registries.hosts.\"{address}\".clientCertFile");
        assert!(error.contains(&expected), "{version:?}: {error}");
    }
}

#[tokio::test]
async fn handshake_failure_lists_its_possible_causes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let refusing = async {
        let (mut tcp, _) = listener.accept().await.unwrap();
        assert!(tcp.read(&mut [0; 4096]).await.unwrap() > 0);
        // handshake_failure, as OpenSSL sends it if it has only cipher suites with CBC.
        tcp.write_all(&[21, 3, 3, 0, 2, 2, 40]).await.unwrap();
    };
    let (error, ()) = tokio::join!(fetch_at(address, HostSettings::default()), refusing);
    let error = error.unwrap_err().to_string();
    for expected in [
        "refuses the TLS handshake: HandshakeFailure",
        "CBC",
        "clientCertFile",
        "ECDHE with AES-GCM",
        "P-521",
        "SHA-1",
        "docs/registries.md",
    ] {
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
