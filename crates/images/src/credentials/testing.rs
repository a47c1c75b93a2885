//! Credentials of files, programs and Secrets that a test makes up.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails at once"
)]

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::time::Duration;

use super::*;
use tolerarch_kubernetes::cluster::testing::ApiServer;

/// Directory with files and programs.
pub(super) struct TestDir(TempDir);

impl TestDir {
    pub(super) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    #[cfg(test)]
    pub(super) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Makes a program. Another process writes the file: a file that this process has open for writing, if only in a
    /// child that has not begun yet, cannot be run.
    #[cfg(test)]
    pub(super) fn program(&self, name: &str, script: &str) -> PathBuf {
        use std::io::Write;
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut writer = std::process::Command::new("/bin/sh")
            .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        writer
            .stdin
            .take()
            .unwrap()
            .write_all(format!("#!/bin/sh\n{script}\n").as_bytes())
            .unwrap();
        assert!(writer.wait().unwrap().success());
        path
    }

    #[cfg(test)]
    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn root(&self) -> &std::path::Path {
        self.0.path()
    }
}

/// Makes an environment with `bin` as its `PATH`.
pub(super) fn environment(dir: &TestDir) -> Environment {
    Environment::from_iter([("PATH", dir.path("bin"))])
}

pub fn secret(kind: &str, content: &serde_json::Value) -> serde_json::Value {
    use base64::Engine;
    let key = if kind == "dockercfg" {
        ".dockercfg"
    } else {
        ".dockerconfigjson"
    };
    let data = base64::engine::general_purpose::STANDARD.encode(content.to_string());
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "x", "annotations": {"more": "canary"}},
        "type": format!("kubernetes.io/{kind}"),
        "data": {key: data, "other": "Y2FuYXJ5"},
    })
}

/// Makes credentials with this API server and these docker files.
pub fn with_cluster(api: &ApiServer, configs: &[PathBuf]) -> Credentials {
    let dir = TestDir::new();
    let settings = CredentialSettings {
        docker_configs: configs.to_vec(),
        ..CredentialSettings::default()
    };
    with_secrets(api, &settings, &dir)
}

/// Makes credentials of these settings, with pull secrets at this API server.
pub(super) fn with_secrets(
    api: &ApiServer,
    settings: &CredentialSettings,
    dir: &TestDir,
) -> Credentials {
    let files = Files::load(settings, &environment(dir), None);
    let pull_secrets = Some(PullSecrets::new(api.cluster(), Duration::from_secs(60)));
    Credentials {
        sources: Some(Arc::new(Sources {
            files,
            pull_secrets,
            private: Vec::new(),
        })),
    }
}

/// Makes a Pod's own credential.
#[cfg(test)]
pub(crate) fn of_pod(credential: Credential) -> CredentialCandidate {
    CredentialCandidate::pod(credential)
}

/// Makes a credential of a file of the operator's.
#[cfg(test)]
pub(crate) fn of_operator(credential: Credential) -> CredentialCandidate {
    CredentialCandidate::file(credential, "docker config")
}
