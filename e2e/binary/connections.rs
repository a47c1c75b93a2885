//! TLS versions, protocols, and several reviews on one connection.

use rustls::ProtocolVersion::{TLSv1_2, TLSv1_3};
use rustls::version::{TLS12, TLS13};
use serde_json::json;
use testregistry::Registry;

use super::program::Program;
use crate::support::https::trusting;
use crate::support::review::{Verdict, opted_out, post, review};
use crate::support::until;

#[tokio::test]
async fn http_1_1_is_served_over_tls_1_2_and_1_3() {
    let program = Program::start(&Registry::start().await, json!({})).await;
    for (version, agreed) in [(&TLS12, TLSv1_2), (&TLS13, TLSv1_3)] {
        for (offered, protocol) in [
            (&["http/1.1"][..], Some("http/1.1")),
            (&["h2", "http/1.1"], Some("http/1.1")),
            (&[], None),
        ] {
            let client = program
                .webhook
                .with(trusting(&program.pki, &[version], offered));
            let mut connection = client.connect().await;
            assert_eq!(connection.session.version, Some(agreed));
            assert_eq!(connection.session.protocol.as_deref(), protocol);
            assert_eq!(
                Verdict::of(
                    &connection
                        .exchange(&post("/mutate", &review("u-1", &opted_out())))
                        .await
                )
                .reason,
                "opted-out"
            );
        }
        let client = program
            .webhook
            .with(trusting(&program.pki, &[version], &["h2"]));
        assert!(client.try_connect().await.is_err(), "HTTP/2 only");
    }
    until("both are counted", async || {
        program.metric("tolerarch_tls_handshake_errors_total").await == "2"
    })
    .await;
}

#[tokio::test]
async fn reviews_on_one_connection_are_answered_in_order() {
    let program = Program::start(&Registry::start().await, json!({})).await;
    let uids = ["u-1", "u-2", "u-3"];
    let requests = uids.map(|uid| post("/mutate", &review(uid, &opted_out())));

    let mut sequential = program.webhook.connect().await;
    for (uid, request) in uids.iter().zip(&requests) {
        let answer = sequential.exchange(request).await;
        assert_eq!(
            (Verdict::of(&answer).uid.as_str(), answer.closes()),
            (*uid, false)
        );
    }

    let mut pipelined = program.webhook.connect().await;
    pipelined.send(&requests.concat()).await.unwrap();
    for uid in uids {
        assert_eq!(Verdict::of(&pipelined.answer().await.unwrap()).uid, uid);
    }
}
