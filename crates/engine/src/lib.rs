//! From a Pod to a decision.
//!
//! [`decide`] takes one snapshot of all settings, looks up the images of a Pod with the credentials that the Pod may
//! use, until its budget ends, and lets the core decide. [`census`] adds up decisions on all Pods of a cluster;
//! [`failed_images`] records images that fail where their manifests say that they run; [`warm_start`] looks up the
//! images of running Pods before the first review.

pub mod census;
pub mod decide;
pub mod failed_images;
pub mod warm_start;
