//! Pages of lists, of which each is read within a bound: Pods have up to 1.5 MiB, which their authors decide, and kube reads a
//! page as a whole.
//!
//! It stands between kube's watches and its client, and chooses how many objects a page has. A page that is too large is asked
//! for again with half as many; small ones are followed by larger ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use tower_service::Service;

/// Bytes of a page. An object has up to 1.5 MiB where it is stored.
pub(super) const BYTES: usize = 2 << 20;
/// Objects of the first page, and of the largest one.
pub(super) const FIRST: u32 = 50;
const MOST: u32 = 500;
/// Bytes of an answer that is no page: it says why.
const REFUSAL: usize = 64 << 10;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A client whose lists come in such pages. For one list at a time.
pub(super) struct Pages {
    client: Client,
    /// Objects of the next page.
    size: Arc<AtomicU32>,
}

/// A page that is larger than what is read, although it has one object, and does not say how to go on behind it.
#[derive(Debug, thiserror::Error)]
#[error("an object of a list is too large")]
pub(super) struct TooLarge;

impl Pages {
    pub(super) fn new(client: Client) -> Self {
        Self { client, size: Arc::new(AtomicU32::new(FIRST)) }
    }
}

impl Service<Request<Body>> for Pages {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, size) = (self.client.clone(), Arc::clone(&self.size));
        Box::pin(async move {
            match is_page(&request) {
                true => page(&client, &request.into_parts().0, &size).await,
                false => Ok(client.send(request).await?),
            }
        })
    }
}

fn is_page(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == Method::GET && query.split('&').any(|pair| pair.starts_with("limit="))
}

async fn page(client: &Client, head: &Parts, next: &AtomicU32) -> Result<Response<Body>, BoxError> {
    loop {
        let size = next.load(Ordering::Relaxed);
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = sized(&head.uri, size)?;
        *request.headers_mut() = head.headers.clone();
        let (head, body) = client.send(request).await?.into_parts();
        if !head.status.is_success() {
            let (body, _) = read(body, REFUSAL).await?;
            return Ok(Response::from_parts(head, body.into()));
        }
        let (body, is_whole) = read(body, BYTES).await?;
        if is_whole {
            if body.len() < BYTES / 4 {
                next.store((2 * size).min(MOST), Ordering::Relaxed);
            }
            return Ok(Response::from_parts(head, body.into()));
        }
        if size == 1 {
            let rest = without_items(&body).ok_or(TooLarge)?;
            tracing::warn!(bytes = BYTES, "an object of a list is larger than what is read, and left out");
            return Ok(Response::from_parts(head, rest.into()));
        }
        next.store(size / 2, Ordering::Relaxed);
    }
}

/// The same, for a page of this size.
fn sized(uri: &Uri, size: u32) -> Result<Uri, http::Error> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.starts_with("limit="));
    let pairs: Vec<&str> = pairs.filter(|pair| !pair.is_empty()).collect();
    let path = format!("{}?limit={size}&{}", uri.path(), pairs.join("&"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.trim_end_matches('&').parse()?);
    Ok(Uri::from_parts(parts)?)
}

/// So many bytes of a body at most, and whether that is all.
async fn read(mut body: Body, most: usize) -> Result<(Vec<u8>, bool), BoxError> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let room = most - read.len();
        if data.len() > room {
            read.extend_from_slice(&data[..room]);
            return Ok((read, false));
        }
        read.extend_from_slice(&data);
    }
    Ok((read, true))
}

/// The page without its objects, from how it begins: the API server writes its metadata first, with where the next one
/// begins.
fn without_items(begin: &[u8]) -> Option<Vec<u8>> {
    const ITEMS: &[u8] = b"\"items\":";
    let at = begin.windows(ITEMS.len()).position(|window| window == ITEMS)?;
    let page = [&begin[..at], b"\"items\":[]}"].concat();
    let read: serde_json::Value = serde_json::from_slice(&page).ok()?;
    read.pointer("/metadata/resourceVersion").is_some().then_some(page)
}

#[cfg(test)]
mod tests;
