use super::*;

#[test]
fn debug_contains_no_secret() {
    let credential = Credential::Basic {
        user: "user".into(),
        password: "canary".to_owned().into(),
    };
    let debug = format!("{credential:?} {:?}", credential.id());
    assert!(!debug.contains("canary"), "{debug}");
}

#[test]
fn ids_of_different_credentials_differ() {
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
    for (index, id) in all.iter().enumerate() {
        assert!(!all[..index].contains(id), "{index}");
    }
}
