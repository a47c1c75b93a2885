//! Targets of `why`, such as `deploy/web` and `rollouts.argoproj.io/web`, and their paths at the API server.

use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIGroupList, APIResource, APIResourceList};

use tolerarch_kubernetes::cluster::{RequestError, UserClient, is_name};

/// Kubernetes' own kinds that bring Pods: group, version, plural, kind, and kubectl's abbreviation.
const KINDS: [(&str, &str, &str, &str, &str); 8] = [
    ("", "v1", "pods", "Pod", "po"),
    ("", "v1", "replicationcontrollers", "ReplicationController", "rc"),
    ("apps", "v1", "deployments", "Deployment", "deploy"),
    ("apps", "v1", "replicasets", "ReplicaSet", "rs"),
    ("apps", "v1", "statefulsets", "StatefulSet", "sts"),
    ("apps", "v1", "daemonsets", "DaemonSet", "ds"),
    ("batch", "v1", "jobs", "Job", "job"),
    ("batch", "v1", "cronjobs", "CronJob", "cj"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Target as the user wrote it.
    pub(super) text: String,
    kind: String,
    group: Option<String>,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParseTargetError {
    #[error("write TYPE/NAME, such as pod/web-1, deploy/web or rollouts.argoproj.io/web")]
    Form,
    #[error("not a valid name of a Kubernetes object")]
    Name,
}

impl FromStr for Target {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<Self, ParseTargetError> {
        let (kind, name) = text.split_once('/').ok_or(ParseTargetError::Form)?;
        let (kind, group) = match kind.split_once('.') {
            Some((kind, group)) => (kind, Some(group)),
            None => (kind, None),
        };
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if !is_word(kind) || group.is_some_and(|group| !is_name(group)) {
            return Err(ParseTargetError::Form);
        }
        if !is_name(name) {
            return Err(ParseTargetError::Name);
        }
        let (kind, group, name) = (kind.to_owned(), group.map(ToOwned::to_owned), name.to_owned());
        Ok(Self { text: text.to_owned(), kind, group, name })
    }
}

impl Target {
    /// Returns the path of the object; `None` if the API server has no such kind.
    pub(super) async fn path(
        &self,
        client: &UserClient,
        namespace: &str,
    ) -> Result<Option<String>, RequestError> {
        let name = &self.name;
        let own = |&&(group, _, plural, kind, short): &&(&str, &str, &str, &str, &str)| {
            let is_group = self.group.as_deref().is_none_or(|wanted| wanted == group);
            is_group && [plural, kind, short].iter().any(|known| known.eq_ignore_ascii_case(&self.kind))
        };
        if let Some((group, version, plural, ..)) = KINDS.iter().find(own) {
            let api = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
            return Ok(Some(format!("{api}/{version}/namespaces/{namespace}/{plural}/{name}")));
        }
        let groups = match &self.group {
            None => client.get::<APIGroupList>("/apis").await?.groups,
            Some(group) => match client.get::<APIGroup>(&format!("/apis/{group}")).await {
                Err(error) if error.is_missing() => return Ok(None),
                found => vec![found?],
            },
        };
        // An aggregated API may be unavailable; another API may have the kind.
        let mut found = Ok(None);
        for version in groups.into_iter().filter_map(|group| Some(group.preferred_version?.group_version)) {
            match client.get::<APIResourceList>(&format!("/apis/{version}")).await {
                Ok(list) => {
                    if let Some(resource) = list.resources.iter().find(|resource| self.names(resource)) {
                        let plural = &resource.name;
                        return Ok(Some(format!("/apis/{version}/namespaces/{namespace}/{plural}/{name}")));
                    }
                }
                Err(error) => found = Err(error),
            }
        }
        found
    }

    /// Returns whether a resource is of this kind; subresources, with a slash in their names, are not.
    fn names(&self, resource: &APIResource) -> bool {
        let APIResource { name, kind, singular_name, short_names, .. } = resource;
        let mut names = [name, kind, singular_name].into_iter().chain(short_names.iter().flatten());
        !name.contains('/') && names.any(|known| known.eq_ignore_ascii_case(&self.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_for_kubectl() {
        for (text, kind, group, name) in [
            ("po/web-1", "po", None, "web-1"),
            ("Deployment.apps/web", "Deployment", Some("apps"), "web"),
            ("rollouts.argoproj.io/a.b", "rollouts", Some("argoproj.io"), "a.b"),
        ] {
            let target: Target = text.parse().unwrap();
            let group: Option<&str> = group;
            assert_eq!((&*target.kind, target.group.as_deref(), &*target.name), (kind, group, name));
        }
        for (text, error) in [
            ("web", ParseTargetError::Form),
            ("/web", ParseTargetError::Form),
            ("a..b/web", ParseTargetError::Form),
            ("../pods/web", ParseTargetError::Form),
            ("po/", ParseTargetError::Name),
            ("po/../x", ParseTargetError::Name),
            ("po/Web", ParseTargetError::Name),
        ] {
            assert_eq!(text.parse::<Target>(), Err(error), "{text}");
        }
    }
}
