//! A kubeconfig's credential program (`exec`), run once for each client, as client-go does
//! (`plugin/pkg/client/auth/exec`). Its standard error goes to the terminal, and no error quotes its standard output.

use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::nulls::without_nulls;
use tolerarch_text::yaml::{self, Dialect};

/// Versions of the program's input and output that client-go supports.
const VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];
const KIND: &str = "ExecCredential";

#[derive(Clone)]
pub(in crate::cluster) struct Plugin {
    pub(in crate::cluster) api_version: String,
    pub(in crate::cluster) command: String,
    pub(in crate::cluster) args: Vec<String>,
    pub(in crate::cluster) env: Vec<(String, String)>,
    pub(in crate::cluster) interactive: Interactive,
    /// Advice on how to install the program; may be empty.
    pub(in crate::cluster) install_hint: String,
    /// The cluster, if the program gets it as input (`provideClusterInfo`).
    pub(in crate::cluster) cluster: Option<Value>,
}

/// Whether the program may ask questions at the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Interactive {
    Never,
    IfAvailable,
    Always,
}

/// Credentials that the program has returned.
#[derive(Default)]
pub(super) struct Credential {
    pub(super) token: Option<Zeroizing<String>>,
    /// A client certificate and its key, in PEM.
    pub(super) identity: Option<(String, Zeroizing<String>)>,
    pub(super) expires: Option<SystemTime>,
}

/// Reason why the program has returned no credentials. Never quotes the program's output.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    #[error("its apiVersion {0:?} is none of {supported}", supported = VERSIONS.join(", "))]
    Version(String),
    #[error("it asks questions (interactiveMode: Always), and standard input is not a terminal")]
    NoTerminal,
    /// The error, and the kubeconfig's advice on its own lines.
    #[error("it cannot be run: {0}{hint}", hint = on_own_lines(.1))]
    Start(io::Error, String),
    #[error("it has failed ({0})")]
    Failed(std::process::ExitStatus),
    #[error("its output is no {KIND} of {0}")]
    Output(String),
    #[error("its output has neither a token nor a client certificate with its key")]
    Empty,
}

fn on_own_lines(hint: &str) -> String {
    if hint.is_empty() {
        String::new()
    } else {
        format!("\n{hint}")
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Output {
    api_version: String,
    kind: String,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<Time>,
    token: String,
    client_certificate_data: String,
    client_key_data: String,
}

impl Plugin {
    /// Runs the program and waits for it to exit.
    pub(super) fn run(&self) -> Result<Credential, PluginError> {
        if !VERSIONS.contains(&self.api_version.as_str()) {
            return Err(PluginError::Version(self.api_version.clone()));
        }
        let mut command = self.command()?;
        // Text that was written before must appear before the program's.
        let _ = io::stderr().flush();
        let ran = match command.output() {
            Ok(ran) => ran,
            Err(error) => return Err(PluginError::Start(error, self.install_hint.clone())),
        };
        let output = Zeroizing::new(ran.stdout);
        if !ran.status.success() {
            return Err(PluginError::Failed(ran.status));
        }
        self.credential(&output)
    }

    fn command(&self) -> Result<Command, PluginError> {
        let is_interactive = match self.interactive {
            Interactive::Never => false,
            Interactive::IfAvailable => io::stdin().is_terminal(),
            Interactive::Always if io::stdin().is_terminal() => true,
            Interactive::Always => return Err(PluginError::NoTerminal),
        };
        let mut spec = json!({"interactive": is_interactive});
        if let Some(cluster) = &self.cluster {
            spec["cluster"] = cluster.clone();
        }
        let info = json!({"kind": KIND, "apiVersion": self.api_version, "spec": spec});
        let mut command = Command::new(&self.command);
        command.args(&self.args);
        for (name, value) in &self.env {
            command.env(name, value);
        }
        command.env("KUBERNETES_EXEC_INFO", info.to_string());
        command.stdin(if is_interactive {
            Stdio::inherit()
        } else {
            Stdio::null()
        });
        command.stderr(Stdio::inherit());
        Ok(command)
    }

    /// Reads the program's output, which is JSON or YAML.
    fn credential(&self, output: &[u8]) -> Result<Credential, PluginError> {
        let Some(output) = parse(output) else {
            return Err(PluginError::Output(self.api_version.clone()));
        };
        if output.kind != KIND || output.api_version != self.api_version {
            return Err(PluginError::Output(self.api_version.clone()));
        }
        let Status {
            expiration_timestamp,
            token,
            client_certificate_data: certificate,
            client_key_data,
        } = output.status;
        let token = Zeroizing::new(token);
        let key = Zeroizing::new(client_key_data);
        if certificate.is_empty() != key.is_empty() {
            return Err(PluginError::Empty);
        }
        if token.is_empty() && key.is_empty() {
            return Err(PluginError::Empty);
        }
        Ok(Credential {
            token: Some(token).filter(|token| !token.is_empty()),
            identity: Some((certificate, key)).filter(|(_, key)| !key.is_empty()),
            expires: expiration_timestamp.map(|time| time.0.into()),
        })
    }
}

fn parse(output: &[u8]) -> Option<Output> {
    let text = std::str::from_utf8(output).ok()?;
    let document = yaml::read_first(text, Dialect::Kubernetes).ok()??;
    serde_json::from_value(without_nulls(document.value())).ok()
}

#[cfg(test)]
mod tests;
