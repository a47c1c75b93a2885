//! Servers and tools that other people wrote: what the tools push is served by each server, and `tolerarch inspect` says of it
//! what the tools and containerd's own library say. `e2e/zoo/install` makes what this runs.

mod agreement;
mod depot;
mod fronts;
mod heavy;
mod making;
mod newer;
mod nginx;
mod servers;
mod tenants;
mod tools;
