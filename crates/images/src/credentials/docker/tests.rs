use super::super::pattern::lookup;
use super::*;

fn basic(user: &str, password: &str) -> Credential {
    Credential::Basic {
        user: user.into(),
        password: password.to_owned().into(),
    }
}

fn of(json: &str) -> (Vec<Credential>, usize) {
    let read = DockerConfig::parse(json.as_bytes())
        .unwrap()
        .read(CredentialCandidate::pod);
    let found = lookup(std::iter::once(&read.keyring), "a.b/x");
    let found = found
        .into_iter()
        .map(|kept| kept.held_credential().flatten().unwrap().clone());
    (found.collect(), read.malformed)
}

#[test]
fn reads_every_form_of_an_entry() {
    let token = |text: &str| Sensitive::from(text.to_owned());
    for (entry, expected) in [
        // user:word
        (r#"{"auth":"dXNlcjp3b3Jk"}"#, vec![basic("user", "word")]),
        // a:b, padded and not
        (r#"{"auth":"YTpi"}"#, vec![basic("a", "b")]),
        (r#"{"auth":"YTpiYw=="}"#, vec![basic("a", "bc")]),
        (r#"{"auth":"YTpiYw"}"#, vec![basic("a", "bc")]),
        (r#"{"auth":"YTpi\nYw==\r\n"}"#, vec![basic("a", "bc")]),
        // a:b:c splits at the first colon
        (r#"{"auth":"YTpiOmM="}"#, vec![basic("a", "b:c")]),
        (r#"{"username":"a","password":"b"}"#, vec![basic("a", "b")]),
        (
            r#"{"username":"a","password":"b","auth":"dXNlcjp3b3Jk"}"#,
            vec![basic("user", "word")],
        ),
        (
            r#"{"username":"a","password":"b","auth":"","email":"e@f","more":[1]}"#,
            vec![basic("a", "b")],
        ),
        (r#"{"username":"a"}"#, vec![basic("a", "")]),
        (
            r#"{"identitytoken":"t"}"#,
            vec![Credential::Identity(token("t"))],
        ),
        // 00000000-0000-0000-0000-000000000000: as `az acr login` writes it
        (
            r#"{"auth":"MDAwMDAwMDAtMDAwMC0wMDAwLTAwMDAtMDAwMDAwMDAwMDAwOg==","identitytoken":"t"}"#,
            vec![Credential::Identity(token("t"))],
        ),
        (
            r#"{"auth":"YTpi","identitytoken":"t"}"#,
            vec![Credential::Identity(token("t")), basic("a", "b")],
        ),
        (
            r#"{"registrytoken":"t"}"#,
            vec![Credential::Bearer(token("t"))],
        ),
        ("{}", vec![]),
        ("null", vec![]),
    ] {
        assert_eq!(
            of(&format!(r#"{{"auths":{{"a.b":{entry}}}}}"#)),
            (expected, 0),
            "{entry}"
        );
    }
}

/// Kubelet ignores members that only docker knows; null counts as missing.
#[test]
fn reads_what_docker_writes_and_ignores_the_rest() {
    let entry = r#"{"username":"a","password":"b"}"#;
    for config in [
        &format!(r#"{{"auths":{{"a.b":null,"a.b":{entry}}},"AUTHS":{{"c.d":{{}}}},"more":[1]}}"#),
        &format!(r#"{{"auths":{{"a.b":{{"auth":"%"}},"a.b":{entry}}}}}"#),
        &format!(r#"{{"auths":{{"a.b":{entry}}},"credsStore":1,"credHelpers":[]}}"#),
        &format!(r#"{{"auths":{{"a.b":{entry}}},"credsStore":null,"credHelpers":null}}"#),
        r#"{"auths":{"a.b":{"auth":"YTpi","identitytoken":1,"registrytoken":{}}}}"#,
        r#"{"auths":{"a.b":{"auth":"YTpi","username":null,"Username":"c"}}}"#,
        r#"{"auths":{"a.b":{"auth":null,"identitytoken":null,"username":"a","password":"b"}}}"#,
    ] {
        assert_eq!(of(config), (vec![basic("a", "b")], 0), "{config}");
    }
    for nothing in [
        "null",
        "{}",
        r#"{"auth":{"a.b":{"auth":"YTpi"}}}"#,
        r#"{"auths":{"A.B":{"Auths":"YTpi"}}}"#,
    ] {
        assert_eq!(of(nothing), (vec![], 0), "{nothing}");
    }
}

/// Go takes a member in any case; `kubectl` 1.13.0 wrote the first of these.
#[test]
fn members_count_in_any_case_and_the_last_of_them() {
    for config in [
        r#"{"auths":{"a.b":{"Username":"a","Password":"b","Email":"c"}}}"#,
        r#"{"Auths":{"a.b":{"Auth":"YTpi"}}}"#,
        r#"{"AUTHS":{"a.b":{"AUTH":"YTpi"}}}"#,
        r#"{"auths":{"a.b":{"auth":"x","Auth":"YTpi"}}}"#,
        r#"{"Auths":{"a.b":{"auth":"x"}},"auths":{"a.b":{"auth":"YTpi"}}}"#,
        r#"{"Auths":{"a.b":{"auth":"YTpi"}},"auths":{"c.d":{"auth":"YTpi"}}}"#,
    ] {
        assert_eq!(of(config), (vec![basic("a", "b")], 0), "{config}");
    }
    let tokens = r#"{"auths":{"a.b":{"IdentityToken":"i","REGISTRYTOKEN":"r"}}}"#;
    let token = |text: &str| Sensitive::from(text.to_owned());
    assert_eq!(
        of(tokens).0,
        [
            Credential::Bearer(token("r")),
            Credential::Identity(token("i"))
        ]
    );
    let config = DockerConfig::parse(br#"{"CredHelpers":{"a.b":"x"},"CredsStore":"y"}"#).unwrap();
    assert_eq!(
        (config.helpers["a.b"].as_str(), config.store.as_str()),
        ("x", "y")
    );
}

/// Kubelet skips a key that it cannot parse, and no host is named like the class.
#[test]
fn leaves_out_a_key_with_a_class_of_characters() {
    for key in ["[a]", "a.[b-c]", "a\\\\.b", "[a", "https://[a-c].b/v1/"] {
        let json = format!(r#"{{"auths":{{"{key}":{{"auth":"YTpj"}},"a.b":{{"auth":"YTpi"}}}}}}"#);
        let read = DockerConfig::parse(json.as_bytes())
            .unwrap()
            .read(CredentialCandidate::pod);
        assert_eq!(
            (read.entries, read.keyring.len(), read.malformed),
            (2, 1, 0),
            "{key}"
        );
        assert_eq!(of(&json).0, [basic("a", "b")], "{key}");
    }
}

#[test]
fn leaves_out_what_is_malformed_and_keeps_the_rest() {
    for auth in ["%", "dXNlcg==", "/zo="] {
        let json = format!(r#"{{"auths":{{"a.b":{{"auth":"{auth}"}},"*.b":{{"auth":"YTpi"}}}}}}"#);
        assert_eq!(of(&json), (vec![basic("a", "b")], 1), "{auth}");
    }
}

#[test]
fn a_list_is_no_object() {
    for json in [
        "[]",
        r#"{"auths":[]}"#,
        r#"{"auths":{"a.b":[]}}"#,
        r#"{"auths":{"a.b":["a","b"]}}"#,
    ] {
        assert!(DockerConfig::parse(json.as_bytes()).is_err(), "{json}");
    }
    assert!(DockerConfig::parse_older(br#"{"a.b":["a","b"]}"#).is_err());
}

#[test]
fn reads_the_older_form() {
    let keys = |json: &[u8]| {
        DockerConfig::parse_older(json)
            .unwrap()
            .read(CredentialCandidate::pod)
            .keyring
            .len()
    };
    assert_eq!(
        keys(br#"{"https://a.b/v1/":{"auth":"YTpi","email":""}}"#),
        1
    );
    assert_eq!(keys(br#"{"auths":{"a.b":{"auth":"YTpi"}}}"#), 0);
    for nothing in ["{}", r#"{"auths":null}"#, r#"{"auths":{}}"#] {
        assert_eq!(of(nothing), (vec![], 0));
    }
}

#[test]
fn never_quotes_what_it_cannot_read() {
    for json in [
        r#"{"auths":"canary"}"#,
        r#"{"auths":{"a.b":{"password":["canary"]}}}"#,
        r#"{"auths":{"a.b":"canary"}}"#,
        "canary",
        "{\"auths\":{\"a.b\":{\"auth\":\"canary",
    ] {
        let error = DockerConfig::parse(json.as_bytes()).err().unwrap();
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
    }
}
