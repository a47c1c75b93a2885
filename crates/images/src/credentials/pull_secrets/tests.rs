use serde_json::json;

use super::super::credential::Credential;
use super::super::testing::secret;
use super::*;
use tolerarch_kubernetes::cluster::testing::ApiServer;
use tolerarch_support::testing::StoppedClock;

/// Longer than any test takes, on a machine of any speed.
const LONG: Duration = Duration::from_secs(60);

fn config(password: &str) -> serde_json::Value {
    json!({"auths": {"a.b": {"username": "user", "password": password}}})
}

/// Reads the passwords of these secrets.
async fn passwords(secrets: &Arc<PullSecrets>, names: &[&str]) -> Vec<String> {
    let read = secrets.read("team", names.iter().copied()).await;
    let credentials = read.iter().flat_map(|secret| secret.keyring.iter());
    credentials
        .map(
            |(_, candidate)| match candidate.held_credential().flatten().unwrap() {
                Credential::Basic { password, .. } => password.reveal().to_owned(),
                other => format!("{other:?}"),
            },
        )
        .collect()
}

#[tokio::test]
async fn unusable_secret_leaves_the_others_in_use() {
    let api = ApiServer::start().await;
    let good = secret("dockerconfigjson", &config("good"));
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut changed = good.clone();
        change(&mut changed);
        changed
    };
    for (name, status, body) in [
        ("good", 200, good.clone()),
        (
            "older",
            200,
            secret(
                "dockercfg",
                &json!({"a.b": {"username": "user", "password": "older"}}),
            ),
        ),
        ("forbidden", 403, json!({})),
        ("garbage", 200, json!("canary")),
        ("opaque", 200, with(&|it| it["type"] = json!("Opaque"))),
        ("untyped", 200, with(&|it| it["type"] = json!(null))),
        // Type and key belong together.
        (
            "crossed",
            200,
            with(&|it| it["type"] = json!("kubernetes.io/dockercfg")),
        ),
        ("empty", 200, with(&|it| it["data"] = json!(null))),
        (
            "not-base64",
            200,
            with(&|it| it["data"][".dockerconfigjson"] = json!("canary!")),
        ),
        (
            "not-json",
            200,
            with(&|it| it["data"][".dockerconfigjson"] = json!("Y2FuYXJ5")),
        ),
        ("list", 200, json!([1])),
        (
            "half",
            200,
            secret(
                "dockerconfigjson",
                &json!({"auths": {"c.d": {"auth": "canary"}, "a.b": {"username": "user", "password": "half"}}}),
            ),
        ),
    ] {
        api.answer("team", name, status, &body);
    }
    let secrets = PullSecrets::new(api.cluster(), LONG);
    let bad = [
        "forbidden",
        "garbage",
        "opaque",
        "untyped",
        "crossed",
        "empty",
        "not-base64",
        "not-json",
        "list",
    ];
    for name in bad {
        assert!(passwords(&secrets, &[name]).await.is_empty(), "{name}");
    }
    let all: Vec<_> = bad
        .into_iter()
        .chain(["good", "older", "", "missing", "../good", "half"])
        .collect();
    assert_eq!(passwords(&secrets, &all).await, ["good", "older", "half"]);
}

#[tokio::test]
async fn failures_are_cached_for_less_time_than_secrets() {
    let api = ApiServer::start().await;
    api.answer(
        "team",
        "there",
        200,
        &secret("dockerconfigjson", &config("old")),
    );
    let secrets = PullSecrets::new(api.cluster(), LONG);
    // Connections do not work with paused time, so it is paused only now.
    assert_eq!(passwords(&secrets, &["there", "missing"]).await, ["old"]);
    tokio::time::pause();
    tokio::time::advance(FAILURE_LIFE / 2).await;
    assert_eq!(passwords(&secrets, &["there", "missing"]).await, ["old"]);
    assert_eq!(api.requests(), 2);
    tokio::time::advance(FAILURE_LIFE).await;
    tokio::time::resume();
    assert_eq!(passwords(&secrets, &["there", "missing"]).await, ["old"]);
    assert_eq!(api.requests(), 3, "only the missing one");
}

async fn pass(time: Duration) {
    // Connections do not work with paused time.
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Waits until a secret gives these passwords: the read in the background takes some time.
async fn until(secrets: &Arc<PullSecrets>, name: &str, expected: &[&str]) {
    while passwords(secrets, &[name]).await != expected {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn expired_secret_is_served_during_its_refresh() {
    let api = ApiServer::start().await;
    api.answer(
        "team",
        "there",
        200,
        &secret("dockerconfigjson", &config("old")),
    );
    let secrets = PullSecrets::new(api.cluster(), LONG);
    assert_eq!(passwords(&secrets, &["there"]).await, ["old"]);
    api.answer(
        "team",
        "there",
        200,
        &secret("dockerconfigjson", &config("new")),
    );
    assert_eq!(passwords(&secrets, &["there"]).await, ["old"]);
    pass(FRESH).await;
    assert_eq!(
        passwords(&secrets, &["there"]).await,
        ["old"],
        "no caller waits"
    );
    until(&secrets, "there", &["new"]).await;
    assert_eq!(api.requests(), 2);
    // A failure that says nothing about the secret changes nothing for a while.
    api.answer("team", "there", 500, &json!(""));
    pass(FRESH).await;
    for requests in 3..6 {
        assert_eq!(passwords(&secrets, &["there"]).await, ["new"]);
        while api.requests() < requests {
            tokio::task::yield_now().await;
        }
        while secrets
            .cached
            .get(&name_of("there"))
            .is_some_and(|content| content.due <= Instant::now())
        {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            passwords(&secrets, &["there"]).await,
            ["new"],
            "read a moment ago"
        );
        pass(FAILURE_LIFE).await;
    }
    assert_eq!(api.requests(), 5);
    pass(STALE - FAILURE_LIFE * 3).await;
    assert!(passwords(&secrets, &["there"]).await.is_empty());
}

/// The next read takes note if a tenant deletes a secret, or removes the right to read it.
#[tokio::test]
async fn deleted_or_forbidden_secret_gives_no_credential() {
    for status in [404, 403, 401] {
        let api = ApiServer::start().await;
        api.answer(
            "team",
            "there",
            200,
            &secret("dockerconfigjson", &config("old")),
        );
        let secrets = PullSecrets::new(api.cluster(), LONG);
        assert_eq!(passwords(&secrets, &["there"]).await, ["old"]);
        api.answer("team", "there", status, &json!(""));
        pass(FRESH).await;
        until(&secrets, "there", &[]).await;
    }
}

#[tokio::test]
async fn first_read_is_awaited_for_a_limited_time() {
    let api = ApiServer::start().await;
    api.answer("team", "hanging", 0, &json!(""));
    api.answer(
        "team",
        "there",
        200,
        &secret("dockerconfigjson", &config("word")),
    );
    let secrets = PullSecrets::new(api.cluster(), WAIT);
    let _clock = StoppedClock::stop();
    let late = async {
        while secrets.cached.get(&name_of("there")).is_none() {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(2 * WAIT).await;
    };
    let (read, ()) = tokio::join!(passwords(&secrets, &["hanging", "there"]), late);
    assert_eq!(read, ["word"]);
    assert!(
        !secrets.logged.lock().insert(&SecretFault::Late.to_string()),
        "it is logged"
    );
}

fn name_of(name: &str) -> Name {
    Name {
        namespace: "team".into(),
        name: name.into(),
    }
}

#[tokio::test]
async fn concurrent_pods_share_one_read() {
    let api = ApiServer::start().await;
    api.answer(
        "team",
        "there",
        200,
        &secret("dockerconfigjson", &config("word")),
    );
    let secrets = PullSecrets::new(api.cluster(), LONG);
    let all = join_all((0..50).map(|_| passwords(&secrets, &["there", "there"]))).await;
    assert!(all.iter().all(|read| read == &["word"]));
    assert_eq!(api.requests(), 1);
}

#[tokio::test]
async fn hanging_api_server_is_awaited_once() {
    let api = ApiServer::start().await;
    api.answer("team", "hanging", 0, &json!(""));
    let secrets = PullSecrets::new(api.impatient(Duration::from_secs(1)), LONG);
    let _clock = StoppedClock::stop();
    let late = async {
        while api.requests() == 0 {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(Duration::from_secs(2)).await;
    };
    assert!(
        tokio::join!(passwords(&secrets, &["hanging"]), late)
            .0
            .is_empty()
    );
    assert!(passwords(&secrets, &["hanging"]).await.is_empty());
    assert_eq!(api.requests(), 1);
}

#[tokio::test]
async fn unused_secret_has_a_reason_without_content() {
    let api = ApiServer::start().await;
    let entry =
        |entry: &serde_json::Value| secret("dockerconfigjson", &json!({"auths": {"a.b": entry}}));
    let credential = json!({"username": "canary", "password": "canary"});
    let text = |text: &str| {
        let mut secret = entry(&credential);
        secret["data"][".dockerconfigjson"] = json!(BASE64.encode(text));
        secret
    };
    let nothing = "its entries have no credential, or no valid registry";
    for (body, expected) in [
        (entry(&credential), None),
        (
            entry(&json!({"Username": "canary", "Password": "canary"})),
            None,
        ),
        (
            secret(
                "dockerconfigjson",
                &json!({"auths": {"canary.d": credential}}),
            ),
            Some("has no entry for a.b"),
        ),
        (
            secret("dockerconfigjson", &json!({})),
            Some("it has no entry for any registry"),
        ),
        (entry(&json!({"email": "canary"})), Some(nothing)),
        (
            secret(
                "dockerconfigjson",
                &json!({"auths": {"[canary": credential}}),
            ),
            Some(nothing),
        ),
        (
            entry(&json!({"auth": "canary"})),
            Some("an auth is not base64(user:password)"),
        ),
        (
            text("canary"),
            Some("its data is not JSON of docker's form"),
        ),
        (
            text("\u{feff}{}"),
            Some("its data is not JSON of docker's form"),
        ),
        (
            json!({"type": "Opaque", "data": {"canary": ""}}),
            Some("it is of no type that holds registry credentials"),
        ),
        (
            json!({"type": "kubernetes.io/dockercfg"}),
            Some("it lacks the key that belongs to its type"),
        ),
    ] {
        api.answer("team", "pull", 200, &body);
        let secrets = PullSecrets::new(api.cluster(), LONG);
        let read = secrets.read("team", ["pull"].into_iter()).await;
        let unused = read[0].unused(&"a.b/x".parse().unwrap());
        assert_eq!(unused.is_some(), expected.is_some(), "{body}: {unused:?}");
        let unused = unused.unwrap_or_default();
        assert!(unused.ends_with(expected.unwrap_or_default()), "{unused}");
        assert!(
            !unused.contains("canary") && (unused.is_empty() || unused.contains("\"pull\"")),
            "{unused}"
        );
    }
    let secrets = PullSecrets::new(api.cluster(), LONG);
    let missing =
        secrets.read("team", ["missing"].into_iter()).await[0].unused(&"a.b/x".parse().unwrap());
    assert!(
        missing
            .unwrap()
            .starts_with("pull secret \"missing\" gives no credential: the API server: ")
    );
}

/// Each wildcard is matched against each image.
#[tokio::test]
async fn wildcards_of_a_pod_are_limited() {
    let api = ApiServer::start().await;
    let globs = |name: &str, count: usize, length: usize| {
        let entry = json!({"username": "user", "password": "word"});
        let host = |index: usize| format!("*.{index:02}{}", name[..1].repeat(length - 4));
        let auths: serde_json::Map<_, _> = (0..count)
            .map(|index| (host(index), entry.clone()))
            .collect();
        secret("dockerconfigjson", &json!({"auths": auths}))
    };
    for name in ["first", "second", "third"] {
        api.answer("team", name, 200, &globs(name, GLOBS_OF_POD / 2, GLOB));
    }
    api.answer("team", "long", 200, &globs("long", 1, GLOB + 1));
    let secrets = PullSecrets::new(api.cluster(), LONG);
    let read = secrets
        .read("team", ["long", "first", "second", "third"].into_iter())
        .await;
    let usable = read.iter().filter_map(|secret| secret.keyring.first());
    let names: Vec<&str> = usable.map(|(key, _)| &key.glob().unwrap()[4..5]).collect();
    assert_eq!(names, ["f", "s"], "the first two");
    let third = read[3].unused(&"a.b/x".parse().unwrap()).unwrap();
    assert!(
        third.ends_with("more than 256 entries, or more than 16 with wildcards"),
        "{third}"
    );
}

/// Makes a secret for `a.b` with this many entries, and with a key and a password of these lengths.
fn sized(entries: usize, key: usize, word: usize) -> serde_json::Value {
    let entry = |word: &str| json!({"username": "user", "password": word});
    let mut auths: serde_json::Map<_, _> = (2..entries)
        .map(|index| (format!("a.b?{index}"), entry("word")))
        .collect();
    auths.insert("a.b".into(), entry(&"x".repeat(word)));
    auths.insert(format!("a.b/{}", "k".repeat(key - 4)), entry("word"));
    secret("dockerconfigjson", &json!({"auths": auths}))
}

#[tokio::test]
async fn too_large_secret_gives_no_credential() {
    let api = ApiServer::start().await;
    let padded = |bytes: usize| {
        let config = json!({"auths": {"a.b": {"username": "user", "password": "word"}}, "more": "x".repeat(bytes)});
        secret("dockerconfigjson", &config)
    };
    let entries = ENTRIES;
    let key = KEY;
    let word = WORD;
    let data = DATA;
    for (name, body, is_good) in [
        ("most", sized(entries, key, word), true),
        ("entries", sized(entries + 1, key, word), false),
        ("key", sized(entries, key + 1, word), false),
        ("word", sized(entries, key, word + 1), false),
        ("data", padded(data - 100), true),
        ("larger", padded(data), false),
    ] {
        api.answer("team", name, 200, &body);
        let secrets = PullSecrets::new(api.cluster(), LONG);
        assert_eq!(
            !passwords(&secrets, &[name]).await.is_empty(),
            is_good,
            "{name}"
        );
    }
}

/// The limit holds however many secrets the tenants have.
#[tokio::test]
async fn cached_secrets_are_limited_by_bytes() {
    let api = ApiServer::start().await;
    let secrets = PullSecrets::new(api.cluster(), LONG);
    let entry = json!({"username": "user", "password": "x".repeat(WORD)});
    let auths: serde_json::Map<_, _> = (0..7)
        .map(|index| (format!("a.b/{index}"), entry.clone()))
        .collect();
    let large = secret("dockerconfigjson", &json!({"auths": auths}));
    let content = || {
        let object = serde_json::from_value(large.clone()).unwrap();
        let keyring = content(object).unwrap().keyring.into();
        let now = Instant::now();
        CachedSecret {
            keyring,
            fault: None,
            due: now + FRESH,
            end: now + STALE,
        }
    };
    let name = |index: usize| name_of(&format!("s{index}"));
    let one = weight(&name(0), &(content(), Instant::now()));
    let all = usize::try_from(2 * CACHED / one).unwrap();
    let rings: Vec<_> = (0..all)
        .map(|index| {
            let content = content();
            let ring = Arc::downgrade(&content.keyring);
            secrets.cached.put(name(index), content, FRESH);
            ring
        })
        .collect();
    let left = rings.iter().filter(|ring| ring.strong_count() > 0).count() as u64;
    assert!(left > 0 && left * one <= CACHED, "{left} of {one} bytes");
}

#[tokio::test]
async fn entries_of_a_pod_are_limited() {
    let api = ApiServer::start().await;
    let names: Vec<String> = (0..16).map(|index| format!("s{index}")).collect();
    for name in &names {
        api.answer("team", name, 200, &sized(ENTRIES, 10, 4));
    }
    let secrets = PullSecrets::new(api.cluster(), LONG);
    let read = secrets.read("team", names.iter().map(String::as_str)).await;
    let usable = read.iter().filter(|secret| !secret.keyring.is_empty());
    assert_eq!(usable.count(), ENTRIES_OF_POD / ENTRIES);
}
