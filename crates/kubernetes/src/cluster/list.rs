//! Lists, page by page, each page within a bound: objects have up to 1.5 MiB where they are stored, which their authors decide.
//!
//! A page that is too large is asked for again with fewer objects; small ones are followed by larger ones.

use std::ops::Range;

use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::api::ObjectMeta;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::object::identity;

/// Bytes of an object's JSON: where etcd takes 1.5 MiB, a byte of a text may be six (`\u003c` is `<`), and names of members
/// come on top.
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

/// A list that is read page by page.
pub(super) struct Pages {
    client: Client,
    /// With a query, but for what is about pages.
    path: String,
    bounds: Bounds,
    /// Objects of the next page.
    size: u32,
}

/// What came of asking for a page.
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

/// Why there is no page.
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

/// An object that cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) Box<ObjectMeta>);

impl Pages {
    pub(super) fn new(client: Client, path: String, bounds: Bounds) -> Self {
        Self { client, path, bounds, size: bounds.first }
    }

    /// The page that this token leads to, or the first one.
    pub(super) async fn get(&mut self, token: Option<&str>) -> Result<Answer, PageError> {
        loop {
            let size = self.size;
            let request = Request::get(self.uri(token)).header(ACCEPT, "application/json");
            let request = request.body(Body::empty()).map_err(|_| PageError::Path)?;
            let (head, body) = self.client.send(request).await.map_err(PageError::Client)?.into_parts();
            if !head.status.is_success() {
                return Ok(Answer::Refused(head.status, read(body, REFUSAL).await?.0));
            }
            let bytes = if size == 1 { self.bounds.object } else { self.bounds.bytes };
            let (body, is_whole) = read(body, bytes).await?;
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
        let token: String = match token {
            Some(token) => url::form_urlencoded::byte_serialize(token.as_bytes()).collect(),
            None => return format!("{}{separator}limit={}", self.path, self.size),
        };
        format!("{}{separator}limit={}&continue={token}", self.path, self.size)
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
        Ok(Self {
            items,
            next,
            resource_version: resource_version.unwrap_or_default(),
            body,
            too_large: None,
        })
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

    /// Its objects, each read by itself: one that cannot be read is no reason to lose another.
    pub(super) fn objects<T: DeserializeOwned>(&self) -> impl Iterator<Item = Result<T, Unreadable>> {
        self.items.iter().map(|place| object(&self.body[place.clone()]))
    }
}

/// Reads an object.
pub(super) fn object<T: DeserializeOwned>(json: &[u8]) -> Result<T, Unreadable> {
    // Nothing of the error: it quotes what is there.
    serde_json::from_slice(json).map_err(|_| Unreadable(identity(json, &["metadata"]).into()))
}

/// So many bytes of a body at most, and whether that is all.
async fn read(mut body: Body, most: usize) -> Result<(Vec<u8>, bool), PageError> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| PageError::Broken)?.into_data() else { continue };
        let room = most - read.len();
        if data.len() > room {
            read.extend_from_slice(&data[..room]);
            return Ok((read, false));
        }
        read.extend_from_slice(&data);
    }
    Ok((read, true))
}

#[cfg(test)]
mod tests;
