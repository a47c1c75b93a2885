use super::*;
use proptest::prelude::*;

fn bearer(realm: &str, service: Option<&str>) -> Challenge {
    Challenge::Bearer {
        realm: realm.into(),
        service: service.map(Into::into),
    }
}

#[test]
fn parses_challenges_as_registries_write_them() {
    for (header, expected) in [
        (
            r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/nginx:pull""#,
            vec![bearer(
                "https://auth.docker.io/token",
                Some("registry.docker.io"),
            )],
        ),
        (
            r#"bearer service="s",REALM="https://a/t""#,
            vec![bearer("https://a/t", Some("s"))],
        ),
        (
            r#"Bearer realm="https://a/t""#,
            vec![bearer("https://a/t", None)],
        ),
        (
            r#"Bearer realm=https://a/t,service=s"#,
            vec![bearer("https://a/t", Some("s"))],
        ),
        (
            r#"Bearer realm="https://a/t" service="s""#,
            vec![bearer("https://a/t", Some("s"))],
        ),
        (
            r#"Bearer realm = "/token" , error="x, y=z""#,
            vec![bearer("/token", None)],
        ),
        (r#"Bearer realm="a\"b\\c""#, vec![bearer("a\"b\\c", None)]),
        (r#"Basic realm="registry""#, vec![Challenge::Basic]),
        ("Basic", vec![Challenge::Basic]),
        (
            r#"Basic realm="r", Bearer realm="https://a/t",service="s""#,
            vec![Challenge::Basic, bearer("https://a/t", Some("s"))],
        ),
        (
            r#"Bearer realm="https://a/t",Basic realm="r""#,
            vec![bearer("https://a/t", None), Challenge::Basic],
        ),
        (
            r#"Negotiate abc==, Bearer realm="https://a/t""#,
            vec![bearer("https://a/t", None)],
        ),
        (r#"Digest qop="auth",realm="d""#, vec![]),
        (r#"Bearer service="s""#, vec![]),
        (r#"Bearer realm="""#, vec![]),
        (r#"realm="https://a/t""#, vec![]),
        (
            r#"Bearer realm="https://a/t"#,
            vec![bearer("https://a/t", None)],
        ),
        ("", vec![]),
        (",, ,", vec![]),
        ("\"", vec![]),
    ] {
        assert_eq!(parse(header), expected, "{header}");
    }
}

#[test]
fn parses_all_headers_in_any_encoding() {
    let mut headers = HeaderMap::new();
    for value in [
        &b"Basic realm=r"[..],
        b"Bearer realm=\"https://a/t\",error_description=\"acc\xe8s refus\xe9\",service=\"s\"",
    ] {
        headers.append(WWW_AUTHENTICATE, value.try_into().unwrap());
    }
    assert_eq!(
        challenges(&headers),
        [Challenge::Basic, bearer("https://a/t", Some("s"))]
    );
}

proptest! {
    #[test]
    fn never_panics_on_any_header(header in "[ -~é]{0,60}") {
        parse(&header);
    }
}
