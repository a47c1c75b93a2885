//! Servers and tools of other projects. Each server serves what the tools push, and `tolerarch inspect` agrees with the tools and
//! with containerd's library. `e2e/zoo/install` builds the programs.

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
