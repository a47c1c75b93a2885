mod damage;
mod faults;

use std::path::Path;
use std::sync::Arc;

use http::Method;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::tls::{CertificateFiles, CertificateWatch, ServingCertificate, TlsMetrics, TlsMode};
use tolerarch_kubernetes::cluster::testing::Objects;
use tolerarch_support::metrics::Metrics;

const SECRET: &str = "/api/v1/namespaces/team/secrets/tolerarch-certificates";
const SERVING: &str = "/api/v1/namespaces/team/secrets/tolerarch-serving";
const WEBHOOKS: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/zz-tolerarch";
const START: u64 = 1_800_000_000;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// Makes a cluster with the webhooks, and without the Secrets.
async fn cluster() -> Objects {
    let api = Objects::start().await;
    api.set_time(START);
    let service =
        |path: &str| json!({"service": {"name": "hook", "namespace": "team", "path": path}});
    let webhooks = json!([
        {"name": "pods.tolerarch.io", "clientConfig": service("/mutate")},
        {"name": "other.tolerarch.io", "clientConfig": {"url": "https://10.1.2.3:8443/mutate", "caBundle": "Cg=="}},
    ]);
    api.put(
        WEBHOOKS,
        json!({"metadata": {"name": "zz-tolerarch"}, "webhooks": webhooks}),
    );
    api
}

fn metric(metrics: &Metrics, name: &str) -> u64 {
    let text = metrics.render().unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{name}: {text}"))
        .parse()
        .unwrap()
}

struct Issuer {
    issuer: CertificateIssuer,
    metrics: Metrics,
}

impl Issuer {
    fn new(api: &Objects) -> Self {
        Self::with(api, ManagedSettings::default().lifetimes)
    }

    fn with(api: &Objects, lifetimes: Lifetimes) -> Self {
        let metrics = Metrics::new([]).unwrap();
        let settings = ManagedSettings {
            lifetimes,
            ..ManagedSettings::default()
        };
        let issuer = CertificateIssuer::new(
            api.cluster(),
            settings,
            ManagedMetrics::register(&metrics).unwrap(),
        );
        Self { issuer, metrics }
    }

    async fn check(&mut self) {
        self.issuer.check().await;
    }

    /// Checks at this time, and again once the bundles that were written have settled.
    async fn settle(&mut self, api: &Objects, now: u64) {
        for now in [now, now + 6] {
            api.set_time(now);
            self.check().await;
        }
    }
}

/// A replica, and the directory that its kubelet mounts.
struct Replica {
    mount: TempDir,
    watch: CertificateWatch,
    served: ServingCertificate,
    metrics: Metrics,
}

impl Replica {
    fn new(api: &Objects) -> Self {
        let mount = tempfile::tempdir().unwrap();
        project(api, mount.path());
        let metrics = Metrics::new([]).unwrap();
        let counts = TlsMetrics::register(&metrics).unwrap();
        let files = CertificateFiles {
            certificate: mount.path().join(CERTIFICATE),
            key: mount.path().join(KEY),
        };
        let (served, watch) = ServingCertificate::load(files, TlsMode::Managed, None, counts)
            .expect("it may be issued later");
        Self {
            mount,
            watch,
            served,
            metrics,
        }
    }

    /// Projects the Secret as the kubelet does, and has the replica check its files.
    async fn check(&mut self, api: &Objects) {
        project(api, self.mount.path());
        self.watch.check_files().await;
    }

    /// Returns whether the files that the kubelet wrote last can be served.
    fn is_well(&self) -> bool {
        self.watch.state.get() == State::Healthy
    }

    fn leaf(&self) -> Option<CertificateDer<'static>> {
        self.served.current().map(|pair| pair.key.cert[0].clone())
    }

    /// Returns whether the bundle of each webhook trusts the served certificate, for the name of that webhook.
    fn is_trusted(&self, api: &Objects, now: u64) -> bool {
        let names = ["hook.team.svc", "10.1.2.3"];
        bundles(api).iter().zip(names).all(|(bundle, name)| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(
                CertificateDer::pem_slice_iter(bundle).map(Result::unwrap),
            );
            if roots.is_empty() {
                return false;
            }
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
                .build()
                .unwrap();
            let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
            let name = ServerName::try_from(name).unwrap();
            self.leaf().is_some_and(|leaf| {
                verifier
                    .verify_server_cert(&leaf, &[], &name, &[], now)
                    .is_ok()
            })
        })
    }
}

/// Writes the files of the volume. Like a kubelet, changes nothing if one of the keys, which are not optional, is
/// missing.
fn project(api: &Objects, mount: &Path) {
    let data = api
        .get(SERVING)
        .map_or(Value::Null, |secret| secret["data"].clone());
    if let [Value::String(_), Value::String(_)] = [&data[CERTIFICATE], &data[KEY]] {
        for key in [CERTIFICATE, KEY] {
            std::fs::write(mount.join(key), decoded(&data[key])).unwrap();
        }
    }
}

fn decoded(text: &Value) -> Vec<u8> {
    use base64::Engine;
    base64::prelude::BASE64_STANDARD
        .decode(text.as_str().unwrap_or_default())
        .unwrap()
}

fn bundles(api: &Objects) -> Vec<Vec<u8>> {
    let webhooks = api.get(WEBHOOKS).unwrap()["webhooks"].clone();
    webhooks
        .as_array()
        .unwrap()
        .iter()
        .map(|webhook| decoded(&webhook["clientConfig"]["caBundle"]))
        .collect()
}

fn data(api: &Objects) -> Value {
    api.get(SECRET).unwrap()["data"].clone()
}

/// They are not in the format of Rust's `Debug`.
#[tokio::test]
async fn log_lines_have_readable_names_and_times() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let lines = tracing_subscriber::fmt()
        .with_writer(Arc::new(log.reopen().unwrap()))
        .finish();
    let lines = tracing::Dispatch::new(lines);
    // With a single dispatcher, tracing caches the interest of the thread that first reaches a call site, and another
    // test's thread has no subscriber.
    let _another = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let _logging = tracing::dispatcher::set_default(&lines);
    let api = cluster().await;
    let mut replica = Replica::new(&api);
    Issuer::new(&api).settle(&api, START).await;
    replica.check(&api).await;
    let text = std::fs::read_to_string(log.path()).unwrap();
    for fields in [
        r#"names="10.1.2.3,hook.team.svc""#,
        r#"a new CA for the webhook's certificates expires="2028-01-15T08:00:00Z""#,
        r#"serving certificate reloaded expiry="2027-02-14T08:00:06Z""#,
    ] {
        assert!(text.contains(fields), "{fields} in {text}");
    }
}

#[tokio::test]
async fn first_start_signs_once_all_bundles_have_the_ca() {
    let api = cluster().await;
    let mut issuer = Issuer::new(&api);
    let mut replica = Replica::new(&api);
    replica.check(&api).await;
    api.set_time(START);
    issuer.check().await;
    replica.check(&api).await;
    assert!(
        replica.leaf().is_none(),
        "API servers may not know the CA yet"
    );
    assert!(
        matches!(replica.watch.state.get(), State::Starting(_)),
        "not ready"
    );
    api.set_time(START + 6);
    issuer.check().await;
    replica.check(&api).await;
    assert!(replica.is_trusted(&api, START + 6));
    let failures = "tolerarch_certificate_reloads_total{result=\"failure\"}";
    assert_eq!(
        metric(&replica.metrics, failures),
        0,
        "waiting is no failure"
    );
    // Clocks differ.
    assert!(replica.is_trusted(&api, START + 6 - 299));
    assert!(!replica.is_trusted(&api, START + 30 * DAY + 7));
    assert_eq!(
        metric(
            &replica.metrics,
            "tolerarch_certificate_expiry_timestamp_seconds"
        ),
        START + 6 + 30 * DAY
    );
    assert_eq!(
        metric(
            &issuer.metrics,
            "tolerarch_managed_ca_expiry_timestamp_seconds"
        ),
        START + 365 * DAY
    );

    // Nothing is due, for a new issuer either, and another replica loads the certificate at once.
    let before = [SECRET, SERVING, WEBHOOKS].map(|path| api.get(path));
    let other = Replica::new(&api);
    issuer.check().await;
    Issuer::new(&api).settle(&api, START + 40).await;
    assert_eq!(other.leaf(), replica.leaf());
    assert_eq!(
        [SECRET, SERVING, WEBHOOKS].map(|path| api.get(path)),
        before
    );
}

#[tokio::test]
async fn concurrent_first_issuers_agree() {
    for _ in 0..10 {
        let api = cluster().await;
        let [mut a, mut b, mut c] = [(); 3].map(|()| Issuer::new(&api));
        for now in [START, START + 6, START + 12] {
            api.set_time(now);
            tokio::join!(a.check(), b.check(), c.check());
        }
        let mut replica = Replica::new(&api);
        replica.check(&api).await;
        assert!(replica.is_trusted(&api, START + 12));
        let is_well = |issuer: &Issuer| issuer.issuer.failing.is_none();
        assert!(
            [&a, &b, &c].into_iter().all(is_well),
            "conflicts are no failures"
        );
        assert_eq!(
            bundles(&api)
                .iter()
                .map(|one| authority::read_bundle(one).len())
                .max(),
            Some(1)
        );
    }
}

/// The process ends before or after each of its requests; the next process continues from there.
#[tokio::test]
async fn interrupted_start_is_finished_by_the_next_issuer() {
    let mut cut = 0;
    for (request, carried_out) in (0..).flat_map(|request| [(request, false), (request, true)]) {
        let api = cluster().await;
        api.stall(request, carried_out);
        let mut issuer = Issuer::new(&api);
        tokio::select! {
            biased;
            () = api.stalled() => cut += 1,
            () = issuer.settle(&api, START) => break,
        }
        let mut replica = Replica::new(&api);
        replica.check(&api).await;
        assert!(replica.leaf().is_none() || replica.is_trusted(&api, START + 6));
        Issuer::new(&api).settle(&api, START + 10).await;
        replica.check(&api).await;
        assert!(
            replica.is_trusted(&api, START + 16),
            "{request} {carried_out}"
        );
    }
    assert!(
        cut >= 30,
        "two Secrets, a new CA, bundles, a leaf, and three reads before each: {cut}"
    );
}

/// The same while a CA is replaced, with a replica that serves all the time.
#[tokio::test]
async fn interrupted_rotation_is_finished_by_the_next_issuer() {
    let mut cut = 0;
    for (request, carried_out) in (0..).flat_map(|request| [(request, false), (request, true)]) {
        let api = cluster().await;
        let lifetimes = Lifetimes {
            ca: Duration::from_secs(300),
            leaf: Duration::from_secs(100),
        };
        let mut issuer = Issuer::with(&api, lifetimes);
        let mut replica = Replica::new(&api);
        for now in (START..START + 200).step_by(10) {
            api.set_time(now);
            issuer.check().await;
            replica.check(&api).await;
        }
        let mut now = START + 200;
        let old = data(&api)["ca.crt"].clone();
        api.set_time(now);
        api.stall(request, carried_out);
        let finished = tokio::select! {
            biased;
            () = api.stalled() => false,
            () = async {
                for later in [0, 10] {
                    api.set_time(now + later);
                    issuer.check().await;
                }
            } => true,
        };
        assert!(replica.is_trusted(&api, now));
        if finished {
            break;
        }
        cut += 1;
        let mut next = Issuer::with(&api, lifetimes);
        for _ in 0..10 {
            now += 10;
            api.set_time(now);
            next.check().await;
            assert!(
                replica.is_trusted(&api, now),
                "{request} {carried_out} {now}"
            );
            replica.check(&api).await;
            assert!(
                replica.is_trusted(&api, now),
                "{request} {carried_out} {now}"
            );
        }
        assert!(data(&api)["ca.crt"] != old);
    }
    assert!(
        cut >= 30,
        "a new CA, bundles, a leaf, the old CA, and three reads around each: {cut}"
    );
}

#[tokio::test]
async fn very_short_lifetimes_are_renewed_without_a_gap() {
    let api = cluster().await;
    let seconds = |seconds| Duration::from_secs(seconds);
    let mut issuer = Issuer::with(
        &api,
        Lifetimes {
            ca: seconds(30),
            leaf: seconds(10),
        },
    );
    let mut replica = Replica::new(&api);
    issuer.settle(&api, START - 10).await;
    let mut cas = Vec::new();
    let mut leaves = Vec::new();
    for now in START..START + 150 {
        api.set_time(now);
        issuer.check().await;
        assert!(now == START || replica.is_trusted(&api, now));
        replica.check(&api).await;
        assert!(replica.is_trusted(&api, now));
        cas.push(data(&api)["ca.crt"].to_string());
        leaves.push(replica.leaf());
        assert!(
            bundles(&api)
                .iter()
                .all(|bundle| CertificateDer::pem_slice_iter(bundle).count() <= 3)
        );
    }
    cas.dedup();
    leaves.dedup();
    assert_eq!(cas.len(), 8, "one every 20 seconds");
    assert!(leaves.len() >= 30, "{}", leaves.len());
}

/// What a release wrote in which each replica signed for itself.
#[tokio::test]
async fn ca_of_an_older_release_is_kept() {
    let api = cluster().await;
    let ca = Authority::new(Duration::from_secs(START), Duration::from_secs(365 * DAY)).unwrap();
    let (certificate, key) = ca.to_pem();
    let encoded = |text: &str| {
        use base64::Engine;
        Value::from(base64::prelude::BASE64_STANDARD.encode(text))
    };
    let data_of = json!({"ca.crt": encoded(&certificate), "ca.key": encoded(&key)});
    api.put(
        SECRET,
        json!({"metadata": {"name": "tolerarch-certificates"}, "data": data_of}),
    );
    let mut webhooks = api.get(WEBHOOKS).unwrap();
    for webhook in webhooks["webhooks"].as_array_mut().unwrap() {
        webhook["clientConfig"]["caBundle"] = encoded(&certificate);
    }
    api.put(WEBHOOKS, webhooks);
    let before = bundles(&api);
    Issuer::new(&api).settle(&api, START + 20 * DAY).await;
    let mut replica = Replica::new(&api);
    replica.check(&api).await;
    assert!(replica.is_trusted(&api, START + 20 * DAY + 6));
    assert_eq!(
        (data(&api)["ca.crt"].clone(), bundles(&api)),
        (encoded(&certificate), before)
    );
}

#[test]
fn ca_without_its_key_is_unusable() {
    let now = Duration::from_secs(START);
    let [a, b] = [(); 2].map(|()| Authority::new(now, Duration::from_secs(DAY)).unwrap());
    let ((cert, key), (_, other)) = (a.to_pem(), b.to_pem());
    let read = Authority::read(cert.as_bytes(), key.as_bytes()).unwrap();
    assert_eq!(read.ca, a.ca);
    let leaf = testregistry::Pki::new().leaf(&["a.test"]);
    let (serving, own) = a
        .sign(&["a.test".into()], now, Duration::from_secs(DAY))
        .unwrap();
    let cas = [b, a];
    let read = read_leaf(serving.as_bytes(), own.as_bytes(), &cas, now).unwrap();
    let ca = Some(cas[1].ca.der.clone());
    assert_eq!(
        (read.ca, read.issued, read.names),
        (ca, now, vec!["a.test".to_owned()])
    );
    assert_eq!(
        read_leaf(serving.as_bytes(), own.as_bytes(), &cas[..1], now)
            .unwrap()
            .ca,
        None
    );
    assert!(read_leaf(serving.as_bytes(), key.as_bytes(), &cas, now).is_none());
    for (certificate, key) in [
        (cert.as_str(), other.as_str()),
        (&leaf.cert_pem, &leaf.key_pem),
        ("", &key),
        (&cert, ""),
        (&cert, &cert),
        (&key, &key),
    ] {
        assert!(
            Authority::read(certificate.as_bytes(), key.as_bytes()).is_none(),
            "{certificate}"
        );
    }
}
