use super::super::docker_keyring::lookup;
use super::*;

fn basic(user: &str, password: &str) -> Credential {
    Credential::Basic { user: user.into(), password: password.to_owned().into() }
}

fn of(json: &str) -> (Vec<Credential>, usize) {
    let read = DockerConfig::parse(json.as_bytes()).unwrap().read();
    let found = lookup(std::iter::once(((), &read.keyring)), "a.b/x");
    (found.into_iter().map(|(_, _, kept)| Credential::clone(&kept.credential)).collect(), read.malformed)
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
        (r#"{"username":"a","password":"b","auth":"dXNlcjp3b3Jk"}"#, vec![basic("user", "word")]),
        (r#"{"username":"a","password":"b","auth":"","email":"e@f","more":[1]}"#, vec![basic("a", "b")]),
        (r#"{"username":"a"}"#, vec![basic("a", "")]),
        (r#"{"identitytoken":"t"}"#, vec![Credential::Identity(token("t"))]),
        // 00000000-0000-0000-0000-000000000000: as `az acr login` writes it
        (
            r#"{"auth":"MDAwMDAwMDAtMDAwMC0wMDAwLTAwMDAtMDAwMDAwMDAwMDAwOg==","identitytoken":"t"}"#,
            vec![Credential::Identity(token("t"))],
        ),
        (r#"{"auth":"YTpi","identitytoken":"t"}"#, vec![Credential::Identity(token("t")), basic("a", "b")]),
        (r#"{"registrytoken":"t"}"#, vec![Credential::Bearer(token("t"))]),
        ("{}", vec![]),
        ("null", vec![]),
    ] {
        assert_eq!(of(&format!(r#"{{"auths":{{"a.b":{entry}}}}}"#)), (expected, 0), "{entry}");
    }
}

/// As Go's encoding/json reads them, and so kubelet and docker.
#[test]
fn names_of_members_may_be_in_any_case_and_come_twice() {
    let entry = r#"{"username":"a","password":"b"}"#;
    for config in [
        r#"{"Auths":{"a.b":{"USERNAME":"a","Password":"b"}}}"#,
        r#"{"AUTHS":{"a.b":{"Auth":"YTpi"}}}"#,
        r#"{"auth\u017f":{"a.b":{"u\u017fername":"a","password":"b"}}}"#,
        r#"{"auths":{"a.b":{"username":"c","Username":"a","password":"b","username":null}}}"#,
        &format!(r#"{{"auths":{{"a.b":null}},"auths":{{"c.d":{entry}}},"Auths":{{"a.b":{entry}}}}}"#),
        &format!(r#"{{"auths":{{"a.b":{{"auth":"%"}},"a.b":{entry}}}}}"#),
        &format!(r#"{{"auths":null,"auths":{{"a.b":{entry}}},"credsStore":1,"credHelpers":[]}}"#),
        r#"{"auths":{"a.b":{"auth":"YTpi","identitytoken":1,"registrytoken":{}}}}"#,
    ] {
        assert_eq!(of(config), (vec![basic("a", "b")], 0), "{config}");
    }
    for nothing in ["null", &format!(r#"{{"auths":{{"a.b":{entry}}},"auths":null}}"#)] {
        assert_eq!(of(nothing), (vec![], 0), "{nothing}");
    }
    let token = of(r#"{"auths":{"a.b":{"IdentityToken":"t"}}}"#);
    assert_eq!(token, (vec![Credential::Identity("t".to_owned().into())], 0));
}

#[test]
fn leaves_out_what_is_malformed_and_keeps_the_rest() {
    for auth in ["%", "dXNlcg==", "/zo="] {
        let json = format!(r#"{{"auths":{{"a.b":{{"auth":"{auth}"}},"*.b":{{"auth":"YTpi"}}}}}}"#);
        assert_eq!(of(&json), (vec![basic("a", "b")], 1), "{auth}");
    }
}

#[test]
fn reads_the_older_form() {
    let read = read_dockercfg(br#"{"https://a.b/v1/":{"auth":"YTpi","email":""}}"#).unwrap();
    assert_eq!(read.keyring.len(), 1);
    let newer = read_dockercfg(br#"{"auths":{"a.b":{"auth":"YTpi"}}}"#).unwrap();
    assert_eq!(newer.keyring.len(), 0);
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
