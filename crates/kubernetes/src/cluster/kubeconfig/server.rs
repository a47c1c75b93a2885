//! From a cluster of a kubeconfig to the way to its API server.

use std::path::Path;

use http::Uri;
use kube::config::Config;
use url::Url;

use super::file::Cluster;
use crate::cluster::access::{Access, Source};
use crate::cluster::error::ConnectError;
use tolerarch_support::proxy::{Proxies, Proxy};

/// Returns the way to a cluster's API server, for nobody so far.
pub(super) fn reach(
    cluster: &Cluster,
    directory: &Path,
    proxies: &Proxies,
) -> Result<Access, ConnectError> {
    let authority = source(
        &cluster.certificate_authority_data.0,
        &cluster.certificate_authority,
        directory,
    );
    let server = address(&cluster.server)?;
    let uri: Result<Uri, _> = server.as_str().parse();
    let mut config = Config::new(uri.map_err(|_| no_address(&cluster.server))?);
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify;
    config.disable_compression = cluster.disable_compression;
    config.tls_server_name = Some(cluster.tls_server_name.clone()).filter(|name| !name.is_empty());
    let proxy = match cluster.proxy_url.as_str() {
        "" => proxies.find(&server).cloned(),
        text => Some(named_proxy(text)?),
    };
    Ok(Access {
        proxy,
        authority,
        ..Access::from(config)
    })
}

/// Returns a content by its data, which counts first, or by its path; `None` if both are empty.
pub(super) fn source(data: &[u8], path: &str, directory: &Path) -> Option<Source> {
    if !data.is_empty() {
        return Some(Source::Data(data.to_vec().into()));
    }
    (!path.is_empty()).then(|| Source::File(directory.join(path)))
}

/// Returns the URL of an API server. A host without a scheme is plain HTTP, whatever the cluster has of TLS, as in
/// client-go (`rest.DefaultServerURL`).
fn address(server: &str) -> Result<Url, ConnectError> {
    if server.is_empty() {
        return Err(ConnectError::Unusable(
            "the context's cluster has no server".to_owned(),
        ));
    }
    let has_scheme = server.contains("://");
    let text = if has_scheme {
        server.to_owned()
    } else {
        format!("http://{server}")
    };
    let mut url = Url::parse(&text).map_err(|_| no_address(server))?;
    let is_host_alone = has_scheme || url.path() == "/";
    if !matches!(url.scheme(), "http" | "https") || !is_host_alone {
        return Err(no_address(server));
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

fn no_address(server: &str) -> ConnectError {
    ConnectError::Unusable(format!(
        "the server {server:?} is no address of an API server"
    ))
}

/// Returns the proxy of a `proxy-url`. The error does not quote it, as it may hold a password.
fn named_proxy(text: &str) -> Result<Proxy, ConnectError> {
    let mut schemes = ["http://", "https://", "socks5://"].iter();
    if schemes.any(|scheme| text.starts_with(scheme))
        && let Some(proxy) = Proxy::parse(text)
    {
        return Ok(proxy);
    }
    let unknown =
        "its proxy-url is no proxy that can be used; it begins with http://, https:// or socks5://";
    Err(ConnectError::Unusable(unknown.to_owned()))
}
