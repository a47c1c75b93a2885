//! Certificates, bundles and Secrets that can be parsed but not used: each is replaced within a minute.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
};

use super::*;

/// Cluster with certificates that are in use.
struct TestCluster {
    api: Objects,
    issuer: Issuer,
    replica: Replica,
    now: u64,
}

impl TestCluster {
    async fn new() -> Self {
        let api = cluster().await;
        let mut issuer = Issuer::new(&api);
        let mut replica = Replica::new(&api);
        issuer.settle(&api, START).await;
        replica.check(&api).await;
        assert!(replica.is_trusted(&api, START + 6));
        Self {
            api,
            issuer,
            replica,
            now: START + 6,
        }
    }

    /// Lets less than a minute pass.
    async fn pass(&mut self) {
        for _ in 0..5 {
            self.now += 10;
            self.api.set_time(self.now);
            self.issuer.check().await;
            self.replica.check(&self.api).await;
        }
    }

    /// Returns whether the certificate in the Secret is served and trusted, and no write is due.
    fn is_well(&self) -> bool {
        let is_managed = self.issuer.issuer.failing.is_none();
        is_managed && self.replica.is_well() && self.replica.is_trusted(&self.api, self.now)
    }

    /// Returns the CA of the Secret with its key.
    fn authority(&self) -> Authority {
        let stored = data(&self.api);
        let [certificate, key] = ["ca.crt", "ca.key"].map(|key| decoded(&stored[key]));
        Authority::read(&certificate, &key).unwrap()
    }

    fn value(&self, secret: &str, key: &str) -> Vec<u8> {
        decoded(&self.api.get(secret).unwrap()["data"][key])
    }

    fn set(&self, secret: &str, values: &[(&str, &[u8])]) {
        let mut object = self.api.get(secret).unwrap();
        for (key, value) in values {
            object["data"][*key] = BASE64_STANDARD.encode(value).into();
        }
        self.api.put(secret, object);
    }

    fn set_bundle(&self, bundle: &[u8]) {
        let mut webhooks = self.api.get(WEBHOOKS).unwrap();
        for webhook in webhooks["webhooks"].as_array_mut().unwrap() {
            webhook["clientConfig"]["caBundle"] = BASE64_STANDARD.encode(bundle).into();
        }
        self.api.put(WEBHOOKS, webhooks);
    }
}

/// Returns the certificate as PEM, with one bit of this byte changed, counted from the end.
fn with_other_bit(certificate: &[u8], from_end: usize) -> Vec<u8> {
    let mut der = CertificateDer::from_pem_slice(certificate)
        .unwrap()
        .to_vec();
    let at = der.len() - from_end;
    der[at] ^= 1;
    authority::pem(&der.into()).into_bytes()
}

/// Returns settings of a serving certificate like those that the issuer signs.
fn leaf_params() -> CertificateParams {
    let mut params =
        CertificateParams::new(["hook.team.svc".to_owned(), "10.1.2.3".to_owned()]).unwrap();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(START - 300);
    params.not_after = epoch + Duration::from_secs(START + 30 * DAY);
    params.is_ca = IsCa::ExplicitNoCa;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

/// Writes a serving certificate with these settings, signed in the name of the CA in use with this key.
fn put_leaf(cluster: &TestCluster, params: &CertificateParams, signer: KeyPair) {
    let certificate = CertificateDer::from_pem_slice(&cluster.value(SECRET, "ca.crt")).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_der(&certificate, signer).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&key, &issuer).unwrap();
    let values = [(CERTIFICATE, leaf.pem()), (KEY, key.serialize_pem())];
    cluster.set(
        SERVING,
        &values
            .each_ref()
            .map(|(key, value)| (*key, value.as_bytes())),
    );
}

fn key_of_ca(cluster: &TestCluster) -> KeyPair {
    KeyPair::from_pem(&String::from_utf8(cluster.value(SECRET, "ca.key")).unwrap()).unwrap()
}

/// Returns settings of a CA like those that the issuer makes.
fn ca_params() -> CertificateParams {
    let mut params = leaf_params();
    params.subject_alt_names.clear();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "tolerarch CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = Vec::new();
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(START + 365 * DAY);
    params
}

/// Writes a CA with these settings, which everything else agrees with: it is in the bundles, and has signed what is
/// served.
fn put_ca(cluster: &TestCluster, params: &CertificateParams) {
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    put_signed_ca(cluster, &certificate, key);
}

fn put_signed_ca(cluster: &TestCluster, certificate: &rcgen::Certificate, key: KeyPair) {
    let values = [
        ("ca.crt", certificate.pem()),
        ("ca.key", key.serialize_pem()),
    ];
    cluster.set(
        SECRET,
        &values
            .each_ref()
            .map(|(key, value)| (*key, value.as_bytes())),
    );
    cluster.set_bundle(certificate.pem().as_bytes());
    put_leaf(cluster, &leaf_params(), key);
}

type Damage = (&'static str, fn(&TestCluster));

#[tokio::test]
async fn serving_certificate_refused_by_api_servers_is_replaced() {
    let damages: [Damage; 8] = [
        ("a broken signature", |cluster| {
            let damaged = with_other_bit(&cluster.value(SERVING, CERTIFICATE), 1);
            cluster.set(SERVING, &[(CERTIFICATE, &damaged)]);
        }),
        ("a changed serial number", |cluster| {
            let certificate = cluster.value(SERVING, CERTIFICATE);
            let length = CertificateDer::from_pem_slice(&certificate).unwrap().len();
            cluster.set(
                SERVING,
                &[(CERTIFICATE, &with_other_bit(&certificate, length - 20))],
            );
        }),
        ("a signer of the same name with another key", |cluster| {
            put_leaf(cluster, &leaf_params(), KeyPair::generate().unwrap());
        }),
        ("for clients only", |cluster| {
            let mut params = leaf_params();
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            put_leaf(cluster, &params, key_of_ca(cluster));
        }),
        ("an unknown critical extension", |cluster| {
            let mut params = leaf_params();
            let mut extension =
                rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999], vec![5, 0]);
            extension.set_criticality(true);
            params.custom_extensions.push(extension);
            put_leaf(cluster, &params, key_of_ca(cluster));
        }),
        ("a second certificate that cannot be read", |cluster| {
            let mut certificate = cluster.value(SERVING, CERTIFICATE);
            certificate
                .extend_from_slice(b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n");
            cluster.set(SERVING, &[(CERTIFICATE, &certificate)]);
        }),
        ("more certificates than a client takes", |cluster| {
            let one = cluster.value(SERVING, CERTIFICATE);
            cluster.set(SERVING, &[(CERTIFICATE, &one.repeat(500))]);
        }),
        ("the key of another, before the right one", |cluster| {
            let mut keys = KeyPair::generate().unwrap().serialize_pem().into_bytes();
            keys.extend(cluster.value(SERVING, KEY));
            cluster.set(SERVING, &[(KEY, &keys)]);
        }),
    ];
    let mut unhealed = Vec::new();
    for (name, damage) in damages {
        let mut cluster = TestCluster::new().await;
        damage(&cluster);
        let damaged = cluster.api.get(SERVING).unwrap();
        let ca = data(&cluster.api)["ca.crt"].clone();
        cluster.pass().await;
        let is_replaced = cluster.api.get(SERVING).unwrap()["data"] != damaged["data"];
        if !is_replaced || !cluster.is_well() {
            unhealed.push(name);
        }
        assert_eq!(data(&cluster.api)["ca.crt"], ca, "{name}: the CA is good");
    }
    assert!(unhealed.is_empty(), "{unhealed:#?}");
}

#[tokio::test]
async fn ca_that_api_servers_do_not_trust_is_replaced() {
    type Change = fn(&mut CertificateParams);
    let changes: [(&str, Change); 5] = [
        ("no CA", |params| params.is_ca = IsCa::ExplicitNoCa),
        ("not for signing certificates", |params| {
            params.key_usages = vec![KeyUsagePurpose::CrlSign];
        }),
        ("for clients only", |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }),
        ("for other names", |params| {
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: vec![GeneralSubtree::DnsName("example.com".into())],
                excluded_subtrees: Vec::new(),
            });
        }),
        ("an unknown critical extension", |params| {
            let mut extension =
                rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999], vec![5, 0]);
            extension.set_criticality(true);
            params.custom_extensions.push(extension);
        }),
    ];
    let mut unhealed = Vec::new();
    for (name, change) in changes {
        let mut cluster = TestCluster::new().await;
        let mut params = ca_params();
        change(&mut params);
        put_ca(&cluster, &params);
        let damaged = data(&cluster.api);
        cluster.pass().await;
        if data(&cluster.api)["ca.crt"] == damaged["ca.crt"] || !cluster.is_well() {
            unhealed.push(name);
        }
    }

    // One that is as it should be, but for its signature, a bit of its content, or its key.
    let damages: [Damage; 3] = [
        ("a broken signature", |cluster| {
            let damaged = with_other_bit(&cluster.value(SECRET, "ca.crt"), 1);
            cluster.set(SECRET, &[("ca.crt", &damaged)]);
            cluster.set_bundle(&damaged);
        }),
        ("a changed serial number", |cluster| {
            let certificate = cluster.value(SECRET, "ca.crt");
            let length = CertificateDer::from_pem_slice(&certificate).unwrap().len();
            let damaged = with_other_bit(&certificate, length - 20);
            cluster.set(SECRET, &[("ca.crt", &damaged)]);
            cluster.set_bundle(&damaged);
        }),
        ("the key of another", |cluster| {
            let other = KeyPair::generate().unwrap().serialize_pem();
            cluster.set(SECRET, &[("ca.key", other.as_bytes())]);
        }),
    ];
    for (name, damage) in damages {
        let mut cluster = TestCluster::new().await;
        damage(&cluster);
        let damaged = data(&cluster.api);
        cluster.pass().await;
        if data(&cluster.api) == damaged || !cluster.is_well() {
            unhealed.push(name);
        }
    }
    assert!(unhealed.is_empty(), "{unhealed:#?}");
}

#[tokio::test]
async fn good_ca_of_the_same_kind_is_kept() {
    let mut cluster = TestCluster::new().await;
    put_ca(&cluster, &ca_params());
    let before = data(&cluster.api);
    cluster.pass().await;
    assert_eq!(data(&cluster.api), before);
    assert!(cluster.is_well());
    assert_eq!(cluster.authority().ca.created, Duration::from_secs(START));
}

/// API servers trust what is in a bundle by itself, be it a root or not (Go's `x509.VerifyOptions.Roots`).
#[tokio::test]
async fn good_intermediate_ca_is_kept() {
    let mut cluster = TestCluster::new().await;
    let mut root = ca_params();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.distinguished_name
        .push(DnType::OrganizationName, "a root");
    let root = rcgen::Issuer::new(root, KeyPair::generate().unwrap());
    let key = KeyPair::generate().unwrap();
    let certificate = ca_params().signed_by(&key, &root).unwrap();
    put_signed_ca(&cluster, &certificate, key);
    let before = data(&cluster.api);
    cluster.pass().await;
    assert_eq!(data(&cluster.api), before);
    assert!(cluster.is_well());
}

/// API servers read PEM otherwise than this program, and have a bound for what they take of a Secret, and none of a
/// bundle.
#[tokio::test]
async fn unreadable_bundle_is_written_again() {
    let damages: [Damage; 5] = [
        ("a broken signature", |cluster| {
            cluster.set_bundle(&with_other_bit(&cluster.value(SECRET, "ca.crt"), 1));
        }),
        ("lines that end like those of old Macs", |cluster| {
            let text = String::from_utf8(cluster.value(SECRET, "ca.crt")).unwrap();
            cluster.set_bundle(text.replace('\n', "\r").as_bytes());
        }),
        ("text before it", |cluster| {
            let text = [b"# ours\n".to_vec(), cluster.value(SECRET, "ca.crt")].concat();
            cluster.set_bundle(&text);
        }),
        ("larger than the answer to other requests", |cluster| {
            cluster.set_bundle(&vec![b'x'; 700 << 10]);
        }),
        ("many certificates", |cluster| {
            let certificate = cluster.value(SECRET, "ca.crt");
            cluster.set_bundle(&certificate.repeat((512 << 10) / certificate.len()));
        }),
    ];
    let mut unhealed = Vec::new();
    for (name, damage) in damages {
        let mut cluster = TestCluster::new().await;
        damage(&cluster);
        cluster.pass().await;
        let ca = cluster.value(SECRET, "ca.crt");
        let is_plain = |bundle: Vec<u8>| bundle.starts_with(&ca) && bundle.len() < 16 << 10;
        if !cluster.is_well() || !bundles(&cluster.api).into_iter().all(is_plain) {
            unhealed.push(name);
        }
    }
    assert!(unhealed.is_empty(), "{unhealed:#?}");
}

/// Otherwise it would be served until the issuer has issued the next one and the kubelet has projected it.
#[tokio::test]
async fn replica_loads_no_certificate_for_clients() {
    let mut cluster = TestCluster::new().await;
    let current = cluster.replica.leaf();
    let mut params = leaf_params();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    put_leaf(&cluster, &params, key_of_ca(&cluster));
    cluster.replica.check(&cluster.api).await;
    assert_eq!(cluster.replica.leaf(), current);
    assert!(matches!(
        cluster.replica.watch.state.get(),
        State::Degraded(_)
    ));
    cluster.pass().await;
    assert!(cluster.is_well());
    assert_ne!(cluster.replica.leaf(), current);
}

/// Secrets whose content cannot be read or written in the usual way.
#[tokio::test]
async fn immutable_secret_is_replaced() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 8] = [
        ("a MiB of something else", |secret| {
            let length = (1 << 20) - 8 - 5000;
            secret["data"]["junk"] = BASE64_STANDARD.encode(vec![0; length]).into();
        }),
        ("no room for a certificate", |secret| {
            secret["data"] = json!({"junk": BASE64_STANDARD.encode(vec![0; 1 << 20])});
        }),
        ("annotations of a MiB, as they are written", |secret| {
            secret["metadata"]["annotations"] = json!({"a": "\u{1}".repeat(256 << 10)});
        }),
        ("immutable", |secret| secret["immutable"] = true.into()),
        ("immutable, and not to be deleted", |secret| {
            secret["immutable"] = true.into();
            secret["metadata"]["finalizers"] = json!(["example.com/kept"]);
        }),
        ("null as a value", |secret| {
            secret["data"]["other"] = Value::Null;
        }),
        ("a MiB that its type wants", |secret| {
            secret["type"] = "kubernetes.io/dockerconfigjson".into();
            secret["data"] =
                json!({".dockerconfigjson": BASE64_STANDARD.encode(vec![b' '; 1 << 20])});
        }),
        ("no data, and immutable", |secret| {
            secret["immutable"] = true.into();
            secret["data"] = Value::Null;
        }),
    ];
    let mut unhealed = Vec::new();
    for path in [SECRET, SERVING] {
        for (name, change) in changes {
            let mut cluster = TestCluster::new().await;
            let mut secret = cluster.api.get(path).unwrap();
            for key in ["ca.crt", CERTIFICATE] {
                if secret["data"][key].is_string() {
                    secret["data"][key] = "AAAA".into();
                }
            }
            change(&mut secret);
            cluster.api.put(path, secret);
            cluster.pass().await;
            let data = cluster.api.get(path).unwrap()["data"].clone();
            let is_damaged = data["ca.crt"] == "AAAA" || data[CERTIFICATE] == "AAAA";
            if is_damaged || !cluster.is_well() {
                unhealed.push(format!(
                    "{path}: {name}: {:?}",
                    cluster.issuer.issuer.failing
                ));
            }
        }
    }
    assert!(unhealed.is_empty(), "{unhealed:#?}");
}

#[tokio::test]
async fn missing_right_to_delete_a_secret_is_logged() {
    let mut cluster = TestCluster::new().await;
    let mut secret = cluster.api.get(SERVING).unwrap();
    secret["immutable"] = true.into();
    secret["data"] = Value::Null;
    cluster.api.put(SERVING, secret);
    cluster.api.refuse(Some((Method::DELETE, "/secrets/", 403)));
    cluster.pass().await;
    assert!(
        cluster
            .issuer
            .issuer
            .failing
            .as_ref()
            .unwrap()
            .contains("delete-secret: forbidden")
    );
    assert!(
        cluster.replica.is_trusted(&cluster.api, cluster.now),
        "the certificate in use is still served"
    );
    cluster.api.refuse(None);
    cluster.pass().await;
    assert!(cluster.is_well());
}
