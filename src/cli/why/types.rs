//! Targets of `why`, such as `deploy/web` and `rollouts.argoproj.io/web`, and their paths at the API server.

use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResource, APIResourceList};

use super::super::kubernetes::name;
use tolerarch_kubernetes::cluster::{UserClient, is_name};

const FORM: &str = "write TYPE/NAME, such as pod/web-1, deploy/web or rollouts.argoproj.io/web";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Target as the user wrote it.
    pub(super) text: String,
    kind: String,
    /// API group; empty for any.
    group: String,
    name: String,
}

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (kind, own) = text.split_once('/').ok_or(FORM)?;
        let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if !is_word(kind) || !group.is_empty() && !is_name(group) {
            return Err(FORM);
        }
        let (text, kind, group) = (text.to_owned(), kind.to_owned(), group.to_owned());
        Ok(Self { text, kind, group, name: name(own)? })
    }
}

impl Target {
    /// Returns the path of the object, or why the API server does not name one.
    pub(super) async fn path(&self, client: &UserClient, namespace: &str) -> Result<String, String> {
        let groups = client.get::<APIGroupList>("/apis").await.map_err(|error| error.to_string())?.groups;
        let groups = groups.into_iter().filter(|group| self.group.is_empty() || group.name == self.group);
        let core = self.group.is_empty().then(|| "/api/v1".to_owned());
        let preferred = groups.filter_map(|group| group.preferred_version);
        let preferred = preferred.map(|version| format!("/apis/{}", version.group_version));
        // An aggregated API may be unavailable; another API may have the kind.
        let mut why = "the API server has no such kind".to_owned();
        for api in core.into_iter().chain(preferred) {
            match client.get::<APIResourceList>(&api).await {
                Ok(list) => {
                    if let Some(APIResource { name, .. }) = list.resources.iter().find(|one| self.names(one))
                    {
                        return Ok(format!("{api}/namespaces/{namespace}/{name}/{}", self.name));
                    }
                }
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    }

    /// Returns whether a resource is of this kind; subresources, with a slash in their names, are not.
    fn names(&self, resource: &APIResource) -> bool {
        let APIResource { name, namespaced, kind, singular_name, short_names, .. } = resource;
        let mut names = [name, kind, singular_name].into_iter().chain(short_names.iter().flatten());
        *namespaced && !name.contains('/') && names.any(|known| known.eq_ignore_ascii_case(&self.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_for_kubectl() {
        for (text, kind, group, name) in [
            ("po/web-1", "po", "", "web-1"),
            ("Deployment.apps/web", "Deployment", "apps", "web"),
            ("rollouts.argoproj.io/a.b", "rollouts", "argoproj.io", "a.b"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((&*target.kind, &*target.group, &*target.name), (kind, group, name));
        }
        for (text, error) in [
            ("web", FORM),
            ("/web", FORM),
            ("a..b/web", FORM),
            ("../pods/web", FORM),
            ("po/", "not a valid name of a Kubernetes object"),
            ("po/../x", "not a valid name of a Kubernetes object"),
            ("po/Web", "not a valid name of a Kubernetes object"),
        ] {
            assert_eq!(text.parse::<Target>(), Err(error), "{text}");
        }
    }
}
