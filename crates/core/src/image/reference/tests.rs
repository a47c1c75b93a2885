use super::*;
use conformance::assert_agreement;
use proptest::prelude::*;

const SHA256: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn names_are_normalised_as_by_containerd() {
    for (given, normal) in [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1.25", "docker.io/library/nginx:1.25"),
        ("grafana/grafana:11.0.0", "docker.io/grafana/grafana:11.0.0"),
        ("docker.io/nginx", "docker.io/library/nginx:latest"),
        ("docker.io/library/nginx", "docker.io/library/nginx:latest"),
        (
            "index.docker.io/library/redis:7",
            "docker.io/library/redis:7",
        ),
        ("index.docker.io/redis", "docker.io/library/redis:latest"),
        ("a/b/c:1", "docker.io/a/b/c:1"),
        ("localhost/x", "localhost/x:latest"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        (
            "registry.example.com/team/app",
            "registry.example.com/team/app:latest",
        ),
        (
            "registry.example.com:5000/app:v1",
            "registry.example.com:5000/app:v1",
        ),
        ("REGISTRY.example.com/app:V1", "registry.example.com/app:V1"),
        ("Host/app", "Host/app:latest"),
        ("LocalHost/app", "localhost/app:latest"),
        (
            "INDEX.docker.io/library/nginx",
            "docker.io/library/nginx:latest",
        ),
        ("Docker.io/nginx", "docker.io/library/nginx:latest"),
        ("Docker.io/library/nginx", "docker.io/library/nginx:latest"),
        ("my_registry.corp/app", "my_registry.corp/app:latest"),
        ("a_b.c__d/x/y:1", "a_b.c__d/x/y:1"),
        ("my_registry/app", "docker.io/my_registry/app:latest"),
        ("127.0.0.1:5000/app", "127.0.0.1:5000/app:latest"),
        ("[::1]:5000/app", "[::1]:5000/app:latest"),
        ("[2001:DB8::1]/app", "[2001:db8::1]/app:latest"),
        (
            "ghcr.io/a__b/c--d/e.f/g-h_i",
            "ghcr.io/a__b/c--d/e.f/g-h_i:latest",
        ),
        ("a.b/x:_A.b-C_9", "a.b/x:_A.b-C_9"),
        ("0xa9.0xfe.example/x", "0xa9.0xfe.example/x:latest"),
        ("1.2.3.4.example.com/x", "1.2.3.4.example.com/x:latest"),
        ("10.0.0.7/x", "10.0.0.7/x:latest"),
        (
            "a.b/x:v1@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "a.b/x@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
    ] {
        assert_eq!(
            given.parse::<ImageRef>().unwrap().as_str(),
            normal,
            "{given}"
        );
    }
}

#[test]
fn parts_of_a_reference_are_split() {
    let image: ImageRef = format!("registry.example.com:5000/team/app:v1@{SHA256}")
        .parse()
        .unwrap();
    assert_eq!(image.host(), "registry.example.com:5000");
    assert_eq!(image.repository(), "team/app");
    assert_eq!(image.target(), SHA256);
    assert_eq!(image.digest(), Some(SHA256));
    let image: ImageRef = "nginx:1".parse().unwrap();
    assert_eq!(
        (image.host(), image.repository()),
        ("docker.io", "library/nginx")
    );
    assert_eq!((image.target(), image.digest()), ("1", None));
}

#[test]
fn references_that_no_runtime_accepts_are_refused() {
    use ReferenceError::*;
    let long = "x/".repeat(130) + "y";
    let tag129 = format!("a.b/x:{}", "t".repeat(129));
    let sha = |hex: &str| format!("a.b/x@sha256:{hex}");
    for (given, error) in [
        ("", Empty),
        (&"ab".repeat(32), ImageId),
        ("a.b/Upper", Repository),
        ("Upper", Repository),
        (" a.b/x", Host),
        ("a.b/x\n", Repository),
        ("a.b/x:1\n", Tag),
        ("a.b/ x", Repository),
        ("   ", Repository),
        ("https://a.b/x:1", Host),
        ("oci://a.b/x", Host),
        ("a.b/x:", Tag),
        ("a.b/x@", Digest),
        ("a.b/x@sha256:abcd", Digest),
        (&sha(&"A".repeat(64)), Digest),
        ("a.b/x@md5:00000000000000000000000000000000", Digest),
        (&format!("a.b/x@{SHA256}@{SHA256}"), Digest),
        (&tag129, Tag),
        ("a.b/x:a/b", Tag),
        ("a.b//x", Repository),
        ("a.b/x/", Repository),
        ("a.b/", Repository),
        ("/x", Repository),
        ("a.b/x/../y", Repository),
        ("a.b/x.-y", Repository),
        ("a.b/x..y", Repository),
        ("a-.b/x", Host),
        ("a.b-/x", Host),
        ("my_registry.corp:5000/x", Host),
        ("My_registry.corp/x", Host),
        ("_a.b/x", Host),
        ("a___b.c/x", Host),
        ("a.b/x:.t", Tag),
        ("a.b/x:-t", Tag),
        ("a.b/x/%2e%2e/y", Repository),
        ("a.b/x?a=b", Repository),
        ("a.b/x:1?a=b", Tag),
        ("a.b/x:1#a", Tag),
        ("a.b/x:1\r\nX-Evil: 1", Tag),
        ("user:secret@a.b/x", Digest),
        (&format!("a.b/{long}"), TooLong),
        ("régistry.test/x", Host),
        ("a.b/x\0", Repository),
        ("a.b/x._y", Repository),
        ("a.b/x___y", Repository),
        ("a.b/-x", Repository),
        ("a..b/x", Host),
        ("-a.b/x", Host),
        ("a.b:/x", Host),
        ("a.b:5000x/x", Host),
        ("a.b:0/x", Port),
        ("a.b:65536/x", Port),
        ("a.b:0443/x", Port),
        ("127.1/x", Address),
        ("127.1:5000/x", Address),
        ("127.0.0.01/x", Address),
        ("0177.0.0.1/x", Address),
        ("0x7f.0.0.1/x", Address),
        ("0X7F.0x1/x", Address),
        ("0x7f000001:80/x", Address),
        ("0xa9.0xfe.0xa9.0xfe/x", Address),
        ("2130706433:5000/x", Address),
        ("1.2.3.4.5/x", Address),
        ("256.1.1.1/x", Address),
        ("registry.0x/x", Address),
        ("registry.1/x", Address),
        ("[0:0:0:0:0:0:0:1]/x", Address),
        ("[::0001]:5000/x", Address),
        ("[0::1]/x", Address),
        ("[::ffff:102:304]/x", Address),
        ("[1::2:0:0:0:3]/x", Address),
        ("::1/x", Host),
        ("[::1/x", Host),
        ("[]:5000/x", Host),
        ("[:]/x", Host),
        ("[1::2::3]/x", Host),
        ("[fe80::1%25eth0]/x", Host),
        ("[::ffff:1.2.3.4]/x", Host),
    ] {
        assert_eq!(given.parse::<ImageRef>(), Err(error), "{given:?}");
    }
}

#[test]
fn length_limit_counts_the_repository_of_distribution() {
    let repository = |length: usize| "x".repeat(length);
    for (host, length, fits) in [
        ("registry.example.com/", 255, true),
        ("registry.example.com/", 256, false),
        ("docker.io/library/", 255 - "library/".len(), true),
        ("docker.io/library/", 256 - "library/".len(), false),
        ("my_registry.corp/", 255 - "my_registry.corp/".len(), true),
        ("my_registry.corp/", 256 - "my_registry.corp/".len(), false),
    ] {
        let read = format!("{host}{}", repository(length)).parse::<ImageRef>();
        assert_eq!(
            read.map(|_| ()).err(),
            (!fits).then_some(ReferenceError::TooLong),
            "{host} {length}"
        );
    }
    let host = "a.".repeat(130) + "b:65535";
    assert_eq!(
        format!("{host}/x").parse::<ImageRef>(),
        Err(ReferenceError::TooLong)
    );
}

#[test]
fn hosts_are_lower_case() {
    for given in [
        "INDEX.docker.io/library/nginx",
        "Docker.io/nginx",
        "LOCALHOST/x",
        "GHCR.io/x",
        "My.Host:5000/x",
    ] {
        let image: ImageRef = given.parse().unwrap();
        assert_eq!(image.as_str().parse(), Ok(image.clone()), "{given}");
        assert_eq!(image.host(), image.host().to_ascii_lowercase(), "{given}");
    }
}

proptest! {
    #[test]
    fn normal_form_parses_to_itself(
        given in "([a-zA-Z0-9-]{1,8}(\\.[a-z]{1,5})?(:[0-9]{1,5})?/)?[a-z0-9._/-]{1,20}(:[a-zA-Z0-9._-]{1,10})?"
    ) {
        if let Ok(image) = given.parse::<ImageRef>() {
            let again: ImageRef = image.as_str().parse().unwrap();
            prop_assert_eq!(&again, &image);
            prop_assert_eq!(format!("{}/{}:{}", image.host(), image.repository(), image.target()), image.to_string());
        }
    }

    #[test]
    fn never_panics_on_any_text(given in "\\PC*") {
        let _ = given.parse::<ImageRef>();
    }

    #[test]
    fn url_keeps_the_host_as_written(
        given in prop_oneof![
            "((0[xX])?[0-9a-fA-F]{0,9}\\.){0,4}(0[xX])?[0-9a-fA-F]{0,10}(:[0-9]{1,5})?",
            "\\[[0-9a-fA-F:]{2,39}\\](:[0-9]{1,5})?",
            "([a-zA-Z0-9_-]{1,6}\\.){0,3}([a-zA-Z0-9_-]{1,6}|[0-9]{1,3})(:[0-9]{1,5})?",
            "(xn--[a-z0-9-]{1,8}|[a-z]{1,3})\\.(xn--[a-z0-9-]{1,8}|[a-z]{1,3})",
            any::<u128>().prop_map(|bits| format!("[{}]", Ipv6Addr::from(bits))),
            any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).to_string()),
        ]
    ) {
        if let Ok(image) = format!("{given}/a").parse::<ImageRef>() {
            let host = image.host();
            let name = host.rsplit_once(':').filter(|_| !host.ends_with(']')).map_or(host, |(name, _)| name);
            match url::Url::parse(&format!("https://{host}/v2/")) {
                Ok(url) => prop_assert_eq!(url.host_str(), Some(&*name.to_ascii_lowercase())),
                // No request is sent to a host that is invalid by IDNA.
                Err(error) => prop_assert!(host.contains("xn--"), "{}: {}", host, error),
            }
        }
    }

    #[test]
    fn reference_never_has_special_characters_of_urls(given in "[a-z.:/@?#%&=\\\\ \r\n\0-]{1,40}") {
        if let Ok(image) = given.parse::<ImageRef>() {
            prop_assert!(!image.as_str().contains(['?', '#', '%', '&', '=', '\\', ' ', '\r', '\n', '\0']));
            prop_assert!(!image.repository().contains(".."));
        }
    }
}

/// A case of `e2e/conformance`.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    image: String,
    /// The reference that containerd requests from a registry, if it accepts the name.
    #[serde(rename = "asked")]
    requested: Option<String>,
    /// Whether Go's resolver takes the host for neither an address nor a name.
    #[serde(default)]
    nowhere: bool,
}

#[test]
fn agrees_with_upstream() {
    let cases = conformance::cases("references").into_iter();
    assert_agreement(cases.map(|case: Case| {
        let parsed = case.image.parse::<ImageRef>().ok();
        let parsed = parsed.map(|image| image.to_string());
        // Nodes do not connect to a host of digits and dots that is no address.
        let is_reachable = |requested: &String| {
            let host = requested.split('/').next().unwrap_or_default();
            !case.nowhere || is_host_of_letters(host)
        };
        let requested = case.requested.filter(is_reachable);
        let expected = requested.and_then(|requested| accepted(&requested));
        (case.image, parsed, expected)
    }));
}

fn is_host_of_letters(host: &str) -> bool {
    host.bytes().any(|b| b.is_ascii_alphabetic())
}

/// The reference for one that containerd requests, if it is accepted here. The differences: hosts are lower-case, invalid
/// ports are refused, addresses have one spelling (and none for IPv4 in IPv6), no name ends in a number, and only
/// registered digests count.
fn accepted(requested: &str) -> Option<String> {
    let (host, rest) = requested.split_once('/')?;
    let (name, port) = host
        .rsplit_once(':')
        .filter(|_| !host.ends_with(']'))
        .unwrap_or((host, "443"));
    let is_port = !port.starts_with('0') && port.parse::<u16>().is_ok();
    let spelled = |name: &str| {
        let is_mapped = name.starts_with("[::ffff:") && name.matches(':').count() == 4;
        !is_mapped && url::Host::parse(name).is_ok_and(|host| host.to_string() == name)
    };
    let is_usual = spelled(&name.to_ascii_lowercase());
    let folds = has_dot_or_colon(host) || host.eq_ignore_ascii_case(LOCALHOST);
    let host = if folds {
        host.to_ascii_lowercase()
    } else {
        host.to_owned()
    };
    let host = if host == DOCKER_HUB_INDEX {
        DOCKER_HUB.to_owned()
    } else {
        host
    };
    let library = if host == DOCKER_HUB && !rest.contains('/') {
        "library/"
    } else {
        ""
    };
    let rest = format!("{library}{rest}");
    let fits = host.len() <= MAX_HOST && is_port && is_usual && !rest.contains("@sha384:");
    fits.then(|| format!("{host}/{rest}"))
}
