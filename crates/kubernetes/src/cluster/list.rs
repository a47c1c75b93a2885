//! Lists, page by page, each page within a bound: users decide on the size of objects, up to 1.5 MiB as stored.
//!
//! A page that is too large is requested again with fewer objects; after small pages larger ones are requested.

use kube::api::ObjectList;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::api::{Api, JSON, read, with_query};
use super::error::{ClusterError, RequestError};
use super::metadata::Metadata;
use tolerarch_text::json::members;

/// Maximum bytes of an object's JSON: etcd takes 1.5 MiB, a byte may be six here (`\u003c` is `<`), and names add up.
pub(super) const OBJECT: usize = 10 << 20;

#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Number of objects on the first page.
    pub(super) first: u32,
    /// Maximum number of objects on a page.
    pub(super) most: u32,
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

/// An object, or the identity of one that cannot be read, and the reason.
pub(super) type Read<T> = Result<T, Box<(Metadata, ClusterError)>>;

/// A page, of which each object is read by itself.
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
            let limit = size.to_string();
            let mut query = vec![("limit", limit.as_str())];
            query.extend(self.next.as_deref().map(|token| ("continue", token)));
            let path = with_query(&self.path, query);
            let answer = self.api.get(&path, JSON).await?;
            let bytes = if size == 1 {
                self.bounds.object
            } else {
                self.bounds.bytes
            };
            match self.api.in_time(read(answer.into_body(), bytes)).await? {
                (body, true) => {
                    if body.len() < self.bounds.bytes / 4 {
                        self.size = (2 * size).min(self.bounds.most);
                    }
                    break Page::of(&body)?;
                }
                (body, false) if size == 1 => break Page::behind(&body)?,
                _ => self.size = size / 2,
            }
        };
        self.next.clone_from(&page.next);
        Ok(page)
    }
}

impl<T: DeserializeOwned> Page<T> {
    fn of(body: &[u8]) -> Result<Self, RequestError> {
        let ObjectList::<&RawValue> {
            metadata, items, ..
        } = serde_json::from_slice(body)?;
        let object = |item: &RawValue| {
            // The error is dropped, as it quotes the object.
            let unread = |_| Box::new((identity(item.get().as_bytes()), ClusterError::Malformed));
            serde_json::from_str(item.get()).map_err(unread)
        };
        Ok(Self {
            objects: items.into_iter().map(object).collect(),
            next: metadata.continue_.filter(|token| !token.is_empty()),
            resource_version: metadata.resource_version.unwrap_or_default(),
        })
    }

    /// Makes a page without its object from its beginning, where the API server writes the token of the next page.
    fn behind(begin: &[u8]) -> Result<Self, RequestError> {
        const ITEMS: &[u8] = b"\"items\":";
        let (head, items) = begin.split_at(place(begin, ITEMS).ok_or(RequestError::TooLarge)?);
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

/// Identifies the first object of a truncated JSON: the API server writes metadata first, and no text has a bare quote.
pub(super) fn identity(json: &[u8]) -> Metadata {
    const METADATA: &[u8] = b"\"metadata\":";
    let mut identity = Metadata::default();
    if let Some(at) = place(json, METADATA) {
        let mut metadata = serde_json::Deserializer::from_slice(&json[at + METADATA.len()..]);
        let take = |name: String, value: &RawValue| {
            let member = match &*name {
                "name" => &mut identity.name,
                "namespace" => &mut identity.namespace,
                "uid" => &mut identity.uid,
                "resourceVersion" => &mut identity.resource_version,
                _ => return,
            };
            *member = serde_json::from_str(value.get()).unwrap_or_default();
        };
        // An error at the end does not matter.
        let _ = members(&mut metadata, take);
    }
    identity
}

fn place(json: &[u8], text: &[u8]) -> Option<usize> {
    json.windows(text.len()).position(|window| window == text)
}

#[cfg(test)]
mod tests;
