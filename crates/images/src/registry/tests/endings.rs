//! Answers whose end is the end of the connection, and answers that the connection's end cuts off.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;

/// Starts a server that sends this answer to any request, and then closes the connection without `close_notify`.
/// Returns the server's address.
async fn serve_without_close_notify(answer: String) -> String {
    let tls = TlsAcceptor::from(Arc::new(
        testregistry::Pki::new()
            .leaf(&["127.0.0.1"])
            .server_config(),
    ));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            _ = serve(&tls, tcp, &answer).await;
        }
    });
    address
}

async fn serve(tls: &TlsAcceptor, tcp: TcpStream, answer: &str) -> io::Result<()> {
    let mut connection = tls.accept(tcp).await?;
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(connection.read_u8().await?);
    }
    connection.write_all(answer.as_bytes()).await?;
    connection.flush().await
}

#[tokio::test]
async fn answer_without_length_may_end_without_close_notify() {
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}).to_string();
    let length = format!("content-length: {}\r\n", index.len());
    let chunked = "transfer-encoding: chunked\r\n";
    for (version, framing, body, expected) in [
        ("1.0", "", index.clone(), "Index"),
        ("1.1", "connection: close\r\n", index.clone(), "Index"),
        ("1.0", &length, index.clone(), "Index"),
        ("1.0", "", index[..index.len() - 1].to_owned(), "Json"),
        (
            "1.0",
            &length,
            index[..index.len() - 1].to_owned(),
            "unreachable",
        ),
        (
            "1.1",
            chunked,
            format!("{:x}\r\n{index}\r\n0\r\n\r\n", index.len()),
            "Index",
        ),
        (
            "1.1",
            chunked,
            format!("{:x}\r\n{index}\r\n", index.len()),
            "unreachable",
        ),
    ] {
        let case = format!("HTTP/{version} {framing:?} {body}");
        let answer =
            format!("HTTP/{version} 200 OK\r\ncontent-type: {OCI_INDEX}\r\n{framing}\r\n{body}");
        let address = serve_without_close_notify(answer).await;
        let settings = HostSettings {
            skip_verify: true,
            ..HostSettings::default()
        };
        let guard = AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        };
        let client =
            Registry::new([(address.clone(), settings)], guard, registry_metrics()).unwrap();
        let image = format!("{address}/team/app:v1").parse().unwrap();
        let support = client.fetch(&image, None).await.map(|found| found.support);
        assert!(kind(&support).starts_with(expected), "{case}: {support:?}");
        if let Err(error) = support {
            assert!(!error.to_string().contains("docs.rs"), "{case}");
        }
    }
}
