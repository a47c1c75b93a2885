//! Access to the API server of a cluster in a kubeconfig.

use std::path::Path;

use http::Uri;
use kube::config::Config;
use url::Url;

use super::file::Cluster;
use crate::cluster::access::{Access, Source};
use crate::cluster::error::ConnectError;
use tolerarch_support::proxy::{Proxies, Proxy};

/// Returns the access to a cluster's API server, without credentials.
pub(super) fn access(
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
    let Ok(uri) = server.as_str().parse::<Uri>() else {
        return Err(no_address(&cluster.server));
    };
    let mut config = Config::new(uri);
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify;
    config.disable_compression = cluster.disable_compression;
    if !cluster.tls_server_name.is_empty() {
        config.tls_server_name = Some(cluster.tls_server_name.clone());
    }
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

/// Returns the source of a content: its data, which takes precedence, or its file; `None` if both are empty.
pub(super) fn source(data: &[u8], path: &str, directory: &Path) -> Option<Source> {
    if !data.is_empty() {
        Some(Source::Data(data.to_vec().into()))
    } else if !path.is_empty() {
        Some(Source::File(directory.join(path)))
    } else {
        None
    }
}

/// Returns the URL of an API server. A host without a scheme means plain HTTP, even if the cluster has settings for
/// TLS, as in client-go (`rest.DefaultServerURL`).
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
