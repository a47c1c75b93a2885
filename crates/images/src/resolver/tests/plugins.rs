//! A credential provider plugin that is busy.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::credentials::{CredentialSettings, Credentials, ProviderSettings};
use tolerarch_kubernetes::cluster;

/// Makes a plugin that has one credential. Its runs for other hosts wait for the file `go` before they answer.
fn plugin(dir: &Path, remote: &Remote) -> Credentials {
    let address = remote.address();
    let go = dir.join("go");
    let (_, port) = address.split_once(':').unwrap();
    let script = format!(
        r#"request=$(cat)
[ -e '{}' ] && exit 1
case $request in *'"127.0.0.1:'*) ;; *) while [ ! -e '{}' ]; do sleep 0.02; done;; esac
echo '{{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Image","auth":{{"{address}":{{"username":"user","password":"word"}}}}}}'"#,
        dir.join("fails").display(),
        go.display()
    );
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n  - name: plugin\n    apiVersion: credentialprovider.kubelet.k8s.io/v1\n    matchImages: ['127.0.0.*:{port}']\n    defaultCacheDuration: 1h\n"
    );
    std::fs::write(dir.join("config.yaml"), config).unwrap();
    // Another process writes the plugin: a file that this one may have open for writing cannot be run.
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >plugin && chmod 755 plugin";
    let written = Command::new("/bin/sh")
        .args(["-c", write, "sh", &script])
        .current_dir(dir)
        .status();
    assert!(written.unwrap().success());
    let providers = ProviderSettings {
        config: Some(dir.join("config.yaml")),
        bin_dir: Some(dir.to_path_buf()),
    };
    let settings = CredentialSettings {
        providers,
        ..CredentialSettings::default()
    };
    Credentials::load(
        &settings,
        Vec::new(),
        cluster::Caller::Service,
        &tolerarch_support::environment::Environment::default(),
        None,
    )
    .unwrap()
}

/// A plugin that could not run may have a credential.
#[tokio::test]
async fn busy_plugin_is_no_refusal() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
    repo.require(Auth::basic("user", "word"));
    let dir = tempfile::tempdir().unwrap();
    let keyring = plugin(dir.path(), &test.remote).shared_keyring();

    let team = Tenant::of("team");
    // Two run, and the others take all places in the queue.
    let made_up = (2..36).map(|host| {
        image
            .as_str()
            .replace("127.0.0.1", &format!("127.0.0.{host}"))
    });
    let made_up: Vec<ImageRef> = made_up.map(|name| name.parse().unwrap()).collect();
    let mut flood: Vec<_> = made_up
        .iter()
        .map(|image| {
            let candidates = keyring.candidates(image);
            let team = team.clone();
            Box::pin(async move { candidates[0].credentials(&team).await })
        })
        .collect();
    for run in &mut flood {
        let _ = futures_util::poll!(run);
    }
    tokio::task::yield_now().await;

    let look_up = async || {
        let candidates = |image: &ImageRef| keyring.candidates(image);
        let budget = 30 * SECOND;
        outcomes(&test.resolver, team.clone(), &[&image], candidates, budget).await[0]
    };
    assert_eq!(look_up().await, Err(LookupError::Overloaded));
    assert_eq!(
        test.new_requests().len(),
        1,
        "anonymous access, the next candidate, is tried"
    );

    std::fs::write(dir.path().join("go"), "").unwrap();
    for run in flood {
        let _ = run.await;
    }
    assert_eq!(look_up().await, Ok(BOTH));
}

/// The attacker's lookup of the victim's image waits for the attacker's share of the runs.
#[tokio::test]
async fn run_queued_by_another_tenant_delays_no_pod() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
    repo.require(Auth::basic("user", "word"));
    let dir = tempfile::tempdir().unwrap();
    let keyring = plugin(dir.path(), &test.remote).shared_keyring();
    let made_up = (2..6).map(|host| {
        image
            .as_str()
            .replace("127.0.0.1", &format!("127.0.0.{host}"))
    });
    let mut images: Vec<ImageRef> = made_up.map(|name| name.parse().unwrap()).collect();
    images.push(image);
    let pod = async |name: &str, images: &[ImageRef], budget: Duration| {
        let images: Vec<&ImageRef> = images.iter().collect();
        let candidates = |image: &ImageRef| keyring.candidates(image);
        let tenant = Tenant::of(name);
        let lookup = outcomes(&test.resolver, tenant, &images, candidates, budget);
        test.within(budget, lookup).await.pop()
    };
    assert_eq!(
        pod("attacker", &images, Duration::ZERO).await,
        Some(Err(LookupError::BudgetExceeded))
    );
    assert_eq!(pod("victim", &images[4..], SECOND).await, Some(Ok(BOTH)));
    std::fs::write(dir.path().join("go"), "").unwrap();
    test.wait_until_idle().await;
}

/// The failure of a plugin does not mean that the image may no longer be read.
#[tokio::test]
async fn failed_plugin_does_not_end_an_older_answer() {
    let remote = Remote::builder().plain_http().start().await;
    let test = ResolverTest::of(remote, &[], |_, cache| {
        cache.tag = Duration::ZERO;
        cache.stale_while_revalidate = Duration::ZERO;
    });
    let (repo, image) = test.multi("app");
    repo.require(Auth::basic("user", "word"));
    let dir = tempfile::tempdir().unwrap();
    let look_up = async || {
        // Loaded again, so that no answer of the plugin is cached.
        let keyring = plugin(dir.path(), &test.remote).shared_keyring();
        let team = Tenant::of("team");
        let candidates = |image: &ImageRef| keyring.candidates(image);
        outcomes(&test.resolver, team, &[&image], candidates, 30 * SECOND).await[0]
    };
    assert_eq!(look_up().await, Ok(BOTH));
    std::fs::write(dir.path().join("fails"), "").unwrap();
    test.new_requests();
    assert_eq!(look_up().await, Ok(BOTH));
    assert_eq!(test.lookup_count("stale"), 1);
    assert_eq!(
        test.new_requests().len(),
        1,
        "anonymous access is tried next"
    );
}
