//! tolerarch is a mutating admission webhook for Kubernetes clusters that mix CPU architectures. It looks up the
//! platforms of a new Pod's images, and adds the tolerations of each multi-arch node pool if every image runs on every
//! platform of the pool. Whatever goes wrong, the Pod is admitted unchanged.
//!
//! A review passes `tolerarch_webhook` (HTTPS, admission) → `tolerarch_engine` (images, credentials, time budget) →
//! `tolerarch_images` (cache, shared cache, registry) → `tolerarch_core` (verdict, edits, patch), and back.
//! `tolerarch_controller` does the work after admission; `tolerarch_kubernetes` is the API client of all of them;
//! `tolerarch_support` and `tolerarch_text` lie below. Dependencies point from the first of these to the last.
//!
//! This crate is the program: its [`config`], the services of its processes ([`serve`]), and its commands ([`cli`]).

#![cfg_attr(
    test,
    allow(
        clippy::too_many_lines,
        clippy::cognitive_complexity,
        reason = "a test tells one story, however long"
    )
)]

pub mod cli;
pub mod config;
mod rights;
pub mod serve;
