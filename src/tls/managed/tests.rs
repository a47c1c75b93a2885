mod faults;

use http::Method;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};

use super::*;
use crate::cluster::tests::objects::Objects;
use crate::metrics::Metrics;
use crate::tls::TlsMetrics;

const SECRET: &str = "/api/v1/namespaces/team/secrets/tolerarch-certificates";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/zz-tolerarch";
const START: u64 = 1_800_000_000;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// A cluster with the webhooks, and without the Secret.
async fn cluster() -> Objects {
    let api = Objects::start().await;
    api.set_time(START);
    let service = |path: &str| json!({"service": {"name": "hook", "namespace": "team", "path": path}});
    let webhooks = json!([
        {"name": "pods.tolerarch.io", "clientConfig": service("/mutate")},
        {"name": "other.tolerarch.io", "clientConfig": {"url": "https://10.1.2.3:8443/mutate", "caBundle": "Cg=="}},
    ]);
    api.put(WEBHOOKS, json!({"metadata": {"name": "zz-tolerarch"}, "webhooks": webhooks}));
    api
}

struct Replica {
    managed: ManagedCertificate,
    served: ServingCertificate,
    metrics: Metrics,
}

impl Replica {
    fn new(api: &Objects) -> Self {
        Self::with(api, ManagedSettings::default().lifetimes)
    }

    fn with(api: &Objects, lifetimes: Lifetimes) -> Self {
        let metrics = Metrics::new([]).unwrap();
        let served = ServingCertificate::none(TlsMetrics::register(&metrics).unwrap());
        let settings = ManagedSettings { lifetimes, ..ManagedSettings::default() };
        let counts = ManagedMetrics::register(&metrics).unwrap();
        let managed = ManagedCertificate::new(api.cluster(), settings, served.clone(), counts);
        Self { managed, served, metrics }
    }

    async fn look(&mut self) {
        self.managed.look().await;
    }

    /// The metric of this name.
    fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.render().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
    }

    fn leaf(&self) -> Option<CertificateDer<'static>> {
        self.served.0.current.read().unwrap().as_ref().map(|current| current.pair.cert[0].clone())
    }

    /// Whether each webhook trusts what is served, by the name it is called by.
    fn is_trusted(&self, api: &Objects, now: u64) -> bool {
        let names = ["hook.team.svc", "10.1.2.3"];
        bundles(api).iter().zip(names).all(|(bundle, name)| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle).map(Result::unwrap));
            if roots.is_empty() {
                return false;
            }
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let verifier =
                WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
            let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
            let name = ServerName::try_from(name).unwrap();
            self.leaf().is_some_and(|leaf| verifier.verify_server_cert(&leaf, &[], &name, &[], now).is_ok())
        })
    }
}

fn decoded(text: &Value) -> Vec<u8> {
    use base64::Engine;
    base64::prelude::BASE64_STANDARD.decode(text.as_str().unwrap_or_default()).unwrap()
}

fn bundles(api: &Objects) -> Vec<Vec<u8>> {
    let webhooks = api.get(WEBHOOKS).unwrap()["webhooks"].clone();
    webhooks.as_array().unwrap().iter().map(|webhook| decoded(&webhook["clientConfig"]["caBundle"])).collect()
}

fn data(api: &Objects) -> Value {
    api.get(SECRET).unwrap()["data"].clone()
}

#[tokio::test]
async fn a_first_replica_makes_everything_and_is_ready_when_api_servers_know() {
    let api = cluster().await;
    let mut replica = Replica::new(&api);
    replica.look().await;
    assert!(replica.is_trusted(&api, START) && !replica.served.is_trusted());
    // Clocks differ.
    assert!(replica.is_trusted(&api, START - 299));
    assert!(!replica.is_trusted(&api, START + DAY + 1));
    assert_eq!(replica.metric("tolerarch_certificate_expiry_timestamp_seconds"), START + DAY);
    assert_eq!(replica.metric("tolerarch_managed_ca_expiry_timestamp_seconds"), START + 365 * DAY);
    api.set_time(START + 6);
    replica.look().await;
    assert!(replica.served.is_trusted());

    // There is nothing to do, and another one takes what there is: at once, as soon as its age says that everyone knows it.
    api.set_time(START + 31);
    let before = (api.get(SECRET), api.get(WEBHOOKS));
    let mut other = Replica::new(&api);
    other.look().await;
    replica.look().await;
    assert!(other.is_trusted(&api, START) && other.leaf() != replica.leaf());
    assert!(other.served.is_trusted());
    assert_eq!((api.get(SECRET), api.get(WEBHOOKS)), before);
}

#[tokio::test]
async fn replicas_that_start_at_once_agree() {
    for _ in 0..10 {
        let api = cluster().await;
        let [mut a, mut b, mut c] = [(); 3].map(|()| Replica::new(&api));
        tokio::join!(a.look(), b.look(), c.look());
        assert!([&a, &b, &c].iter().all(|replica| replica.is_trusted(&api, START)));
        let first = data(&api)["ca.crt"].clone();
        api.set_time(START + 10);
        tokio::join!(a.look(), b.look(), c.look());
        assert!(
            [&a, &b, &c].iter().all(|replica| replica.is_trusted(&api, START) && replica.served.is_trusted())
        );
        assert_eq!(data(&api)["ca.crt"], first);
        assert!(
            [&a, &b, &c].iter().all(|replica| replica.managed.failing.is_none()),
            "conflicts are no failures"
        );
    }
}

/// The process ends before or after each of its requests; the next one goes on from there.
#[tokio::test]
async fn a_start_that_was_cut_off_anywhere_is_finished_by_the_next() {
    let mut cut = 0;
    for (request, carried_out) in (0..).flat_map(|request| [(request, false), (request, true)]) {
        let api = cluster().await;
        api.stall(request, carried_out);
        let mut replica = Replica::new(&api);
        tokio::select! {
            biased;
            () = api.stalled() => cut += 1,
            () = replica.look() => break,
        }
        let mut next = Replica::new(&api);
        next.look().await;
        assert!(next.is_trusted(&api, START), "{request} {carried_out}");
        api.set_time(START + 6);
        next.look().await;
        assert!(next.served.is_trusted());
    }
    assert!(cut >= 16, "create, new CA, bundles, and two reads before each: {cut}");
}

/// The same while a CA is replaced, with another replica that goes on serving.
#[tokio::test]
async fn a_rotation_that_was_cut_off_anywhere_is_finished_by_the_next() {
    let mut cut = 0;
    for (request, carried_out) in (0..).flat_map(|request| [(request, false), (request, true)]) {
        let api = cluster().await;
        let lifetimes = Lifetimes { ca: Duration::from_secs(300), leaf: Duration::from_secs(100) };
        let [mut other, mut replica] = [(); 2].map(|()| Replica::with(&api, lifetimes));
        for now in (START..START + 200).step_by(10) {
            api.set_time(now);
            other.look().await;
            replica.look().await;
        }
        let (mut now, old) = (START + 200, data(&api)["ca.crt"].clone());
        api.set_time(now);
        api.stall(request, carried_out);
        let finished = tokio::select! {
            biased;
            () = api.stalled() => false,
            () = replica.look() => true,
        };
        assert!(other.is_trusted(&api, now));
        if finished {
            break;
        }
        cut += 1;
        let mut next = Replica::with(&api, lifetimes);
        for _ in 0..10 {
            now += 10;
            api.set_time(now);
            for turn in 0..2 {
                let looks = if turn == 0 { &mut next } else { &mut other };
                looks.look().await;
                let trusted = next.is_trusted(&api, now) && other.is_trusted(&api, now);
                assert!(trusted, "{request} {carried_out} {turn} {now}");
            }
        }
        assert!(next.served.is_trusted() && data(&api)["ca.crt"] != old);
    }
    assert!(cut >= 16, "a new CA, the bundles, and two reads before, between and after: {cut}");
}

#[tokio::test]
async fn certificates_of_seconds_are_replaced_without_a_gap() {
    let api = cluster().await;
    let seconds = |seconds| Duration::from_secs(seconds);
    let lifetimes = Lifetimes { ca: seconds(30), leaf: seconds(10) };
    let [mut a, mut b] = [(); 2].map(|()| Replica::with(&api, lifetimes));
    let (mut cas, mut leaves) = (Vec::new(), Vec::new());
    for now in START..START + 150 {
        api.set_time(now);
        for turn in 0..2 {
            let replica = if turn == 0 { &mut a } else { &mut b };
            replica.look().await;
            assert!(a.is_trusted(&api, now) && (b.is_trusted(&api, now) || now == START));
        }
        cas.push(data(&api)["ca.crt"].to_string());
        leaves.push(a.leaf());
        assert!(bundles(&api).iter().all(|bundle| CertificateDer::pem_slice_iter(bundle).count() <= 3));
    }
    cas.dedup();
    leaves.dedup();
    assert_eq!(cas.len(), 8, "one every 20 seconds");
    assert!(leaves.len() >= 30, "{}", leaves.len());
    assert!(data(&api)["previous.crt"].is_null() && data(&api)["previous.key"].is_null());
}

#[test]
fn only_a_ca_with_its_key_is_one() {
    let now = Duration::from_secs(START);
    let [a, b] = [(); 2].map(|()| Authority::new(now, Duration::from_secs(DAY)).unwrap());
    let ((cert, key), (_, other)) = (a.written(), b.written());
    let read = Authority::read(cert.as_bytes(), key.as_bytes()).unwrap();
    assert_eq!(read.ca, a.ca);
    let leaf = testregistry::Pki::new().leaf(&["a.test"]);
    for (certificate, key) in [
        (cert.as_str(), other.as_str()),
        (&leaf.cert_pem, &leaf.key_pem),
        ("", &key),
        (&cert, ""),
        (&cert, &cert),
        (&key, &key),
    ] {
        assert!(Authority::read(certificate.as_bytes(), key.as_bytes()).is_none(), "{certificate}");
    }
}
