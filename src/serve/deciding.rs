//! What the webhook and the controller share: what decides, and the tasks that keep it as the files and the cluster say.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::watch;

use super::discovery::Discoverer;
use super::error::ServeError;
use super::failed_images::Record;
use super::metrics::Families;
use super::process::Process;
use super::reload::{FileVersions, Follower};
use super::snapshot::Live;
use crate::config::{Config, Sources};
use tolerarch_controller::ControllerSettings;
use tolerarch_images::shared_cache::{SharedCacheKeeper, SharedCacheMetrics};
use tolerarch_kubernetes::cluster::{Caller, Cluster, OwnedName};
use tolerarch_support::environment::Environment;
use tolerarch_support::health::{Component, Reported, State};
use tolerarch_support::logging::Levels;
use tolerarch_support::sync::Mutex;

impl Process {
    /// Puts together what decides, in the controller with those who follow its settings. Gives as well whether all that is
    /// discovered has been read once, where something is.
    pub(super) async fn decide(
        &mut self,
        config: Config,
        environment: &Environment,
        families: Families,
        controller: Option<watch::Sender<ControllerSettings>>,
    ) -> Result<(Live, Option<Arc<AtomicBool>>), ServeError> {
        let counts = SharedCacheMetrics::register(&self.metrics)?;
        let (shared, keeper) = SharedCacheKeeper::begin(config.shared_cache.clone(), counts).await.unzip();
        let (server, settings) = (config.server.clone(), config.controller.clone());
        let learns = settings.learn && (server.failed_images || controller.is_some());
        let discover = config.discover;
        let live = Live::begin(config, shared, families, environment.clone(), controller)?;
        let current = live.current().clone();
        self.components.push(Component::new("registry-tls").checked(move || {
            match current.get().resolver.tls_faults() {
                [] => State::Healthy,
                _ => State::Degraded(
                    "a file of a host cannot be used; the log names it, and other hosts are not affected",
                ),
            }
        }));
        let mut discovered = None;
        if discover.is_on() {
            let watcher = live.watcher().map_err(|cause| ServeError::Cluster("discover", cause))?;
            let discoverer = Discoverer::new(discover, watcher, live.clone());
            discovered = Some(discoverer.is_read());
            let component = Component::new("discovery").checked(discoverer.readiness());
            let kept = self.supervisor.keep("discovery", discoverer, |task| Box::pin(task.run()));
            self.components.push(component.reported(kept));
        }
        if learns {
            let connected = |cause| ServeError::Cluster("server.failedImages", cause);
            let namespace =
                Cluster::of(Caller::Service, environment).map_err(connected)?.namespace().to_owned();
            let name = OwnedName { namespace, name: settings.failed_images() };
            let record = Record::new(live.watcher().map_err(connected)?, name, live.clone());
            self.keep("failed-images", record.state.clone(), record, |task| Box::pin(task.run()));
        }
        if let Some(keeper) = keeper {
            self.keep("shared-cache", keeper.state.clone(), keeper, |task| Box::pin(task.run()));
        }
        Ok((live, discovered))
    }

    /// Takes over changes of the files since `seen`, which was read before they were used. Its component is listed first.
    pub(super) fn follow(&mut self, live: &Live, sources: Sources, levels: Levels, seen: FileVersions) {
        let mut configuration = Component::new("configuration");
        if let Some(follower) = Follower::new(live.clone(), sources, levels, seen) {
            let state = Reported::default();
            let task = (Arc::new(Mutex::new(follower)), state.clone());
            let kept = self
                .supervisor
                .keep("reload", task, |(follower, state)| Box::pin(Follower::run(follower, state.clone())));
            configuration = configuration.reported(state).reported(kept);
        }
        self.components.insert(0, configuration);
    }
}
