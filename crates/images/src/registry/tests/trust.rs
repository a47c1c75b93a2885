//! Files of certificates that cannot be used: only lookups at their host fail.

use super::*;
use crate::registry::FailureClass;

#[tokio::test]
async fn faulty_certificate_files_fail_only_their_host() {
    let remotes = [Remote::start().await, Remote::start().await];
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("good.crt"), remotes[1].pki().ca_pem()).unwrap();
    let leaf = remotes[0].pki().leaf(&["client"]);
    leaf.write(dir.path()).unwrap();
    std::fs::write(file("garbage"), "garbage").unwrap();
    std::fs::write(
        file("other.key"),
        remotes[0].pki().leaf(&["client"]).key_pem,
    )
    .unwrap();
    let trusting = |name: &str| HostSettings {
        ca_file: Some(file(name)),
        ..HostSettings::default()
    };
    let showing = |certificate: &str, key: &str| HostSettings {
        client_cert_file: Some(file(certificate)),
        client_key_file: Some(file(key)),
        ..HostSettings::default()
    };
    for (broken, expected) in [
        (
            trusting("nonesuch"),
            "nonesuch: cannot be read: No such file",
        ),
        (
            trusting("garbage"),
            "garbage: holds no certificate authority in PEM that can be read; mend the file, or caFile of registries.hosts",
        ),
        (
            showing("nonesuch", "tls.key"),
            "nonesuch: cannot be read as a PEM client certificate or key (clientCertFile",
        ),
        (
            showing("tls.crt", "garbage"),
            "garbage: cannot be read as a PEM client certificate or key (clientCertFile",
        ),
        (
            showing("tls.crt", "other.key"),
            "tls.crt: the client certificate cannot be used with its key (clientCertFile",
        ),
    ] {
        let hosts = [
            (remotes[0].address(), broken),
            (remotes[1].address(), trusting("good.crt")),
        ];
        let guard = AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        };
        let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
        let [fault] = &*client.tls_faults else {
            panic!("{:?}", client.tls_faults)
        };
        assert!(
            fault.starts_with(&remotes[0].address()) && fault.contains(expected),
            "{expected}: {fault}"
        );
        let images = remotes.each_ref().map(|remote| {
            remote.repo("team/app").index(Some("v1"), BOTH);
            remote.repo("team/app").reference("v1").parse().unwrap()
        });
        let error = client.fetch(&images[0], None).await.unwrap_err();
        assert!(
            error.class() == FailureClass::NotSent,
            "it says nothing about the registry: {error:?}"
        );
        let begin = format!(
            "failed: TLS with {} cannot be set up: ",
            remotes[0].address()
        );
        let text = error.to_string();
        assert!(text.starts_with(&begin), "{text}");
        assert!(text.contains(expected), "{expected}: {text}");
        let found = client.fetch(&images[1], None).await.unwrap();
        assert_eq!(
            found.support,
            Support::Index(platforms(&BOTH)),
            "{expected}"
        );
    }
    assert_eq!(remotes[0].requests().len(), 0, "no request is sent");
}

/// containerd falls back to HTTP if a server has no TLS, but not if its own TLS settings are faulty.
#[tokio::test]
async fn unreadable_certificate_file_does_not_lead_to_http() {
    let remote = Remote::builder().plain_http().start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("v1"), BOTH);
    let dir = tempfile::tempdir().unwrap();
    let namespace = dir.path().join(remote.address().replace(':', "_") + "_");
    std::fs::create_dir(&namespace).unwrap();
    let toml = format!("[host.'http://{}']\nca = 'ca.crt'", remote.address());
    std::fs::write(namespace.join("hosts.toml"), toml).unwrap();
    for (authority, expected) in [
        (Some(remote.pki().ca_pem()), "Index"),
        (None, "unreachable"),
    ] {
        match authority {
            Some(pem) => std::fs::write(namespace.join("ca.crt"), pem).unwrap(),
            None => std::fs::remove_file(namespace.join("ca.crt")).unwrap(),
        }
        let guard = AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        };
        let settings = Settings {
            hosts_dir: Some(dir.path().into()),
            guard,
            ..Settings::default()
        };
        let client = Registry::load(settings, registry_metrics()).unwrap();
        let image = repo.reference("v1").parse().unwrap();
        let support = client.fetch(&image, None).await.map(|found| found.support);
        assert!(
            kind(&support).starts_with(expected),
            "{expected}: {support:?}"
        );
    }
}
