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

#[tokio::test]
async fn secrets_appear_in_no_output() {
    let log = CapturedLog::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let dispatch = tracing::Dispatch::new(subscriber);
    // With a single dispatcher, tracing caches the interest of the thread that first reaches a call site, and another
    // test's thread has no subscriber.
    let _another = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let _logging = tracing::dispatcher::set_default(&dispatch);

    let api = ApiServer::start().await;
    let canary = serde_json::json!({"auths": auths(&[("a.b", "pod", "canary")])});
    api.answer("team", "good", 200, &secret("dockerconfigjson", &canary));
    api.answer(
        "team",
        "crossed",
        200,
        &secret("dockercfg", &serde_json::json!({"a.b": "canary"})),
    );
    api.answer("team", "garbage", 200, &serde_json::json!("canary"));
    api.answer("team", "failing", 500, &serde_json::json!("canary"));
    api.answer("team", "forbidden", 403, &serde_json::json!("canary"));
    api.rotate("canary-token");
    let dir = TestDir::new();
    for (name, script) in [
        ("good", r#"echo '{"Username":"user","Secret":"canary"}'"#),
        ("bad", "echo canary; echo canary >&2"),
        ("failing", "echo canary; echo canary >&2; exit 1"),
    ] {
        dir.program(&format!("bin/docker-credential-{name}"), script);
        dir.program(
            &format!("bin/plugin-{name}"),
            &PLUGIN.replace("\"1\"", "\"canary\""),
        );
    }
    dir.program("bin/plugin-bad", "echo canary; echo canary >&2");
    dir.program("bin/plugin-failing", "echo canary; echo canary >&2; exit 1");
    let helpers = serde_json::json!({
        "auths": auths(&[("a.b", "file", "canary")]),
        "credHelpers": {"a.b": "good", "a.b/x": "bad", "a.b/x/y": "failing"},
    });
    let providers: String = ["good", "bad", "failing"]
        .iter()
        .map(|name| {
            PROVIDERS
                .split_once("providers:\n")
                .unwrap()
                .1
                .replace("name: plugin", &format!("name: plugin-{name}"))
        })
        .collect();
    let header = PROVIDERS.split_once("providers:\n").unwrap().0;
    dir.write(
        "registries/a.b.toml",
        "user = \"user\"\nsecret = \"canary\"\n",
    );
    let settings = CredentialSettings {
        pull_secrets: false,
        docker_configs: vec![dir.write("config.json", &helpers.to_string())],
        directory: Some(dir.path("registries")),
        providers: ProviderSettings {
            config: Some(dir.write("p.yaml", &format!("{header}providers:\n{providers}"))),
            bin_dir: Some(dir.path("bin")),
        },
    };
    let credentials = with_secrets(&api, &settings, &dir);

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
    let presented = presented(&candidates).await;
    assert_eq!(
        presented
            .iter()
            .filter(|presented| presented.contains("canary"))
            .count(),
        5,
        "{presented:?}"
    );
    let mut debug = format!("{credentials:?} {candidates:?}");
    for candidate in &candidates {
        debug += &format!(
            "{:?} {:?}",
            candidate.credentials(&Tenant::Operator).await,
            candidate.id
        );
    }
    assert!(!debug.contains("canary"), "{debug}");

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
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
