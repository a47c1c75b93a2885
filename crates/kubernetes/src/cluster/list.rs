//! Lists, read page by page. Each page has a bound, as users decide how large objects are, up to 1.5 MiB as stored.
//!
//! A page that is too large is requested again with fewer objects. After a small page, a larger one is requested.

use kube::api::ObjectList;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::api::{Api, JSON, read_up_to, with_query};
use super::error::{ClusterError, RequestError};
use super::metadata::Metadata;
use tolerarch_text::json::members;

/// Maximum bytes of an object's JSON: etcd stores 1.5 MiB, a byte may become six (`\u003c` is `<`), and names are
/// added.
pub(super) const OBJECT: usize = 10 << 20;

#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Number of objects on the first page.
    pub(super) first: u32,
    /// Maximum number of objects on a page.
    pub(super) max: u32,
    /// Maximum bytes of a page with more than one object.
    pub(super) bytes: usize,
    /// Maximum bytes of a page with one object.
    pub(super) object: usize,
}

pub(super) struct Pages {
    api: Api,
    /// Path with a query, without the parameters of a page.
    path: String,
    bounds: Bounds,
    /// Number of objects on the next page.
    size: u32,
    /// Token of the next page; `None` for the first page, and after the last.
    pub(super) next: Option<String>,
}

/// An object; or the identity of one that cannot be read, with the reason.
pub(super) type Read<T> = Result<T, Box<(Metadata, ClusterError)>>;

/// A page whose objects are read one by one, so that an unreadable object does not affect the others.
pub(super) struct Page<T> {
    pub(super) objects: Vec<Read<T>>,
    next: Option<String>,
    pub(super) resource_version: String,
}

impl Pages {
    pub(super) fn new(api: Api, path: String, bounds: Bounds) -> Self {
        Self {
            api,
            path,
            bounds,
            size: bounds.first,
            next: None,
        }
    }

    pub(super) async fn get<T: DeserializeOwned>(&mut self) -> Result<Page<T>, RequestError> {
        let page = loop {
            let size = self.size;
            let answer = self.api.get(&self.path_of_next(), JSON).await?;
            let bytes = if size == 1 {
                self.bounds.object
            } else {
                self.bounds.bytes
            };
            let body = read_up_to(answer.into_body(), bytes);
            match self.api.in_time(body).await? {
                (body, true) => {
                    if body.len() < self.bounds.bytes / 4 {
                        self.size = (2 * size).min(self.bounds.max);
                    }
                    break Page::of(&body)?;
                }
                (body, false) if size == 1 => break Page::of_truncated(&body)?,
                _ => self.size = size / 2,
            }
        };
        self.next.clone_from(&page.next);
        Ok(page)
    }

    fn path_of_next(&self) -> String {
        let limit = self.size.to_string();
        let mut query = vec![("limit", limit.as_str())];
        if let Some(token) = &self.next {
            query.push(("continue", token));
        }
        with_query(&self.path, query)
    }
}

impl<T: DeserializeOwned> Page<T> {
    fn of(body: &[u8]) -> Result<Self, RequestError> {
        let ObjectList::<&RawValue> {
            metadata, items, ..
        } = serde_json::from_slice(body)?;
        let mut objects = Vec::new();
        for item in items {
            // An error is dropped, as it quotes the object.
            objects.push(serde_json::from_str(item.get()).map_err(|_| {
                let identity = identity(item.get().as_bytes());
                Box::new((identity, ClusterError::Malformed))
            }));
        }
        Ok(Self {
            objects,
            next: metadata.continue_.filter(|token| !token.is_empty()),
            resource_version: metadata.resource_version.unwrap_or_default(),
        })
    }

    /// Reads the beginning of a page whose only object is too large. The API server writes the token of the next page
    /// before the object.
    fn of_truncated(body: &[u8]) -> Result<Self, RequestError> {
        const ITEMS: &[u8] = b"\"items\":";
        let start = position(body, ITEMS).ok_or(RequestError::TooLarge)?;
        let (head, items) = body.split_at(start);
        match Self::of(&[head, ITEMS, b"[]}"].concat()) {
            Ok(mut page) if !page.resource_version.is_empty() => {
                let unread = Box::new((identity(items), ClusterError::TooLarge));
                page.objects.push(Err(unread));
                Ok(page)
            }
            _ => Err(RequestError::TooLarge),
        }
    }
}

/// Reads the identity of the first object in truncated JSON: the API server writes metadata first, and quotes in texts
/// are escaped.
pub(super) fn identity(json: &[u8]) -> Metadata {
    const METADATA: &[u8] = b"\"metadata\":";
    let mut identity = Metadata::default();
    let Some(start) = position(json, METADATA) else {
        return identity;
    };
    let mut metadata = serde_json::Deserializer::from_slice(&json[start + METADATA.len()..]);
    let read_member = |name: String, value: &RawValue| {
        let member = match &*name {
            "name" => &mut identity.name,
            "namespace" => &mut identity.namespace,
            "uid" => &mut identity.uid,
            "resourceVersion" => &mut identity.resource_version,
            _ => return,
        };
        *member = serde_json::from_str(value.get()).unwrap_or_default();
    };
    // The text ends early, so an error does not matter.
    let _ = members(&mut metadata, read_member);
    identity
}

fn position(json: &[u8], text: &[u8]) -> Option<usize> {
    json.windows(text.len()).position(|window| window == text)
}

#[cfg(test)]
mod tests;
