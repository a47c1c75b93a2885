use std::path::Path;
use std::time::SystemTime;

use testregistry::{Leaf, Pki};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use tolerarch_support::metrics::Metrics;

fn files(dir: &Path) -> CertificateFiles {
    CertificateFiles {
        certificate: dir.join("tls.crt"),
        key: dir.join("tls.key"),
    }
}

type Loaded = (ServingCertificate, Reported, Metrics);

async fn load(dir: &Path) -> Result<Loaded, CertificateError> {
    load_for(dir, None).await
}

async fn load_for(dir: &Path, name: Option<&str>) -> Result<Loaded, CertificateError> {
    let metrics = Metrics::new([]).unwrap();
    let counts = TlsMetrics::register(&metrics).unwrap();
    let name = name.map(|name| ObjectName::new(name).unwrap());
    let (certificate, mut watch) =
        ServingCertificate::load(files(dir), TlsMode::Files, name, counts)?;
    let state = watch.state.clone();
    tokio::spawn(async move { watch.run().await });
    Ok((certificate, state, metrics))
}

/// Lets time pass, so that the files are read again and again, until a condition holds. Other threads read the files,
/// which may be half written, so the number of readings varies.
async fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..1_000_000 {
        if holds() {
            return;
        }
        tokio::time::advance(POLL).await;
        tokio::task::yield_now().await;
    }
    panic!("it never was so");
}

async fn serves(certificate: &ServingCertificate, leaf: &Leaf) {
    let expected = CertificateDer::from_pem_slice(leaf.cert_pem.as_bytes()).unwrap();
    until(|| certificate.current().unwrap().key.cert[0] == expected).await;
}

fn reloads(metrics: &Metrics, result: &str) -> u64 {
    let name = format!("tolerarch_certificate_reloads_total{{result=\"{result}\"}} ");
    metrics
        .render()
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix(&name))
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn broken_new_pair_keeps_the_old_one_served() {
    let pki = Pki::new();
    let dir = tempfile::tempdir().unwrap();
    let [first, second, third] = ["a.test", "b.test", "c.test"].map(|name| pki.leaf(&[name]));
    first.write(dir.path()).unwrap();
    let (certificate, _, metrics) = load(dir.path()).await.unwrap();
    serves(&certificate, &first).await;
    second.write(dir.path()).unwrap();
    serves(&certificate, &second).await;
    assert_eq!(reloads(&metrics, "success"), 1);

    // The key of another certificate, then no key at all.
    let failures = reloads(&metrics, "failure");
    std::fs::write(dir.path().join("tls.crt"), &third.cert_pem).unwrap();
    until(|| reloads(&metrics, "failure") > failures).await;
    serves(&certificate, &second).await;
    let failures = reloads(&metrics, "failure");
    std::fs::remove_file(dir.path().join("tls.key")).unwrap();
    until(|| reloads(&metrics, "failure") > failures).await;
    serves(&certificate, &second).await;
    third.write(dir.path()).unwrap();
    serves(&certificate, &third).await;
    assert_eq!(reloads(&metrics, "success"), 2);
}

#[tokio::test]
async fn unusable_first_pair_fails_and_quotes_no_key() {
    let pki = Pki::new();
    let dir = tempfile::tempdir().unwrap();
    let leaf = pki.leaf(&["a.test"]);
    let other = pki.leaf(&["b.test"]);
    let error = async |certificate: Option<&str>, key: Option<&str>| {
        for (name, content) in [("tls.crt", certificate), ("tls.key", key)] {
            match content {
                Some(content) => std::fs::write(dir.path().join(name), content).unwrap(),
                None => drop(std::fs::remove_file(dir.path().join(name))),
            }
        }
        format!("{:?}", load(dir.path()).await.map(|_| ()).unwrap_err())
    };
    let cert = Some(leaf.cert_pem.as_str());
    let key = Some(leaf.key_pem.as_str());
    for (certificate, given_key, expected) in [
        (None, key, "tls.crt"),
        (cert, None, "tls.key"),
        (Some(""), key, "no PEM certificate"),
        (Some("canary garbage"), key, "no PEM certificate"),
        (
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            key,
            "not an X.509 certificate",
        ),
        (cert, Some("canary garbage"), "no PEM private key"),
        (cert, cert, "no PEM private key"),
        (
            cert,
            Some("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
            "Pair",
        ),
        (cert, Some(other.key_pem.as_str()), "Pair"),
    ] {
        let error = error(certificate, given_key).await;
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(
            !error.contains("canary") && !error.contains("PRIVATE KEY-----"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn metric_has_the_expiry_of_the_certificate() {
    let pki = Pki::new();
    let dir = tempfile::tempdir().unwrap();
    let expiry = std::time::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    pki.leaf_until(&["a.test"], expiry)
        .write(dir.path())
        .unwrap();
    let (.., metrics) = load(dir.path()).await.unwrap();
    let text = metrics.render().unwrap();
    assert!(
        text.contains("tolerarch_certificate_expiry_timestamp_seconds 4000000000"),
        "{text}"
    );
}

#[tokio::test]
async fn each_connection_does_a_full_handshake() {
    let pki = Pki::new();
    let dir = tempfile::tempdir().unwrap();
    pki.leaf(&["a.test"]).write(dir.path()).unwrap();
    let (certificate, ..) = load(dir.path()).await.unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(certificate.server_config().unwrap()));
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        // This client resumes sessions if it can.
        let connector = TlsConnector::from(Arc::new(pki.client_config_of(&[version])));
        for _ in 0..2 {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let name = "a.test".try_into().unwrap();
            let (server, client) =
                tokio::join!(acceptor.accept(ours), connector.connect(name, theirs));
            let mut server = server.unwrap();
            let mut client = client.unwrap();
            server.write_all(b"x").await.unwrap();
            // Tickets would arrive before this byte.
            client.read_u8().await.unwrap();
            let (_, connection) = client.get_ref();
            assert_eq!(
                connection.handshake_kind(),
                Some(rustls::HandshakeKind::Full),
                "{version:?}"
            );
            assert_eq!(connection.tls13_tickets_received(), 0);
        }
    }
}

/// Opening a FIFO waits for a writer, and the kernel's file with a random number has other content at each reading.
#[tokio::test(start_paused = true)]
async fn unreadable_path_does_not_end_reloading() {
    let [dir, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let pki = Pki::new();
    pki.leaf(&["a.test"]).write(dir.path()).unwrap();
    let (certificate, state, metrics) = load(dir.path()).await.unwrap();
    let file = dir.path().join("tls.crt");
    let makes: [fn(&Path); 4] = [
        |path| {
            assert!(
                std::process::Command::new("mkfifo")
                    .arg(path)
                    .status()
                    .unwrap()
                    .success()
            );
        },
        |path| std::fs::create_dir(path).unwrap(),
        |path| {
            std::fs::File::create(path)
                .unwrap()
                .set_len(1 << 40)
                .unwrap();
        },
        |path| std::os::unix::fs::symlink("/proc/sys/kernel/random/uuid", path).unwrap(),
    ];
    for (round, make) in makes.into_iter().enumerate() {
        let failures = reloads(&metrics, "failure");
        std::fs::remove_file(&file).unwrap();
        make(&file);
        until(|| reloads(&metrics, "failure") > failures).await;
        assert!(matches!(state.get(), State::Degraded(_)), "{round}");
        let next = pki.leaf(&["b.test"]);
        next.write(other.path()).unwrap();
        std::fs::copy(other.path().join("tls.key"), dir.path().join("tls.key")).unwrap();
        let _ = std::fs::remove_dir(&file);
        std::fs::rename(other.path().join("tls.crt"), &file).unwrap();
        serves(&certificate, &next).await;
        until(|| state.get() == State::Healthy).await;
    }
}

/// A managed pair is in a mounted Secret, which the issuer may write later.
#[tokio::test]
async fn only_a_managed_first_pair_may_be_missing() {
    let pki = Pki::new();
    let dir = tempfile::tempdir().unwrap();
    let leaf = pki.leaf(&["a.test"]);
    let other = pki.leaf(&["b.test"]);
    let metrics = Metrics::new([]).unwrap();
    let counts = TlsMetrics::register(&metrics).unwrap();
    assert!(load(dir.path()).await.is_err());
    let (certificate, mut watch) =
        ServingCertificate::load(files(dir.path()), TlsMode::Managed, None, counts).unwrap();
    for _ in 0..2 * REPORTED_AFTER {
        watch.check_files().await;
        assert_eq!(watch.state.get(), State::Starting(AWAITED));
    }
    assert_eq!(reloads(&metrics, "failure"), 0, "waiting is no failure");
    std::fs::write(dir.path().join("tls.crt"), &leaf.cert_pem).unwrap();
    std::fs::write(dir.path().join("tls.key"), &other.key_pem).unwrap();
    watch.check_files().await;
    assert_eq!(reloads(&metrics, "failure"), 1);
    assert_eq!(watch.state.get(), State::Starting(UNUSABLE));
    leaf.write(dir.path()).unwrap();
    watch.check_files().await;
    assert_eq!(watch.state.get(), State::Healthy);
    serves(&certificate, &leaf).await;
}

#[tokio::test(start_paused = true)]
async fn certificate_refused_by_api_servers_is_reported() {
    const NAME: &str = "tolerarch.a.svc";
    let pki = Pki::new();
    let dir = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let day = Duration::from_secs(24 * 3600);
    let good = pki.leaf(&["b.test", NAME]);
    let leaves = [
        (pki.leaf_until(&[NAME], now - day), Some(Invalid::EXPIRED)),
        (
            pki.leaf_from(&[NAME], now + day),
            Some(Invalid::NOT_YET_VALID),
        ),
        (pki.leaf(&["b.test"]), Some(Invalid::WRONG_NAME)),
        (pki.client_leaf_for(&[NAME]), Some(Invalid::WRONG_USAGE)),
        (good.clone(), None),
        (pki.leaf(&["*.a.svc"]), None),
    ];
    let shows = |metrics: &Metrics, expected: Option<Invalid>| {
        let text = metrics.render().unwrap();
        Invalid::ALL.iter().all(|error| {
            let value = i32::from(Some(*error) == expected);
            text.contains(&format!(
                "tolerarch_certificate_invalid{{error=\"{}\"}} {value}\n",
                error.label
            ))
        })
    };
    good.write(dir.path()).unwrap();
    let (reloaded, reloaded_state, metrics) = load_for(dir.path(), Some(NAME)).await.unwrap();
    for (leaf, expected) in leaves {
        let state = expected.map_or(State::Healthy, |invalid| State::Degraded(invalid.reason));
        leaf.write(dir.path()).unwrap();
        let (_, first, counts) = load_for(dir.path(), Some(NAME)).await.unwrap();
        assert_eq!(first.get(), state);
        assert!(shows(&counts, expected), "{expected:?}");
        serves(&reloaded, &leaf).await;
        until(|| reloaded_state.get() == state && shows(&metrics, expected)).await;
    }
}
