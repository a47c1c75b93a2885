//! Tags of a repository: listed page by page, each from the endpoint that gave the first one.

use std::collections::BTreeSet;

use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::Registry;
use super::client::{Answered, Pull};
use super::error::Error;
use super::link::{UnusableLink, next_query};
use super::metrics::RequestKind;
use super::response::HttpResponse;
use tolerarch_core::image::is_tag;
use tolerarch_text::json::{First, Object};

/// Query of the first page: registries that bound `n` mostly give fewer tags to a page, or refuse more than this.
const FIRST: &str = "n=1000";
/// Maximum number of pages. Quay gives a hundred tags to a page, whatever `n` is.
const PAGES: usize = 50;
/// Maximum number of tags, and of their bytes: more than large public repositories have (8,000 of Calico's).
const TAGS: usize = 20_000;
const BYTES: usize = 1 << 20;

/// Tags that a registry lists for a repository. Such a tag need not exist.
#[derive(Debug, Default)]
pub struct TagList {
    pub tags: BTreeSet<Box<str>>,
    /// False if the registry may have more tags.
    pub is_complete: bool,
    /// Failure of a page after the first one.
    pub failure: Option<Error>,
    /// Bytes of the tags.
    bytes: usize,
}

struct Page {
    tags: Vec<String>,
    /// Query of the next page.
    next: Result<Option<String>, UnusableLink>,
}

#[derive(Deserialize)]
struct Document {
    /// Null in an empty repository.
    tags: Option<First<String, TAGS>>,
}

impl Registry {
    /// Lists the tags of an image's repository. A list that the deadline, a bound or a failure cuts off is not complete;
    /// without a first page there is none.
    pub(crate) async fn tags(&self, pull: Pull<'_>, deadline: Instant) -> Result<TagList, Error> {
        let first = timeout_at(deadline, self.first_page(pull)).await;
        let Answered {
            endpoint,
            answer: mut page,
        } = first.unwrap_or(Err(Error::Timeout)).map_err(of_list)?;
        let mut list = TagList::default();
        for pages_left in (0..PAGES).rev() {
            let before = list.tags.len();
            let Page { tags, next } = page;
            let is_whole = list.add(tags);
            let query = match next {
                Ok(Some(query)) => query,
                Ok(None) => {
                    list.is_complete = is_whole;
                    break;
                }
                Err(UnusableLink) => break,
            };
            // A page without a new tag is one of before: the links lead round in circles.
            if pages_left == 0 || !is_whole || list.tags.len() == before {
                break;
            }
            let next = self.request_from(&endpoint, pull, RequestKind::Tags, &query, &read_page);
            let next = timeout_at(deadline, next).await;
            match next.unwrap_or(Err(Error::Timeout)) {
                Ok(next) => page = next,
                Err(error) => {
                    list.failure = Some(of_list(error));
                    break;
                }
            }
        }
        Ok(list)
    }

    /// Requests the first page; without `n` where that is refused, as by older distributions with `tags.maxtags`.
    async fn first_page(&self, pull: Pull<'_>) -> Result<Answered<Page>, Error> {
        match self
            .request(pull, RequestKind::Tags, FIRST, read_page)
            .await
        {
            Err(error) if matches!(error.cause(), Error::Unexpected(_)) => {
                self.request(pull, RequestKind::Tags, "", read_page).await
            }
            page => page,
        }
    }
}

impl TagList {
    /// Adds what is well-formed of a page; returns false if not all of the page can be kept.
    fn add(&mut self, tags: Vec<String>) -> bool {
        // One more than is kept shows that there are more.
        let is_whole = tags.len() <= TAGS;
        for tag in tags {
            if !is_tag(&tag) || self.tags.contains(&*tag) {
                continue;
            }
            self.bytes += tag.len();
            if self.tags.len() == TAGS || self.bytes > BYTES {
                return false;
            }
            self.tags.insert(tag.into());
        }
        is_whole
    }
}

fn read_page(response: &HttpResponse) -> Result<Page, Error> {
    let document = serde_json::from_slice(&response.body.bytes);
    let Object(Document { tags }) = document
        .map_err(|_| Error::Unexpected("the registry's list of tags is not JSON".into()))?;
    let First(tags) = tags.unwrap_or(First(Vec::new()));
    Ok(Page {
        tags,
        next: next_query(&response.headers),
    })
}

/// Returns the error in words for a list: it is no image.
fn of_list(error: Error) -> Error {
    match error {
        Error::BadManifest(error) => {
            Error::Unexpected(format!("the registry's list of tags: {error}"))
        }
        error => error,
    }
}
