//! A `hosts.toml` that is not understood: no request goes to a host from which nodes may get another image.

use super::endpoints::{client_of_directory, lookup_kind};
use super::*;

#[tokio::test]
async fn unclear_hosts_toml_stops_the_lookup() {
    let remote = Remote::start().await;
    remote.repo("library/nginx").index(Some("v1"), BOTH);
    let both = format!("{:?}", Support::Index(platforms(&BOTH)));
    let by_address = format!("127.0.0.1:{}/library/nginx:v1", remote.port());
    let url = remote.url();
    let good = format!("[host.'{url}']\nca = 'ca.crt'\n");
    let server = format!("server = '{url}'\nca = 'ca.crt'\n");
    let odd = "[host.'https://127.0.0.3:1']\nauth = {username = 'x'}\n";
    for (name, host, text, image, expected) in [
        (
            "after a host that has the image",
            "docker.io",
            format!("{good}{odd}"),
            "nginx:v1",
            &*both,
        ),
        (
            "after a host that lacks the image",
            "docker.io",
            format!("{good}{odd}"),
            "nginx:v2",
            "unexpected",
        ),
        (
            "before a host that has the image",
            "docker.io",
            format!("{odd}{good}"),
            "nginx:v1",
            "unexpected",
        ),
        (
            "before a server that has the image",
            "docker.io",
            format!("{server}{odd}"),
            "nginx:v1",
            "unexpected",
        ),
        (
            "a host from which nodes do not pull",
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
            "by rules whose order decides",
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
            "of the registry itself",
            &*remote.address(),
            "ca = 'ca.crt'\nauth = 1".into(),
            &by_address,
            "unexpected",
        ),
        (
            "of the registry itself by default",
            "_default",
            "ca = 'ca.crt'\nauth = 1".into(),
            &by_address,
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
        assert_eq!(lookup_kind(&client, image).await, expected, "{name}");
    }
}

#[tokio::test]
async fn error_names_the_unclear_line_and_the_fix() {
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
    let location = format!("{}/docker.io/hosts.toml, line 3", dir.path().display());
    assert!(error.contains(&location), "{error}");
    assert!(error.contains("registries.hosts"), "{error}");
    assert!(!error.contains("canary"), "{error}");
    assert!(remote.requests().is_empty());
}

#[tokio::test]
async fn mirror_is_requested_by_the_name_that_k3s_rules_give() {
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
    let amd64 = format!("{:?}", Support::Single(platforms(&["linux/amd64"])));
    assert_eq!(lookup_kind(&client, "nginx:v1").await, amd64);
    let (tokens, others): (Vec<_>, Vec<_>) = remote
        .requests()
        .into_iter()
        .partition(|request| request.kind == Kind::Token);
    for request in others {
        assert!(
            request.path.starts_with("/v2/dockerhub/"),
            "{}",
            request.path
        );
    }
    let scope = tokens[0].query_value("scope");
    let expected = "repository:dockerhub/library/nginx:pull";
    assert_eq!(scope.as_deref(), Some(expected));
}
