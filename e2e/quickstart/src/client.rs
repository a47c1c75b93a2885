//! The API server's part: sends reviews over one connection that stays open, and applies the patches.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use json_patch::Patch;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use testregistry::Pki;
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant};
use tokio_rustls::TlsConnector;

use crate::{Result, SERVICE_NAME};

/// A connection to the webhook.
pub(crate) struct Client(SendRequest<Full<Bytes>>);

/// The webhook's answer to one review.
pub(crate) struct Answer {
    pub(crate) decision: String,
    pub(crate) reason: String,
    /// The image that decided, if one did.
    pub(crate) image: Option<String>,
    pub(crate) patch: Option<Patch>,
    /// The Pod after the patch.
    pub(crate) pod: Value,
    pub(crate) took: Duration,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, pki: &Pki) -> Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let tls = TlsConnector::from(Arc::new(pki.client_config()));
        let stream = tls
            .connect(ServerName::try_from(SERVICE_NAME)?, tcp)
            .await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Sends the review of a Pod, and applies the patch of the answer to it.
    pub(crate) async fn review(&mut self, pod: &Value) -> Result<Answer> {
        let request = hyper::Request::post("/mutate?timeout=5s")
            .header("Host", SERVICE_NAME)
            .header("Content-Type", "application/json")
            .body(Full::from(review(pod).to_string()))?;
        self.0.ready().await?;
        let sent_at = Instant::now();
        let http_response = self.0.send_request(request).await?;
        let status = http_response.status();
        let body = http_response.into_body().collect().await?.to_bytes();
        let took = sent_at.elapsed();

        let review: Value = serde_json::from_slice(&body)
            .map_err(|error| format!("the answer with status {status} is no review: {error}"))?;
        let response = &review["response"];
        if response["allowed"] != true {
            return Err(format!("the Pod is not allowed: {review}").into());
        }
        let mut patched_pod = pod.clone();
        let mut patch = None;
        if let Some(encoded) = response["patch"].as_str() {
            let decoded: Patch = serde_json::from_slice(&BASE64.decode(encoded)?)?;
            json_patch::patch(&mut patched_pod, &decoded)?;
            patch = Some(decoded);
        }
        Ok(Answer {
            decision: audit_annotation(response, "decision").unwrap_or_default(),
            reason: audit_annotation(response, "reason").unwrap_or_default(),
            image: audit_annotation(response, "image"),
            patch,
            pod: patched_pod,
            took,
        })
    }
}

fn audit_annotation(response: &Value, key: &str) -> Option<String> {
    let value = response["auditAnnotations"][key].as_str()?;
    Some(value.to_owned())
}

/// Returns the AdmissionReview that the API server sends when a Pod is created.
pub(crate) fn review(pod: &Value) -> Value {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kind, "resource": resource,
            "requestKind": kind, "requestResource": resource, "namespace": "shop", "operation": "CREATE",
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
            "object": pod, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}
