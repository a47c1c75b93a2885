//! What any program needs: bounded bodies and files, fair limits, logs, metrics, health.

pub mod body;
pub mod concurrency;
pub mod environment;
pub mod file;
pub mod health;
pub mod logging;
pub mod metrics;
pub mod recently;
pub mod single_flight;
