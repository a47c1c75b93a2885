//! Metrics and probes.

use serde_json::json;
use testregistry::Registry;

use super::program::Program;
use crate::support::https::request;
use crate::support::review::pod;

#[tokio::test]
async fn metrics_count_reviews_and_lookups() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let program = Program::start(&registry, json!({})).await;
    program.review(&pod(&[&repo.reference("v1")])).await;
    program.review(&pod(&[&repo.reference("v1")])).await;

    let answer = program.admin.get("/metrics").await;
    assert!(
        answer
            .header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4"),
        "{answer:?}"
    );
    let metrics = answer.text();
    for (name, kind) in [
        ("tolerarch_reviews_total", "counter"),
        ("tolerarch_review_duration_seconds", "histogram"),
        ("tolerarch_lookups_total", "counter"),
        ("tolerarch_lookups_in_flight", "gauge"),
        ("tolerarch_registry_requests_total", "counter"),
        ("tolerarch_registry_request_duration_seconds", "histogram"),
        ("tolerarch_registry_circuit_open", "gauge"),
        ("tolerarch_cache_entries", "gauge"),
        ("tolerarch_cache_evictions_total", "counter"),
        ("tolerarch_tls_handshake_errors_total", "counter"),
        ("tolerarch_certificate_expiry_timestamp_seconds", "gauge"),
        ("tolerarch_certificate_reloads_total", "counter"),
        ("tolerarch_certificate_invalid", "gauge"),
        ("tolerarch_build_info", "gauge"),
        ("process_resident_memory_bytes", "gauge"),
    ] {
        assert!(
            metrics.contains(&format!("# TYPE {name} {kind}\n")),
            "{name} in\n{metrics}"
        );
    }
    let host = registry.address();
    for line in [
        r#"tolerarch_reviews_total{decision="tolerated",profile="",reason="tolerated"} 2"#.into(),
        r#"tolerarch_review_duration_seconds_count{reason="tolerated"} 2"#.into(),
        format!(r#"tolerarch_lookups_total{{registry="{host}",result="fetched"}} 1"#),
        format!(r#"tolerarch_lookups_total{{registry="{host}",result="hit"}} 1"#),
        format!(
            r#"tolerarch_registry_requests_total{{code="2xx",kind="manifest",registry="{host}"}} 1"#
        ),
        format!(r#"tolerarch_registry_circuit_open{{registry="{host}"}} 0"#),
        r#"tolerarch_cache_entries{level="tag"} 1"#.into(),
        r#"tolerarch_cache_entries{level="platforms"} 1"#.into(),
        "tolerarch_lookups_in_flight 0".into(),
    ] {
        assert!(
            metrics.contains(&format!("{line}\n")),
            "{line} in\n{metrics}"
        );
    }
}

#[tokio::test]
async fn images_and_unknown_hosts_are_never_labels() {
    let registry = Registry::start().await;
    registry
        .repo("team/canary")
        .image("linux/amd64", Some("v1"));
    let program = Program::start(&registry, json!({})).await;
    for image in [
        registry.repo("team/canary").reference("v1"),
        registry.repo("team/canary-absent").reference("v2"),
        "127.0.0.2:1/canary".into(),
        "localhost:1/canary".into(),
        "CANARY".into(),
    ] {
        program.review(&pod(&[&image])).await;
    }
    let metrics = program.metrics().await;
    assert!(metrics.contains(r#"registry="other""#), "{metrics}");
    for text in [
        "canary",
        "CANARY",
        "127.0.0.2",
        "localhost",
        "v1\"",
        "sha256",
    ] {
        assert!(!metrics.contains(text), "{text} in\n{metrics}");
    }
}

#[tokio::test]
async fn admin_port_answers_probes_and_no_other_path() {
    let program = Program::start(&Registry::start().await, json!({})).await;
    let ready = "[+]configuration ok\n[+]certificate ok\n[+]registry-tls ok\n[+]serving ok\nreadyz check passed\n";
    for (path, status, body) in [
        ("/livez", 200, "ok\n"),
        ("/readyz", 200, "ok\n"),
        ("/readyz?verbose", 200, ready),
        ("/readyz?verbose=true", 200, ready),
        ("/readyz?verbose=", 200, ready),
        ("/readyz?verboser", 200, "ok\n"),
        ("/", 404, ""),
        ("/mutate", 404, ""),
    ] {
        let answer = program.admin.get(path).await;
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (status, body),
            "{path}"
        );
    }
    let answer = program
        .admin
        .exchange(&request("POST", "/metrics", &[], b""))
        .await;
    assert_eq!(answer.status, 405);
}
