use std::path::Path;

use super::*;
use crate::cluster::UserClient;
use crate::cluster::testing::{FakeApi, Reply};
use tolerarch_support::environment::Environment;

const V1: &str = "client.authentication.k8s.io/v1";

fn plugin(script: &str) -> Plugin {
    Plugin {
        api_version: V1.to_owned(),
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: vec![("GIVEN".to_owned(), "of-kubeconfig".to_owned())],
        interactive: Interactive::Never,
        install_hint: "brew install login\nand log in".to_owned(),
        cluster: None,
    }
}

fn output(status: &Value) -> String {
    json!({"kind": KIND, "apiVersion": V1, "status": status}).to_string()
}

/// Makes a client with a kubeconfig whose program numbers its tokens. `more` is another member of the status.
fn counted(directory: &Path, server: &str, more: &str) -> UserClient {
    let script = format!(
        r#"echo >>count; printf '{{"kind":"ExecCredential","apiVersion":"{V1}","status":{{{more}"token":"%s"}}}}' $(wc -l <count)"#
    );
    let script = format!("cd {}; {script}", directory.display());
    let exec = json!({"apiVersion": V1, "command": "sh", "args": ["-c", script], "interactiveMode": "Never"});
    let kubeconfig = json!({
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"exec": exec}}],
    });
    let file = directory.join("kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    UserClient::connect(Some(&file), None, &Environment::default()).unwrap()
}

#[test]
fn program_gets_environment_and_cluster() {
    let with_variable = plugin(&format!(
        "echo '{}' | sed \"s/INFO/$GIVEN/\"",
        output(&json!({"token": "INFO"}))
    ));
    let credential = with_variable.run().unwrap();
    assert_eq!(*credential.token.unwrap(), "of-kubeconfig");
    let script = format!(
        r#"printf '%s' "$KUBERNETES_EXEC_INFO" | grep -q '"server":"https://a.test"' && echo '{}'"#,
        output(&json!({"token": "t"}))
    );
    let mut with_cluster = plugin(&script);
    assert!(matches!(with_cluster.run(), Err(PluginError::Failed(_))));
    with_cluster.cluster = Some(json!({"server": "https://a.test"}));
    assert!(with_cluster.run().is_ok());
}

#[test]
fn error_has_the_hint_but_no_output() {
    let mut missing = plugin("");
    missing.command = "nonesuch-login".to_owned();
    let error = missing.run().err().unwrap().to_string();
    assert!(
        error.contains("cannot be run: No such file")
            && error.ends_with("\nbrew install login\nand log in")
    );
    for script in [
        "echo canary; exit 1".to_owned(),
        "echo canary".to_owned(),
        "echo '{\"canary\": ['".to_owned(),
        format!(
            "echo '{}'",
            output(&json!({"token": 7, "canary": "canary"}))
        ),
        format!("echo '{}'", output(&json!({"clientKeyData": "canary"}))),
        format!(
            "echo '{}'",
            output(&json!({"token": "canary"})).replace("/v1", "/v2")
        ),
    ] {
        let error = plugin(&script).run().err().unwrap();
        assert!(
            !format!("{error} {error:?}").contains("canary"),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn program_runs_again_when_its_token_is_refused() {
    let api = FakeApi::start(|request| match request.authorization.as_str() {
        "Bearer 1" | "Bearer 3" if request.path == "/one" => Reply::of(200, json!({})),
        "Bearer 2" => Reply::of(200, json!({})),
        _ => Reply::refused(401, "Unauthorized"),
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let client = counted(directory.path(), &api.url, "");
    assert!(client.text("/one").await.is_ok() && client.text("/one").await.is_ok());
    let runs = || {
        std::fs::read_to_string(directory.path().join("count"))
            .unwrap()
            .lines()
            .count()
    };
    assert_eq!(runs(), 1);
    assert!(client.text("/two").await.is_ok());
    assert_eq!(runs(), 2);
}

#[tokio::test]
async fn expired_token_is_not_sent() {
    let api = FakeApi::start(|request| Reply::of(200, json!(request.authorization))).await;
    let directory = tempfile::tempdir().unwrap();
    let client = counted(
        directory.path(),
        &api.url,
        r#""expirationTimestamp":"2020-01-01T00:00:00Z","#,
    );
    assert_eq!(client.text("/").await.unwrap(), "Bearer 2");
    let client = counted(
        directory.path(),
        &api.url,
        r#""expirationTimestamp":"2999-01-01T00:00:00Z","#,
    );
    assert_eq!(client.text("/").await.unwrap(), "Bearer 3");
}
