use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use testregistry::Registry as Remote;
use tokio::time::Instant;

use super::*;
use crate::admission::Webhook;
use crate::decide::{Current, Snapshot, Wait};
use crate::metrics::Metrics;
use crate::pod::Pod;
use crate::serve::metrics::Families;

/// A ConfigMap volume as the kubelet lays it out.
fn swap(root: &Path, version: &str, text: &str) {
    let new = root.join(format!("..{version}"));
    fs::create_dir(&new).unwrap();
    fs::write(new.join("config.yaml"), text).unwrap();
    symlink(new.file_name().unwrap(), root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
}

#[test]
fn content_is_what_counts() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("config.yaml");
    symlink("..data/config.yaml", &file).unwrap();
    let hash = || content(std::slice::from_ref(&file));
    let absent = hash();
    swap(root.path(), "1", "mode: observe");
    let first = hash();
    swap(root.path(), "2", "mode: enforce");
    let second = hash();
    assert!(absent != first && first != second && second != absent);
    swap(root.path(), "3", "mode: observe");
    assert_eq!(hash(), first, "another file with the same content");
}

#[test]
fn directories_count_with_all_they_hold() {
    let root = tempfile::tempdir().unwrap();
    let hash = || content(&[root.path().to_owned()]);
    let empty = hash();
    fs::create_dir(root.path().join("docker.io")).unwrap();
    let host = hash();
    fs::write(root.path().join("docker.io/hosts.toml"), "a").unwrap();
    let one = hash();
    fs::write(root.path().join("docker.io/hosts.toml"), "b").unwrap();
    let other = hash();
    fs::rename(root.path().join("docker.io"), root.path().join("ghcr.io")).unwrap();
    let all = [empty, host, one, other, hash()];
    for (place, hash) in all.iter().enumerate() {
        assert!(!all[..place].contains(hash), "{place}");
    }
    symlink(root.path(), root.path().join("ghcr.io/loop")).unwrap();
    hash();
}

/// Reviews that are answered while the configuration changes fifty times.
#[tokio::test]
async fn no_review_fails_while_it_changes() {
    let remote = Remote::builder().plain_http().start().await;
    let host = remote.address();
    let config = |pool: &str| {
        let toleration = json!({"key": pool, "operator": "Exists"});
        let pool = json!({"name": pool, "platforms": ["linux/amd64"], "tolerations": [toleration]});
        let text = json!({
            "pools": [pool],
            "registries": {"hosts": {&host: {"plainHttp": true}}},
            "network": {"allow": ["127.0.0.0/8"]},
        });
        Config::parse(&text.to_string()).unwrap()
    };
    let metrics = Families::register(&Metrics::new([]).unwrap()).unwrap();
    let first = config("a");
    let current = Current::new(snapshot::load(&first, &metrics, None, Caller::Webhook, None).unwrap());
    let webhook = Webhook::new(current.clone(), metrics.reviews.clone());
    let mut live = Live { config: first, current, metrics };
    let change = async {
        for round in 0..50 {
            live.take(config(if round % 2 == 0 { "b" } else { "a" })).await.unwrap();
        }
    };
    tokio::pin!(change);
    let mut images = 0;
    loop {
        images += 1;
        let repo = remote.repo(&format!("app{images}"));
        repo.index(Some("v1"), ["linux/amd64"]);
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "operation": "CREATE",
            "object": {"spec": {"containers": [{"image": repo.reference("v1")}]}},
        }});
        let answer = async {
            let answer = webhook.answer(body.to_string().as_bytes(), Instant::now(), None).await.unwrap();
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["response"]["auditAnnotations"]["reason"], "tolerated", "{answer}");
        };
        tokio::pin!(answer);
        tokio::select! {
            () = &mut change => return answer.await,
            () = &mut answer => {}
        }
    }
}

#[tokio::test]
async fn what_has_begun_ends_by_the_configuration_that_it_began_with() {
    let remote = Remote::builder().plain_http().start().await;
    let config = |pool: &str, plain: bool| {
        let toleration = json!({"key": pool, "operator": "Exists"});
        let pool = json!({"name": pool, "platforms": ["linux/amd64"], "tolerations": [toleration]});
        let text = json!({
            "pools": [pool],
            "registries": {"hosts": {remote.address(): {"plainHttp": plain}}},
            "network": {"allow": ["127.0.0.0/8"]},
        });
        Config::parse(&text.to_string()).unwrap()
    };
    let pod = |name: &str| {
        let repo = remote.repo(name);
        repo.index(Some("v1"), ["linux/amd64"]);
        json!({"spec": {"containers": [{"image": repo.reference("v1")}]}})
    };
    let decide = async |snapshot: &Snapshot, pod: &Value| {
        let pod = Pod::of_value(pod).unwrap();
        let decision = snapshot.decide("", &pod, Wait::Until(Instant::now() + 10 * POLL)).await;
        (decision.reason.as_str(), decision.pools())
    };
    let metrics = Families::register(&Metrics::new([]).unwrap()).unwrap();
    let first = config("a", true);
    let current = Current::new(snapshot::load(&first, &metrics, None, Caller::Webhook, None).unwrap());
    let mut live = Live { config: first, current: current.clone(), metrics };
    let begun = current.get();
    live.take(config("b", false)).await.unwrap();
    let (one, other) = (pod("one"), pod("other"));
    assert_eq!(decide(&begun, &one).await, ("tolerated", "a".to_owned()));
    let now = current.get();
    assert_eq!(decide(&now, &other).await, ("unreachable", String::new()), "it is asked by TLS");
    assert_eq!(decide(&now, &one).await, ("tolerated", "b".to_owned()), "what is known stays known");
}

#[test]
fn what_can_be_read_only_once_is_not_followed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(is_stream(Path::new("/dev/null")));
    assert!(!is_stream(file.path()) && !is_stream(Path::new("/nonesuch")));
}

#[tokio::test]
async fn what_a_hosts_toml_names_counts() {
    let [root, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let ca = elsewhere.path().join("ca.crt");
    let toml = root.path().join("a.b/hosts.toml");
    fs::create_dir(root.path().join("a.b")).unwrap();
    fs::write(&toml, format!("ca = '{}'", ca.display())).unwrap();
    let config = json!({"registries": {"hostsDir": root.path()}});
    let config = Config::parse(&config.to_string()).unwrap();
    let sources = Sources { file: None, ..Sources::default() };
    let absent = Seen::now(&sources, &config).await;
    fs::write(&ca, "1").unwrap();
    let one = Seen::now(&sources, &config).await;
    fs::write(&ca, "2").unwrap();
    let other = Seen::now(&sources, &config).await;
    assert!(absent != one && one != other && other != absent);
    fs::write(&toml, "").unwrap();
    let without = Seen::now(&sources, &config).await;
    fs::write(&ca, "1").unwrap();
    assert!(Seen::now(&sources, &config).await == without, "nobody reads it any more");
}

#[tokio::test]
async fn a_pipe_in_place_of_the_configuration_is_not_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("config.yaml");
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    let sources = Sources { file: Some(file), ..Sources::default() };
    let refused = tokio::time::timeout(Duration::from_secs(10), load(&sources)).await.unwrap();
    assert!(matches!(refused, Err(Refused::Config(ConfigError::Read { .. }))));
}
