//! Kinds that an API server serves, found by the names that kubectl accepts.
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

/// Number of concurrent requests to an old API server; each version takes one.
const AT_A_TIME: usize = 10;
/// Maximum number of versions that are requested. A cluster with many operators has about 200.
const VERSIONS: usize = 1000;
/// Number of unavailable APIs that an error names.
const NAMED: usize = 5;

/// Name of a kind, in the forms that kubectl accepts: `deploy`, `deployments.apps`, `Deployment.v1.apps`, `pods.v1.`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindName {
    /// Plural, singular, short name or Kind.
    word: String,
    /// Text after the first dot: a group, the beginning of one, or a version and a group.
    rest: String,
}

impl FromStr for KindName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (word, rest) = text.split_once('.').unwrap_or((text, ""));
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if word.is_empty() || !word.bytes().all(is_word) {
            return Err(());
        }
        // The core group is empty, and a version may precede it.
        let group = rest.strip_suffix('.').unwrap_or(rest);
        if !group.is_empty() && !is_name(group) {
            return Err(());
        }
        Ok(Self {
            word: word.to_owned(),
            rest: rest.to_owned(),
        })
    }
}

/// Kind of a group and version, with its resource in the API.
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

/// Error for a kind that no available API of the API server has.
#[derive(Debug, PartialEq, Eq)]
pub struct NoSuchKind {
    /// APIs that may have the kind, each with the reason why they could not be read.
    unavailable: Vec<String>,
}

impl NoSuchKind {
    /// Returns whether an unavailable API may have the kind.
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

/// Kinds of an API server, in the order in which they are searched.
#[derive(Debug, Default)]
pub struct ServedKinds {
    groups: Vec<Group>,
    unavailable: Vec<Unavailable>,
}

#[derive(Debug)]
struct Group {
    /// Empty for the core group.
    name: String,
    /// Version that is searched before the others.
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

/// Name, with the groups and versions in which it is searched.
#[derive(Clone, Copy)]
struct KindQuery<'n> {
    word: &'n str,
    /// `None` for any version.
    version: Option<&'n str>,
    /// Group; without a version, the beginning of a group. Empty for any group.
    group: &'n str,
}

impl KindQuery<'_> {
    fn is_in(&self, group: &str, version: &str) -> bool {
        match self.version {
            Some(sought) if sought != version => false,
            Some(_) => self.group.is_empty() || group == self.group,
            None => group.starts_with(self.group),
        }
    }

    fn is(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case(self.word)
    }
}

impl ServedKinds {
    /// Reads all kinds by two requests. An API server before Kubernetes 1.27 needs one request for each version.
    /// An unavailable API hides only its own kinds.
    pub async fn read(client: &UserClient) -> Result<Self, RequestError> {
        let mut kinds = Self::default();
        let all = client.read("/apis", ACCEPT_AGGREGATED_DISCOVERY_V2).await?;
        if is_aggregated(&all)? {
            // A small API server, such as that of a virtual cluster, may support this form for one of the two paths
            // only.
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
                let resources = version.resources.into_iter();
                let resources = resources.filter_map(Resource::of_aggregated).collect();
                group.versions.push(Version { name, resources });
            }
            self.groups.push(group);
        }
    }

    /// Reads the kinds of each version of these groups, with one request for each.
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
                    let resources = list.resources.into_iter();
                    let resources = resources.filter_map(Resource::of_listed).collect();
                    let version = Version { name, resources };
                    self.groups[group].versions.push(version);
                }
                // The group was removed in the meantime.
                Err(error) if error.is_missing() => {}
                Err(error) => self.leave_out(group, name, error.to_string()),
            }
        }
    }

    /// Adds a group without its versions. Returns the names of the versions, each with the index of the group.
    fn add_without_versions(&mut self, group: APIGroup) -> impl Iterator<Item = (usize, String)> {
        let names = group.versions.into_iter().map(|version| version.version);
        let mut names: Vec<String> = names.collect();
        let preferred = match group.preferred_version {
            Some(version) => version.version,
            None => String::new(),
        };
        if names.is_empty() && !preferred.is_empty() {
            names.push(preferred.clone());
        }
        let index = self.groups.len();
        self.groups.push(Group {
            name: group.name,
            preferred,
            versions: Vec::new(),
        });
        names.into_iter().map(move |name| (index, name))
    }

    fn leave_out(&mut self, group: usize, version: String, why: String) {
        let group = self.groups[group].name.clone();
        self.unavailable.push(Unavailable {
            group,
            version,
            why,
        });
    }

    /// Returns the kind that kubectl would find by this name. Also accepts a Kind without its group, and a short name
    /// in capitals.
    pub fn find(&self, name: &KindName) -> Result<ServedKind, NoSuchKind> {
        let as_written = self.find_word(name, &name.word);
        as_written.or_else(|_| self.find_word(name, &name.word.to_ascii_lowercase()))
    }

    fn find_word(&self, name: &KindName, word: &str) -> Result<ServedKind, NoSuchKind> {
        let mut sought = Vec::new();
        if let Some((version, group)) = name.rest.split_once('.') {
            sought.push(KindQuery {
                word,
                version: Some(version),
                group,
            });
        }
        sought.push(KindQuery {
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
            let may_have = |sought: &KindQuery<'_>| sought.is_in(&api.group, &api.version);
            if sought.iter().any(may_have) {
                unavailable.insert(api.to_string());
            }
        }
        Err(NoSuchKind {
            unavailable: unavailable.into_iter().collect(),
        })
    }

    /// Replaces a short name by the plural. A full name in one of the groups takes precedence over a short name.
    fn expanded<'s>(&'s self, sought: KindQuery<'s>) -> KindQuery<'s> {
        let is_exact = |group: &Group| sought.group.is_empty() || group.name == sought.group;
        for (_group, resource) in self.resources_of(is_exact) {
            if sought.is(&resource.plural) || sought.is(&resource.singular) {
                return sought;
            }
        }
        let has_short_name = |(_, resource): &(&Group, &Resource)| {
            resource.short_names.iter().any(|name| name == sought.word)
        };
        if let Some((group, resource)) = self.resources_of(is_exact).find(has_short_name) {
            // kubectl drops the version here.
            return KindQuery {
                word: &resource.plural,
                version: None,
                group: &group.name,
            };
        }
        if sought.group.is_empty() {
            return sought;
        }
        let has_prefix = |group: &Group| group.name.starts_with(sought.group);
        match self.resources_of(has_prefix).find(has_short_name) {
            Some((group, resource)) => KindQuery {
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

    fn by_resource(&self, sought: &KindQuery<'_>) -> Option<ServedKind> {
        self.first(sought, |_, resource| {
            sought.is(&resource.plural) || sought.is(&resource.named_singular())
        })
    }

    /// Returns a kind by its Kind. The group must be complete, or empty.
    fn by_kind(&self, sought: &KindQuery<'_>) -> Option<ServedKind> {
        self.first(sought, |group, resource| {
            let is_group = sought.group.is_empty() || group.name == sought.group;
            is_group && sought.is(&resource.kind)
        })
    }

    /// Returns the first kind that `accepts`. The core group comes first, then the other groups in the API server's
    /// order; within a group, the preferred version comes first.
    fn first(
        &self,
        sought: &KindQuery<'_>,
        accepts: impl Fn(&Group, &Resource) -> bool,
    ) -> Option<ServedKind> {
        for group in &self.groups {
            let mut versions: Vec<&Version> = group.versions.iter().collect();
            versions.sort_by_key(|version| version.name != group.preferred);
            for version in versions {
                if !sought.is_in(&group.name, &version.name) {
                    continue;
                }
                let mut resources = version.resources.iter();
                if let Some(resource) = resources.find(|resource| accepts(group, resource)) {
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
    fn of_aggregated(resource: APIResourceDiscovery) -> Option<Self> {
        Some(Self {
            plural: resource.resource?,
            singular: resource.singular_resource.unwrap_or_default(),
            kind: resource.response_kind?.kind?,
            short_names: resource.short_names,
            is_namespaced: resource.scope.as_deref() == Some("Namespaced"),
        })
    }

    /// Returns `None` for a subresource, which has a slash in its name.
    fn of_listed(resource: APIResource) -> Option<Self> {
        if resource.name.contains('/') {
            return None;
        }
        Some(Self {
            plural: resource.name,
            singular: resource.singular_name,
            kind: resource.kind,
            short_names: resource.short_names.unwrap_or_default(),
            is_namespaced: resource.namespaced,
        })
    }

    /// Returns the singular; if the API server names none, the Kind in lower case.
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

/// Returns whether a response is an aggregated document with all kinds.
fn is_aggregated(answer: &[u8]) -> Result<bool, RequestError> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(default)]
        kind: String,
    }

    let Kind { kind } = serde_json::from_slice(answer)?;
    Ok(kind == "APIGroupDiscoveryList")
}

/// Returns the core group, whose only version every API server has.
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
