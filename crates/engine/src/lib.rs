//! Decisions on Pods, with the lookups that they need.
//!
//! [`decide`] decides on a Pod by one snapshot of all settings. It looks up the images within the Pod's time budget, with
//! the credentials that the Pod may use, and then applies the core's rules. [`census`] adds up the decisions on the Pods
//! of a cluster. [`lessons`] records images that fail on a platform of their manifest, and [`warm_start`] looks up images
//! when the program starts.

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
