use super::*;

#[test]
fn hosts_have_their_endpoints_and_settings() {
    let plain = HostSettings {
        plain_http: true,
        ..HostSettings::default()
    };
    let with_ca = HostSettings {
        ca_file: Some("/ca.crt".into()),
        ..HostSettings::default()
    };
    let mirrors = ["plain:5000", "https://c.d/hub"]
        .map(|text| text.parse().unwrap())
        .to_vec();
    let mirrored = HostSettings {
        mirrors,
        ..HostSettings::default()
    };
    let settings = [
        ("plain:5000".into(), plain.clone()),
        ("p80:80".into(), plain.clone()),
        ("docker.io".into(), with_ca.clone()),
        ("A.b:443".into(), with_ca.clone()),
        ("mirrored".into(), mirrored),
    ];
    let hosts = Hosts::new(BTreeMap::from(settings), HostsDirectory::default());
    for (host, endpoint) in [
        ("docker.io", "https://registry-1.docker.io/"),
        ("plain:5000", "http://plain:5000/"),
        ("plain", "https://plain/"),
        ("[::1]:5000", "https://[::1]:5000/"),
    ] {
        let [registry] = &*hosts.endpoints(host) else {
            panic!("one endpoint")
        };
        assert_eq!(registry.origin.as_str(), endpoint);
    }
    assert_eq!(hosts.settings("registry-1.docker.io"), Some(&with_ca));
    assert_eq!(hosts.settings("a.b"), Some(&with_ca));
    assert_eq!(hosts.settings("a.b:5000"), None);
    assert_eq!(hosts.settings("PLAIN:5000"), Some(&plain));
    for (url, expected) in [
        ("http://plain:5000/x", true),
        ("http://p80/x", true),
        ("http://p80:81/x", false),
        ("https://p80/", false),
    ] {
        assert_eq!(
            hosts.is_plain_at(&Url::parse(url).unwrap()),
            expected,
            "{url}"
        );
    }
    let endpoints = hosts.endpoints("mirrored:443");
    let origins: Vec<&str> = endpoints
        .iter()
        .map(|endpoint| endpoint.origin.as_str())
        .collect();
    assert_eq!(
        origins,
        ["http://plain:5000/", "https://c.d/", "https://mirrored/"]
    );
}
