//! Private images. Their credentials and tokens are never shown.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use testregistry::{Auth, Registry};

use super::program::Program;
use crate::support::review::pod;
use crate::support::until;

const USER: &str = "canary-user";
const PASSWORD: &str = "canary-password";
const TOKEN: &str = "canary-token";

#[tokio::test]
async fn private_images_are_read_and_no_secret_is_shown() {
    let registry = Registry::start().await;
    let token_server = Registry::builder().pki(registry.pki()).start().await;
    let bearer = || Auth::bearer().credentials(USER, PASSWORD).token_text(TOKEN);
    let other_hosts_auth = bearer();
    let other_hosts_auth = other_hosts_auth
        .clone()
        .realm(&token_server.serve_tokens(&other_hosts_auth));
    let broken = bearer().oauth();
    broken.fault(Some(testregistry::Fault::body(
        format!("{TOKEN}{PASSWORD}"),
        "application/json",
    )));
    let repos = [
        ("basic", Auth::basic(USER, PASSWORD), "tolerated"),
        ("by-get", bearer(), "tolerated"),
        ("by-post", bearer().oauth(), "tolerated"),
        ("others", Auth::basic("other", "password"), "denied"),
        ("foreign", other_hosts_auth, "denied"),
        ("broken", broken, "denied"),
    ];
    for (name, auth, _) in &repos {
        let repo = registry.repo(name);
        repo.require(auth.clone());
        repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.json");
    let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let ca = directory.path().join("ca.crt");
    std::fs::write(&ca, registry.pki().ca_pem()).unwrap();
    std::fs::write(
        &file,
        json!({"auths": {registry.address(): {"auth": auth}}}).to_string(),
    )
    .unwrap();
    for level in ["info", "trace"] {
        let settings = json!({
            "credentials": {"dockerConfigs": [file]},
            "registries": {"hosts": {token_server.address(): {"caFile": ca}}},
            "log": {"level": level},
        });
        let program = Program::start(&registry, settings).await;
        let mut output = String::new();
        for (name, _, reason) in &repos {
            let verdict = program
                .review(&pod(&[&registry.repo(name).reference("v1")]))
                .await;
            assert_eq!(verdict.reason, *reason, "{name}");
            output += &format!("{verdict:?}");
        }
        output += &program.metrics().await;
        output += &program.written().await;
        assert!(
            output.contains("tokenHosts"),
            "it says what to configure: {output}"
        );
        for secret in [USER, PASSWORD, TOKEN, "canary", &auth, "Basic ", "Bearer "] {
            assert!(!output.contains(secret), "{secret} in {output}");
        }
    }
    assert_eq!(
        token_server.count(|request| request.authorization.is_some() || request.method == "POST"),
        0
    );
}

#[tokio::test]
async fn private_image_without_a_credential_is_not_looked_up() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let settings = json!({"registries": {"private": [registry.address()]}});
    let program = Program::start(&registry, settings).await;
    assert_eq!(
        program.review(&pod(&[&repo.reference("v1")])).await.reason,
        "denied"
    );
    assert_eq!(registry.connections(), 0);
}

/// A broken source must stop neither the process nor the other sources.
#[tokio::test]
async fn broken_source_stops_no_other_and_recovers() {
    let registry = Registry::start().await;
    for name in ["one", "other"] {
        let repo = registry.repo(name);
        repo.require(Auth::basic(USER, PASSWORD));
        repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    }
    let directory = tempfile::tempdir().unwrap();
    let [good, broken] = ["good.json", "broken.json"].map(|name| directory.path().join(name));
    let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let config = |name: &str| {
        json!({"auths": {format!("{}/{name}", registry.address()): {"auth": auth}}}).to_string()
    };
    std::fs::write(&good, config("one")).unwrap();
    std::fs::write(&broken, "{").unwrap();
    let settings = json!({
        "credentials": {
            "dockerConfigs": [good, broken, directory.path().join("missing.json")],
            "directory": directory.path().join("missing"),
        },
        "cache": {"negative": {"denied": "1ms"}},
    });
    let program = Program::start(&registry, settings).await;
    let serving = program.logged("serving").await;
    assert_eq!(
        (&serving["mode"], &serving["pools"]),
        (&json!("enforce"), &json!("multi-arch")),
        "{serving}"
    );
    assert_eq!(
        serving["credentials"], "dockerConfigs,directory",
        "{serving}"
    );
    assert!(
        serving["config"].as_str().unwrap().ends_with("config.yaml"),
        "{serving}"
    );
    let reason = async |name: &str| {
        program
            .review(&pod(&[&registry.repo(name).reference("v1")]))
            .await
            .reason
    };
    assert_eq!(
        (reason("one").await.as_str(), reason("other").await.as_str()),
        ("tolerated", "denied")
    );
    let faults =
        |source: &str| format!("tolerarch_credentials_source_faults{{source=\"{source}\"}}");
    assert_eq!(program.metric(&faults("docker-configs")).await, "2");
    assert_eq!(program.metric(&faults("directory")).await, "1");
    assert_eq!(program.metric(&faults("providers")).await, "0");
    let ready = program.admin.get("/readyz?verbose").await;
    assert!(
        ready.status == 200 && ready.text().contains("[-]credentials failed: "),
        "{ready:?}"
    );

    std::fs::write(&broken, config("other")).unwrap();
    std::fs::create_dir(directory.path().join("missing")).unwrap();
    until("the repaired file", async || {
        reason("other").await == "tolerated"
    })
    .await;
    assert_eq!(program.metric(&faults("docker-configs")).await, "1");
    std::fs::write(directory.path().join("missing.json"), "{}").unwrap();
    until("no fault", async || {
        program
            .admin
            .get("/readyz?verbose")
            .await
            .text()
            .contains("[+]credentials ok\n")
    })
    .await;
    let written = program.written().await;
    assert!(
        written.contains("credentials.dockerConfigs: ") && !written.contains("canary"),
        "{written}"
    );
}
