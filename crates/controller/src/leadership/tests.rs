//! Replicas on paused time, with an API server that may be unavailable. The API server records each action, with the
//! holder of the Lease at that time.

mod election;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower_service::Service;

use super::*;
use tolerarch_kubernetes::cluster::{ObjectName, PatchType};

impl Leadership {
    /// Returns leadership that is never lost.
    pub(crate) fn held() -> Self {
        let (sender, until) = watch::channel(Instant::now() + Duration::from_secs(1 << 30));
        // Without a sender, receivers would loop without a pause.
        std::mem::forget(sender);
        Self(until)
    }

    /// Returns leadership that begins when the function is called.
    pub(crate) fn lacking() -> (impl FnOnce(), Self) {
        let (sender, until) = watch::channel(Instant::now());
        let hold = move || {
            sender.send_replace(Instant::now() + Duration::from_secs(1 << 30));
        };
        (hold, Self(until))
    }
}
use tolerarch_support::metrics::Metrics;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(super::LEASE as u64);
const ACTION: &str = "/api/v1/action";
/// Longest pause of a candidate: the time within which one leads after the Lease has ended.
const LONGEST: Duration = RETRY.saturating_mul(23).checked_div(10).unwrap();

#[derive(Default)]
struct Api {
    lease: Mutex<Option<Value>>,
    version: Mutex<u64>,
    /// Actions: the time, the replica, and the holder of the Lease at that time.
    actions: Mutex<Vec<(Instant, String, String)>>,
    /// Replicas whose requests get no answer, and whether this applies to requests for the Lease only.
    cut: Mutex<Vec<(String, bool)>>,
    /// Date that replaces that of the replicas' clocks.
    clock: Mutex<Option<String>>,
}

/// Connection of one replica to the API server.
#[derive(Clone)]
struct Route {
    api: Arc<Api>,
    replica: String,
}

impl Service<Request<Body>> for Route {
    type Response = Response<Full<Bytes>>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let route = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            sleep(Duration::from_millis(fastrand::u64(1..200))).await;
            let is_cut = {
                let cut = route.api.cut.lock().unwrap();
                let of_lease = head.uri.path() != ACTION;
                cut.iter().any(|(replica, only_lease)| {
                    *replica == route.replica && (of_lease || !only_lease)
                })
            };
            if is_cut {
                std::future::pending::<()>().await;
            }
            let (status, answer) = route.answer(&head, &body);
            Ok(Response::builder()
                .status(status)
                .body(answer.to_string().into())
                .unwrap())
        })
    }
}

impl Route {
    fn answer(&self, head: &http::request::Parts, body: &[u8]) -> (StatusCode, Value) {
        let Api {
            lease,
            version,
            actions,
            clock,
            ..
        } = &*self.api;
        let mut lease = lease.lock().unwrap();
        if head.uri.path() == ACTION {
            let holder = lease
                .as_ref()
                .map_or(&Value::Null, |lease| &lease["spec"]["holderIdentity"]);
            let holder = holder.as_str().unwrap_or_default().to_owned();
            actions
                .lock()
                .unwrap()
                .push((Instant::now(), self.replica.clone(), holder));
            return (StatusCode::OK, json!({}));
        }
        if head.method == Method::GET {
            return lease
                .clone()
                .map_or((StatusCode::NOT_FOUND, json!({})), |lease| {
                    (StatusCode::OK, lease)
                });
        }
        let patch: Value = serde_json::from_slice(body).unwrap();
        let is_apply = head.headers["content-type"]
            .to_str()
            .unwrap()
            .contains("apply");
        let mut new = match &*lease {
            None if is_apply => patch,
            None => return (StatusCode::NOT_FOUND, json!({})),
            Some(old) if is_apply => return (StatusCode::OK, old.clone()),
            Some(old)
                if old["metadata"]["resourceVersion"] != patch["metadata"]["resourceVersion"] =>
            {
                return (StatusCode::CONFLICT, json!({}));
            }
            Some(old) => {
                let mut new = old.clone();
                json_patch::merge(&mut new, &patch);
                new
            }
        };
        if let Some(clock) = &*clock.lock().unwrap() {
            let mut version = version.lock().unwrap();
            *version += 1;
            new["spec"]["renewTime"] = format!("{clock}T00:00:00.{version:06}Z").into();
        }
        let mut version = version.lock().unwrap();
        *version += 1;
        new["metadata"]["resourceVersion"] = version.to_string().into();
        *lease = Some(new.clone());
        (StatusCode::OK, new)
    }
}

/// A replica that acts ten times a second while it leads.
struct Replica {
    name: String,
    task: JoinHandle<()>,
    suspended: Arc<Mutex<(bool, Option<Waker>)>>,
    resignation: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Replica {
    fn start(api: &Arc<Api>, name: &str) -> Self {
        let route = Route {
            api: Arc::clone(api),
            replica: name.to_owned(),
        };
        let cluster = Arc::new(Cluster::of_client(Client::new(route, "team"), 3 * SECOND));
        let lease = OwnedName {
            namespace: "team".into(),
            name: ObjectName::new("tolerarch-controller").unwrap(),
        };
        let metrics = ControllerMetrics::register(&Metrics::new([]).unwrap()).unwrap();
        let mut elector = Elector::new(Arc::clone(&cluster), lease, name.to_owned(), &metrics);
        let leadership = elector.leadership();
        let resignation = Box::pin(elector.resignation());
        let suspended = Arc::new(Mutex::new((false, None)));
        let gate = Arc::clone(&suspended);
        let work = async move {
            let act = async {
                loop {
                    let acts = async {
                        loop {
                            if leadership.holds() {
                                // The result does not matter.
                                let _ = cluster.patch(ACTION, PatchType::MERGE, &json!({})).await;
                            }
                            sleep(SECOND / 10).await;
                        }
                    };
                    leadership.lead(acts).await;
                }
            };
            tokio::join!(elector.run(), act);
        };
        let task = tokio::spawn(async move {
            let mut work = pin!(work);
            poll_fn(|context| {
                let (suspended, waker) = &mut *gate.lock().unwrap();
                if *suspended {
                    *waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
                work.as_mut().poll(context)
            })
            .await;
        });
        Self {
            name: name.to_owned(),
            task,
            suspended,
            resignation,
        }
    }

    /// Suspends or resumes the replica, as `kill -STOP` and `kill -CONT` do.
    fn suspend(&self, suspend: bool) {
        let (suspended, waker) = &mut *self.suspended.lock().unwrap();
        *suspended = suspend;
        waker.take().into_iter().for_each(Waker::wake);
    }

    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    async fn end(self) {
        let Self {
            task, resignation, ..
        } = self;
        task.abort();
        let _ = task.await;
        resignation.await;
    }
}

impl Api {
    /// Returns the replicas that have acted since this time. Panics if a replica has ever acted without the Lease.
    fn actors(&self, since: Instant) -> Vec<String> {
        let actions = self.actions.lock().unwrap();
        for (at, actor, holder) in &*actions {
            assert_eq!(actor, holder, "acted after {:?}", at.duration_since(since));
        }
        let mut actors: Vec<String> = actions
            .iter()
            .filter(|(at, ..)| *at > since)
            .map(|(_, actor, _)| actor.clone())
            .collect();
        actors.dedup();
        actors
    }

    async fn first_actor(&self) -> String {
        let begun = Instant::now();
        loop {
            if let Some(actor) = self.actors(begun).first() {
                return actor.clone();
            }
            assert!(begun.elapsed() < 60 * SECOND, "no one leads");
            sleep(SECOND / 10).await;
        }
    }
}

/// Starts two replicas, and returns the leader first.
async fn two(api: &Arc<Api>) -> (Replica, Replica) {
    let a = Replica::start(api, "a");
    let b = Replica::start(api, "b");
    let leads = api.first_actor().await;
    if leads == a.name { (a, b) } else { (b, a) }
}

#[tokio::test(start_paused = true)]
async fn exactly_one_replica_keeps_leading() {
    let api = Arc::new(Api::default());
    let _replicas: Vec<Replica> = ["a", "b", "c", "d"]
        .map(|name| Replica::start(&api, name))
        .into();
    let begun = Instant::now();
    sleep(120 * SECOND).await;
    assert_eq!(api.actors(begun).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn killed_leader_is_replaced_when_the_lease_ends() {
    let api = Arc::new(Api::default());
    let (leader, other) = two(&api).await;
    let killed = Instant::now();
    leader.kill().await;
    assert_eq!(api.first_actor().await, other.name);
    let took = killed.elapsed();
    // Paused time runs ahead while a busy machine answers.
    assert!((LEASE - RETRY..2 * LEASE).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn leader_that_ends_is_replaced_at_once() {
    let api = Arc::new(Api::default());
    let (leader, other) = two(&api).await;
    let ended = Instant::now();
    leader.end().await;
    assert_eq!(api.first_actor().await, other.name);
    assert!(ended.elapsed() < LONGEST + SECOND, "{:?}", ended.elapsed());
}

#[tokio::test(start_paused = true)]
async fn suspended_leader_does_not_act_without_the_lease() {
    for pause in [3, 9, 12, 16, 60] {
        let api = Arc::new(Api::default());
        let (leader, other) = two(&api).await;
        leader.suspend(true);
        sleep(pause * SECOND).await;
        leader.suspend(false);
        let resumed = Instant::now();
        sleep(30 * SECOND).await;
        let actors = api.actors(resumed);
        match pause {
            ..10 => assert_eq!(actors, [&*leader.name], "{pause}"),
            // Either replica may have been faster.
            10..20 => assert_eq!(actors.len(), 1, "{pause}"),
            20.. => assert_eq!(actors, [&*other.name], "{pause}"),
        }
    }
}

/// Its actions would still succeed.
#[tokio::test(start_paused = true)]
async fn leader_without_renewal_stops_in_time() {
    let api = Arc::new(Api::default());
    let (leader, other) = two(&api).await;
    api.cut.lock().unwrap().push((leader.name.clone(), true));
    let cut = Instant::now();
    sleep(RENEW + 3 * SECOND).await;
    let stopped = Instant::now();
    assert_eq!(api.actors(cut), [&*leader.name]);
    assert_eq!(api.first_actor().await, other.name);
    api.cut.lock().unwrap().clear();
    sleep(60 * SECOND).await;
    assert_eq!(api.actors(stopped), [&*other.name]);
}

#[tokio::test(start_paused = true)]
async fn nobody_leads_without_the_api_server() {
    let api = Arc::new(Api::default());
    let (_a, _b) = two(&api).await;
    api.cut
        .lock()
        .unwrap()
        .extend([("a".into(), false), ("b".into(), false)]);
    sleep(100 * SECOND).await;
    let back = Instant::now();
    assert_eq!(api.actors(back - 80 * SECOND), [""; 0]);
    api.cut.lock().unwrap().clear();
    api.first_actor().await;
    // The former leader may renew its Lease at once; another replica waits until the Lease has ended.
    assert!(
        back.elapsed() < LEASE + LONGEST + 5 * SECOND,
        "{:?}",
        back.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn jumping_clocks_have_no_effect() {
    let api = Arc::new(Api::default());
    let (leader, _other) = two(&api).await;
    let begun = Instant::now();
    for clock in ["1970-01-01", "2262-04-11", "0000-01-01"] {
        *api.clock.lock().unwrap() = Some(clock.into());
        sleep(40 * SECOND).await;
    }
    assert_eq!(api.actors(begun), [&*leader.name]);
}
