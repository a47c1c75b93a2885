//! Tests of the program as a process. They send reviews over HTTPS as the API server does, against a registry that breaks
//! on demand. They also cover signals, certificates, metrics, and the commands that people run.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests and their support"
)]

mod support;

mod binary {
    mod program;

    mod abuse;
    mod admin;
    mod certificates;
    mod cli;
    mod config;
    mod connections;
    mod controller;
    mod credentials;
    mod discovery;
    mod http;
    mod image;
    mod logs;
    mod lookups;
    mod monitoring;
    mod reload;
    mod reviews;
    mod shared_cache;
    mod shutdown;
    mod start;
    mod tenant;
    mod warm_start;
}
