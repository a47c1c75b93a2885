//! Costs of the first image of a registry for which nothing is cached, and of the images after it.

use super::*;

/// Counts the requests and connections of two servers.
struct Counter<'a> {
    remotes: [&'a Remote; 2],
    connections: usize,
}

impl Counter<'_> {
    /// Returns the requests since the last call, first those of the registry and then those of the token server, and
    /// the number of connections opened for them. A lookup sends one request after the other, so each is a round trip;
    /// a connection takes two more, for TCP and TLS 1.3.
    fn costs(&mut self) -> (String, usize) {
        let words = |remote: &Remote| {
            let words: Vec<String> = remote.requests().iter().map(word).collect();
            remote.forget_requests();
            words.join(" ")
        };
        let requests = self.remotes.map(words);
        let connections: usize = self.remotes.iter().map(|remote| remote.connections()).sum();
        let opened = connections - std::mem::replace(&mut self.connections, connections);
        (
            requests.join(" + ").trim_end_matches(" + ").to_owned(),
            opened,
        )
    }
}

fn word(request: &testregistry::Request) -> String {
    let kind = format!("{:?}", request.kind).to_lowercase();
    if request.method == "POST" {
        return format!("{kind}(post)");
    }
    kind
}

type Push = fn(&Repo, &str);

/// Requests and new connections for three images: the first one, another one of the same repository, and the first one
/// of another repository.
type Costs = [(&'static str, usize); 3];

#[tokio::test]
async fn first_image_takes_no_more_requests_than_needed() {
    let password = || Auth::bearer().credentials("user", "password");
    let index = |repo: &Repo, tag: &str| drop(repo.index(Some(tag), BOTH));
    let single = |repo: &Repo, tag: &str| drop(repo.image("linux/amd64", Some(tag)));
    let cases: [(&str, Option<Auth>, Push, Costs); 7] = [
        (
            "index",
            None,
            index,
            [("manifest", 1), ("manifest", 0), ("manifest", 0)],
        ),
        (
            "manifest with config",
            None,
            single,
            [
                ("manifest blob", 1),
                ("manifest blob", 0),
                ("manifest blob", 0),
            ],
        ),
        (
            "anonymous token",
            Some(Auth::bearer()),
            index,
            [
                ("manifest token manifest", 1),
                ("manifest", 0),
                ("token manifest", 0),
            ],
        ),
        (
            "anonymous token of another host",
            Some(Auth::bearer()),
            index,
            [
                ("manifest manifest + token", 2),
                ("manifest", 0),
                ("manifest + token", 0),
            ],
        ),
        (
            "token by POST",
            Some(password().oauth()),
            index,
            [
                ("manifest token(post) manifest", 1),
                ("manifest", 0),
                ("token(post) manifest", 0),
            ],
        ),
        (
            "token by GET",
            Some(password()),
            index,
            [
                ("manifest token(post) token manifest", 1),
                ("manifest", 0),
                ("token manifest", 0),
            ],
        ),
        (
            "basic",
            Some(Auth::basic("user", "password")),
            index,
            [("manifest manifest", 1), ("manifest", 0), ("manifest", 0)],
        ),
    ];
    for (case, auth, push, expected) in cases {
        let remote = Remote::start().await;
        let tokens = Remote::start().await;
        let auth = auth.map(|auth| match case {
            "anonymous token of another host" => auth.clone().realm(&tokens.serve_tokens(&auth)),
            _ => auth,
        });
        for name in ["team/a", "team/b"] {
            let repo = remote.repo(name);
            for tag in ["v1", "v2"] {
                push(&repo, tag);
            }
            if let Some(auth) = &auth {
                repo.require(auth.clone());
            }
        }
        let settings = || HostSettings {
            skip_verify: true,
            ..HostSettings::default()
        };
        let guard = AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        };
        let hosts = [&remote, &tokens].map(|remote| (remote.address(), settings()));
        let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
        let credential = Credential::Basic {
            user: "user".into(),
            password: "password".to_owned().into(),
        };
        let credential = (case.contains("by") || case == "basic").then_some(&credential);
        let mut counter = Counter {
            remotes: [&remote, &tokens],
            connections: 0,
        };
        let images = ["team/a:v1", "team/a:v2", "team/b:v1"];
        for (image, (requests, connections)) in images.into_iter().zip(expected) {
            let name: ImageRef = format!("{}/{image}", remote.address()).parse().unwrap();
            client.fetch(&name, credential).await.unwrap();
            let expected = (requests.to_owned(), connections);
            assert_eq!(counter.costs(), expected, "{case}, {image}");
        }
    }
}

#[tokio::test]
async fn registry_behind_a_working_mirror_is_not_dialled() {
    let remote = Remote::start().await;
    let behind = Remote::start().await;
    remote.repo("team/a").index(Some("v1"), BOTH);
    let settings = HostSettings {
        skip_verify: true,
        ..HostSettings::default()
    };
    let mirrors = vec![remote.address().parse().unwrap()];
    let mirrored = HostSettings {
        mirrors,
        ..settings.clone()
    };
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        deny: vec![],
    };
    let hosts = [(remote.address(), settings), (behind.address(), mirrored)];
    let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
    let name: ImageRef = format!("{}/team/a:v1", behind.address()).parse().unwrap();
    client.fetch(&name, None).await.unwrap();
    let mut counter = Counter {
        remotes: [&remote, &behind],
        connections: 0,
    };
    assert_eq!(counter.costs(), ("manifest".to_owned(), 1));
}
