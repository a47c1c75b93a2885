//! Which other hosts a registry's tokens come from, as far as that is known without configuration. Pure.

use url::{Host, Url};

use tolerarch_core::image::DOCKER_HUB_ENDPOINT;

/// Registries whose token server is another host, as they are dialled.
const PAIRS: [(&str, &str); 5] = [
    (DOCKER_HUB_ENDPOINT, "auth.docker.io"),
    ("registry.ipv6.docker.com", "auth.ipv6.docker.com"),
    ("registry.gitlab.com", "gitlab.com"),
    ("registry.digitalocean.com", "api.digitalocean.com"),
    ("docker.elastic.co", "docker-auth.elastic.co"),
];

/// Hosts where each customer has a name below one domain, which the public suffix list does not say.
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

/// Whether the registry with this authority is known to have its tokens issued at that one.
pub(super) fn is_known(registry: &str, host: &str) -> bool {
    PAIRS.contains(&(registry, host)) || is_of_scaleway(registry, host) || is_of_alibaba(registry, host)
}

/// `rg.fr-par.scw.cloud`
fn is_of_scaleway(registry: &str, host: &str) -> bool {
    let region = registry.strip_prefix("rg.").and_then(|rest| rest.strip_suffix(".scw.cloud"));
    region.is_some_and(is_region) && host == "api.scaleway.com"
}

/// `registry.cn-beijing.aliyuncs.com`, `registry-vpc.…`, `NAME-registry.cn-beijing.cr.aliyuncs.com`: by a server of their
/// region. Hangzhou's issues tokens for personal registries of others, too.
fn is_of_alibaba(registry: &str, host: &str) -> bool {
    const DOMAIN: &str = ".aliyuncs.com";
    let (Some(registry), Some(host)) = (registry.strip_suffix(DOMAIN), host.strip_suffix(DOMAIN)) else {
        return false;
    };
    let enterprise = registry.strip_suffix(".cr").and_then(|instance| instance.split_once('.'));
    let personal = || registry.split_once('.').filter(|(name, _)| name.starts_with("registry"));
    let Some((_, region)) = enterprise.or_else(personal).filter(|(_, region)| is_region(region)) else {
        return false;
    };
    [region, "cn-hangzhou"].iter().any(|region| match host.split_once('.') {
        Some((name, of)) => {
            of == *region
                && matches!(name, "dockerauth" | "dockerauth-vpc" | "dockerauth-ee" | "dockerauth-ee-vpc")
        }
        None => host.strip_prefix("dockerauth-") == Some(region),
    })
}

/// Whether it is one label like `fr-par`. Names of buckets stand before `oss-…`, and are their customers' choice.
fn is_region(label: &str) -> bool {
    !label.is_empty() && !label.contains('.') && !label.starts_with("oss-")
}

/// Whether both are HTTPS ports of one host. An address, and a name of one label, is shared with what listens beside it.
pub(super) fn is_same_host(registry: &Url, host: &Url) -> bool {
    domain(registry).is_some_and(|name| name.contains('.') && domain(host) == Some(name))
}

/// Whether both hosts are of one owner: below one domain that somebody has registered. HTTPS only. A suffix that the public
/// suffix list does not know, like that of a private network or `svc.cluster.local`, says nothing of owners.
pub(super) fn is_same_owner(registry: &Url, host: &Url) -> bool {
    let owned = |url| domain(url).and_then(registrable);
    owned(registry).is_some_and(|own| owned(host) == Some(own))
}

fn domain(url: &Url) -> Option<&str> {
    match url.host()? {
        Host::Domain(name) if url.scheme() == "https" => Some(name),
        _ => None,
    }
}

/// `example.co.uk` of `registry.git.example.co.uk`.
fn registrable(name: &str) -> Option<&str> {
    let is_below = |domain: &str| name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    if OF_MANY_CUSTOMERS.into_iter().any(is_below) {
        return None;
    }
    let found = psl::domain(name.as_bytes()).filter(|found| found.suffix().is_known())?;
    std::str::from_utf8(found.as_bytes()).ok()
}

#[cfg(test)]
mod tests;
