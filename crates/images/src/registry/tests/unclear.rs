//! A `hosts.toml` that is not understood: no host is asked from which nodes may get another image.

use super::endpoints::{ask_for, client_of_directory};
use super::*;

#[tokio::test]
async fn nobody_is_asked_where_nodes_may_find_another_image() {
    let remote = Remote::start().await;
    remote.repo("library/nginx").index(Some("v1"), BOTH);
    let both = format!("{:?}", Support::Index(platforms(&BOTH)));
    let own = format!("127.0.0.1:{}/library/nginx:v1", remote.port());
    let url = remote.url();
    let good = format!("[host.'{url}']\nca = 'ca.crt'\n");
    let server = format!("server = '{url}'\nca = 'ca.crt'\n");
    let odd = "[host.'https://127.0.0.3:1']\nauth = {username = 'x'}\n";
    for (name, host, text, image, expected) in [
        (
            "behind one that has it",
            "docker.io",
            format!("{good}{odd}"),
            "nginx:v1",
            &*both,
        ),
        (
            "behind one that has it not",
            "docker.io",
            format!("{good}{odd}"),
            "nginx:v2",
            "unexpected",
        ),
        (
            "before one that has it",
            "docker.io",
            format!("{odd}{good}"),
            "nginx:v1",
            "unexpected",
        ),
        (
            "before a server that has it",
            "docker.io",
            format!("{server}{odd}"),
            "nginx:v1",
            "unexpected",
        ),
        (
            "one that nodes do not ask for it",
            "docker.io",
            format!("{server}{odd}capabilities = ['push']"),
            "nginx:v1",
            &both,
        ),
        (
            "of a server",
            "docker.io",
            format!("{server}auth = 1"),
            "nginx:v1",
            "unexpected",
        ),
        (
            "by rules of which the order decides",
            "docker.io",
            format!("{good}rewrite = {{'^library/' = 'a/', '^library/n' = 'b/n'}}"),
            "nginx:v1",
            "unexpected",
        ),
        (
            "by rules for other images",
            "docker.io",
            format!("{good}rewrite = {{'^team/' = 'a/', '^team/n' = 'b/n'}}"),
            "nginx:v1",
            &both,
        ),
        (
            "of the file",
            "docker.io",
            format!("auth = 1\n{good}"),
            "nginx:v1",
            "unexpected",
        ),
        (
            "of itself",
            &*remote.address(),
            "ca = 'ca.crt'\nauth = 1".into(),
            &own,
            "unexpected",
        ),
        (
            "of itself by default",
            "_default",
            "ca = 'ca.crt'\nauth = 1".into(),
            &own,
            "unexpected",
        ),
        (
            "of another registry",
            "quay.io",
            "auth = 1".into(),
            "gcr.io/x:v1",
            "unreachable",
        ),
    ] {
        let (client, _dir) = client_of_directory(&remote, &[(host, &text)]);
        assert_eq!(ask_for(&client, image).await, expected, "{name}");
    }
}

#[tokio::test]
async fn the_error_has_the_place_and_the_way_out() {
    let remote = Remote::start().await;
    let text = format!(
        "server = '{}'\nca = 'ca.crt'\n[auth]\nusername = 'canary'\n",
        remote.url()
    );
    let (client, dir) = client_of_directory(&remote, &[("docker.io", &text)]);
    let error = client
        .fetch(&"nginx:v1".parse().unwrap(), None)
        .await
        .unwrap_err()
        .to_string();
    let place = format!("{}/docker.io/hosts.toml, line 3", dir.path().display());
    assert!(
        error.contains(&place) && error.contains("registries.hosts"),
        "{error}"
    );
    assert!(!error.contains("canary"), "{error}");
    assert!(remote.requests().is_empty());
}

#[tokio::test]
async fn a_mirror_of_k3s_is_asked_by_the_name_that_its_rules_give() {
    let remote = Remote::start().await;
    let auth = Auth::bearer();
    let rewritten = remote.repo("dockerhub/library/nginx");
    rewritten.require(auth.clone());
    rewritten.image("linux/amd64", Some("v1"));
    remote.repo("library/nginx").index(Some("v1"), BOTH);
    let url = remote.url();
    let text = format!(
        "server = 'https://127.0.0.3:1/v2'\n[host.'{url}/v2']\nca = 'ca.crt'\n[host.'{url}/v2'.rewrite]\n'^(.*)$' = 'dockerhub/$1'\n"
    );
    let (client, _dir) = client_of_directory(&remote, &[("docker.io", &text)]);
    let found = ask_for(&client, "nginx:v1").await;
    assert_eq!(
        found,
        format!("{:?}", Support::Single(platforms(&["linux/amd64"])))
    );
    let asked = remote.requests();
    assert!(
        asked.iter().all(
            |request| request.kind == Kind::Token || request.path.starts_with("/v2/dockerhub/")
        )
    );
    let token = asked
        .iter()
        .find(|request| request.kind == Kind::Token)
        .unwrap();
    assert_eq!(
        token.query_value("scope").as_deref(),
        Some("repository:dockerhub/library/nginx:pull")
    );
}
