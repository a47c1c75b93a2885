use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use testregistry::Registry as Remote;
use tokio::time::Instant;
use tower_service::Service;

use super::*;
use crate::serve::metrics::Families;
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::Mode;
use tolerarch_engine::decide::{Snapshot, Wait};
use tolerarch_engine::lessons::Lessons;
use tolerarch_support::environment::Environment;
use tolerarch_support::metrics::Metrics;
use tolerarch_support::testing::detached_levels;
use tolerarch_webhook::admission::Webhook;

/// Writes a new version of a ConfigMap volume, as the kubelet does.
fn swap(root: &Path, version: &str, text: &str) {
    let new = root.join(format!("..{version}"));
    fs::create_dir(&new).unwrap();
    fs::write(new.join("config.yaml"), text).unwrap();
    symlink(new.file_name().unwrap(), root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
}

#[test]
fn swapped_links_and_rewritten_files_change_the_fingerprint() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("config.yaml");
    symlink("..data/config.yaml", &file).unwrap();
    let now = || fingerprint(std::slice::from_ref(&file));
    let absent = now();
    swap(root.path(), "1", "mode: observe");
    let first = now();
    swap(root.path(), "2", "mode: enforce");
    let second = now();
    assert_eq!(now(), second);
    let target = fs::File::options().write(true).open(&file).unwrap();
    target.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let written = now();
    target.set_len(3).unwrap();
    target.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let all = [absent, first, second, written, now()];
    for (index, fingerprint) in all.iter().enumerate() {
        assert!(!all[..index].contains(fingerprint), "{index}");
    }
}

#[test]
fn permissions_change_the_fingerprint() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let now = || fingerprint(&[file.path().to_owned()]);
    let before = now();
    let start = Instant::now();
    // Several changes may have the same time.
    while now() == before {
        assert!(start.elapsed() < Duration::from_secs(60));
        for mode in [0o000, 0o600] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

#[test]
fn contents_of_directories_change_the_fingerprint() {
    let root = tempfile::tempdir().unwrap();
    let hash = || fingerprint(&[root.path().to_owned()]);
    let empty = hash();
    fs::create_dir(root.path().join("docker.io")).unwrap();
    let host = hash();
    fs::write(root.path().join("docker.io/hosts.toml"), "a").unwrap();
    let one = hash();
    fs::write(root.path().join("docker.io/hosts.toml"), "bb").unwrap();
    let other = hash();
    fs::rename(root.path().join("docker.io"), root.path().join("ghcr.io")).unwrap();
    let all = [empty, host, one, other, hash()];
    for (index, hash) in all.iter().enumerate() {
        assert!(!all[..index].contains(hash), "{index}");
    }
    symlink(root.path(), root.path().join("ghcr.io/loop")).unwrap();
    hash();
}

/// Reviews are answered while the configuration changes fifty times.
#[tokio::test]
async fn reviews_succeed_during_reloads() {
    let remote = Remote::builder().plain_http().start().await;
    let host = remote.address();
    let config = |pool: &str| {
        let toleration = json!({"key": pool, "operator": "Exists"});
        let pool = json!({"name": pool, "platforms": ["linux/amd64"], "tolerations": [toleration]});
        let text = json!({
            "pools": [pool],
            // On a machine under load a lookup may be slow.
            "lookup": {"budget": "60s", "timeout": "120s"},
            "registries": {"hosts": {&host: {"plainHttp": true}}},
            "network": {"allow": ["127.0.0.0/8"]},
        });
        Config::parse(&text.to_string()).unwrap()
    };
    let metrics = Metrics::new([]).unwrap();
    let metrics = Families::register(&metrics, &metrics).unwrap();
    let webhook_metrics = metrics.reviews.clone();
    let live = Live::begin(config("a"), None, metrics, Environment::default(), None).unwrap();
    let webhook = Webhook::new(Arc::clone(&live.current), webhook_metrics).router();
    let change = async {
        for round in 0..50 {
            let live = live.clone();
            let next = config(if round % 2 == 0 { "b" } else { "a" });
            spawn_blocking(move || live.apply(next))
                .await
                .unwrap()
                .unwrap();
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
            let request = Request::post("/mutate").header("content-type", "application/json");
            let request = request.body(Body::from(body.to_string())).unwrap();
            let answer = webhook.clone().call(request).await.unwrap().into_body();
            let answer: Value =
                serde_json::from_slice(&answer.collect().await.unwrap().to_bytes()).unwrap();
            assert_eq!(
                answer["response"]["auditAnnotations"]["reason"], "tolerated",
                "{answer}"
            );
        };
        tokio::pin!(answer);
        tokio::select! {
            () = &mut change => return answer.await,
            () = &mut answer => {}
        }
    }
}

#[tokio::test]
async fn decision_keeps_the_snapshot_it_started_with() {
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
        let decision = snapshot
            .decide(
                &snapshot.policy,
                "",
                &pod,
                Wait::Until {
                    deadline: Instant::now() + 10 * POLL,
                    review: None,
                },
            )
            .await;
        (decision.reason.as_str(), decision.pools().into_owned())
    };
    let metrics = Metrics::new([]).unwrap();
    let metrics = Families::register(&metrics, &metrics).unwrap();
    let environment = Environment::default();
    let live = Live::begin(config("a", true), None, metrics, environment, None).unwrap();
    let current = Arc::clone(&live.current);
    let old = current.load_full();
    let cached = pod("one");
    let uncached = pod("other");
    assert_eq!(decide(&old, &cached).await, ("tolerated", "a".to_owned()));
    live.apply(config("b", false)).unwrap();
    assert_eq!(
        decide(&old, &pod("late")).await,
        ("tolerated", "a".to_owned())
    );
    let new = current.load_full();
    assert_eq!(
        decide(&new, &uncached).await,
        ("unreachable", String::new()),
        "the request uses TLS"
    );
    assert_eq!(
        decide(&new, &cached).await,
        ("tolerated", "b".to_owned()),
        "the cache is kept"
    );
}

#[test]
fn stream_is_not_followed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(is_stream(Path::new("/dev/null")));
    assert!(!is_stream(file.path()) && !is_stream(Path::new("/nonesuch")));
}

#[tokio::test]
async fn files_named_by_hosts_toml_are_followed() {
    let [root, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let ca = elsewhere.path().join("ca.crt");
    let toml = root.path().join("a.b/hosts.toml");
    fs::create_dir(root.path().join("a.b")).unwrap();
    fs::write(&toml, format!("ca = '{}'", ca.display())).unwrap();
    let config = json!({"registries": {"hostsDir": root.path()}});
    let config = Config::parse(&config.to_string()).unwrap();
    let sources = Sources {
        file: None,
        ..Sources::default()
    };
    let absent = FileVersions::now(&sources, &config).await;
    fs::write(&ca, "1").unwrap();
    let one = FileVersions::now(&sources, &config).await;
    fs::write(&ca, "22").unwrap();
    let other = FileVersions::now(&sources, &config).await;
    assert!(absent != one && one != other && other != absent);
    fs::write(&toml, "").unwrap();
    let without = FileVersions::now(&sources, &config).await;
    fs::write(&ca, "1").unwrap();
    assert!(
        FileVersions::now(&sources, &config).await == without,
        "it is no longer read"
    );
}

/// A configuration on disk that names a certificate authority, and its follower.
struct Fixture {
    root: tempfile::TempDir,
    metrics: Metrics,
    follower: Follower,
    state: State,
}

impl Fixture {
    async fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::write(
            root.path().join("ca.crt"),
            testregistry::Pki::new().ca_pem(),
        )
        .unwrap();
        let config = Self::config(root.path(), "enforce");
        Self::with(root, &config).await
    }

    /// Starts with this configuration. Credential helpers are searched in `bin`.
    async fn with(root: tempfile::TempDir, config: &str) -> Self {
        let file = root.path().join("config.yaml");
        fs::write(&file, config).unwrap();
        let environment = Environment::from_iter([("PATH", root.path().join("bin"))]);
        let sources = Sources {
            file: Some(file),
            environment,
            ..Sources::default()
        };
        let config = sources.load_again().unwrap().config;
        let seen = FileVersions::now(&sources, &config).await;
        let metrics = Metrics::new([]).unwrap();
        let families = Families::register(&metrics, &metrics).unwrap();
        let live = Live::begin(config, None, families, sources.environment.clone(), None).unwrap();
        let follower = Follower::new(live, sources, detached_levels(), seen).unwrap();
        Self {
            root,
            metrics,
            follower,
            state: State::Healthy,
        }
    }

    /// Returns a configuration, whose length differs for each mode: two writes in a row may have the same time.
    fn config(root: &Path, mode: &str) -> String {
        let hosts = json!({"a.test": {"caFile": root.join("ca.crt")}});
        let end = if mode == "observe" { "\n" } else { "" };
        json!({"mode": mode, "registries": {"hosts": hosts}}).to_string() + end
    }

    /// Polls twice: a change is applied when two polls see it.
    fn poll(&mut self) {
        for _ in 0..2 {
            self.state = self.follower.poll().unwrap_or(self.state);
        }
    }

    fn mode(&self) -> Mode {
        self.follower.live.current.load_full().policy.mode
    }

    fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.render().unwrap();
        let name = format!("tolerarch_{name} ");
        text.lines()
            .find_map(|line| line.strip_prefix(&name))
            .unwrap()
            .parse()
            .unwrap()
    }
}

type Make = fn(&Path);

/// Paths that are not readable files, and functions that make them. Opening a FIFO waits for a writer.
const NO_FILES: [(&str, Make); 5] = [
    ("nothing", |_| {}),
    ("a FIFO", |path| {
        assert!(
            std::process::Command::new("mkfifo")
                .arg(path)
                .status()
                .unwrap()
                .success()
        );
    }),
    ("a directory", |path| fs::create_dir(path).unwrap()),
    ("a huge file", |path| {
        fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
    }),
    ("a device without an end", |path| {
        symlink("/dev/zero", path).unwrap();
    }),
];

fn remove(path: &Path) {
    if path.is_dir() {
        fs::remove_dir(path).unwrap();
    } else {
        fs::remove_file(path).unwrap();
    }
}

#[tokio::test]
async fn unreadable_configuration_is_reloaded_once_readable() {
    let mut fixture = Fixture::start().await;
    fixture.poll();
    assert_eq!((fixture.metric(FAILED), fixture.state), (0, State::Healthy));
    let config = fixture.root.path().join("config.yaml");
    let mut mode = Mode::Enforce;
    for (what, make) in NO_FILES {
        let good = fs::read(&config).unwrap();
        let failures = fixture.metric(FAILED);
        remove(&config);
        make(&config);
        fixture.poll();
        assert_eq!(fixture.mode(), mode, "{what}: the previous one stays");
        assert_eq!(fixture.metric(FAILED), failures + 1, "{what}");
        assert_eq!(fixture.metric(IN_USE), 0, "{what}");
        assert!(matches!(fixture.state, State::Degraded(_)), "{what}");
        fixture.poll();
        assert_eq!(
            (fixture.metric(FAILED), fixture.metric(IN_USE)),
            (failures + 1, 0),
            "{what}"
        );

        if what != "nothing" {
            remove(&config);
        }
        fs::write(&config, good).unwrap();
        let (next, text) = if mode == Mode::Enforce {
            (Mode::Observe, "observe")
        } else {
            (Mode::Enforce, "enforce")
        };
        fs::write(&config, Fixture::config(fixture.root.path(), text)).unwrap();
        fixture.poll();
        assert_eq!(fixture.mode(), next, "{what}: a valid file is used");
        assert_eq!(fixture.metric(IN_USE), 1, "{what}");
        assert_eq!(fixture.state, State::Healthy, "{what}");
        mode = next;
    }
}

/// Meanwhile, changes of the configuration are applied.
#[tokio::test]
async fn unreadable_ca_file_affects_only_its_host() {
    let mut fixture = Fixture::start().await;
    fixture.poll();
    let root = fixture.root.path().to_owned();
    let ca = fixture.root.path().join("ca.crt");
    let live = fixture.follower.live.clone();
    let good = fs::read(&ca).unwrap();
    for (what, make) in NO_FILES {
        assert_eq!(
            live.current.load_full().resolver.tls_faults(),
            [""; 0],
            "{what}: before"
        );
        remove(&ca);
        make(&ca);
        fs::write(root.join("config.yaml"), Fixture::config(&root, "observe")).unwrap();
        fixture.poll();
        let now = live.current.load_full();
        let [fault] = now.resolver.tls_faults() else {
            panic!("{what}: {:?}", now.resolver.tls_faults())
        };
        let begin = format!("a.test: {}: cannot be read: ", ca.display());
        assert!(fault.starts_with(&begin), "{what}: {fault}");
        assert_eq!(
            (fixture.mode(), fixture.metric(IN_USE)),
            (Mode::Observe, 1),
            "{what}"
        );
        assert_eq!(
            fixture.state,
            State::Healthy,
            "{what}: the configuration itself"
        );

        if what != "nothing" {
            remove(&ca);
        }
        fs::write(&ca, &good).unwrap();
        fs::write(root.join("config.yaml"), Fixture::config(&root, "enforce")).unwrap();
        fixture.poll();
    }
    fs::write(&ca, "no PEM").unwrap();
    fixture.poll();
    assert!(
        live.current.load_full().resolver.tls_faults()[0]
            .contains("holds no certificate authority")
    );
    fs::write(&ca, &good).unwrap();
    fixture.poll();
    assert_eq!(live.current.load_full().resolver.tls_faults(), [""; 0]);
    assert_eq!(fixture.metric(FAILED), 0);
}

const FAILED: &str = "config_reloads_total{result=\"failure\"}";
const IN_USE: &str = "config_last_reload_successful";

#[tokio::test]
async fn state_names_the_fault_of_a_configuration() {
    let mut fixture = Fixture::start().await;
    let before = fixture.follower.live.config();
    for (text, expected) in [
        ("mode: observ", INVALID),
        (r#"{"registries": {"hostsDir": "/nonesuch"}}"#, UNUSABLE),
    ] {
        fs::write(fixture.root.path().join("config.yaml"), text).unwrap();
        fixture.poll();
        assert_eq!(fixture.state, State::Degraded(expected));
        // The state of the cluster is later merged with this configuration.
        assert_eq!(fixture.follower.live.config(), before, "{text}");
    }
}

#[tokio::test]
async fn change_before_the_first_poll_is_applied() {
    let mut fixture = Fixture::start().await;
    let file = fixture.root.path().join("config.yaml");
    fs::write(file, Fixture::config(fixture.root.path(), "observe")).unwrap();
    let Follower {
        live,
        sources,
        levels,
        ..
    } = fixture.follower;
    let seen = FileVersions::now(&sources, &live.config()).await;
    fixture.follower = Follower::new(live, sources, levels, seen).unwrap();
    assert_eq!(fixture.mode(), Mode::Enforce);
    fixture.poll();
    assert_eq!((fixture.mode(), fixture.metric(IN_USE)), (Mode::Observe, 1));
}

#[tokio::test]
async fn failed_images_are_kept_at_a_reload() {
    let mut fixture = Fixture::start().await;
    let live = fixture.follower.live.clone();
    live.publish_lessons(Lessons::default());
    let before = live.current.load_full();
    fs::write(
        fixture.root.path().join("config.yaml"),
        Fixture::config(fixture.root.path(), "observe"),
    )
    .unwrap();
    fixture.poll();
    let now = live.current.load_full();
    assert!(!Arc::ptr_eq(&before, &now), "it is reloaded");
    assert!(Arc::ptr_eq(&before.lessons, &now.lessons));
}

#[tokio::test]
async fn helper_installed_later_is_used() {
    const FAULTS: &str = "credentials_source_faults{source=\"docker-configs\"}";
    let root = tempfile::tempdir().unwrap();
    let docker = root.path().join("config.json");
    let bin = root.path().join("bin");
    fs::write(&docker, r#"{"credsStore": "late"}"#).unwrap();
    fs::create_dir(&bin).unwrap();
    let config = json!({"credentials": {"dockerConfigs": [docker]}}).to_string();
    let mut fixture = Fixture::with(root, &config).await;
    let live = fixture.follower.live.clone();
    live.metrics
        .credentials
        .show(live.current.load_full().credentials.faults());
    fixture.poll();
    assert_eq!(fixture.metric(FAULTS), 1);
    let before = live.current.load_full();
    fixture.poll();
    assert!(
        Arc::ptr_eq(&before, &live.current.load_full()),
        "nothing has changed"
    );

    let helper = bin.join("docker-credential-late");
    fs::write(&helper, "").unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    fixture.poll();
    assert_eq!(
        (
            fixture.metric(FAULTS),
            live.current.load_full().credentials.faults().len()
        ),
        (0, 0)
    );
}
