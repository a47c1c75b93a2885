//! The configuration changes while the program runs. The program reads its files every two seconds.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use testregistry::Registry;
use tokio::time::{Duration, interval};

use super::program::Program;
use crate::support::review::{Verdict, pod, post, review};
use crate::support::{soon, until};

const RELOADED: &str = r#"tolerarch_config_reloads_total{result="success"}"#;
const REFUSED: &str = r#"tolerarch_config_reloads_total{result="failure"}"#;
const IN_USE: &str = "tolerarch_config_last_reload_successful";
const HEALTHY: &str = r#"tolerarch_component_healthy{component="configuration"}"#;

fn pool(name: &str) -> Value {
    json!({"pools": [{
        "name": name,
        "platforms": ["linux/amd64", "linux/arm64"],
        "tolerations": [{"key": format!("example.com/{name}"), "operator": "Exists"}],
    }]})
}

/// Pushes an image for both architectures, and returns its reference.
fn image(registry: &Registry) -> String {
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    repo.reference("v1")
}

/// Returns the patch as text.
fn patch(verdict: &Verdict) -> String {
    serde_json::to_string(&verdict.patch).unwrap()
}

async fn has(program: &Program, metric: &str, value: &str) -> bool {
    program.metric(metric).await == value
}

#[tokio::test]
async fn changed_configuration_applies_and_the_cache_is_kept() {
    let registry = Registry::start().await;
    let image = image(&registry);
    let program = Program::start(&registry, pool("old")).await;
    let verdict = program.review(&pod(&[&image])).await;
    assert_eq!(verdict.audit(), ("tolerated", "tolerated", None));
    assert!(
        patch(&verdict).contains("example.com/old"),
        "{}",
        patch(&verdict)
    );
    let requests_before = registry.requests().len();

    program.configure(pool("new"));
    let line = program.logged("configuration reloaded").await;
    let changes = line["changes"].as_str().unwrap();
    assert!(
        changes.contains("example.com/old → example.com/new"),
        "{changes}"
    );
    let verdict = program.review(&pod(&[&image])).await;
    assert!(
        patch(&verdict).contains("example.com/new"),
        "{}",
        patch(&verdict)
    );
    assert_eq!(
        registry.requests().len(),
        requests_before,
        "the cache is kept"
    );
    assert!(has(&program, RELOADED, "1").await && has(&program, IN_USE, "1").await);

    program.configure(json!({"mode": "observe", "log": {"level": "debug"}}));
    until("the mode", async || {
        program.review(&pod(&[&image])).await.reason == "observed"
    })
    .await;
}

#[tokio::test]
async fn unreadable_file_is_loaded_as_soon_as_it_is_readable() {
    let registry = Registry::start().await;
    let program = Program::start(&registry, pool("old")).await;
    program.limit_open_files(Some(3));
    program.configure(pool("new"));
    program
        .logged("the changed configuration cannot be used; the previous one stays in use")
        .await;
    program.limit_open_files(None);
    program.logged("configuration reloaded").await;
    until("its state", async || has(&program, HEALTHY, "1").await).await;
    assert!(has(&program, REFUSED, "1").await && has(&program, IN_USE, "1").await);
}

#[tokio::test]
async fn invalid_file_changes_nothing_and_is_reported() {
    let registry = Registry::start().await;
    let image = image(&registry);
    let program = Program::start(&registry, pool("old")).await;
    for invalid in [
        json!({"mode": "observ", "lookup": {"timeuot": "1s"}}),
        json!({"registries": {"hostsDir": "/nonesuch"}}),
    ] {
        let before: usize = program.metric(REFUSED).await.parse().unwrap();
        program.configure(invalid);
        until("the refusal", async || {
            has(&program, REFUSED, &(before + 1).to_string()).await
        })
        .await;
        until("its state", async || has(&program, HEALTHY, "0").await).await;
        assert!(has(&program, IN_USE, "0").await);
        let verdict = program.review(&pod(&[&image])).await;
        assert!(
            patch(&verdict).contains("example.com/old"),
            "{}",
            patch(&verdict)
        );
        assert_eq!(program.admin.get("/readyz").await.status, 200);
        let parts = program.admin.get("/readyz?verbose").await.text();
        assert!(
            parts.contains("[-]configuration failed: ") && parts.contains("[+]serving ok"),
            "{parts}"
        );
    }
    let line = program
        .logged("the changed configuration cannot be used; the previous one stays in use")
        .await;
    let error = line["error"].as_str().unwrap();
    assert!(
        error.contains("mode (line") && error.contains("did you mean timeout?"),
        "{error}"
    );

    let mut new = pool("new");
    new["pools"][0]["tolerations"] = json!([{"key": "example.com/new"}]);
    program.configure(new);
    program.logged("configuration reloaded").await;
    let line = program
        .logged("the configuration is valid, but probably not what was meant")
        .await;
    assert!(
        line["warning"]
            .as_str()
            .unwrap()
            .contains("the toleration has no value"),
        "{line}"
    );
    assert!(has(&program, IN_USE, "1").await && has(&program, HEALTHY, "1").await);
    let verdict = program.review(&pod(&[&image])).await;
    assert!(
        patch(&verdict).contains("example.com/new"),
        "{}",
        patch(&verdict)
    );
}

#[tokio::test]
async fn unreadable_file_of_one_host_does_not_affect_others() {
    const HEALTHY: &str = r#"tolerarch_component_healthy{component="registry-tls"}"#;
    let registry = Registry::start().await;
    let image = image(&registry);
    let other = Registry::start().await;
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("other.crt");
    let mut settings = pool("new");
    settings["registries"] = json!({"hosts": {other.address(): {"caFile": ca}}});
    let program = Program::start(&registry, settings).await;
    assert!(has(&program, HEALTHY, "0").await);
    let parts = program.admin.get("/readyz?verbose").await.text();
    assert!(
        parts.contains("[-]registry-tls failed: ") && parts.contains("[+]configuration ok"),
        "{parts}"
    );
    let verdict = program.review(&pod(&[&image])).await;
    assert!(
        patch(&verdict).contains("example.com/new"),
        "{}",
        patch(&verdict)
    );
    let line = program
        .logged("TLS with a host cannot be set up; other hosts are not affected")
        .await;
    assert!(
        line["fault"]
            .as_str()
            .unwrap()
            .contains("other.crt: cannot be read"),
        "{line}"
    );

    std::fs::write(&ca, other.pki().ca_pem()).unwrap();
    until("its state", async || has(&program, HEALTHY, "1").await).await;
    other
        .repo("team/app")
        .index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let verdict = program
        .review(&pod(&[&other.repo("team/app").reference("v1")]))
        .await;
    assert_eq!(verdict.reason, "tolerated");
}

#[tokio::test]
async fn changes_that_need_a_restart_are_named() {
    let registry = Registry::start().await;
    let program = Program::start(&registry, json!({})).await;
    program.configure(json!({
        "server": {"maxConnections": 7, "drain": "2s"},
        "cache": {"capacity": 5, "tagTtl": "5m"},
        "log": {"level": "debug"},
    }));
    let line = program
        .logged("configuration reloaded, except for keys that need a restart")
        .await;
    assert_eq!(
        line["restart"],
        "server.drain, server.maxConnections, cache.capacity"
    );
    assert!(has(&program, IN_USE, "1").await);
}

/// Files that the configuration names are part of it.
#[tokio::test]
async fn changed_authority_file_is_reloaded() {
    let registry = Registry::start().await;
    let image = image(&registry);
    let other = testregistry::Pki::new();
    let program = Program::start(
        &registry,
        json!({"cache": {"negative": {"unreachable": "1ms"}}}),
    )
    .await;
    program.write("ca.crt", other.ca_pem());
    program.logged("configuration reloaded").await;
    assert_eq!(program.review(&pod(&[&image])).await.reason, "unreachable");
    program.write("ca.crt", program.pki.ca_pem());
    until("the authority", async || {
        program.review(&pod(&[&image])).await.reason == "tolerated"
    })
    .await;
}

/// Every review is answered, by the old pool or by the new one.
#[tokio::test]
async fn no_review_fails_during_a_reload() {
    let registry = Registry::start().await;
    let image = image(&registry);
    let program = Program::start(&registry, pool("a")).await;
    let done = AtomicBool::new(false);
    let answered = AtomicUsize::new(0);
    let send_reviews = async || {
        let mut connection = program.webhook.connect().await;
        let mut times = interval(Duration::from_millis(5));
        while !done.load(Ordering::Relaxed) {
            times.tick().await;
            let answer = connection
                .exchange(&post(
                    "/mutate?timeout=30s",
                    &review("u-1", &pod(&[&image])),
                ))
                .await;
            let verdict = Verdict::of(&answer);
            assert_eq!(verdict.reason, "tolerated");
            assert!(
                ["a", "b"]
                    .iter()
                    .any(|pool| patch(&verdict).contains(&format!("example.com/{pool}")))
            );
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    let change_configuration = async {
        for round in 1..=2 {
            program.configure(pool(if round % 2 == 0 { "a" } else { "b" }));
            let count = round.to_string();
            until("the reload", async || has(&program, RELOADED, &count).await).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    soon("all reloads", async {
        tokio::join!(change_configuration, send_reviews(), send_reviews())
    })
    .await;
    assert!(answered.load(Ordering::Relaxed) > 5);
    assert!(has(&program, REFUSED, "0").await);
}
