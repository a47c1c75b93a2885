//! Kinds of registries that differ in the requests that a lookup takes.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use testregistry::{Auth, Pki, Registry};

use super::wire::Wire;
use crate::ROUND_TRIP;
use crate::support::Result;

/// A kind of registry, or of image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Anonymous,
    TokenElsewhere,
    Single,
    Token,
    PasswordByPost,
    PasswordByGet,
    Basic,
    Mirror,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Anonymous,
        Self::TokenElsewhere,
        Self::Single,
        Self::Token,
        Self::PasswordByPost,
        Self::PasswordByGet,
        Self::Basic,
        Self::Mirror,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Anonymous => "no authentication, index",
            Self::TokenElsewhere => "anonymous token of another host (Docker Hub)",
            Self::Single => "no authentication, manifest and config",
            Self::Token => "anonymous token of the same host",
            Self::PasswordByPost => "token for a password, by POST",
            Self::PasswordByGet => "token for a password, by GET only",
            Self::Basic => "password, basic authentication",
            Self::Mirror => "mirror without authentication",
        }
    }

    fn auth(self, token_server: Option<&Wire>, registry: &Wire) -> Option<Auth> {
        let realm = format!("https://{}/token", token_server.unwrap_or(registry).address);
        let bearer = || Auth::bearer().realm(&realm);
        match self {
            Self::Anonymous | Self::Single | Self::Mirror => None,
            Self::Token | Self::TokenElsewhere => Some(bearer()),
            Self::PasswordByPost => Some(bearer().credentials("user", "password").oauth()),
            Self::PasswordByGet => Some(bearer().credentials("user", "password")),
            Self::Basic => Some(Auth::basic("user", "password")),
        }
    }

    /// Starts a registry of this kind with this number of images.
    pub(crate) async fn start(
        self,
        pki: &Arc<Pki>,
        dir: &Path,
        images: usize,
    ) -> Result<Registries> {
        let start = async || {
            let registry = Registry::builder().pki(pki.clone()).start().await;
            let wire = Wire::lay(registry.socket_addr(), ROUND_TRIP).await?;
            Result::Ok((registry, wire))
        };
        let (registry, wire) = start().await?;
        let tokens = if self == Self::TokenElsewhere {
            Some(start().await?)
        } else {
            None
        };
        let auth = self.auth(tokens.as_ref().map(|(_, wire)| wire), &wire);
        if let (Some((server, _)), Some(auth)) = (&tokens, &auth) {
            server.serve_tokens(auth);
        }
        let host = wire.address.to_string();
        let named = if self == Self::Mirror {
            "docker.io"
        } else {
            &host
        };
        let names = (0..images).map(|image| format!("team/app-{image}"));
        let images = names.map(|name| {
            let repo = registry.repo(&name);
            match self {
                // The platform of a single manifest has to be read from its config.
                Self::Single => drop(repo.image("linux/amd64", Some("v1"))),
                _ => drop(repo.index(Some("v1"), ["linux/amd64", "linux/arm64"])),
            }
            if let Some(auth) = &auth {
                repo.require(auth.clone());
            }
            format!("{named}/{name}:v1")
        });
        let images = images.collect();
        let ca = dir.join("ca.crt");
        std::fs::write(&ca, pki.ca_pem())?;
        let mut hosts = json!({&*host: {"caFile": ca}});
        if let Some((_, wire)) = &tokens {
            hosts[wire.address.to_string()] = json!({"caFile": ca});
        }
        if self == Self::Mirror {
            hosts["docker.io"] = json!({"mirrors": [host]});
        }
        let passwords = dir.join("config.json");
        // user:password
        let docker_config = json!({"auths": {&*host: {"auth": "dXNlcjpwYXNzd29yZA=="}}});
        std::fs::write(&passwords, docker_config.to_string())?;
        let mut settings = json!({"registries": {"hosts": hosts}});
        if matches!(
            self,
            Self::PasswordByPost | Self::PasswordByGet | Self::Basic
        ) {
            settings["credentials"] = json!({"dockerConfigs": [passwords]});
        }
        if self == Self::Single {
            // A pool for amd64 alone, for which this image is eligible.
            let toleration = json!({"key": "amd64", "operator": "Exists"});
            settings["pools"] = json!([{"name": "amd64", "platforms": ["linux/amd64"], "tolerations": [toleration]}]);
        }
        Ok(Registries {
            images,
            settings,
            servers: std::iter::once((registry, wire)).chain(tokens).collect(),
        })
    }
}

/// A registry, with its token server if that is another host.
pub(crate) struct Registries {
    pub(crate) images: Vec<String>,
    /// Settings of tolerarch for them.
    pub(crate) settings: Value,
    servers: Vec<(Registry, Wire)>,
}

impl Registries {
    /// Returns the number of requests and of connections so far.
    pub(crate) fn traffic(&self) -> (usize, usize) {
        let requests = self
            .servers
            .iter()
            .map(|(registry, _)| registry.count(|_| true))
            .sum();
        (
            requests,
            self.servers
                .iter()
                .map(|(_, wire)| wire.connections())
                .sum(),
        )
    }
}
