//! Lists, page by page, each page within a bound: users decide on the size of objects, up to 1.5 MiB as stored.
//!
//! A page that is too large is requested again with fewer objects; after small pages larger ones are requested.

use std::ops::Range;

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::api::{Api, JSON, read, success, with_query};
use super::error::{ClusterError, RequestError};
use super::object::identity;

/// Maximal bytes of an object's JSON: etcd takes 1.5 MiB, a byte may be six here (`\u003c` is `<`), and names add up.
pub(super) const OBJECT: usize = 10 << 20;

/// Bounds of a page.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Number of objects on the first page.
    pub(super) first: u32,
    /// Maximal number of objects on a page.
    pub(super) most: u32,
    /// Maximal bytes of a page with more than one object.
    pub(super) bytes: usize,
    /// Maximal bytes of a page with one object.
    pub(super) object: usize,
}

pub(super) struct Pages {
    api: Api,
    /// Path with a query, without the parameters of a page.
    path: String,
    bounds: Bounds,
    /// Number of objects on the next page.
    size: u32,
}

/// Identity of an object that cannot be read, and the reason.
type Unread = Box<(ObjectMeta, ClusterError)>;

/// A page, with each object as its JSON.
pub(super) struct Page {
    body: Vec<u8>,
    items: Vec<Range<usize>>,
    /// Token of the next page, if there is more.
    pub(super) next: Option<String>,
    pub(super) resource_version: String,
    /// Identity of the only object, if it exceeds the bound.
    too_large: Option<ObjectMeta>,
}

impl Pages {
    pub(super) fn new(api: Api, path: String, bounds: Bounds) -> Self {
        Self { api, path, bounds, size: bounds.first }
    }

    /// Reads the page of this token, or the first one.
    pub(super) async fn get(&mut self, token: Option<&str>) -> Result<Page, RequestError> {
        loop {
            let size = self.size;
            let (limit, token) = (size.to_string(), token.map(|token| ("continue", token)));
            let path = with_query(&self.path, [("limit", &*limit)].into_iter().chain(token));
            let answer = success(self.api.send(Method::GET, &path, JSON, None).await?).await?;
            let bytes = if size == 1 { self.bounds.object } else { self.bounds.bytes };
            match read(answer.into_body(), bytes).await? {
                (body, true) => {
                    if body.len() < self.bounds.bytes / 4 {
                        self.size = (2 * size).min(self.bounds.most);
                    }
                    return Page::of(body);
                }
                (body, false) if size == 1 => return Page::behind(&body),
                _ => self.size = size / 2,
            }
        }
    }
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(default)]
    metadata: ListMeta,
    // A list without items has `null` here.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

impl Page {
    fn of(body: Vec<u8>) -> Result<Self, RequestError> {
        let Wire { metadata, items } = serde_json::from_slice(&body)?;
        let begin = body.as_ptr() as usize;
        let place = |item: &RawValue| {
            let at = item.get().as_ptr() as usize - begin;
            at..at + item.get().len()
        };
        let items = items.unwrap_or_default().into_iter().map(place).collect();
        let next = metadata.continue_.filter(|token| !token.is_empty());
        let resource_version = metadata.resource_version.unwrap_or_default();
        Ok(Self { items, next, resource_version, body, too_large: None })
    }

    /// Makes a page without its object from its beginning: the API server writes the list's metadata first, with the
    /// token of the next page.
    fn behind(begin: &[u8]) -> Result<Self, RequestError> {
        const ITEMS: &[u8] = b"\"items\":";
        let at = begin.windows(ITEMS.len()).position(|window| window == ITEMS);
        let head = &begin[..at.ok_or(RequestError::TooLarge)?];
        match Self::of([head, b"\"items\":[]}"].concat()) {
            Ok(page) if !page.resource_version.is_empty() => {
                let too_large = identity(begin, &["items", "metadata"]);
                Ok(Self { too_large: Some(too_large), ..page })
            }
            _ => Err(RequestError::TooLarge),
        }
    }

    /// Iterates over the objects, each read by itself; for an unreadable one its identity and the reason.
    pub(super) fn objects<T: DeserializeOwned>(&self) -> impl Iterator<Item = Result<T, Unread>> {
        let all = self.items.iter().map(|place| {
            let json = &self.body[place.clone()];
            // The error is dropped, as it quotes the object.
            let unread = |_| Box::new((identity(json, &["metadata"]), ClusterError::Malformed));
            serde_json::from_slice(json).map_err(unread)
        });
        let too_large = |object: &ObjectMeta| Err(Box::new((object.clone(), ClusterError::TooLarge)));
        all.chain(self.too_large.iter().map(too_large))
    }
}

#[cfg(test)]
mod tests;
