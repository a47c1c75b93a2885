//! Raw answers, as Go's client reads them and as this client does: `e2e/conformance`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use super::*;
use crate::registry::metrics::RequestKind;
use crate::registry::net::{HttpRequest, Server};
use crate::registry::response::HttpResponse;
use ::conformance::assert_agreement;

const HEADERS: [&str; 7] = [
    "content-type",
    "docker-content-digest",
    "location",
    "ratelimit-limit",
    "ratelimit-remaining",
    "retry-after",
    "www-authenticate",
];

#[derive(Deserialize)]
struct Head {
    answer: String,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    headers: Vec<String>,
    #[serde(default)]
    body: String,
}

/// Status, relevant headers, and body of an answer.
type Parsed = (u16, Vec<String>, String);

/// Reads one request, answers it with these bytes, and closes the connection.
async fn answer(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") && stream.read_buf(&mut request).await? > 0 {}
    stream.write_all(bytes).await?;
    stream.shutdown().await?;
    // Closing with unread bytes would reset the connection.
    while stream.read_buf(&mut request).await? > 0 {}
    Ok(())
}

async fn exchange(
    client: &Registry,
    listener: &TcpListener,
    bytes: &[u8],
) -> Result<Parsed, Error> {
    let url = Url::parse(&format!("http://{}/v2/", listener.local_addr().unwrap())).unwrap();
    let request = HttpRequest {
        kind: RequestKind::Manifest,
        url: &url,
        authorization: None,
        server: Server::Configured(&HeaderMap::new()),
        form: None,
        is_idempotent: false,
    };
    let served = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        // The client may close the connection first.
        let _ = answer(&mut stream, bytes).await;
    };
    let (response, ()) = tokio::join!(client.transport.send(&request), served);
    response.map(|response| parsed(&response))
}

fn parsed(response: &HttpResponse) -> Parsed {
    let mut headers = Vec::new();
    for name in HEADERS {
        for value in response.headers.get_all(name) {
            // Readers of a value ignore blanks at its end.
            let value = String::from_utf8_lossy(value.as_bytes());
            headers.push(format!("{name}: {value}").trim_end().to_owned());
        }
    }
    (
        response.status.as_u16(),
        headers,
        String::from_utf8_lossy(&response.body.bytes).into_owned(),
    )
}

fn client() -> Registry {
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        deny: vec![],
    };
    Registry::new([], guard, registry_metrics()).unwrap()
}

/// Returns whether Go may accept an answer that hyper cannot be made to accept. docs/registries.md lists such answers.
fn is_unsupported(wire: &str) -> bool {
    let line = wire
        .lines()
        .find(|line| !line.starts_with("HTTP/1.1 1"))
        .unwrap_or_default();
    let is_other_version = !line.starts_with("HTTP/1.0 ") && !line.starts_with("HTTP/1.1 ");
    let status = line.split(' ').nth(1).unwrap_or_default();
    let is_other_status = !status.starts_with(|digit: char| ('1'..='9').contains(&digit));
    let has_encoding = wire.to_lowercase().contains("\ntransfer-encoding:");
    is_other_version || is_other_status || line.starts_with("HTTP/1.0 ") && has_encoding
}

/// Returns whether a header's name has a blank. Go keeps the blank in the name, so nothing finds the header.
fn has_blank_in_name(wire: &str) -> bool {
    wire.lines().any(|line| {
        line.split(':')
            .next()
            .is_some_and(|name| name.ends_with(' '))
    })
}

#[tokio::test]
async fn answers_are_read_as_in_gos_client_upstream() {
    let client = client();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut answers = Vec::new();
    for Head {
        answer,
        status,
        headers,
        body,
    } in ::conformance::cases("heads")
    {
        let bytes = STANDARD.decode(answer).unwrap();
        let wire = String::from_utf8_lossy(&bytes).into_owned();
        let ours = exchange(&client, &listener, &bytes).await;
        // An answer that Go refuses reaches no node, so it is not compared.
        if status == 0 || is_unsupported(&wire) {
            continue;
        }
        let headers = headers
            .iter()
            .map(|header| header.trim_end().to_owned())
            .collect();
        let body = String::from_utf8_lossy(&STANDARD.decode(body).unwrap()).into_owned();
        let theirs: Parsed = (status, headers, body);
        let mut ours = ours.map_err(|error| error.to_string());
        if let Ok((_, headers, _)) = &mut ours
            && has_blank_in_name(&wire)
        {
            headers.clone_from(&theirs.1);
        }
        answers.push((wire.chars().take(300).collect(), ours, Ok(theirs)));
    }
    assert_agreement(answers);
}
