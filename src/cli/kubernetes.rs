//! Common parts of the commands that query a cluster: kubectl's flags, and functions that read objects and lists.

use std::path::PathBuf;

use clap::Args;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::form_urlencoded::byte_serialize;

use tolerarch_kubernetes::cluster::{ConnectError, RequestError, UserClient, is_name};
use tolerarch_support::environment::Environment;

/// Flags that choose the cluster and the namespaces.
#[derive(Debug, Args)]
pub(super) struct Access {
    /// The kubeconfig [default: kubectl's]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Limit the command to this namespace [default: all; for why the context's]
    #[arg(short, long, value_name = "NAME", value_parser = name)]
    pub(super) namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,
}

impl Access {
    pub(super) fn is_named(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// Returns the flags that name the cluster, quoted for a shell, each after a blank. `kubectl` has the same flags.
    pub(super) fn flags(&self) -> String {
        let mut flags = String::new();
        if let Some(file) = &self.kubeconfig {
            flags += &format!(" --kubeconfig {}", quoted(&file.display().to_string()));
        }
        if let Some(context) = &self.context {
            flags += &format!(" --context {}", quoted(context));
        }
        flags
    }

    pub(super) fn connect(&self, environment: &Environment) -> Result<UserClient, ConnectError> {
        UserClient::connect(
            self.kubeconfig.as_deref(),
            self.context.as_deref(),
            environment,
        )
    }
}

/// Reads an object by its name, and by its namespace if the kind has one.
pub(super) async fn get<K: Resource<DynamicType = ()> + DeserializeOwned>(
    client: &UserClient,
    namespace: Option<&str>,
    name: &str,
) -> Result<K, RequestError> {
    let path = K::url_path(&(), namespace);
    client.get(&format!("{path}/{name}")).await
}

/// Lists the objects of a kind with these labels (`key=value,…`; all objects if empty), in a namespace or in all.
pub(super) async fn list<K: Resource<DynamicType = ()> + DeserializeOwned>(
    client: &UserClient,
    namespace: Option<&str>,
    labels: &str,
) -> Result<Vec<K>, RequestError> {
    let labels: String = byte_serialize(labels.as_bytes()).collect();
    let path = K::url_path(&(), namespace);
    client.list(&format!("{path}?labelSelector={labels}")).await
}

/// Returns whether a ServiceAccount of this namespace has a right. `right` has the form of the `resourceAttributes` of a
/// SubjectAccessReview.
pub(super) async fn is_allowed(
    client: &UserClient,
    namespace: &str,
    service_account: &str,
    right: Value,
) -> Result<bool, RequestError> {
    let of_namespace = format!("system:serviceaccounts:{namespace}");
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{namespace}:{service_account}"),
            "groups": ["system:serviceaccounts", of_namespace, "system:authenticated"],
            "resourceAttributes": right,
        },
    });
    let path = SubjectAccessReview::url_path(&(), None);
    let (review, _warnings) = client.post::<SubjectAccessReview>(&path, &review).await;
    Ok(review?.status.is_some_and(|status| status.allowed))
}

/// Quotes a text for a shell if it has characters other than those of names and paths.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

pub(super) fn name_of(object: &impl Resource<DynamicType = ()>) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

/// Validates a name, because it becomes part of a URL's path.
pub(super) fn name(text: &str) -> Result<String, &'static str> {
    if is_name(text) {
        Ok(text.to_owned())
    } else {
        Err("not a valid name of a Kubernetes object")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_metacharacters_are_quoted() {
        for (text, expected) in [
            ("prod", "prod"),
            (
                "arn:aws:eks:eu-west-1:1:cluster/a",
                "arn:aws:eks:eu-west-1:1:cluster/a",
            ),
            ("a b", "'a b'"),
            ("a'; rm -rf /", r"'a'\''; rm -rf /'"),
            ("$(id)", "'$(id)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
