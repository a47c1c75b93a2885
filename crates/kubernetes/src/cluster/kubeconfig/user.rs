//! Credentials of a user in a kubeconfig, in client-go's order of precedence.

use std::path::{MAIN_SEPARATOR, Path};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::config::AuthProviderConfig;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::file::{Cluster, Exec, User};
use super::server::source;
use crate::cluster::access::{Access, Identity, Interactive, Plugin};
use crate::cluster::error::ConnectError;

/// Name of the extension whose content is passed to credential programs.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// Adds the credentials of a user to the access to an API server.
pub(super) fn authenticate(
    access: &mut Access,
    user: &User,
    directory: &Path,
    cluster: &Cluster,
) -> Result<(), ConnectError> {
    impersonate(access, user)?;
    access.identity = identity(user, directory)?;
    let auth = &mut access.config.auth_info;
    let has_token = !user.token.0.is_empty() || !user.token_file.is_empty();
    // client-go sends a password with a username only.
    let has_login = !user.username.is_empty();
    if has_token && (has_login || !user.password.0.is_empty()) {
        let both =
            "its user has a token and a username with a password, of which only one can be sent";
        return Err(ConnectError::Unusable(both.to_owned()));
    }
    if !user.token.0.is_empty() {
        auth.token = Some(user.token.0.as_str().into());
    }
    if !user.token_file.is_empty() {
        let file = directory.join(&user.token_file);
        if auth.token.is_none() && is_blank(&file) {
            let empty = format!("its tokenFile {} is empty", file.display());
            return Err(ConnectError::Unusable(empty));
        }
        auth.token_file = Some(file.display().to_string());
    }
    if has_login {
        auth.username = Some(user.username.clone());
        auth.password = Some(user.password.0.as_str().into());
    }
    if !has_login
        && !has_token
        && let Some(provider) = &user.auth_provider
    {
        auth.auth_provider = Some(AuthProviderConfig {
            name: provider.name.clone(),
            config: provider.config.clone().into_iter().collect(),
            ..AuthProviderConfig::default()
        });
    }
    // Other credentials in the kubeconfig take precedence over its program.
    let has_others = has_login || has_token || access.identity.is_some();
    if !has_others && let Some(exec) = &user.exec {
        access.plugin = Some(plugin(exec, directory, access, cluster)?);
    }
    Ok(())
}

fn identity(user: &User, directory: &Path) -> Result<Option<Identity>, ConnectError> {
    let certificate = source(
        &user.client_certificate_data.0,
        &user.client_certificate,
        directory,
    );
    let Some(certificate) = certificate else {
        return Ok(None);
    };
    let key = source(&user.client_key_data.0, &user.client_key, directory);
    let key = key.ok_or(ConnectError::Key)?;
    Ok(Some(Identity { certificate, key }))
}

fn is_blank(file: &Path) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| Zeroizing::new(text).trim().is_empty())
}

fn impersonate(access: &mut Access, user: &User) -> Result<(), ConnectError> {
    let auth = &mut access.config.auth_info;
    if user.impersonate.is_empty() {
        if user.as_uid.is_empty() && user.as_groups.is_empty() && user.as_user_extra.is_empty() {
            return Ok(());
        }
        let nobody =
            "its user has as-uid, as-groups or as-user-extra, and no `as` whom they belong to";
        return Err(ConnectError::Unusable(nobody.to_owned()));
    }
    auth.impersonate = Some(user.impersonate.clone());
    auth.impersonate_uid = Some(user.as_uid.clone()).filter(|uid| !uid.is_empty());
    auth.impersonate_groups = Some(user.as_groups.clone());
    auth.impersonate_user_extra = Some(user.as_user_extra.clone().into_iter().collect());
    Ok(())
}

fn plugin(
    exec: &Exec,
    directory: &Path,
    access: &Access,
    cluster: &Cluster,
) -> Result<Plugin, ConnectError> {
    let unusable = |why: &str| ConnectError::Unusable(format!("its user's `exec` {why}"));
    if exec.command.is_empty() {
        return Err(unusable("has no command"));
    }
    let interactive = match exec.interactive_mode.as_str() {
        "Never" => Interactive::Never,
        "IfAvailable" => Interactive::IfAvailable,
        "Always" => Interactive::Always,
        // The field is optional in v1beta1 only.
        "" if exec.api_version.ends_with("/v1beta1") => Interactive::IfAvailable,
        "" => {
            return Err(unusable(
                "has no interactiveMode, which is Never, IfAvailable or Always",
            ));
        }
        _ => {
            return Err(unusable(
                "has an interactiveMode that is none of Never, IfAvailable and Always",
            ));
        }
    };
    let mut command = exec.command.clone();
    // A name without a directory is searched in the PATH.
    if command.contains(MAIN_SEPARATOR) {
        command = directory.join(command).display().to_string();
    }
    let mut env = Vec::new();
    for variable in &exec.env {
        env.push((variable.name.clone(), variable.value.clone()));
    }
    let cluster = if exec.provide_cluster_info {
        Some(cluster_info(cluster, access)?)
    } else {
        None
    };
    let is_printable = |c: &char| matches!(c, '\n' | '\t') || !c.is_control();
    Ok(Plugin {
        api_version: exec.api_version.clone(),
        command,
        args: exec.args.clone(),
        env,
        interactive,
        install_hint: exec.install_hint.chars().filter(is_printable).collect(),
        cluster,
    })
}

/// Returns the cluster in the form that credential programs get as input.
fn cluster_info(cluster: &Cluster, access: &Access) -> Result<Value, ConnectError> {
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
    put("server", cluster.server.clone().into());
    if !cluster.tls_server_name.is_empty() {
        put("tls-server-name", cluster.tls_server_name.clone().into());
    }
    if cluster.insecure_skip_tls_verify {
        put("insecure-skip-tls-verify", true.into());
    }
    if let Some(authority) = &access.authority {
        let certificates = BASE64.encode(&*authority.read()?);
        put("certificate-authority-data", certificates.into());
    }
    if !cluster.proxy_url.is_empty() {
        put("proxy-url", cluster.proxy_url.clone().into());
    }
    if cluster.disable_compression {
        put("disable-compression", true.into());
    }
    let mut extensions = cluster.extensions.iter();
    let config = match extensions.find(|extension| extension.name == EXTENSION) {
        Some(extension) => extension.extension.clone(),
        None => Value::Null,
    };
    put("config", config);
    Ok(Value::Object(members))
}
