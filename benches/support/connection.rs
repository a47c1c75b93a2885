//! A connection as an API server keeps it open.

use std::net::SocketAddr;

use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{NAME, Result};

/// An open connection. It implements just enough of HTTP, so that it costs little beside the measured process.
pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    /// Bytes of the answer that were read so far.
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, tls: &TlsConnector) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = tls.connect(ServerName::try_from(NAME)?, stream).await?;
        Ok(Self {
            stream,
            read: Vec::with_capacity(16 << 10),
        })
    }

    /// Sends a review, and returns the body of the answer.
    pub(crate) async fn review(&mut self, request: &[u8]) -> Result<&[u8]> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.read.clear();
        loop {
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err("the connection was closed".into());
            }
            let Some(head) = self.read.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let total_length = head + 4 + content_length(&self.read[..head])?;
            if self.read.len() >= total_length {
                return Ok(&self.read[head + 4..total_length]);
            }
        }
    }
}

/// Returns the length of the body from the head of an answer, which must have status 200.
fn content_length(head: &[u8]) -> Result<usize> {
    let head = std::str::from_utf8(head)?;
    let mut lines = head.split("\r\n");
    if !lines
        .next()
        .is_some_and(|status| status.starts_with("HTTP/1.1 200"))
    {
        return Err(format!("not 200: {head}").into());
    }
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim())
    });
    Ok(length.ok_or("no Content-Length")?.parse()?)
}
