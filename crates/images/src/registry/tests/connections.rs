//! Registries that can hardly be reached, or in a way of their own, and what is said of them.

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use testregistry::Leaf;

use super::*;

/// As distribution's guide has it made: `openssl req -newkey rsa:4096 -nodes -x509 -addext subjectAltName=…`.
fn self_signed(name: &str) -> Leaf {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    Leaf { cert_pem: params.self_signed(&key).unwrap().pem(), key_pem: key.serialize_pem() }
}

async fn serving(leaf: &Leaf) -> Remote {
    let remote = Remote::builder().leaf(leaf.clone()).start().await;
    remote.repo("team/app").index(Some("v1"), BOTH);
    remote
}

fn settings(remote: &Remote, host: HostSettings) -> Settings {
    Settings {
        hosts: [(remote.address(), host)].into(),
        guard: AddressGuard { allow: vec!["127.0.0.0/8".parse().unwrap()], deny: vec![] },
        ..Settings::default()
    }
}

async fn fetch(settings: Settings, remote: &Remote) -> Result<Support, Error> {
    let client = Registry::load(settings, registry_metrics()).unwrap();
    let image = remote.repo("team/app").reference("v1").parse().unwrap();
    client.fetch(&image, None, &Recorder::default()).await.map(|found| found.support)
}

#[tokio::test]
async fn the_certificate_in_the_ca_file_may_be_the_registrys_own() {
    let (own, wrong, other) = (self_signed("127.0.0.1"), self_signed("a.b"), self_signed("127.0.0.1"));
    let dir = tempfile::tempdir().unwrap();
    let both = format!("{:?}", Support::Index(platforms(&BOTH)));
    for (name, presented, configured, expected) in [
        ("its own", &own, Some(&own), &*both),
        ("for another name", &wrong, Some(&wrong), "unreachable"),
        ("another one", &other, Some(&own), "unreachable"),
        ("none", &own, None, "unreachable"),
    ] {
        let remote = serving(presented).await;
        let file = dir.path().join("ca.crt");
        let text = configured.map(|configured| configured.cert_pem.clone());
        std::fs::write(&file, text.as_deref().unwrap_or_default()).unwrap();
        let host = HostSettings { ca_file: text.map(|_| file), ..HostSettings::default() };
        assert_eq!(kind(&fetch(settings(&remote, host), &remote).await), expected, "{name}");
    }
    let remote = serving(&own).await;
    let directory = dir.path().join(remote.address().replace(':', "_") + "_");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("own.crt"), &own.cert_pem).unwrap();
    std::fs::write(directory.join("hosts.toml"), "ca = 'own.crt'").unwrap();
    let settings =
        Settings { hosts_dir: Some(dir.path().into()), ..settings(&remote, HostSettings::default()) };
    assert_eq!(kind(&fetch(settings, &remote).await), both, "in hosts.toml");
}

#[tokio::test]
async fn a_blank_content_encoding_is_none() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("v1"), BOTH);
    let body = r#"{"schemaVersion":2,"manifests":[]}"#;
    for (encoding, expected) in
        [("", "Index"), (" ", "Index"), ("identity", "Index"), ("Identity", "Index"), ("gzip", "Encoding")]
    {
        let reply = Reply::new(200).header("content-type", OCI_INDEX).header("content-encoding", encoding);
        repo.fault(Some(Fault::reply(reply.body(body))));
        let found = kind(&ask(&remote, &repo, "v1").await);
        assert!(found.starts_with(expected), "{encoding:?}: {found}");
    }
}

#[tokio::test]
async fn the_error_says_why_there_is_no_connection_and_what_to_do() {
    let own = self_signed("127.0.0.1");
    let pki = std::sync::Arc::new(testregistry::Pki::new());
    let now = std::time::SystemTime::now();
    let hour = Duration::from_secs(3600);
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, pki.ca_pem()).unwrap();
    for (leaf, plain, expected) in [
        (
            Some(testregistry::Pki::new().leaf(&["127.0.0.1"])),
            false,
            "is not trusted; if it should be, set registries.hosts.HOST.caFile to its authority, or extraCAs of the chart",
        ),
        (
            Some(own),
            false,
            "is that of an authority; if it is the right one, set registries.hosts.HOST.caFile to that very certificate",
        ),
        (Some(pki.leaf(&["a.b"])), false, "is not for this name"),
        (Some(pki.leaf_until(&["127.0.0.1"], now - hour)), false, "has expired"),
        (Some(pki.leaf_from(&["127.0.0.1"], now + hour)), false, "is not valid yet"),
        (
            None,
            true,
            "does not speak TLS; if it speaks plain HTTP, set registries.hosts.HOST.plainHttp: true",
        ),
    ] {
        let builder = Remote::builder().pki(pki.clone());
        let builder = if plain { builder.plain_http() } else { builder };
        let remote = match leaf {
            Some(leaf) => builder.leaf(leaf).start().await,
            None => builder.start().await,
        };
        let host = HostSettings { ca_file: Some(ca.clone()), ..HostSettings::default() };
        let error = fetch(settings(&remote, host), &remote).await.unwrap_err();
        assert!(matches!(error, Error::NoConnection(_)) && error.is_fault(), "{error:?}");
        let expected = expected.replace("HOST", &format!("{:?}", remote.address()));
        let text = error.to_string();
        assert!(text.contains(&remote.address()) && text.contains(&expected), "{expected}: {text}");
    }
    let remote = Remote::start().await;
    let closed = settings(&remote, HostSettings::default());
    let image = remote.repo("team/app").reference("v1").parse().unwrap();
    let address = remote.address();
    drop(remote);
    let client = Registry::load(closed, registry_metrics()).unwrap();
    let refused = async || {
        let result = client.fetch(&image, None, &Recorder::default()).await;
        result.unwrap_err().to_string()
    };
    let expected = format!("failed: {address} cannot be reached: it refuses the connection");
    let mut text = refused().await;
    // The listener closes when its task is next run.
    while text != expected {
        tokio::task::yield_now().await;
        text = refused().await;
    }
}
