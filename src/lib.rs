//! tolerarch is a mutating admission webhook for Kubernetes clusters that mix CPU architectures: it looks up on which
//! platforms the images of a new Pod run, and adds the tolerations of the multi-arch node pools to the Pods whose every
//! image runs on every architecture of the pool. Whatever goes wrong, the Pod is admitted unchanged.
//!
//! The way of a review: `tolerarch_webhook` (HTTPS, admission) → `tolerarch_engine` (which images, with which credentials,
//! until when) → `tolerarch_images` (cache, shared cache, registry) → `tolerarch_core` (verdict, edits, patch) and back.
//! `tolerarch_controller` does what goes on after admission; `tolerarch_kubernetes` talks to the API server for all of
//! them; `tolerarch_support` and `tolerarch_text` lie below. Dependencies point from the first of these to the last.
//!
//! This crate is the program: [`config`], the wiring of a process ([`serve`]), and the commands ([`cli`]).

pub mod cli;
pub mod config;
pub mod serve;
