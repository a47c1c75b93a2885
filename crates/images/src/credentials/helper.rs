//! `docker-credential-NAME get` (github.com/docker/docker-credential-helpers), for names in the operator's own files.

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

/// Time for which a credential is cached, as helpers name none. Helpers that fetch tokens have caches themselves.
const FOUND: Duration = Duration::from_secs(300);
/// Time for which a run without a credential is cached.
const NOTHING: Duration = Duration::from_secs(60);
/// Docker's name of Docker Hub.
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
    /// Finds the helper of this name in the directories of a `PATH`; relative ones do not count.
    pub(super) fn new(name: &str, path: Option<&OsStr>) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || !name.chars().all(plain) {
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
            // A helper that knows no credential ends with an error as well.
            Err(ProcessError::Status) => {
                tracing::debug!(
                    helper = self.name,
                    "a credential helper has nothing for a registry"
                );
                HelperOutput::default()
            }
            // As docker's client does, which reads the first value.
            output => go::read_first(&output.map_err(|error| error.to_string())?)
                .map_err(|_| "its answer is not what docker's protocol says")?,
        };
        let credential = match username.as_str() {
            _ if secret.reveal().is_empty() => None,
            "<token>" => Some(Credential::Identity(secret)),
            _ => Some(Credential::Basic {
                user: username,
                password: secret,
            }),
        };
        let life = if credential.is_some() { FOUND } else { NOTHING };
        let keyring = pattern::keyring(credential.map(|credential| (host, Arc::new(credential))));
        Ok(Response {
            scope: REGISTRY,
            life,
            keyring,
        })
    }
}

fn server(host: &str) -> &str {
    if host == DOCKER_HUB { HUB_SERVER } else { host }
}

#[cfg(test)]
mod tests;
