//! Secrets appear in no output.

use super::*;
use crate::credentials::testing::with_secrets;

/// Log of this module and of the Kubernetes client, at every level.
#[derive(Clone, Default)]
struct CapturedLog(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut log = self
            .0
            .lock()
            .map_err(|_| std::io::Error::other("a writer has panicked"))?;
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl CapturedLog {
    /// Captures the log of this thread until the guard is dropped.
    fn start() -> (Self, tracing::dispatcher::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        let dispatch = tracing::Dispatch::new(subscriber);
        (log, tracing::dispatcher::set_default(&dispatch))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Serves pull secrets that contain the canary, in good, malformed and failing answers.
async fn api_with_canaries() -> ApiServer {
    let api = ApiServer::start().await;
    let canary = serde_json::json!({"auths": auths(&[("a.b", "pod", "canary")])});
    api.answer("team", "good", 200, &secret("dockerconfigjson", &canary));
    let crossed = serde_json::json!({"a.b": "canary"});
    api.answer("team", "crossed", 200, &secret("dockercfg", &crossed));
    api.answer("team", "garbage", 200, &serde_json::json!("canary"));
    api.answer("team", "failing", 500, &serde_json::json!("canary"));
    api.answer("team", "forbidden", 403, &serde_json::json!("canary"));
    api.rotate("canary-token");
    api
}

/// Writes helpers and plugins of which each prints the canary, and files that contain it.
fn settings_with_canaries(dir: &TestDir) -> CredentialSettings {
    let malformed = "echo canary; echo canary >&2";
    let failing = "echo canary; echo canary >&2; exit 1";
    let helper = r#"echo '{"Username":"user","Secret":"canary"}'"#;
    let plugin = PLUGIN.replace("\"1\"", "\"canary\"");
    let (header, provider) = PROVIDERS.split_once("providers:\n").unwrap();
    let mut providers = format!("{header}providers:\n");
    for (name, helper, plugin) in [
        ("good", helper, &*plugin),
        ("bad", malformed, malformed),
        ("failing", failing, failing),
    ] {
        dir.program(&format!("bin/docker-credential-{name}"), helper);
        dir.program(&format!("bin/plugin-{name}"), plugin);
        providers += &provider.replace("name: plugin", &format!("name: plugin-{name}"));
    }
    let docker_config = serde_json::json!({
        "auths": auths(&[("a.b", "file", "canary")]),
        "credHelpers": {"a.b": "good", "a.b/x": "bad", "a.b/x/y": "failing"},
    });
    let registry = "user = \"user\"\nsecret = \"canary\"\n";
    dir.write("registries/a.b.toml", registry);
    CredentialSettings {
        pull_secrets: false,
        docker_configs: vec![dir.write("config.json", &docker_config.to_string())],
        directory: Some(dir.path("registries")),
        providers: ProviderSettings {
            config: Some(dir.write("p.yaml", &providers)),
            bin_dir: Some(dir.path("bin")),
        },
    }
}

#[tokio::test]
async fn secrets_appear_in_no_output() {
    // With a single dispatcher, tracing caches the interest of the thread that first reaches a call site, and another
    // test's thread has no subscriber.
    let _another = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let (log, _logging) = CapturedLog::start();
    let api = api_with_canaries().await;
    let dir = TestDir::new();
    let credentials = with_secrets(&api, &settings_with_canaries(&dir), &dir);
    let names = [
        "good",
        "crossed",
        "garbage",
        "failing",
        "forbidden",
        "missing",
        "../canary",
    ];
    let keyring = credentials.keyring("team", names).await;
    let candidates = keyring.candidates(&image("a.b/x/y/z")).into_owned();

    let mut with_canary = presented(&candidates).await;
    with_canary.retain(|presented| presented.contains("canary"));
    assert_eq!(with_canary.len(), 5, "{with_canary:?}");

    let mut debug = format!("{credentials:?} {candidates:?}");
    for candidate in &candidates {
        let credentials = candidate.credentials(&Tenant::Operator).await;
        debug += &format!("{credentials:?} {:?}", candidate.id);
    }
    assert!(!debug.contains("canary"), "{debug}");

    let log = log.text();
    for expected in [
        "a credential provider plugin gives nothing",
        "a credential helper gives nothing",
        "the API server: forbidden",
    ] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    let base64 = auth("pod", "canary");
    for canary in ["canary", &base64] {
        assert!(!log.contains(canary), "{log}");
    }
}
