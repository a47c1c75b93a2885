//! Decides, without configuration, which other hosts may issue a registry's tokens. Pure.

use url::{Host, Url};

use tolerarch_core::image::DOCKER_HUB_ENDPOINT;

/// Registries, by the dialled host, and their token servers at other hosts.
const TOKEN_SERVERS: [(&str, &str); 5] = [
    (DOCKER_HUB_ENDPOINT, "auth.docker.io"),
    ("registry.ipv6.docker.com", "auth.ipv6.docker.com"),
    ("registry.gitlab.com", "gitlab.com"),
    ("registry.digitalocean.com", "api.digitalocean.com"),
    ("docker.elastic.co", "docker-auth.elastic.co"),
];

/// Domains whose subdomains belong to different customers, and which the public suffix list lacks.
const SHARED_DOMAINS: [&str; 31] = [
    "adc-e.uk",
    "aliyuncs.com",
    "amazonaws.com",
    "amazonaws.com.cn",
    "amazonaws.eu",
    "amazonwebservices.com.cn",
    "appdomain.cloud",
    "azurecr.cn",
    "azurecr.de",
    "azurecr.io",
    "azurecr.us",
    "cloudapp.azure.com",
    "cloudsmith.io",
    "container-registry.com",
    "container-registry.ovh.net",
    "gcr.io",
    "ic.gov",
    "icr.io",
    "jfrog.io",
    "myhuaweicloud.com",
    "nip.io",
    "ocir.io",
    "on.aws",
    "openshiftapps.com",
    "oraclecloud.com",
    "pkg.dev",
    "scw.cloud",
    "sgov.gov",
    "sslip.io",
    "tencentcloudcr.com",
    "vultrcr.com",
];

/// Returns whether `host` is a known token server of `registry`. Some clouds have registries for each region:
/// `rg.fr-par.scw.cloud`, `registry-vpc.cn-beijing.aliyuncs.com`, `NAME-registry.cn-beijing.cr.aliyuncs.com`.
pub(super) fn is_known_token_server(registry: &str, host: &str) -> bool {
    let labels: Vec<&str> = registry.splitn(3, '.').collect();
    let is_of_region = match *labels {
        // Before `oss-…` stands the name of a bucket, which any customer can choose.
        [_, region, _] if region.is_empty() || region.starts_with("oss-") => false,
        ["rg", _, "scw.cloud"] => host == "api.scaleway.com",
        [_, region, "cr.aliyuncs.com"] => is_of_alibaba(region, host),
        [name, region, "aliyuncs.com"] => {
            name.starts_with("registry") && is_of_alibaba(region, host)
        }
        _ => false,
    };
    is_of_region || TOKEN_SERVERS.contains(&(registry, host))
}

/// Returns whether `host` is a token server of this region, or of Hangzhou, which serves personal registries of all
/// regions.
fn is_of_alibaba(region: &str, host: &str) -> bool {
    let is_of = |region| {
        let mut kinds = ["-", ".", "-vpc.", "-ee.", "-ee-vpc."].iter();
        kinds.any(|kind| host == format!("dockerauth{kind}{region}.aliyuncs.com"))
    };
    is_of(region) || is_of("cn-hangzhou")
}

/// Returns whether both URLs use HTTPS at the same host. An IP address or a name without a dot does not count, because
/// unrelated servers may share it.
pub(super) fn is_same_host(registry: &Url, host: &Url) -> bool {
    match (https_domain(registry), https_domain(host)) {
        (Some(registry), Some(host)) => registry.contains('.') && registry == host,
        _ => false,
    }
}

/// Returns whether both URLs use HTTPS at hosts of one owner, which are below one registered domain. A suffix that the
/// public suffix list lacks, such as that of a private network or `svc.cluster.local`, says nothing about owners.
pub(super) fn is_same_owner(registry: &Url, host: &Url) -> bool {
    let registered = |url| https_domain(url).and_then(registrable);
    match (registered(registry), registered(host)) {
        (Some(registry), Some(host)) => registry == host,
        _ => false,
    }
}

fn https_domain(url: &Url) -> Option<&str> {
    match url.host()? {
        Host::Domain(name) if url.scheme() == "https" => Some(name),
        _ => None,
    }
}

/// Returns the domain that the owner of a name has registered: `example.co.uk` for `registry.git.example.co.uk`.
fn registrable(name: &str) -> Option<&str> {
    let is_below = |domain: &str| match name.strip_suffix(domain) {
        Some(subdomain) => subdomain.ends_with('.'),
        None => false,
    };
    if SHARED_DOMAINS.into_iter().any(is_below) {
        return None;
    }
    let domain = psl::domain(name.as_bytes())?;
    if !domain.suffix().is_known() {
        return None;
    }
    std::str::from_utf8(domain.as_bytes()).ok()
}

#[cfg(test)]
mod tests;
