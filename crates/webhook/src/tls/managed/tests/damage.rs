//! Certificates, bundles and Secrets that parse and cannot be used: each is replaced within a minute.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
};

use super::*;

/// Cluster with certificates that are in use.
struct World {
    api: Objects,
    issuer: Issuer,
    replica: Replica,
    now: u64,
}

impl World {
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

    /// Whether the certificate in the Secret is served and trusted, and nothing is left to do.
    fn is_well(&self) -> bool {
        let is_managed = self.issuer.issuer.failing.is_none();
        is_managed && self.replica.is_well() && self.replica.is_trusted(&self.api, self.now)
    }

    /// CA of the Secret with its key.
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

/// Writes a serving certificate with these settings, signed by the name of the CA in use and this key.
fn put_leaf(world: &World, params: &CertificateParams, signer: KeyPair) {
    let certificate = CertificateDer::from_pem_slice(&world.value(SECRET, "ca.crt")).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_der(&certificate, signer).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&key, &issuer).unwrap();
    let values = [(CERTIFICATE, leaf.pem()), (KEY, key.serialize_pem())];
    world.set(
        SERVING,
        &values
            .each_ref()
            .map(|(key, value)| (*key, value.as_bytes())),
    );
}

fn key_of_ca(world: &World) -> KeyPair {
    KeyPair::from_pem(&String::from_utf8(world.value(SECRET, "ca.key")).unwrap()).unwrap()
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
fn put_ca(world: &World, params: &CertificateParams) {
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    put_signed_ca(world, &certificate, key);
}

fn put_signed_ca(world: &World, certificate: &rcgen::Certificate, key: KeyPair) {
    let values = [
        ("ca.crt", certificate.pem()),
        ("ca.key", key.serialize_pem()),
    ];
    world.set(
        SECRET,
        &values
            .each_ref()
            .map(|(key, value)| (*key, value.as_bytes())),
    );
    world.set_bundle(certificate.pem().as_bytes());
    put_leaf(world, &leaf_params(), key);
}

type Damage = (&'static str, fn(&World));

#[tokio::test]
async fn a_serving_certificate_that_api_servers_refuse_is_replaced() {
    let damages: [Damage; 8] = [
        ("a broken signature", |world| {
            let damaged = with_other_bit(&world.value(SERVING, CERTIFICATE), 1);
            world.set(SERVING, &[(CERTIFICATE, &damaged)]);
        }),
        ("a changed serial number", |world| {
            let certificate = world.value(SERVING, CERTIFICATE);
            let length = CertificateDer::from_pem_slice(&certificate).unwrap().len();
            world.set(
                SERVING,
                &[(CERTIFICATE, &with_other_bit(&certificate, length - 20))],
            );
        }),
        ("a signer of the same name with another key", |world| {
            put_leaf(world, &leaf_params(), KeyPair::generate().unwrap());
        }),
        ("for clients only", |world| {
            let mut params = leaf_params();
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            put_leaf(world, &params, key_of_ca(world));
        }),
        (
            "an extension that nobody knows and everybody has to",
            |world| {
                let mut params = leaf_params();
                let mut extension = rcgen::CustomExtension::from_oid_content(
                    &[1, 3, 6, 1, 4, 1, 99999],
                    vec![5, 0],
                );
                extension.set_criticality(true);
                params.custom_extensions.push(extension);
                put_leaf(world, &params, key_of_ca(world));
            },
        ),
        ("a second certificate that cannot be read", |world| {
            let mut certificate = world.value(SERVING, CERTIFICATE);
            certificate
                .extend_from_slice(b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n");
            world.set(SERVING, &[(CERTIFICATE, &certificate)]);
        }),
        ("more certificates than a client takes", |world| {
            let one = world.value(SERVING, CERTIFICATE);
            world.set(SERVING, &[(CERTIFICATE, &one.repeat(500))]);
        }),
        ("the key of another, before the right one", |world| {
            let mut keys = KeyPair::generate().unwrap().serialize_pem().into_bytes();
            keys.extend(world.value(SERVING, KEY));
            world.set(SERVING, &[(KEY, &keys)]);
        }),
    ];
    let mut unhealed = Vec::new();
    for (name, damage) in damages {
        let mut world = World::new().await;
        damage(&world);
        let damaged = world.api.get(SERVING).unwrap();
        let ca = data(&world.api)["ca.crt"].clone();
        world.pass().await;
        let is_replaced = world.api.get(SERVING).unwrap()["data"] != damaged["data"];
        if !is_replaced || !world.is_well() {
            unhealed.push(name);
        }
        assert_eq!(data(&world.api)["ca.crt"], ca, "{name}: the CA is good");
    }
    assert!(unhealed.is_empty(), "{unhealed:#?}");
}

#[tokio::test]
async fn a_ca_by_which_api_servers_trust_nothing_is_replaced() {
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
        (
            "an extension that nobody knows and everybody has to",
            |params| {
                let mut extension = rcgen::CustomExtension::from_oid_content(
                    &[1, 3, 6, 1, 4, 1, 99999],
                    vec![5, 0],
                );
                extension.set_criticality(true);
                params.custom_extensions.push(extension);
            },
        ),
    ];
    let mut unhealed = Vec::new();
    for (name, change) in changes {
        let mut world = World::new().await;
        let mut params = ca_params();
        change(&mut params);
        put_ca(&world, &params);
        let damaged = data(&world.api);
        world.pass().await;
        if data(&world.api)["ca.crt"] == damaged["ca.crt"] || !world.is_well() {
            unhealed.push(name);
        }
    }

    // One that is as it should be, but for its signature, a bit of its content, or its key.
    let damages: [Damage; 3] = [
        ("a broken signature", |world| {
            let damaged = with_other_bit(&world.value(SECRET, "ca.crt"), 1);
            world.set(SECRET, &[("ca.crt", &damaged)]);
            world.set_bundle(&damaged);
        }),
        ("a changed serial number", |world| {
            let certificate = world.value(SECRET, "ca.crt");
            let length = CertificateDer::from_pem_slice(&certificate).unwrap().len();
            let damaged = with_other_bit(&certificate, length - 20);
            world.set(SECRET, &[("ca.crt", &damaged)]);
            world.set_bundle(&damaged);
        }),
        ("the key of another", |world| {
            let other = KeyPair::generate().unwrap().serialize_pem();
            world.set(SECRET, &[("ca.key", other.as_bytes())]);
        }),
    ];
    for (name, damage) in damages {
        let mut world = World::new().await;
        damage(&world);
        let damaged = data(&world.api);
        world.pass().await;
        if data(&world.api) == damaged || !world.is_well() {
            unhealed.push(name);
        }
    }
    assert!(unhealed.is_empty(), "{unhealed:#?}");
}

#[tokio::test]
async fn a_good_ca_of_the_same_kind_is_kept() {
    let mut world = World::new().await;
    put_ca(&world, &ca_params());
    let before = data(&world.api);
    world.pass().await;
    assert_eq!(data(&world.api), before);
    assert!(world.is_well());
    assert_eq!(world.authority().ca.created, Duration::from_secs(START));
}

/// API servers trust what is in a bundle by itself, be it a root or not (Go's `x509.VerifyOptions.Roots`).
#[tokio::test]
async fn a_good_ca_that_another_one_has_signed_is_kept() {
    let mut world = World::new().await;
    let mut root = ca_params();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.distinguished_name
        .push(DnType::OrganizationName, "a root");
    let root = rcgen::Issuer::new(root, KeyPair::generate().unwrap());
    let key = KeyPair::generate().unwrap();
    let certificate = ca_params().signed_by(&key, &root).unwrap();
    put_signed_ca(&world, &certificate, key);
    let before = data(&world.api);
    world.pass().await;
    assert_eq!(data(&world.api), before);
    assert!(world.is_well());
}

/// API servers read PEM otherwise than this program, and have a bound for what they take of a Secret, and none of a
/// bundle.
#[tokio::test]
async fn a_bundle_that_api_servers_cannot_read_is_written_again() {
    let damages: [Damage; 5] = [
        ("a broken signature", |world| {
            world.set_bundle(&with_other_bit(&world.value(SECRET, "ca.crt"), 1));
        }),
        ("lines that end like those of old Macs", |world| {
            let text = String::from_utf8(world.value(SECRET, "ca.crt")).unwrap();
            world.set_bundle(text.replace('\n', "\r").as_bytes());
        }),
        ("text before it", |world| {
            let text = [b"# ours\n".to_vec(), world.value(SECRET, "ca.crt")].concat();
            world.set_bundle(&text);
        }),
        ("larger than the answer to other requests", |world| {
            world.set_bundle(&vec![b'x'; 700 << 10]);
        }),
        ("many certificates", |world| {
            let certificate = world.value(SECRET, "ca.crt");
            world.set_bundle(&certificate.repeat((512 << 10) / certificate.len()));
        }),
    ];
    let mut unhealed = Vec::new();
    for (name, damage) in damages {
        let mut world = World::new().await;
        damage(&world);
        world.pass().await;
        let own = world.value(SECRET, "ca.crt");
        let is_plain = |bundle: Vec<u8>| bundle.starts_with(&own) && bundle.len() < 16 << 10;
        if !world.is_well() || !bundles(&world.api).into_iter().all(is_plain) {
            unhealed.push(name);
        }
    }
    assert!(unhealed.is_empty(), "{unhealed:#?}");
}

/// It would be served until the issuer and the kubelet have brought the next one.
#[tokio::test]
async fn a_replica_takes_no_certificate_for_clients() {
    let mut world = World::new().await;
    let current = world.replica.leaf();
    let mut params = leaf_params();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    put_leaf(&world, &params, key_of_ca(&world));
    world.replica.check(&world.api).await;
    assert_eq!(world.replica.leaf(), current);
    assert!(matches!(
        world.replica.watch.state.get(),
        State::Degraded(_)
    ));
    world.pass().await;
    assert!(world.is_well());
    assert_ne!(world.replica.leaf(), current);
}

/// Secrets whose content cannot be read or written like that of others.
#[tokio::test]
async fn a_secret_that_cannot_be_changed_is_replaced() {
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
            let mut world = World::new().await;
            let mut secret = world.api.get(path).unwrap();
            for key in ["ca.crt", CERTIFICATE] {
                if secret["data"][key].is_string() {
                    secret["data"][key] = "AAAA".into();
                }
            }
            change(&mut secret);
            world.api.put(path, secret);
            world.pass().await;
            let data = world.api.get(path).unwrap()["data"].clone();
            let is_damaged = data["ca.crt"] == "AAAA" || data[CERTIFICATE] == "AAAA";
            if is_damaged || !world.is_well() {
                unhealed.push(format!("{path}: {name}: {:?}", world.issuer.issuer.failing));
            }
        }
    }
    assert!(unhealed.is_empty(), "{unhealed:#?}");
}

#[tokio::test]
async fn without_the_right_to_delete_an_immutable_secret_the_log_names_it() {
    let mut world = World::new().await;
    let mut secret = world.api.get(SERVING).unwrap();
    secret["immutable"] = true.into();
    secret["data"] = Value::Null;
    world.api.put(SERVING, secret);
    world.api.refuse(Some((Method::DELETE, "/secrets/", 403)));
    world.pass().await;
    assert!(
        world
            .issuer
            .issuer
            .failing
            .as_ref()
            .unwrap()
            .contains("delete-secret: forbidden")
    );
    assert!(
        world.replica.is_trusted(&world.api, world.now),
        "the one in use goes on"
    );
    world.api.refuse(None);
    world.pass().await;
    assert!(world.is_well());
}
