//! Decisions on Pods, with the lookups that they need.
//!
//! [`decide`] decides on a Pod by one snapshot of all settings: within the Pod's time budget it looks up the images,
//! with the credentials that the Pod may use, then applies the core's rules. [`census`] adds up decisions on a cluster;
//! [`lessons`] records what fails despite its manifest; [`warm_start`] looks up images at start.

#![cfg_attr(
    test,
    allow(
        clippy::too_many_lines,
        clippy::cognitive_complexity,
        reason = "a test tells one story, however long"
    )
)]

pub mod census;
pub mod decide;
pub mod lessons;
pub mod warm_start;
