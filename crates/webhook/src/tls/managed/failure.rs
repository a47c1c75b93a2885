//! Operations of the issuer in the cluster, their failures, and the metrics of both.

use prometheus::{IntCounterVec, IntGauge};

use tolerarch_kubernetes::cluster::ClusterError;
use tolerarch_support::families;

/// Operation in the cluster: its name, which is a label in metrics, and the right that it needs.
#[derive(Clone, Copy)]
pub(super) struct Operation(pub(super) &'static str, pub(super) &'static str);

impl Operation {
    pub(super) const READ_WEBHOOKS: Self = Self(
        "read-webhooks",
        "get on the MutatingWebhookConfigurations of tls.webhookConfigurations",
    );
    pub(super) const READ_SECRET: Self = Self(
        "read-secret",
        "get on the Secrets of tls.secret and tls.servingSecret",
    );
    pub(super) const CREATE_SECRET: Self = Self(
        "create-secret",
        "create on the Secrets of tls.secret and tls.servingSecret, by their names",
    );
    pub(super) const WRITE_SECRET: Self = Self(
        "write-secret",
        "patch on the Secrets of tls.secret and tls.servingSecret",
    );
    pub(super) const DELETE_SECRET: Self = Self(
        "delete-secret",
        "delete on the Secrets of tls.secret and tls.servingSecret",
    );
    pub(super) const WRITE_WEBHOOKS: Self = Self(
        "write-webhooks",
        "patch on the MutatingWebhookConfigurations of tls.webhookConfigurations",
    );
    pub(super) const SIGN: Self = Self("sign", "none");
    const ALL: [Self; 7] = [
        Self::READ_WEBHOOKS,
        Self::READ_SECRET,
        Self::CREATE_SECRET,
        Self::WRITE_SECRET,
        Self::DELETE_SECRET,
        Self::WRITE_WEBHOOKS,
        Self::SIGN,
    ];

    pub(super) fn failed<E: Into<Cause>>(self) -> impl Fn(E) -> Failure {
        move |cause| Failure {
            operation: self,
            cause: cause.into(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Sign(#[from] rcgen::Error),
    #[error("no webhook has a Service or a URL that a certificate could be for")]
    NoWebhook,
    /// The Secret could not be changed and was removed, so that it is created anew. This is no failure.
    #[error("it could not be changed and is created anew")]
    Removed,
}

pub(super) struct Failure {
    pub(super) operation: Operation,
    pub(super) cause: Cause,
}

families! {
    pub struct ManagedMetrics by register {
        /// What failed while the serving certificate was managed.
        pub(super) failures: IntCounterVec["operation" of Operation::ALL.map(|operation| operation.0)]
            = "tolerarch_managed_certificate_failures_total",
        /// When the newest CA of managed certificates expires, in seconds since 1970; 0 without one.
        pub(super) ca_expiry: IntGauge = "tolerarch_managed_ca_expiry_timestamp_seconds",
    }
}
