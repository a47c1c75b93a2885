//! Access to an API server: address, trusted authorities, proxy and credentials, from which kube's client is made.

mod nulls;
mod pem;
mod plugin;
mod route;

use std::path::PathBuf;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::PROXY_AUTHORIZATION;
use http::uri::Scheme;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::{Body, ConfigExt};
use kube::config::{AuthInfo, Config};
use tokio::time::Duration;
use tower::{BoxError, ServiceBuilder};
use zeroize::Zeroizing;

use super::error::ConnectError;
use tolerarch_support::proxy::Proxy;

pub(super) use nulls::without_nulls;
pub use plugin::PluginError;
pub(super) use plugin::{Interactive, Plugin};

/// Access to an API server. Each new client reads the files and runs the program again.
#[derive(Clone)]
pub(crate) struct Access {
    pub(super) config: Config,
    /// Proxy between here and the API server.
    pub(super) proxy: Option<Proxy>,
    /// Certificates of the trusted authorities; `None` for those of the system.
    pub(super) authority: Option<Source>,
    /// Client certificate, unless the program returns one.
    pub(super) identity: Option<Identity>,
    /// Program of the kubeconfig.
    pub(super) plugin: Option<Plugin>,
}

/// A client certificate with its chain, and its key, in PEM.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) certificate: Source,
    pub(super) key: Source,
}

/// Content in a kubeconfig, or in a file that it names.
#[derive(Clone)]
pub(super) enum Source {
    Data(Zeroizing<Vec<u8>>),
    File(PathBuf),
}

/// A client, and the time at which its credentials expire.
pub(super) struct Connected {
    pub(super) client: Client,
    pub(super) expires: Option<SystemTime>,
}

/// The configuration of kube's client, and the time at which its credentials expire.
pub(super) struct ClientConfig {
    pub(super) config: Config,
    expires: Option<SystemTime>,
}

impl From<Config> for Access {
    fn from(config: Config) -> Self {
        Self {
            config,
            proxy: None,
            authority: None,
            identity: None,
            plugin: None,
        }
    }
}

impl Source {
    pub(super) fn read(&self) -> Result<Zeroizing<Vec<u8>>, ConnectError> {
        match self {
            Self::Data(data) => Ok(data.clone()),
            Self::File(file) => {
                let read = std::fs::read(file).map(Zeroizing::new);
                read.map_err(|error| ConnectError::File(file.clone(), error))
            }
        }
    }
}

impl Access {
    /// Returns whether a new client may have new credentials.
    pub(super) fn is_renewable(&self) -> bool {
        self.plugin.is_some() || self.config.auth_info.token_file.is_some()
    }

    /// Makes a client. `connect_time` is the timeout of a connection. Must be called inside a Tokio runtime; blocks
    /// while the program of the kubeconfig runs.
    pub(super) fn connect(&self, connect_time: Duration) -> Result<Connected, ConnectError> {
        let ClientConfig { config, expires } = self.settle()?;
        let client = client(&config, self.proxy.as_ref(), connect_time);
        Ok(Connected {
            client: client.map_err(ConnectError::Client)?,
            expires,
        })
    }

    /// Reads the files and runs the program.
    pub(super) fn settle(&self) -> Result<ClientConfig, ConnectError> {
        let mut config = self.config.clone();
        let mut expires = None;
        if let Some(authority) = &self.authority {
            config.root_cert = Some(roots(authority)?);
        }
        let auth = &mut config.auth_info;
        if let Some(identity) = &self.identity {
            let certificate = identity.certificate.read()?;
            let key = identity.key.read()?;
            set_certificate(auth, &certificate, &key)?;
        }
        if let Some(plugin) = &self.plugin {
            let failed = |error| ConnectError::Plugin(plugin.command.clone(), error);
            let credential = plugin.run().map_err(failed)?;
            if let Some((certificate, key)) = &credential.identity {
                set_certificate(auth, certificate.as_bytes(), key.as_bytes())?;
            }
            auth.token = credential.token.as_ref().map(|token| token.as_str().into());
            expires = credential.expires;
        }
        trim_token(auth);
        if let Some(proxy) = &self.proxy
            && let Some(authorization) = &proxy.authorization
            && config.cluster_url.scheme() == Some(&Scheme::HTTP)
        {
            // The proxy reads requests without TLS; with TLS the request for the tunnel has this header instead.
            config
                .headers
                .push((PROXY_AUTHORIZATION, authorization.clone()));
        }
        Ok(ClientConfig { config, expires })
    }
}

/// Makes a client as kube does, except for its connections.
fn client(
    config: &Config,
    proxy: Option<&Proxy>,
    connect_time: Duration,
) -> Result<Client, kube::Error> {
    let connector = route::connector(config, proxy, connect_time)?;
    let connections = legacy::Builder::new(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Reads the certificates of authorities, and skips all else, as Go's `AppendCertsFromPEM` does.
fn roots(authority: &Source) -> Result<Vec<Vec<u8>>, ConnectError> {
    let mut roots = Vec::new();
    for certificate in pem::certificates(&authority.read()?) {
        if webpki::anchor_from_trusted_cert(&certificate).is_ok() {
            roots.push(certificate.to_vec());
        }
    }
    if roots.is_empty() {
        return Err(ConnectError::Authority);
    }
    Ok(roots)
}

/// Sets the client certificate. Of each PEM text, uses only the blocks of the right kind, as Go's `X509KeyPair` does.
fn set_certificate(
    auth: &mut AuthInfo,
    certificate: &[u8],
    key: &[u8],
) -> Result<(), ConnectError> {
    let chain = pem::chain(certificate).ok_or(ConnectError::Certificate)?;
    let key = pem::key(key).ok_or(ConnectError::Key)?;
    auth.client_certificate_data = Some(BASE64.encode(chain));
    auth.client_key_data = Some(Zeroizing::new(BASE64.encode(&*key)).as_str().into());
    Ok(())
}

/// Prefers a token file to a token, as client-go does, and trims the newline that an editor leaves at its end. kube
/// does not trim: it reads the file itself if there is nothing to trim, and reads it again after the token has been
/// replaced.
fn trim_token(auth: &mut AuthInfo) {
    let Some(file) = &auth.token_file else {
        return;
    };
    let Ok(text) = std::fs::read_to_string(file).map(Zeroizing::new) else {
        return;
    };
    let token = text.trim();
    if token.is_empty() {
        // An empty file leaves the existing token.
        return;
    }
    auth.token = if token.len() < text.len() {
        Some(token.into())
    } else {
        None
    };
}
