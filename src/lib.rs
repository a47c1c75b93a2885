//! tolerarch is a mutating admission webhook for Kubernetes clusters that mix CPU architectures: it looks up on which
//! platforms the images of a new Pod run, and opens the multi-arch node pools to the Pods whose every image runs on
//! every architecture of the pool. Whatever goes wrong, the Pod is admitted as it came.
//!
//! # The way of a request
//!
//! ```text
//! listener → admission → review → pod → decide (resolver: cache → shared cache → registry; policy → placement) → patch → admission
//! ```
//!
//! | module | its one job |
//! |---|---|
//! | [`listener`] | TLS and HTTP/1.1 on both ports, and what a connection may cost |
//! | [`admission`] | `POST /mutate`: the body, the deadline; a readable review is always allowed |
//! | [`review`] | bytes to AdmissionReview and back, read partially, the Pod never copied |
//! | [`pod`] | facts of a Pod, from a review or a value: images, tolerations, why it is skipped |
//! | [`decide`] | from a Pod to what becomes of it: which images to look up, with which credentials, until when |
//! | [`image`] | value types: reference, platform, platform set, and why it is unknown |
//! | [`resolver`] | image to platforms: cache, one lookup a key, deadlines, work that goes on behind |
//! | [`shared_cache`] | what replicas know of images, in a Valkey or Redis behind each one's memory |
//! | [`registry`] | the OCI distribution protocol, and every limit it is held to |
//! | [`credentials`] | which credentials to try for an image, in which order |
//! | [`policy`] | pure: what is known of the images, to a verdict for each pool |
//! | [`placement`] | pure: verdicts to edits of the Pod, and which of its parts are ours |
//! | [`discovery`] | pure: a cluster's NodePools and nodes, to the pools there are and the platforms they can have |
//! | [`reason`] | the closed list of what became of a Pod, and why |
//! | [`patch`] | pure: edits to a JSON patch that is known to apply |
//! | [`census`] | pure: decisions on all Pods of a cluster, to sums by what their images support |
//!
//! Beside it: [`cluster`] (all that talks to the Kubernetes API), [`controller`] (what goes on after admission), [`warm_start`]
//! (the images of running Pods, at the start), [`tls`] (the serving certificate), [`config`],
//! [`environment`], [`metrics`], [`logging`], [`health`] (what each component says of itself), [`admin`] (metrics and probes), and the
//! wiring, [`serve`] and [`cli`]. Below them: `body` (bodies within a budget), `concurrency` (limits shared fairly),
//! `single_flight` (one run for all who ask), `file` (the operator's files within bounds), `json` and `yaml` (reading
//! untrusted text within bounds), `go_duration` (durations as Go writes them).
//!
//! I/O lives in `registry`, `shared_cache`, `credentials`, `cluster` and `tls`, state in `resolver` and in what `registry`
//! and `credentials` remember; `review`, `pod`, `image`, `policy`, `placement`, `discovery`, `patch` and `census` are pure.

pub mod cli;
pub mod config;
pub mod serve;
