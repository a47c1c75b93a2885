//! tolerarch is a mutating admission webhook for Kubernetes clusters that mix CPU architectures: it looks up on which
//! platforms the images of a new Pod run, and opens the multi-arch node pools to the Pods whose every image runs on
//! every architecture of the pool. Whatever goes wrong, the Pod is admitted as it came.
//!
//! # The way of a request
//!
//! ```text
//! bytes → admission → review → pod → resolver (cache → registry) → policy → patch → admission → bytes
//! ```
//!
//! | module | its one job |
//! |---|---|
//! | [`admission`] | HTTPS in and out, the deadline; a readable review is always allowed |
//! | [`review`] | bytes to AdmissionReview and back, read partially, the Pod never copied |
//! | [`pod`] | pure views of a Pod: images, tolerations, why it is left alone |
//! | [`image`] | value types: reference, platform, platform set, and why nobody knows |
//! | [`resolver`] | image to platforms: cache, one lookup a key, deadlines, work that goes on behind |
//! | [`registry`] | the OCI distribution protocol, and every limit it is held to |
//! | [`credentials`] | which credentials to try for an image, in which order |
//! | [`policy`] | pure: what is known of the Pod and its images, to a decision |
//! | [`reason`] | the closed list of what became of a Pod, and why |
//! | [`patch`] | pure: a decision to a JSON patch that is known to apply |
//!
//! Beside the road: [`cluster`] (all that talks to the Kubernetes API), [`tls`] (the serving certificate), [`config`],
//! [`metrics`], [`logging`], [`admin`] (metrics and probes), and the wiring, [`serve`] and [`cli`].
//!
//! I/O lives in `registry`, `credentials`, `cluster` and `tls`, state in `resolver` and in what `registry` and
//! `credentials` remember; `review`, `pod`, `image`, `policy` and `patch` are pure.

pub mod admission;
pub mod review;

pub mod decide;

pub mod pod;

pub mod image;

pub mod resolver;

pub mod registry;

pub mod credentials;

pub mod cluster;

pub mod policy;

pub mod reason;

pub mod patch;

pub mod admin;
pub mod cli;
pub mod config;
pub mod logging;
pub mod metrics;
pub mod serve;
pub mod tls;

mod body;
mod json;
mod single_flight;
mod yaml;

#[cfg(any(fuzzing, test))]
pub mod fuzzing;

#[cfg(test)]
mod testing;
