//! Docker's credential helpers: `docker-credential-NAME get` (github.com/docker/docker-credential-helpers). The names
//! are in the operator's own files.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use serde::de::MapAccess;
use tokio::process::Command;
use tokio::time::Duration;

use super::credential::{Credential, CredentialId, Sensitive};
use super::pattern;
use super::process::{self, Output, ProcessError};
use super::program::{Protocol, REGISTRY, Response};
use tolerarch_core::image::DOCKER_HUB;
use tolerarch_text::json::go::{self, AnyText, GoStruct, GoValue};

/// Time for which a credential is cached, as helpers name no lifetime. Helpers that fetch tokens cache them themselves.
const CREDENTIAL_LIFE: Duration = Duration::from_secs(300);
/// Time for which an answer without a credential is cached.
const NO_CREDENTIAL_LIFE: Duration = Duration::from_secs(60);
/// Docker's name for Docker Hub.
const HUB_SERVER: &str = "https://index.docker.io/v1/";

#[derive(Debug)]
pub(super) struct Helper {
    name: String,
    program: PathBuf,
}

#[derive(Default)]
struct HelperOutput {
    username: String,
    secret: Sensitive,
}

impl GoStruct for HelperOutput {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        value: GoValue<'_, A>,
    ) -> Result<(), A::Error> {
        match name {
            "username" => value.read(&mut self.username),
            "secret" => value.read(&mut self.secret),
            "serverurl" => value.check::<AnyText>(),
            _ => value.skip(),
        }
    }
}

impl Helper {
    /// Finds the helper of this name in the directories of a `PATH`, except relative ones.
    pub(super) fn new(name: &str, path: Option<&OsStr>) -> Result<Self, String> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || !name.chars().all(is_allowed) {
            return Err("the name of a credential helper has letters, digits and ._- only".into());
        }
        let file = format!("docker-credential-{name}");
        let directories = path
            .into_iter()
            .flat_map(std::env::split_paths)
            .filter(|directory| directory.is_absolute());
        let program = process::find(&file, directories)
            .ok_or_else(|| format!("{file} is in no directory of the PATH"))?;
        Ok(Self {
            name: name.into(),
            program,
        })
    }
}

impl Protocol for Helper {
    fn id(&self, host: &str) -> CredentialId {
        CredentialId::of(&["helper", &self.name, server(host)])
    }

    fn request(&self, host: &str) -> (Command, Vec<u8>) {
        let mut command = Command::new(&self.program);
        command.arg("get");
        (command, server(host).into())
    }

    fn response(
        &self,
        host: &str,
        output: Result<Output, ProcessError>,
    ) -> Result<Response, String> {
        let HelperOutput { username, secret } = match output {
            // A helper without a credential for the registry ends with an error as well.
            Err(ProcessError::Status) => {
                tracing::debug!(
                    helper = self.name,
                    "a credential helper has no credential for a registry"
                );
                HelperOutput::default()
            }
            Err(error) => return Err(error.to_string()),
            // Docker's client reads only the first value, too.
            Ok(output) => go::read_first(&output)
                .map_err(|_| "its answer does not follow docker's protocol")?,
        };
        let credential = match username.as_str() {
            _ if secret.reveal().is_empty() => None,
            "<token>" => Some(Credential::Identity(secret)),
            _ => Some(Credential::Basic {
                user: username,
                password: secret,
            }),
        };
        let life = match credential {
            Some(_) => CREDENTIAL_LIFE,
            None => NO_CREDENTIAL_LIFE,
        };
        let entry = credential.map(|credential| (host, Arc::new(credential)));
        let keyring = pattern::keyring(entry);
        Ok(Response {
            scope: REGISTRY,
            life,
            keyring,
        })
    }
}

/// Returns docker's name for a registry.
fn server(host: &str) -> &str {
    if host == DOCKER_HUB { HUB_SERVER } else { host }
}

#[cfg(test)]
mod tests;
