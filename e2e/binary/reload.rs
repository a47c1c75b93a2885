//! The configuration changes while the program runs. Its files are read each two seconds.

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

/// An image for both architectures.
fn image(registry: &Registry) -> String {
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    repo.reference("v1")
}

/// What became of the Pod.
fn patch(verdict: &Verdict) -> String {
    serde_json::to_string(&verdict.patch).unwrap()
}

async fn has(program: &Program, metric: &str, value: &str) -> bool {
    program.metric(metric).await == value
}

#[tokio::test]
async fn a_change_is_taken_over_and_the_cache_is_kept() {
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
    let asked = registry.requests().len();

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
    assert_eq!(registry.requests().len(), asked, "the cache is kept");
    assert!(has(&program, RELOADED, "1").await && has(&program, IN_USE, "1").await);

    program.configure(json!({"mode": "observe", "log": {"level": "debug"}}));
    until("the mode", async || {
        program.review(&pod(&[&image])).await.reason == "observed"
    })
    .await;
}

#[tokio::test]
async fn a_file_that_could_not_be_read_for_a_while_is_taken_although_it_looks_the_same() {
    let registry = Registry::start().await;
    let program = Program::start(&registry, pool("old")).await;
    program.allow_files(Some(3));
    program.configure(pool("new"));
    program
        .logged("the changed configuration cannot be used; the previous one stays in use")
        .await;
    program.allow_files(None);
    program.logged("configuration reloaded").await;
    until("its state", async || has(&program, HEALTHY, "1").await).await;
    assert!(has(&program, REFUSED, "1").await && has(&program, IN_USE, "1").await);
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_shows() {
    let registry = Registry::start().await;
    let image = image(&registry);
    let program = Program::start(&registry, pool("old")).await;
    for bad in [
        json!({"mode": "observ", "lookup": {"timeuot": "1s"}}),
        json!({"registries": {"hostsDir": "/nonesuch"}}),
    ] {
        let before: usize = program.metric(REFUSED).await.parse().unwrap();
        program.configure(bad);
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
async fn files_of_one_host_are_no_matter_of_others() {
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
        .logged("TLS with a host cannot be set up; the others are not affected")
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
async fn what_needs_a_restart_says_so() {
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

/// A file that the configuration names belongs to it.
#[tokio::test]
async fn an_authority_may_change() {
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

/// Pods are answered all the time, each by one of the pools.
#[tokio::test]
async fn no_review_fails_while_it_changes() {
    let registry = Registry::start().await;
    let image = image(&registry);
    let program = Program::start(&registry, pool("a")).await;
    let done = AtomicBool::new(false);
    let answered = AtomicUsize::new(0);
    let ask = async || {
        let mut connection = program.webhook.connect().await;
        let mut times = interval(Duration::from_millis(5));
        while !done.load(Ordering::Relaxed) {
            times.tick().await;
            let answer = connection
                .ask(&post(
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
    let change = async {
        for round in 1..=2 {
            program.configure(pool(if round % 2 == 0 { "a" } else { "b" }));
            let count = round.to_string();
            until("the reload", async || has(&program, RELOADED, &count).await).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    soon("all reloads", async { tokio::join!(change, ask(), ask()) }).await;
    assert!(answered.load(Ordering::Relaxed) > 5);
    assert!(has(&program, REFUSED, "0").await);
}
