//! HTTP/1.1 over TLS as the API server uses it for webhooks, with keep-alive. Many tests send bytes that no client library
//! would send, so this uses none.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use testregistry::Pki;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::soon;

/// The name for which the API server verifies the webhook's certificate: service and namespace.
pub(crate) const NAME: &str = "tolerarch.tolerarch.svc";

/// Returns the TLS settings of a client that trusts this authority, with these versions and protocols.
pub(crate) fn trusting(
    pki: &Pki,
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&str],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap())
        .unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_protocol_versions(versions)
    .unwrap()
    .with_root_certificates(roots)
    .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|protocol| protocol.as_bytes().to_vec())
        .collect();
    config
}

/// A client of one address.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    tls: Option<TlsConnector>,
}

impl Client {
    /// Makes a client without TLS.
    pub(crate) fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    /// Makes a client with the TLS settings of the API server.
    pub(crate) fn secure(address: SocketAddr, pki: &Pki) -> Self {
        Self::plain(address).with(trusting(pki, rustls::DEFAULT_VERSIONS, &["http/1.1"]))
    }

    /// Returns a client with these TLS settings.
    pub(crate) fn with(&self, tls: ClientConfig) -> Self {
        Self {
            tls: Some(TlsConnector::from(Arc::new(tls))),
            ..*self
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens a connection. Returns an error if it is refused or the handshake fails.
    pub(crate) async fn try_connect(&self) -> io::Result<Connection> {
        let connect = async {
            let tcp = TcpStream::connect(self.address).await?;
            tcp.set_nodelay(true)?;
            let Some(tls) = &self.tls else {
                return Ok(Connection {
                    stream: BufReader::new(Box::new(tcp)),
                    session: Session::default(),
                });
            };
            let stream = tls
                .connect(ServerName::try_from(NAME).unwrap(), tcp)
                .await?;
            let (_, state) = stream.get_ref();
            let session = Session {
                certificate: state.peer_certificates().unwrap_or_default()[0].to_vec(),
                version: state.protocol_version(),
                protocol: state
                    .alpn_protocol()
                    .map(|name| String::from_utf8_lossy(name).into_owned()),
            };
            Ok(Connection {
                stream: BufReader::new(Box::new(stream)),
                session,
            })
        };
        soon("a connection, or its end", connect).await
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Connection {
        self.try_connect().await.unwrap()
    }

    /// Sends a request on a new connection, and returns the answer.
    pub(crate) async fn exchange(&self, request: &[u8]) -> Answer {
        self.connect().await.exchange(request).await
    }

    /// Sends a GET request on a new connection, and returns the answer.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.exchange(&request("GET", path, &[], b"")).await
    }
}

/// Returns a request with `Content-Length`.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {NAME}:443\r\nUser-Agent: kube-apiserver-admission\r\n\
         Accept: application/json, */*\r\nAccept-Encoding: gzip\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An open connection.
pub(crate) struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    /// The result of the handshake.
    pub(crate) session: Session,
}

/// The result of a TLS handshake.
#[derive(Default)]
pub(crate) struct Session {
    /// The server's certificate, DER.
    pub(crate) certificate: Vec<u8>,
    pub(crate) version: Option<rustls::ProtocolVersion>,
    pub(crate) protocol: Option<String>,
}

impl Connection {
    /// Sends a request and returns the answer, which may come before the whole request is sent.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Answer {
        let sent = self.send(request).await;
        match self.answer().await {
            Ok(answer) => answer,
            Err(error) => panic!("no answer: {error}; sent: {sent:?}"),
        }
    }

    /// Sends bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let send = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        soon("bytes are sent", send).await
    }

    /// Returns the next answer, or an error if the connection ends first.
    pub(crate) async fn answer(&mut self) -> io::Result<Answer> {
        soon("an answer", self.read()).await
    }

    /// Waits until the other side closes the connection. Returns the bytes received before.
    pub(crate) async fn end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // The connection may also end with a reset.
        let _ = soon(
            "the end of a connection",
            self.stream.read_to_end(&mut rest),
        )
        .await;
        rest
    }

    async fn read(&mut self) -> io::Result<Answer> {
        let status = self.line().await?;
        let status = status
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .expect("a status line");
        let mut headers = Vec::new();
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Answer {
            status,
            headers,
            body: Vec::new(),
        };
        let length = answer
            .header("content-length")
            .expect("content-length")
            .parse()
            .unwrap();
        answer.body.resize(length, 0);
        self.stream.read_exact(&mut answer.body).await?;
        Ok(answer)
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns a header by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the server closes the connection after the answer.
    pub(crate) fn closes(&self) -> bool {
        self.header("connection") == Some("close")
    }
}
