//! Targets of `why`, such as `deploy/web` and `rollouts.argoproj.io/web`, and their paths on the API server.

use std::str::FromStr;

use super::super::kubernetes::name;
use tolerarch_kubernetes::cluster::{KindName, ServedKinds};

const FORM: &str = "write TYPE/NAME, such as pod/web-1, deploy/web or rollouts.argoproj.io/web";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Target as the user wrote it.
    pub(super) text: String,
    kind: KindName,
    name: String,
}

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (kind, object) = text.split_once('/').ok_or(FORM)?;
        let kind = kind.parse().map_err(|()| FORM)?;
        Ok(Self {
            text: text.to_owned(),
            kind,
            name: name(object)?,
        })
    }
}

impl Target {
    /// Returns the path of the object. Fails if the API server does not serve its kind in namespaces.
    pub(super) fn path(&self, kinds: &ServedKinds, namespace: &str) -> Result<String, String> {
        let served = kinds.find(&self.kind).map_err(|error| error.to_string())?;
        if !served.is_namespaced {
            return Err(format!(
                "a {} is in no namespace, and creates no Pods",
                served.kind
            ));
        }
        Ok(served.path(namespace, &self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_parsed_like_kubectl() {
        for (text, name) in [
            ("po/web-1", "web-1"),
            ("Deployment.apps/web", "web"),
            ("rollouts.argoproj.io/a.b", "a.b"),
            ("pods.v1./web", "web"),
            ("my-things.v1.example.com/web", "web"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((&*target.text, &*target.name), (text, name));
        }
        for (text, error) in [
            ("web", FORM),
            ("/web", FORM),
            ("a..b/web", FORM),
            ("../pods/web", FORM),
            ("po/", "not a valid name of a Kubernetes object"),
            ("po/../x", "not a valid name of a Kubernetes object"),
            ("po/web/log", "not a valid name of a Kubernetes object"),
            ("po/Web", "not a valid name of a Kubernetes object"),
        ] {
            assert_eq!(text.parse::<Target>(), Err(error), "{text}");
        }
    }
}
