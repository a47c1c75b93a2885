//! Judges, without configuration, which other hosts may issue a registry's tokens. Pure.

use url::{Host, Url};

use tolerarch_core::image::DOCKER_HUB_ENDPOINT;

/// Registries, by the host that is dialled, and their token servers at other hosts.
const PAIRS: [(&str, &str); 5] = [
    (DOCKER_HUB_ENDPOINT, "auth.docker.io"),
    ("registry.ipv6.docker.com", "auth.ipv6.docker.com"),
    ("registry.gitlab.com", "gitlab.com"),
    ("registry.digitalocean.com", "api.digitalocean.com"),
    ("docker.elastic.co", "docker-auth.elastic.co"),
];

/// Domains whose subdomains belong to different customers, as far as the public suffix list lacks them.
const OF_MANY_CUSTOMERS: [&str; 31] = [
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
pub(super) fn is_known(registry: &str, host: &str) -> bool {
    let labels: Vec<&str> = registry.splitn(3, '.').collect();
    let is_of_region = match *labels {
        // The label before `oss-…` is the name of a bucket, which any customer can choose.
        [_, region, _] if region.is_empty() || region.starts_with("oss-") => false,
        ["rg", _, "scw.cloud"] => host == "api.scaleway.com",
        [_, region, "cr.aliyuncs.com"] => is_of_alibaba(region, host),
        [name, region, "aliyuncs.com"] => {
            name.starts_with("registry") && is_of_alibaba(region, host)
        }
        _ => false,
    };
    is_of_region || PAIRS.contains(&(registry, host))
}

/// Returns whether `host` is a token server of this region, or of Hangzhou, for personal registries anywhere.
fn is_of_alibaba(region: &str, host: &str) -> bool {
    let is_of = |region| {
        let mut kinds = ["-", ".", "-vpc.", "-ee.", "-ee-vpc."].iter();
        kinds.any(|kind| host == format!("dockerauth{kind}{region}.aliyuncs.com"))
    };
    is_of(region) || is_of("cn-hangzhou")
}

/// Returns whether both URLs use HTTPS at one host. Unrelated servers may share an address or a name without a dot.
pub(super) fn is_same_host(registry: &Url, host: &Url) -> bool {
    domain(registry).is_some_and(|name| name.contains('.') && domain(host) == Some(name))
}

/// Returns whether both URLs use HTTPS at hosts of one owner: below one registered domain. A suffix that the public
/// suffix list lacks, like that of a private network or `svc.cluster.local`, says nothing about owners.
pub(super) fn is_same_owner(registry: &Url, host: &Url) -> bool {
    let registered = |url| domain(url).and_then(registrable);
    registered(registry).is_some_and(|domain| registered(host) == Some(domain))
}

fn domain(url: &Url) -> Option<&str> {
    match url.host()? {
        Host::Domain(name) if url.scheme() == "https" => Some(name),
        _ => None,
    }
}

/// Returns the domain that its owner has registered: `example.co.uk` for `registry.git.example.co.uk`.
fn registrable(name: &str) -> Option<&str> {
    let is_below = |domain: &str| {
        name.strip_suffix(domain)
            .is_some_and(|rest| rest.ends_with('.'))
    };
    if OF_MANY_CUSTOMERS.into_iter().any(is_below) {
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
