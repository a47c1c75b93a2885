//! The serving certificate changes while the program runs. The program reads its files every five seconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;
use testregistry::{Leaf, Pki, Registry};

use super::program::Program;
use crate::support::https::NAME;
use crate::support::review::{Verdict, pod, post, review};

const EXPIRY: &str = "tolerarch_certificate_expiry_timestamp_seconds";
const RELOADED: &str = r#"tolerarch_certificate_reloads_total{result="success"}"#;
const REFUSED: &str = r#"tolerarch_certificate_reloads_total{result="failure"}"#;

/// Returns a certificate that expires after this number of days, and its expiry as a Unix timestamp.
fn leaf(pki: &Pki, days: u64) -> (Leaf, String) {
    let expiry = SystemTime::now() + Duration::from_secs(days * 24 * 3600);
    let timestamp = expiry.duration_since(UNIX_EPOCH).unwrap().as_secs();
    (pki.leaf_until(&[NAME], expiry), timestamp.to_string())
}

fn der(leaf: &Leaf) -> Vec<u8> {
    CertificateDer::from_pem_slice(leaf.cert_pem.as_bytes())
        .unwrap()
        .to_vec()
}

async fn served_certificate(program: &Program) -> Vec<u8> {
    program.webhook.connect().await.session.certificate
}

/// A Pod may start before its Secret has content.
#[tokio::test]
async fn process_starts_before_its_managed_certificate() {
    let registry = Registry::start().await;
    let mount = tempfile::tempdir().unwrap();
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| mount.path().join(name));
    let settings =
        json!({"tls": {"mode": "managed"}, "server": {"certFile": certificate, "keyFile": key}});
    let program = Program::start(&registry, settings).await;
    program
        .logged("waiting for the serving certificate, which `tolerarch certificates` issues")
        .await;
    let ready = program.admin.get("/readyz?verbose").await;
    assert_eq!(ready.status, 503);
    let text = ready.text();
    let expected = "[-]certificate failed: its files are not there yet";
    assert!(text.contains(expected), "{text}");
    assert_eq!(program.admin.get("/livez").await.status, 200);

    let leaf = program.pki.leaf(&[NAME]);
    leaf.write(mount.path()).unwrap();
    program.logged("serving certificate reloaded").await;
    assert_eq!(program.admin.get("/readyz").await.status, 200);
    assert_eq!(served_certificate(&program).await, der(&leaf));
}

#[tokio::test]
async fn certificate_refused_by_api_servers_is_reported() {
    let registry = Registry::start().await;
    let pki = registry.pki();
    let now = SystemTime::now();
    let day = Duration::from_secs(24 * 3600);
    let cases = [
        (
            pki.leaf_until(&[NAME], now - day),
            "expired",
            "it has expired",
        ),
        (
            pki.leaf_from(&[NAME], now + day),
            "not-yet-valid",
            "it is not valid yet",
        ),
        (
            pki.leaf(&["other.test"]),
            "wrong-name",
            "it is not for the name in tls.serverName",
        ),
    ];
    join_all(cases.into_iter().map(async |(bad, error, reason)| {
        let program = Program::start(&registry, json!({"tls": {"serverName": NAME}})).await;
        program.mount.swap(&bad);
        let line = program
            .logged("API servers refuse the serving certificate: no Pod is decided")
            .await;
        assert_eq!(
            (&line["level"], &line["error"], &line["name"]),
            (&json!("ERROR"), &json!(error), &json!(NAME))
        );
        let ready = program.admin.get("/readyz?verbose").await;
        assert_eq!(ready.status, 200, "{error}");
        let text = ready.text();
        assert!(
            text.contains(&format!("[-]certificate failed: {reason}\n")),
            "{text}"
        );
        let metric = format!("tolerarch_certificate_invalid{{error=\"{error}\"}}");
        assert_eq!(program.metric(&metric).await, "1");
    }))
    .await;
}

#[tokio::test]
async fn new_certificate_is_served_and_open_connections_go_on() {
    let program = Program::start(&Registry::start().await, json!({})).await;
    let mut open = program.webhook.connect().await;
    let (new, expiry) = leaf(&program.pki, 60);
    assert_ne!(open.session.certificate, der(&new));
    assert_ne!(program.metric(EXPIRY).await, expiry);

    program.mount.swap(&new);
    let line = program.logged("serving certificate reloaded").await;
    let seconds = UNIX_EPOCH + Duration::from_secs(expiry.parse().unwrap());
    assert_eq!(
        line["expiry"],
        humantime::format_rfc3339_seconds(seconds).to_string()
    );
    assert_eq!(served_certificate(&program).await, der(&new));
    let answer = open
        .exchange(&post("/mutate", &review("u-1", &pod(&[""]))))
        .await;
    assert_eq!(Verdict::of(&answer).reason, "image-invalid");
    assert_eq!(program.metric(EXPIRY).await, expiry);
    assert_eq!(program.metric(RELOADED).await, "1");
    assert_eq!(program.metric(REFUSED).await, "0");
}

#[tokio::test]
async fn unusable_new_pair_changes_nothing() {
    let registry = Registry::start().await;
    let pki = registry.pki();
    let good = pki.leaf(&[NAME]);
    let other = pki.leaf(&[NAME]);
    let garbage = "canary".to_owned();
    let cases = [
        (
            "no certificate",
            Leaf {
                cert_pem: garbage.clone(),
                ..good.clone()
            },
        ),
        (
            "half a certificate",
            Leaf {
                cert_pem: good.cert_pem[..200].to_owned(),
                ..good.clone()
            },
        ),
        (
            "no key",
            Leaf {
                key_pem: garbage,
                ..good.clone()
            },
        ),
        (
            "another certificate's key",
            Leaf {
                key_pem: other.key_pem.clone(),
                ..good.clone()
            },
        ),
        (
            "nothing",
            Leaf {
                cert_pem: String::new(),
                key_pem: String::new(),
            },
        ),
    ];
    join_all(cases.into_iter().map(async |(case, pair)| {
        let program = Program::start(&registry, json!({})).await;
        let old = served_certificate(&program).await;
        let expiry = program.metric(EXPIRY).await;

        program.mount.swap(&pair);
        let line = program
            .logged("the files of the serving certificate cannot be used; a certificate in use is still served")
            .await;
        let error = line["error"].as_str().unwrap();
        assert!(
            error.contains("tls.crt:") || error.contains("tls.key:"),
            "{case}: {line}"
        );
        assert_eq!(served_certificate(&program).await, old, "{case}");
        assert_eq!(program.metric(EXPIRY).await, expiry, "{case}");
        assert_eq!(program.metric(RELOADED).await, "0", "{case}");
        assert_eq!(program.metric(REFUSED).await, "1", "{case}");
        assert_eq!(program.admin.get("/readyz").await.status, 200, "{case}");

        let (next, expiry) = leaf(&pki, 90);
        program.mount.swap(&next);
        program.logged("serving certificate reloaded").await;
        assert_eq!(served_certificate(&program).await, der(&next), "{case}");
        assert_eq!(program.metric(EXPIRY).await, expiry, "{case}");
        let written = program.written().await;
        assert!(
            !written.contains("canary") && !written.contains("PRIVATE"),
            "{written}"
        );
    }))
    .await;
}
