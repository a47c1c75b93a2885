//! Lists, page by page, each page within a bound: objects have up to 1.5 MiB where they are stored, which their authors decide.
//!
//! A page that is too large is asked for again with fewer objects; small ones are followed by larger ones.

use std::ops::Range;

use http::{Method, StatusCode};
use kube::Client;
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::object::identity;
use super::{ClusterError, JSON, read, request};

/// Bytes of an object's JSON: etcd takes 1.5 MiB, of which a byte may be six here (`\u003c` is `<`), and names on top.
pub(super) const OBJECT: usize = 10 << 20;
/// Bytes of an answer that is no page: it says why.
const REFUSAL: usize = 64 << 10;

/// How much a page may have.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Objects of the first page.
    pub(super) first: u32,
    /// Objects of the largest page.
    pub(super) most: u32,
    /// Bytes of a page with more than one object.
    pub(super) bytes: usize,
    /// Bytes of a page with one.
    pub(super) object: usize,
}

pub(super) struct Pages {
    client: Client,
    /// With a query, but for what is about pages.
    path: String,
    bounds: Bounds,
    /// Objects of the next page.
    size: u32,
}

pub(super) enum Answer {
    Page(Box<Page>),
    Refused(StatusCode, Vec<u8>),
}

/// A page, with each object as its JSON.
#[derive(Default)]
pub(super) struct Page {
    body: Vec<u8>,
    items: Vec<Range<usize>>,
    /// How to go on, if there is more.
    pub(super) next: Option<String>,
    pub(super) resource_version: String,
    /// The object of this page, where it is larger than what is read.
    pub(super) too_large: Option<Box<ObjectMeta>>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    #[error("not a path of the API")]
    Path,
    #[error(transparent)]
    Client(kube::Error),
    #[error("the answer broke off")]
    Broken,
    /// A page that is larger than what is read, although it has one object, and does not say how to go on behind it.
    #[error("an object of a list is too large")]
    TooLarge,
    #[error(transparent)]
    Malformed(#[from] serde_json::Error),
}

impl From<&PageError> for ClusterError {
    fn from(error: &PageError) -> Self {
        match error {
            PageError::Client(kube::Error::Auth(_)) => Self::Unauthorized,
            PageError::Client(_) | PageError::Broken => Self::Unreachable,
            PageError::TooLarge => Self::TooLarge,
            PageError::Path | PageError::Malformed(_) => Self::Malformed,
        }
    }
}

impl Pages {
    pub(super) fn new(client: Client, path: String, bounds: Bounds) -> Self {
        Self { client, path, bounds, size: bounds.first }
    }

    /// The page that this token leads to, or the first one.
    pub(super) async fn get(&mut self, token: Option<&str>) -> Result<Answer, PageError> {
        loop {
            let size = self.size;
            let request = request(Method::GET, &self.uri(token), JSON, None).map_err(|_| PageError::Path)?;
            let (head, body) = self.client.send(request).await.map_err(PageError::Client)?.into_parts();
            let broken = |_| PageError::Broken;
            if !head.status.is_success() {
                return Ok(Answer::Refused(head.status, read(body, REFUSAL).await.map_err(broken)?.0));
            }
            let bytes = if size == 1 { self.bounds.object } else { self.bounds.bytes };
            let (body, is_whole) = read(body, bytes).await.map_err(broken)?;
            if is_whole {
                if body.len() < self.bounds.bytes / 4 {
                    self.size = (2 * size).min(self.bounds.most);
                }
                return Page::of(body).map(|page| Answer::Page(page.into()));
            }
            if size == 1 {
                return Page::behind(&body).map(|page| Answer::Page(page.into()));
            }
            self.size = size / 2;
        }
    }

    fn uri(&self, token: Option<&str>) -> String {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        let page = format!("{}{separator}limit={}", self.path, self.size);
        token.map_or(page.clone(), |token| {
            let token: String = url::form_urlencoded::byte_serialize(token.as_bytes()).collect();
            format!("{page}&continue={token}")
        })
    }
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(default)]
    metadata: Metadata,
    // A list without items has `null` there.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    resource_version: Option<String>,
    r#continue: Option<String>,
}

impl Page {
    fn of(body: Vec<u8>) -> Result<Self, PageError> {
        let Wire { metadata, items } = serde_json::from_slice(&body)?;
        let begin = body.as_ptr() as usize;
        let place = |item: &RawValue| {
            let at = item.get().as_ptr() as usize - begin;
            at..at + item.get().len()
        };
        let items = items.unwrap_or_default().into_iter().map(place).collect();
        let Metadata { resource_version, r#continue } = metadata;
        let next = r#continue.filter(|token| !token.is_empty());
        let resource_version = resource_version.unwrap_or_default();
        Ok(Self { items, next, resource_version, body, too_large: None })
    }

    /// The page without its object, from how it begins: the API server writes its metadata first, with how to go on.
    fn behind(begin: &[u8]) -> Result<Self, PageError> {
        const ITEMS: &[u8] = b"\"items\":";
        let at = begin.windows(ITEMS.len()).position(|window| window == ITEMS).ok_or(PageError::TooLarge)?;
        let page = Self::of([&begin[..at], b"\"items\":[]}"].concat()).map_err(|_| PageError::TooLarge)?;
        if page.resource_version.is_empty() {
            return Err(PageError::TooLarge);
        }
        Ok(Self { too_large: Some(identity(begin, &["items", "metadata"]).into()), ..page })
    }

    /// Its objects, each read by itself: of one that cannot be read, what identifies it.
    pub(super) fn objects<T: DeserializeOwned>(&self) -> impl Iterator<Item = Result<T, Box<ObjectMeta>>> {
        self.items.iter().map(|place| {
            let json = &self.body[place.clone()];
            // Nothing of the error: it quotes what is there.
            serde_json::from_slice(json).map_err(|_| identity(json, &["metadata"]).into())
        })
    }
}

#[cfg(test)]
mod tests;
