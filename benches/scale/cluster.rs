//! What happens on a day in a cluster of 5,000 nodes, always the same: which Pods are created when, and when the registry
//! fails.

use fastrand::Rng;
use tokio::time::Duration;

/// Workloads, each with an image of its own; how often Pods of them are created follows Zipf's law.
const WORKLOADS: usize = 5000;
/// Namespaces that they are in.
const NAMESPACES: usize = 50;
/// Pods created a day, 20 for each node; of them those of rollouts.
const PODS: usize = 100_000;
const ROLLOUTS: usize = 1000;
/// Sidecars that Pods have beside their own image.
const SIDECARS: usize = 5;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// When the registry fails, and for how long.
const OUTAGE: (Duration, Duration) = (Duration::from_secs(14 * 3600), Duration::from_secs(3600));

/// What happens.
pub(crate) enum Event {
    /// A Pod of this namespace with these images, as repository and tag.
    Pod(String, Vec<String>),
    /// The registry fails, or no more.
    Outage(bool),
}

/// A day.
pub(crate) struct Day {
    /// What happens when, in order.
    pub(crate) events: Vec<(Duration, Event)>,
    /// Different images in it.
    pub(crate) images: usize,
    /// Pods in it.
    pub(crate) pods: usize,
}

/// What is to happen, before it is known which version of an image is current then.
enum Plan {
    Pod(usize),
    Rollout(usize),
    Outage(bool),
}

impl Day {
    /// A day with one of `part` of the Pods, in this time instead of 24 hours.
    pub(crate) fn new(part: usize, time: Duration) -> Self {
        let mut random = Rng::with_seed(42);
        let zipf = Zipf::new(WORKLOADS);
        let mut plan = vec![
            (OUTAGE.0, Plan::Outage(true)),
            (OUTAGE.0 + OUTAGE.1, Plan::Outage(false)),
        ];
        let mut rolled_out = 0;
        for _ in 0..ROLLOUTS / part {
            let at = working_hours(&mut random);
            let workload = zipf.draw(&mut random);
            plan.push((at, Plan::Rollout(workload)));
            // Its Pods come one after the other for some minutes.
            for pod in 0..random.u32(3..60) {
                plan.push((at + pod * Duration::from_secs(5), Plan::Pod(workload)));
                rolled_out += 1;
            }
        }
        for _ in 0..(PODS / part).saturating_sub(rolled_out) {
            let at = if random.bool() {
                working_hours(&mut random)
            } else {
                DAY.mul_f64(random.f64())
            };
            plan.push((at, Plan::Pod(zipf.draw(&mut random))));
        }
        plan.sort_by_key(|(at, _)| *at);
        Self::of(plan, &mut random, time)
    }

    fn of(plan: Vec<(Duration, Plan)>, random: &mut Rng, time: Duration) -> Self {
        let mut versions = vec![0; WORKLOADS];
        let mut seen = std::collections::HashSet::new();
        let mut events = Vec::with_capacity(plan.len());
        let mut pods = 0;
        for (at, plan) in plan {
            let event = match plan {
                Plan::Rollout(workload) => {
                    versions[workload] += 1;
                    continue;
                }
                Plan::Outage(fails) => Event::Outage(fails),
                Plan::Pod(workload) => {
                    pods += 1;
                    let namespace = format!("team-{}", workload % NAMESPACES);
                    let own = format!("{namespace}/app-{workload}:v{}", versions[workload]);
                    let sidecars = (0..SIDECARS).filter(|_| random.u8(..) < 60);
                    let sidecars = sidecars.map(|sidecar| format!("mesh/sidecar-{sidecar}:v1"));
                    Event::Pod(namespace, std::iter::once(own).chain(sidecars).collect())
                }
            };
            if let Event::Pod(_, images) = &event {
                seen.extend(images.iter().cloned());
            }
            events.push((at.mul_f64(time.as_secs_f64() / DAY.as_secs_f64()), event));
        }
        Self {
            events,
            images: seen.len(),
            pods,
        }
    }
}

/// So long of a day takes in a day that takes `time`, as the configuration writes it.
pub(crate) fn compressed(of_day: Duration, time: Duration) -> String {
    let short = of_day.mul_f64(time.as_secs_f64() / DAY.as_secs_f64());
    format!("{}ms", short.as_millis().max(1))
}

fn working_hours(random: &mut Rng) -> Duration {
    9 * HOUR + (9 * HOUR).mul_f64(random.f64())
}

/// Draws the first of many most often, the second half as often, the third a third as often, and so on.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(count: usize) -> Self {
        let sums = (1..=count).scan(0.0, |sum, rank| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        });
        Self(sums.collect())
    }

    fn draw(&self, random: &mut Rng) -> usize {
        let all = self.0.last().copied().unwrap_or_default();
        let drawn = random.f64() * all;
        self.0
            .partition_point(|sum| *sum <= drawn)
            .min(self.0.len() - 1)
    }
}
