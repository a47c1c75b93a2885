//! Kinds that an API server serves, found by the names that kubectl takes for them.
//!
//! The rules are those of client-go's `restmapper` and of kubectl's reading of `TYPE/NAME`: `e2e/conformance` compares.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use futures_util::stream::{self, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroup, APIGroupList, APIResource, APIResourceList,
};
use kube::core::discovery::v2::{
    ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscovery, APIGroupDiscoveryList, APIResourceDiscovery,
};
use serde::Deserialize;

use super::error::RequestError;
use super::is_name;
use super::user::UserClient;

/// Number of an old API server's versions that are requested at a time; each takes a request.
const AT_A_TIME: usize = 10;
/// Maximum number of such requests. A cluster with many operators has some 200 versions.
const VERSIONS: usize = 1000;
/// Number of unavailable APIs that an error names.
const NAMED: usize = 5;

/// Name of a kind as kubectl takes it: `deploy`, `deployments.apps`, `Deployment.v1.apps`, `pods.v1.`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindName {
    /// Plural, singular, short name or Kind.
    word: String,
    /// Text behind the first dot: a group, the beginning of one, or a version and a group.
    rest: String,
}

impl FromStr for KindName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (word, rest) = text.split_once('.').unwrap_or((text, ""));
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        // A version may stand before the empty group of Kubernetes' first kinds.
        let group = rest.strip_suffix('.').unwrap_or(rest);
        if word.is_empty() || !word.bytes().all(is_word) || !group.is_empty() && !is_name(group) {
            return Err(());
        }
        Ok(Self {
            word: word.to_owned(),
            rest: rest.to_owned(),
        })
    }
}

/// Kind of a group and version, with its place in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedKind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub is_namespaced: bool,
}

impl ServedKind {
    /// Returns the path of an object of this kind.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let Self {
            group,
            version,
            plural,
            is_namespaced,
            ..
        } = self;
        let api = api_path(group, version);
        if *is_namespaced {
            format!("{api}/namespaces/{namespace}/{plural}/{name}")
        } else {
            format!("{api}/{plural}/{name}")
        }
    }
}

/// Error for a kind that is served nowhere, as far as the API server could say.
#[derive(Debug, PartialEq, Eq)]
pub struct NoSuchKind {
    /// APIs that may have the kind, each with the reason why they could not be read.
    unavailable: Vec<String>,
}

impl NoSuchKind {
    /// Returns whether an API that is unavailable may have the kind.
    pub fn may_be_unavailable(&self) -> bool {
        !self.unavailable.is_empty()
    }
}

impl fmt::Display for NoSuchKind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("the API server has no such kind")?;
        if self.unavailable.is_empty() {
            return Ok(());
        }
        let count = self.unavailable.len();
        let named = self.unavailable[..count.min(NAMED)].join(", ");
        let more = if count > NAMED { ", …" } else { "" };
        write!(
            to,
            ", but may have it in an API that is unavailable: {named}{more}"
        )
    }
}

/// Kinds of an API server, in the order in which a name is looked for.
#[derive(Debug, Default)]
pub struct ServedKinds {
    groups: Vec<Group>,
    unavailable: Vec<Unavailable>,
}

#[derive(Debug)]
struct Group {
    /// Empty for Kubernetes' first kinds.
    name: String,
    /// Version that is tried before the others.
    preferred: String,
    versions: Vec<Version>,
}

#[derive(Debug)]
struct Version {
    name: String,
    resources: Vec<Resource>,
}

#[derive(Debug)]
struct Resource {
    plural: String,
    singular: String,
    kind: String,
    short_names: Vec<String>,
    is_namespaced: bool,
}

#[derive(Debug)]
struct Unavailable {
    group: String,
    version: String,
    why: String,
}

/// Name with the groups and versions in which it is looked for.
#[derive(Clone, Copy)]
struct Sought<'n> {
    word: &'n str,
    /// `None` for any version.
    version: Option<&'n str>,
    /// Group, or the beginning of its name if the version may be any; empty for any group.
    group: &'n str,
}

impl Sought<'_> {
    fn is_in(&self, group: &str, version: &str) -> bool {
        let is_version = self.version.is_none_or(|sought| sought == version);
        let is_group = match self.version {
            Some(_) => self.group.is_empty() || group == self.group,
            None => group.starts_with(self.group),
        };
        is_version && is_group
    }

    fn is(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case(self.word)
    }
}

impl ServedKinds {
    /// Reads all kinds: by two requests, or from an API server before Kubernetes 1.27 by one for each version.
    /// An API that is unavailable hides its own kinds only.
    pub async fn read(client: &UserClient) -> Result<Self, RequestError> {
        let mut kinds = Self::default();
        let all = client.read("/apis", ACCEPT_AGGREGATED_DISCOVERY_V2).await?;
        if is_aggregated(&all)? {
            // A small API server, such as one of virtual clusters, may have only one of the two.
            match client.read("/api", ACCEPT_AGGREGATED_DISCOVERY_V2).await {
                Ok(first) if is_aggregated(&first)? => {
                    kinds.add_all(serde_json::from_slice(&first)?);
                }
                _ => kinds.read_versions(client, vec![core()]).await,
            }
            kinds.add_all(serde_json::from_slice(&all)?);
        } else {
            let list: APIGroupList = serde_json::from_slice(&all)?;
            let mut groups = vec![core()];
            groups.extend(list.groups);
            kinds.read_versions(client, groups).await;
        }
        Ok(kinds)
    }

    fn add_all(&mut self, list: APIGroupDiscoveryList) {
        for APIGroupDiscovery { metadata, versions } in list.items {
            let name = metadata.and_then(|metadata| metadata.name);
            let mut group = Group {
                name: name.unwrap_or_default(),
                preferred: String::new(),
                versions: Vec::new(),
            };
            for version in versions {
                let Some(name) = version.version else {
                    continue;
                };
                if version.freshness.as_deref() == Some("Stale") {
                    self.unavailable.push(Unavailable {
                        group: group.name.clone(),
                        version: name,
                        why: "its server does not answer".to_owned(),
                    });
                    continue;
                }
                if group.preferred.is_empty() {
                    group.preferred.clone_from(&name);
                }
                let resources = version
                    .resources
                    .into_iter()
                    .filter_map(Resource::of_aggregated)
                    .collect();
                group.versions.push(Version { name, resources });
            }
            self.groups.push(group);
        }
    }

    /// Reads the kinds of each version of these groups by one request each.
    async fn read_versions(&mut self, client: &UserClient, groups: Vec<APIGroup>) {
        let mut versions = Vec::new();
        for group in groups {
            versions.extend(self.add_without_versions(group));
        }
        for (group, version) in versions.split_off(versions.len().min(VERSIONS)) {
            self.leave_out(group, version, "it is one of too many".to_owned());
        }
        let mut paths = Vec::new();
        for (group, version) in &versions {
            paths.push(api_path(&self.groups[*group].name, version));
        }
        let answers = stream::iter(&paths).map(|path| client.get::<APIResourceList>(path));
        let answers: Vec<_> = answers.buffered(AT_A_TIME).collect().await;
        for ((group, name), answer) in versions.into_iter().zip(answers) {
            match answer {
                Ok(list) => {
                    let resources = list
                        .resources
                        .into_iter()
                        .filter_map(Resource::of_listed)
                        .collect();
                    let version = Version { name, resources };
                    self.groups[group].versions.push(version);
                }
                // The group was removed in the meantime.
                Err(error) if error.is_missing() => {}
                Err(error) => self.leave_out(group, name, error.to_string()),
            }
        }
    }

    /// Adds a group whose versions have not been read. Returns each of these with the place of the group.
    fn add_without_versions(&mut self, group: APIGroup) -> impl Iterator<Item = (usize, String)> {
        let names = group.versions.into_iter().map(|version| version.version);
        let mut names: Vec<String> = names.collect();
        let preferred = group.preferred_version.map(|version| version.version);
        let preferred = preferred.unwrap_or_default();
        if names.is_empty() && !preferred.is_empty() {
            names.push(preferred.clone());
        }
        let place = self.groups.len();
        self.groups.push(Group {
            name: group.name,
            preferred,
            versions: Vec::new(),
        });
        names.into_iter().map(move |name| (place, name))
    }

    fn leave_out(&mut self, group: usize, version: String, why: String) {
        let group = self.groups[group].name.clone();
        self.unavailable.push(Unavailable {
            group,
            version,
            why,
        });
    }

    /// Returns the kind that kubectl would take for this name; else one whose Kind it is, without the group, or whose
    /// short name in capitals.
    pub fn find(&self, name: &KindName) -> Result<ServedKind, NoSuchKind> {
        self.find_word(name, &name.word)
            .or_else(|_| self.find_word(name, &name.word.to_ascii_lowercase()))
    }

    fn find_word(&self, name: &KindName, word: &str) -> Result<ServedKind, NoSuchKind> {
        let mut sought = Vec::new();
        if let Some((version, group)) = name.rest.split_once('.') {
            sought.push(Sought {
                word,
                version: Some(version),
                group,
            });
        }
        sought.push(Sought {
            word,
            version: None,
            group: &name.rest,
        });
        for sought in &sought {
            if let Some(kind) = self.by_resource(&self.expanded(*sought)) {
                return Ok(kind);
            }
        }
        for sought in &sought {
            if let Some(kind) = self.by_kind(sought) {
                return Ok(kind);
            }
        }
        let mut unavailable = BTreeSet::new();
        for api in &self.unavailable {
            let may_have = |sought: &Sought<'_>| sought.is_in(&api.group, &api.version);
            if sought.iter().any(may_have) {
                unavailable.insert(api.to_string());
            }
        }
        Err(NoSuchKind {
            unavailable: unavailable.into_iter().collect(),
        })
    }

    /// Replaces a short name by the plural. A name in full, of any group that is sought, goes before a short one.
    fn expanded<'s>(&'s self, sought: Sought<'s>) -> Sought<'s> {
        let is_exact = |group: &Group| sought.group.is_empty() || group.name == sought.group;
        let mut exact = self.resources_of(is_exact);
        if exact.any(|(_, one)| sought.is(&one.plural) || sought.is(&one.singular)) {
            return sought;
        }
        let has_short_name = |(_, resource): &(&Group, &Resource)| {
            resource.short_names.iter().any(|name| name == sought.word)
        };
        if let Some((group, resource)) = self.resources_of(is_exact).find(has_short_name) {
            // kubectl gives up the version here.
            return Sought {
                word: &resource.plural,
                version: None,
                group: &group.name,
            };
        }
        if sought.group.is_empty() {
            return sought;
        }
        let is_begun = |group: &Group| group.name.starts_with(sought.group);
        match self.resources_of(is_begun).find(has_short_name) {
            Some((group, resource)) => Sought {
                word: &resource.plural,
                version: sought.version,
                group: &group.name,
            },
            None => sought,
        }
    }

    /// Returns the resources of these groups, each with its group.
    fn resources_of(
        &self,
        is_in: impl Fn(&Group) -> bool,
    ) -> impl Iterator<Item = (&Group, &Resource)> {
        let groups = self.groups.iter().filter(move |group| is_in(group));
        groups.flat_map(|group| {
            let resources = group.versions.iter().flat_map(|version| &version.resources);
            resources.map(move |resource| (group, resource))
        })
    }

    fn by_resource(&self, sought: &Sought<'_>) -> Option<ServedKind> {
        self.first(sought, |_, one| {
            sought.is(&one.plural) || sought.is(&one.named_singular())
        })
    }

    /// Returns a kind by its Kind, with which the group is named in full or not at all.
    fn by_kind(&self, sought: &Sought<'_>) -> Option<ServedKind> {
        self.first(sought, |group, one| {
            (sought.group.is_empty() || group.name == sought.group) && sought.is(&one.kind)
        })
    }

    /// Returns the first kind that `is_it` accepts: of Kubernetes' first group, then of the API server's order of
    /// groups, in each of them of the preferred version first.
    fn first(
        &self,
        sought: &Sought<'_>,
        is_it: impl Fn(&Group, &Resource) -> bool,
    ) -> Option<ServedKind> {
        for group in &self.groups {
            let mut versions: Vec<&Version> = group.versions.iter().collect();
            versions.sort_by_key(|version| version.name != group.preferred);
            for version in versions {
                if !sought.is_in(&group.name, &version.name) {
                    continue;
                }
                let mut resources = version.resources.iter();
                if let Some(resource) = resources.find(|resource| is_it(group, resource)) {
                    return Some(ServedKind {
                        group: group.name.clone(),
                        version: version.name.clone(),
                        kind: resource.kind.clone(),
                        plural: resource.plural.clone(),
                        is_namespaced: resource.is_namespaced,
                    });
                }
            }
        }
        None
    }
}

impl Resource {
    fn of_aggregated(given: APIResourceDiscovery) -> Option<Self> {
        Some(Self {
            plural: given.resource?,
            singular: given.singular_resource.unwrap_or_default(),
            kind: given.response_kind?.kind?,
            short_names: given.short_names,
            is_namespaced: given.scope.as_deref() == Some("Namespaced"),
        })
    }

    /// Returns `None` for a subresource, which has a slash in its name.
    fn of_listed(given: APIResource) -> Option<Self> {
        if given.name.contains('/') {
            return None;
        }
        Some(Self {
            plural: given.name,
            singular: given.singular_name,
            kind: given.kind,
            short_names: given.short_names.unwrap_or_default(),
            is_namespaced: given.namespaced,
        })
    }

    /// Returns the singular; that of API servers that name none is the Kind in small letters.
    fn named_singular(&self) -> String {
        if self.singular.is_empty() {
            self.kind.to_ascii_lowercase()
        } else {
            self.singular.clone()
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            version,
            why,
        } = self;
        let slash = if group.is_empty() { "" } else { "/" };
        write!(to, "{group}{slash}{version} ({why})")
    }
}

/// Returns whether a response is one document with all kinds.
fn is_aggregated(answer: &[u8]) -> Result<bool, RequestError> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(default)]
        kind: String,
    }

    let Kind { kind } = serde_json::from_slice(answer)?;
    Ok(kind == "APIGroupDiscoveryList")
}

/// Returns the group without a name, whose only version every API server has.
fn core() -> APIGroup {
    let version = k8s_openapi::apimachinery::pkg::apis::meta::v1::GroupVersionForDiscovery {
        group_version: "v1".to_owned(),
        version: "v1".to_owned(),
    };
    APIGroup {
        preferred_version: Some(version),
        ..APIGroup::default()
    }
}

fn api_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}

#[cfg(test)]
mod tests;
