use super::*;

#[test]
fn debug_shows_no_secret() {
    let credential = Credential::Basic {
        user: "user".into(),
        password: "canary".to_owned().into(),
    };
    let shown = format!("{credential:?} {:?}", credential.id());
    assert!(!shown.contains("canary"), "{shown}");
}

#[test]
fn an_id_tells_credentials_apart() {
    let basic = |user: &str, password: &str| {
        Credential::Basic {
            user: user.into(),
            password: password.to_owned().into(),
        }
        .id()
    };
    assert_eq!(basic("a", "b"), basic("a", "b"));
    let all = [
        basic("a", "b"),
        basic("ab", ""),
        basic("", "ab"),
        basic("", "b"),
        Credential::Identity("b".to_owned().into()).id(),
        Credential::Bearer("b".to_owned().into()).id(),
        CredentialId::ANONYMOUS,
    ];
    for (place, id) in all.iter().enumerate() {
        assert!(!all[..place].contains(id), "{place}");
    }
}
