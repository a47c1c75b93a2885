//! The events of a day in a cluster of 5,000 nodes: Pods that are created, and an outage of the registry. They are the same in
//! each run.

use fastrand::Rng;
use tokio::time::Duration;

/// Number of workloads, each with another image. Zipf's law says how often Pods of each are created.
const WORKLOADS: usize = 5000;
/// Number of namespaces of the workloads.
const NAMESPACES: usize = 50;
/// Number of Pods created a day, 20 for each node. It includes those of rollouts.
const PODS: usize = 100_000;
/// Number of rollouts a day.
const ROLLOUTS: usize = 1000;
/// Number of sidecar images that Pods may have beside the workload's image.
const SIDECARS: usize = 5;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Begin and duration of the registry's outage.
const OUTAGE: (Duration, Duration) = (Duration::from_secs(14 * 3600), Duration::from_secs(3600));

/// An event of the day.
pub(crate) enum Event {
    /// A Pod is created in this namespace, with these images as repository and tag.
    Pod(String, Vec<String>),
    /// The outage begins (`true`) or ends.
    Outage(bool),
}

/// The events of a day.
pub(crate) struct Day {
    /// Events with their times, in order.
    pub(crate) events: Vec<(Duration, Event)>,
    /// Number of different images.
    pub(crate) images: usize,
    /// Number of Pods.
    pub(crate) pods: usize,
}

/// A planned event, for which the current versions of images are not determined yet.
enum Plan {
    Pod(usize),
    Rollout(usize),
    Outage(bool),
}

impl Day {
    /// Makes a day with a fraction of the Pods, one of `part`, in this time instead of 24 hours.
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
            // The Pods of a rollout are created one after the other, for some minutes.
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

    /// Turns planned events, in order, into events with versions of images.
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
                    let workload_image =
                        format!("{namespace}/app-{workload}:v{}", versions[workload]);
                    let sidecars = (0..SIDECARS).filter(|_| random.u8(..) < 60);
                    let sidecars = sidecars.map(|sidecar| format!("mesh/sidecar-{sidecar}:v1"));
                    Event::Pod(
                        namespace,
                        std::iter::once(workload_image).chain(sidecars).collect(),
                    )
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

/// Returns a duration of a real day, compressed to a day that takes `time`, as the configuration writes it.
pub(crate) fn compressed(of_day: Duration, time: Duration) -> String {
    let short = of_day.mul_f64(time.as_secs_f64() / DAY.as_secs_f64());
    format!("{}ms", short.as_millis().max(1))
}

fn working_hours(random: &mut Rng) -> Duration {
    9 * HOUR + (9 * HOUR).mul_f64(random.f64())
}

/// Draws numbers by Zipf's law: the first most often, the second half as often, the third a third as often, and so on.
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
        let total = self.0.last().copied().unwrap_or_default();
        let drawn = random.f64() * total;
        self.0
            .partition_point(|sum| *sum <= drawn)
            .min(self.0.len() - 1)
    }
}
