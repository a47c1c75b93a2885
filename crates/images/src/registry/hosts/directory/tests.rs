use std::fs;

use super::*;

fn parse(text: &str) -> Result<Namespace, String> {
    Namespace::parse(text, Path::new("/certs.d/a.b"))
}

fn urls(namespace: &Namespace) -> Vec<String> {
    let url = |host: &RegistryHost| {
        let Some(endpoint) = &host.endpoint else {
            return "itself".to_owned();
        };
        match &endpoint.fallback {
            Some(fallback) => format!("{} else {}", endpoint.base, fallback.base),
            None => endpoint.base.to_string(),
        }
    };
    namespace.hosts().map(url).collect()
}

#[test]
fn hosts_are_tried_in_the_order_of_the_file() {
    let text = r#"
server = "https://registry-1.docker.io"
[host."https://z.example.com"]
  capabilities = ["pull"]
[host."https://a.example.com"]
  skip_verify = true
[host."https://a.example.com".header]
  x-a = "1"
[host."https://m.example.com"]
"#;
    let namespace = parse(text).unwrap();
    assert_eq!(
        urls(&namespace),
        [
            "https://z.example.com/v2/",
            "https://a.example.com/v2/",
            "https://m.example.com/v2/",
            "https://registry-1.docker.io/v2/"
        ]
    );
    let [z, a, m] = namespace.hosts.as_slice() else {
        panic!("three")
    };
    let [at_z, at_a, at_m] = [z, a, m].map(|host| host.endpoint.as_ref().unwrap());
    assert_eq!(
        (at_z.resolves, at_z.pulls, at_a.resolves, at_m.pulls),
        (false, true, true, true)
    );
    assert!(a.tls.as_ref().unwrap().skip_verify && m.tls.is_none());
    assert_eq!(a.headers["x-a"], "1");
}

#[test]
fn servers_are_parsed_as_in_containerd() {
    for (server, expected) in [
        ("server = 'https://a.b'", "https://a.b/v2/"),
        ("server = 'https://a.b/'", "https://a.b/v2/"),
        ("server = 'a.b:5000'", "https://a.b:5000/v2/"),
        ("server = 'http://a.b'", "http://a.b/v2/"),
        ("server = 'https://a.b/v2'", "https://a.b/v2/"),
        ("server = 'https://a.b/hub'", "https://a.b/hub/v2/"),
        ("server = 'https://a.b/hub/v2/'", "https://a.b/hub/v2/"),
        (
            "server = 'https://a.b/v2/hub'\noverride_path = true",
            "https://a.b/v2/hub/",
        ),
        (
            "server = 'https://a.b'\noverride_path = true",
            "https://a.b/",
        ),
        ("server = 'https://a.b//hub//x/'", "https://a.b/hub/x/v2/"),
        (
            "server = 'https://a.b/a%2Fb%2Fv2%2F'",
            "https://a.b/a/b/v2/",
        ),
        (
            "server = 'https://a.b/x%2F..%2Fy/./'\noverride_path = true",
            "https://a.b/y/",
        ),
        (
            "server = 'https://docker.io'",
            "https://registry-1.docker.io/v2/",
        ),
        (
            "server = 'http://a.b:5000'\nskip_verify = false",
            "https://a.b:5000/v2/ else http://a.b:5000/v2/",
        ),
        (
            "server = 'http://a.b'\nca = 'x'",
            "https://a.b/v2/ else http://a.b/v2/",
        ),
        ("server = 'http://a.b:80'\nca = 'x'", "http://a.b/v2/"),
        ("server = 'https://a.b'\nca = 'x'", "https://a.b/v2/"),
        ("", "itself"),
        ("server = ''", "itself"),
    ] {
        assert_eq!(urls(&parse(server).unwrap()), [expected], "{server}");
    }
}

#[test]
fn files_of_tls_are_parsed_in_all_forms() {
    let tls = |text: &str| parse(text).unwrap().server.tls;
    let of = |authorities: &[&str], identities: &[(&str, Option<&str>)]| {
        let identity = |(file, key): &(&str, Option<&str>)| (file.into(), key.map(Into::into));
        Some(Tls {
            authorities: authorities.iter().map(Into::into).collect(),
            identities: identities.iter().map(identity).collect(),
            skip_verify: false,
        })
    };
    for (text, expected) in [
        ("ca = 'ca.crt'", of(&["/certs.d/a.b/ca.crt"], &[])),
        (
            "ca = ['/x/1.crt', '2.crt']",
            of(&["/x/1.crt", "/certs.d/a.b/2.crt"], &[]),
        ),
        ("client = '/c.pem'", of(&[], &[("/c.pem", None)])),
        (
            "client = ['/c.pem', '/d.pem']",
            of(&[], &[("/c.pem", None), ("/d.pem", None)]),
        ),
        (
            "client = [['/c.cert', '/c.key']]",
            of(&[], &[("/c.cert", Some("/c.key"))]),
        ),
        (
            "client = [['/c.pem', ''], '/d.pem']",
            of(&[], &[("/c.pem", None), ("/d.pem", None)]),
        ),
        ("skip_verify = false", of(&[], &[])),
        (
            "capabilities = ['Pull', 'RESOLVE', 'push', 'referrers']",
            None,
        ),
        ("dial_timeout = '1s'", None),
    ] {
        assert_eq!(tls(text), expected, "{text}");
    }
}

#[test]
fn location_of_an_unknown_key_is_its_line() {
    let first = "[host.'https://c.d']\ndial_timeout = '1s'\nproxy = 'http://p'\n";
    let second = "[host.'https://e.f']\nskip_verify = true\n";
    for (text, expected) in [
        (
            format!("server = 'https://a.b'\n{first}{second}"),
            [None, None, None],
        ),
        (
            format!("{first}skip-verify = true\n{second}"),
            [Some(4), None, None],
        ),
        (
            format!("{first}Skip_Verify = true\n{second}"),
            [Some(4), None, None],
        ),
        (
            format!("{first}server = 'https://x.y'\n{second}"),
            [Some(4), None, None],
        ),
        (
            format!("{first}{second}[host.'https://c.d'.auth]\nusername = 'x'"),
            [Some(6), None, None],
        ),
        (
            format!("{first}{second}[host.'https://e.f'.auth]\nusername = 'x'"),
            [None, Some(6), None],
        ),
        (
            format!("{first}{second}[[host.'https://e.f'.rewrite]]\nregex = '^/a'"),
            [None, Some(6), None],
        ),
        (
            format!("{first}{second}[host.'https://e.f'.rewrite]\n'(' = 'a'"),
            [None, Some(6), None],
        ),
        (
            format!("{first}rewrite = {{'(.*)' = 'a/$1'}}\n{second}"),
            [None, None, None],
        ),
        (
            format!("[rewrite]\n'(.*)' = 'A'\n{first}{second}"),
            [None, None, Some(1)],
        ),
        (format!("\nrewrites = 1\n{first}{second}"), [Some(2); 3]),
        (
            format!("{first}{second}[Host.'https://g.h']\n"),
            [Some(6); 3],
        ),
    ] {
        let namespace = parse(&text).unwrap();
        let locations: Vec<_> = namespace
            .hosts()
            .map(|host| host.names.of("team/app").err())
            .collect();
        let location =
            |line: Option<usize>| line.map(|line| format!("/certs.d/a.b/hosts.toml, line {line}"));
        let expected = expected.map(location);
        let expected = expected.each_ref().map(Option::as_deref);
        assert_eq!(locations, expected, "{text}");
    }
}

#[test]
fn headers_are_kept_and_never_printed() {
    let text = "[header]\nAuthorization = 'Basic canary'\nX-B = ['1', '2']\nx-b = '3'\nHost = 'evil'\nAccept-Encoding = 'gzip'\n";
    let server = parse(text).unwrap().server;
    let headers = &server.headers;
    assert_eq!(headers["authorization"], "Basic canary");
    let values: Vec<_> = headers.get_all("x-b").iter().collect();
    assert_eq!(values, ["1", "2", "3"]);
    assert_eq!(headers.len(), 4, "headers of the protocol are left out");
    let printed = format!("{server:?} {headers:?}");
    assert!(!printed.contains("canary"), "{printed}");
}

#[test]
fn errors_name_the_line_and_quote_nothing() {
    for (text, expected) in [
        ("server = ['canary']", "line 1: "),
        ("server = 'a.b'\ncapabilities = ['canary']", "line 2: "),
        ("\ncapabilities = 'canary'", "line 2: "),
        ("\n\nserver = canary", "line 3: "),
        ("ca = {a = 'canary'}", "line 1: "),
        ("client = [['canary']]", "line 1: "),
        ("client = {a = 'canary'}", "line 1: "),
        ("skip_verify = 'canary'", "line 1: "),
        ("override_path = 'canary'", "line 1: "),
        ("proxy = ['canary']", "line 1: "),
        ("header = 'Authorization: canary'", "line 1: "),
        ("header = ['Authorization', 'canary']", "line 1: "),
        ("[header]\nAuthorization = {Basic = 'canary'}", "line 2: "),
        ("[header]\nAuthorization = [['canary']]", "line 2: "),
        ("[header]\nAuthorization = Basic canary", "line 2: "),
        ("[header]\n'Basic canary' = 'x'", "line 2: "),
        (
            "[header]\nAuthorization = 'x'\nAuthorization = 'canary'",
            "line 3: ",
        ),
        (
            "[header]\nAuthorization = \"canary\\u0001\"",
            "the value of header authorization",
        ),
        ("host = 'canary'", "line 1: "),
        ("host = ['canary']", "line 1: "),
        ("[host]\na = 'canary'", "line 2: "),
        ("[host.'https://a.b']\nskip_verify = 'canary'", "line 2: "),
        ("[host.'https://a.b']\nheader = 'canary'", "line 2: "),
        (
            "[host.'https://a.b']\n[host.'ftp://a.b/canary']",
            "[host] table 2: no URL",
        ),
        ("server = 'ftp://canary'", "server: no URL"),
        ("server = 'https://u:canary@a.b'", "must not contain a user"),
        (
            "server = 'https:////u:canary@a.b'",
            "must not contain a user",
        ),
        (
            "server = 'https://\\/u:canary@a.b'",
            "must not contain a user",
        ),
        ("server = 'https:///a.b'", "no URL of a server"),
    ] {
        let error = parse(text)
            .err()
            .unwrap_or_else(|| panic!("{text:?} is parsed"));
        assert!(error.contains(expected), "{text:?}: {error}");
        assert!(!error.contains("canary"), "{text:?}: {error}");
    }
}

#[test]
fn directories_are_found_in_containerds_order() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "a.b_5000_",
        "a.b:5000",
        "c.d:5000",
        "c.d",
        "_default",
        "..data",
        "[::1]_5000_",
    ] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    fs::write(dir.path().join("file"), "").unwrap();
    let directory = HostsDirectory::load(dir.path()).unwrap();
    assert_eq!(directory.namespaces.len(), 6);
    for (host, name) in [
        ("a.b:5000", "a.b_5000_"),
        ("c.d:5000", "c.d:5000"),
        ("c.d", "c.d"),
        ("c.d:443", "_default"),
        ("e.f", "_default"),
        ("[::1]:5000", "[::1]_5000_"),
    ] {
        let namespace = directory.find(host).unwrap();
        let expected = &raw const directory.namespaces[name];
        assert!(std::ptr::eq(namespace, expected), "{host}");
    }
    for (name, host) in [
        ("a.b_5000_", "a.b:5000"),
        ("a.b:5000", "a.b:5000"),
        ("a.b_443_", "a.b"),
        ("docker.io", "docker.io"),
    ] {
        assert_eq!(host_of(name), host, "{name}");
    }
    assert!(HostsDirectory::default().find("a.b").is_none());
}

#[test]
fn certificate_files_replace_an_invalid_hosts_toml() {
    let dir = tempfile::tempdir().unwrap();
    let registry = dir.path().join("a.b");
    fs::create_dir(&registry).unwrap();
    for name in ["one.crt", "two.crt", "c.cert", "c.key", "d.cert", "README"] {
        fs::write(registry.join(name), "").unwrap();
    }
    let expected = Tls {
        authorities: vec![registry.join("one.crt"), registry.join("two.crt")],
        identities: vec![
            (registry.join("c.cert"), Some(registry.join("c.key"))),
            (registry.join("d.cert"), None),
        ],
        skip_verify: false,
    };
    for text in [
        None,
        Some(""),
        Some("server = ["),
        Some("capabilities = ['steal']"),
    ] {
        if let Some(text) = text {
            fs::write(registry.join("hosts.toml"), text).unwrap();
        }
        let directory = HostsDirectory::load(dir.path()).unwrap();
        let namespace = &directory.namespaces["a.b"];
        assert_eq!(namespace.server.tls.as_ref(), Some(&expected), "{text:?}");
        let is_faulty = text.is_some_and(|text| !text.is_empty());
        assert_eq!(namespace.fault.is_some(), is_faulty, "{text:?}");
        assert!(
            namespace.hosts.is_empty() && namespace.server.endpoint.is_none(),
            "{text:?}"
        );
    }
    fs::write(
        registry.join("hosts.toml"),
        "server = 'https://c.d'\nca = '/else/ca.crt'",
    )
    .unwrap();
    let directory = HostsDirectory::load(dir.path()).unwrap();
    assert_eq!(directory.files(), [Path::new("/else/ca.crt")]);
    assert!(HostsDirectory::load(&dir.path().join("absent")).is_err());
}
