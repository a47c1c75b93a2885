//! HTTPS in, AdmissionReview in and out.

pub mod admin;
pub mod admission;
pub mod listener;
pub mod tls;
