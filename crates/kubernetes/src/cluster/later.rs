//! When a request is sent again, as in client-go (`rest/with_retry.go`): the API server requests it, or a connection
//! broke before the response.

use std::error::Error;
use std::io;
use std::iter::successors;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Method, Response, StatusCode};

use super::error::RequestError;

/// Maximum number of times that a request is sent again.
pub(super) const TRIES: usize = 10;
/// Pause after a connection that broke.
const BROKEN: Duration = Duration::from_secs(1);

/// Returns the pause that a response requests: 429, or an error of the server, with whole seconds in `Retry-After`. The
/// response to an eviction that a budget forbids has no such header, so the eviction is not sent again.
pub(super) fn pause_of<B>(answer: &Response<B>) -> Option<Duration> {
    let status = answer.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// Returns the pause after an error, if the request changes nothing and its connection broke.
pub(super) fn pause_after(error: &RequestError, method: &Method) -> Option<Duration> {
    let RequestError::Unreachable(_, error) = error else {
        return None;
    };
    if method != Method::GET {
        return None;
    }
    let error: &(dyn Error + 'static) = &**error;
    let mut causes = successors(Some(error), |&error| error.source());
    if causes.any(is_broken_connection) {
        Some(BROKEN)
    } else {
        None
    }
}

fn is_broken_connection(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return error.is_incomplete_message();
    }
    match error.downcast_ref::<io::Error>() {
        Some(error) => matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
        ),
        None => false,
    }
}

#[cfg(test)]
mod tests;
