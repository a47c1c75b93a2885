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
    let candidates = lookup(std::iter::once(&read.keyring), "a.b/x");
    let candidates = candidates
        .into_iter()
        .map(|candidate| candidate.held_credential().flatten().unwrap().clone());
    (candidates.collect(), read.malformed)
}

#[test]
fn every_form_of_an_entry_is_read() {
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

/// Kubelet ignores members that are docker's alone; null counts as missing.
#[test]
fn other_members_of_dockers_file_are_ignored() {
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
fn members_match_in_any_case_and_the_last_one_wins() {
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
fn key_with_a_character_class_is_left_out() {
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
fn malformed_entries_are_left_out() {
    for auth in ["%", "dXNlcg==", "/zo="] {
        let json = format!(r#"{{"auths":{{"a.b":{{"auth":"{auth}"}},"*.b":{{"auth":"YTpi"}}}}}}"#);
        assert_eq!(of(&json), (vec![basic("a", "b")], 1), "{auth}");
    }
}

#[test]
fn list_in_place_of_an_object_is_refused() {
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
fn older_form_is_read() {
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
fn parse_errors_quote_nothing() {
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
