use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

#[test]
fn token_servers_of_public_registries_are_built_in() {
    for (registry, host, expected) in [
        ("registry-1.docker.io", "auth.docker.io", true),
        ("registry-1.docker.io", "auth.docker.io:444", false),
        ("registry-1.docker.io", "xauth.docker.io", false),
        ("registry-1.docker.io", "gitlab.com", false),
        ("registry.ipv6.docker.com", "auth.ipv6.docker.com", true),
        ("registry.gitlab.com", "gitlab.com", true),
        ("registry.gitlab.com:5000", "gitlab.com", false),
        ("registry.digitalocean.com", "api.digitalocean.com", true),
        ("docker.elastic.co", "docker-auth.elastic.co", true),
        ("nvcr.io", "authn.nvidia.com", false),
        ("rg.fr-par.scw.cloud", "api.scaleway.com", true),
        ("rg.nl-ams.scw.cloud", "api.scaleway.com", true),
        ("rg.nl-ams.scw.cloud", "api.scaleway.com:8443", false),
        (
            "app.functions.fnc.fr-par.scw.cloud",
            "api.scaleway.com",
            false,
        ),
        ("rg.x.fr-par.scw.cloud", "api.scaleway.com", false),
        ("rg..scw.cloud", "api.scaleway.com", false),
        (
            "registry.cn-beijing.aliyuncs.com",
            "dockerauth.cn-beijing.aliyuncs.com",
            true,
        ),
        (
            "registry-vpc.cn-beijing.aliyuncs.com",
            "dockerauth-vpc.cn-beijing.aliyuncs.com",
            true,
        ),
        (
            "registry.cn-shenzhen.aliyuncs.com",
            "dockerauth.cn-hangzhou.aliyuncs.com",
            true,
        ),
        (
            "registry.cn-zhangjiakou.aliyuncs.com",
            "dockerauth-cn-zhangjiakou.aliyuncs.com",
            true,
        ),
        (
            "acme-registry.ap-southeast-1.cr.aliyuncs.com",
            "dockerauth-ee.ap-southeast-1.aliyuncs.com",
            true,
        ),
        (
            "acme-registry.ap-southeast-1.cr.aliyuncs.com",
            "dockerauth-ee.us-west-1.aliyuncs.com",
            false,
        ),
        (
            "registry.cn-beijing.aliyuncs.com",
            "dockerauth.us-west-1.aliyuncs.com",
            false,
        ),
        (
            "registry.cn-beijing.aliyuncs.com",
            "dockerauth.cn-beijing.aliyuncs.com.evil.test",
            false,
        ),
        (
            "registry.cn-beijing.aliyuncs.com",
            "dockerauth-evil.cn-beijing.aliyuncs.com",
            false,
        ),
        (
            "registry.cn-beijing.aliyuncs.com",
            "dockerauth.evil.cn-beijing.aliyuncs.com",
            false,
        ),
        (
            "registry.oss-cn-beijing.aliyuncs.com",
            "dockerauth.oss-cn-beijing.aliyuncs.com",
            false,
        ),
        (
            "evil.cn-beijing.aliyuncs.com",
            "dockerauth.cn-beijing.aliyuncs.com",
            false,
        ),
    ] {
        assert_eq!(
            is_known_token_server(registry, host),
            expected,
            "{host} of {registry}"
        );
    }
}

#[test]
fn host_is_the_same_on_any_port_unless_it_is_an_address() {
    for (registry, host, expected) in [
        (
            "https://git.example.com:5050/",
            "https://git.example.com/jwt/auth",
            true,
        ),
        (
            "https://git.example.com/",
            "https://GIT.example.com:8443/jwt/auth",
            true,
        ),
        (
            "https://git.example.com:5050/",
            "http://git.example.com/jwt/auth",
            false,
        ),
        (
            "http://git.example.com:5050/",
            "https://git.example.com/jwt/auth",
            false,
        ),
        (
            "https://git.example.com:5050/",
            "https://example.com/jwt/auth",
            false,
        ),
        ("https://10.0.0.5:5050/", "https://10.0.0.5/jwt/auth", false),
        (
            "https://[fd00::5]:5050/",
            "https://[fd00::5]/jwt/auth",
            false,
        ),
        ("https://gitlab:5050/", "https://gitlab/jwt/auth", false),
        (
            "https://localhost:5050/",
            "https://localhost/jwt/auth",
            false,
        ),
    ] {
        assert_eq!(
            is_same_host(&url(registry), &url(host)),
            expected,
            "{host} of {registry}"
        );
    }
}

#[test]
fn one_registered_domain_is_one_owner() {
    for (registry, host, expected) in [
        ("registry.git.example.com", "git.example.com", true),
        ("registry.git.example.com", "example.com", true),
        ("registry.example.com:5050", "gitlab.example.com:8443", true),
        ("docker-hub.art.example.co.uk", "art.example.co.uk", true),
        ("registry.example.co.uk", "auth.other.co.uk", false),
        ("registry.example.com", "auth.example.org", false),
        ("registry.example.com", "example.com.evil.test", false),
        ("registry.example.com", "evilexample.com", false),
        // Customers of one cloud.
        ("a.github.io", "b.github.io", false),
        ("registry.a.github.io", "auth.a.github.io", true),
        ("a.s3.amazonaws.com", "b.s3.amazonaws.com", false),
        (
            "1.dkr.ecr.us-east-1.amazonaws.com",
            "2.dkr.ecr.us-east-1.amazonaws.com",
            false,
        ),
        ("a.azurecr.io", "b.azurecr.io", false),
        ("acme.jfrog.io", "evil.jfrog.io", false),
        ("a-docker.pkg.dev", "b-docker.pkg.dev", false),
        (
            "registry.apps.a.x1.p1.openshiftapps.com",
            "evil.apps.b.x2.p1.openshiftapps.com",
            false,
        ),
        (
            "a.westeurope.cloudapp.azure.com",
            "b.westeurope.cloudapp.azure.com",
            false,
        ),
        ("registry.10.0.0.5.nip.io", "evil.192.0.2.6.nip.io", false),
        (
            "registry.10-0-0-5.sslip.io",
            "evil.192-0-2-6.sslip.io",
            false,
        ),
        (
            "registry.cn-beijing.aliyuncs.com",
            "dockerauth.us-west-1.aliyuncs.com",
            false,
        ),
        ("a.xn--55qx5d.cn", "b.xn--55qx5d.cn", false),
        // Suffixes, and unregistered names.
        ("com", "com", false),
        ("github.io", "github.io", false),
        (
            "registry.a.svc.cluster.local",
            "evil.b.svc.cluster.local",
            false,
        ),
        ("registry.corp.internal", "auth.corp.internal", false),
        ("registry", "registry", false),
        ("10.0.0.5", "10.0.0.5", false),
        ("[fd00::5]", "[fd00::5]", false),
    ] {
        let http = |host: &str| url(&format!("http://{host}/"));
        let https = |host: &str| url(&format!("https://{host}/"));
        assert_eq!(
            is_same_owner(&https(registry), &https(host)),
            expected,
            "{host} of {registry}"
        );
        assert!(
            !is_same_owner(&http(registry), &https(host)),
            "{host} of {registry}"
        );
        assert!(
            !is_same_owner(&https(registry), &http(host)),
            "{host} of {registry}"
        );
    }
}

/// The documentation's example of a provider configuration lists the names that clouds give to their customers.
#[test]
fn customers_of_one_cloud_are_different_owners() {
    let page = include_str!("../../../../../../docs/credentials.md");
    let example = page
        .split("```")
        .find(|part| part.starts_with("yaml\n# providers.yaml"))
        .unwrap();
    let patterns: Vec<&str> = example
        .split('"')
        .filter(|text| text.starts_with("*."))
        .collect();
    assert!(patterns.len() > 15, "{patterns:?}");
    for pattern in patterns {
        let registry_of = |customer: &str| {
            let host = pattern.replacen('*', customer, 1).replace('*', "region-1");
            url(&format!("https://{host}/"))
        };
        assert!(
            !is_same_owner(&registry_of("one"), &registry_of("other")),
            "{pattern}"
        );
    }
}
