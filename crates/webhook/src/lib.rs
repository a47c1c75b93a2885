//! HTTPS in, AdmissionReview in and out.
//!
//! [`listener`] accepts connections, with the certificate of [`tls`], and limits what each of them may cost.
//! [`admission`] answers `POST /mutate`, always with an answer that admits. [`admin`] answers probes and serves
//! metrics.

#![cfg_attr(
    test,
    allow(
        clippy::too_many_lines,
        clippy::cognitive_complexity,
        reason = "a test tells one story, however long"
    )
)]

pub mod admin;
pub mod admission;
pub mod listener;
pub mod tls;
