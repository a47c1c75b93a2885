//! Newer tags of the images that keep most Pods from the pools: for each image the nearest and the newest tag that has the
//! platforms which the image lacks for a pool, besides those that it has. Searches among the tags that the registry lists.
//! Only tags that were looked up are reported.

mod looks;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use futures_util::stream::{self, StreamExt};
use indexmap::IndexMap;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Duration, Instant};

use super::super::output::count;
use super::super::session::Session;
use super::super::survey::Survey;
use looks::{Answer, TagSearch};
use tolerarch_core::image::{ImageRef, PlatformSet, ReferenceError, newer_tags};
use tolerarch_core::pod::{Purpose, Usage};
use tolerarch_core::policy::{ImageSupport, Policy};
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_engine::census::{Shape, Summary};
use tolerarch_engine::decide::{Examined, Wait};
use tolerarch_images::registry::{Error, TagList};
use tolerarch_text::escape::shortened;

/// Maximum number of images whose tags are listed.
pub(super) const IMAGES: usize = 20;
/// Maximum number of lists that are read at a time: a page may have a few megabytes.
const LISTS: usize = 4;
/// Time after which no more tags are looked up. A list has the timeout of a lookup.
const TIME: Duration = Duration::from_secs(60);

/// Newer tags of one image.
#[derive(Debug, Default)]
pub(super) struct Newer {
    /// Image as the Pods name it, shortened.
    pub(super) image: String,
    lacks: PlatformSet,
    /// Number of tags that were listed; `None` if they could not be.
    tags: Option<usize>,
    is_complete: bool,
    /// Failure of a page, at which the list ends.
    cut_off_by: Option<String>,
    pub(super) nearest: Option<String>,
    /// True if a tag nearer than `nearest` may have the platforms as well.
    pub(super) may_be_nearer: bool,
    pub(super) newest: Option<String>,
    /// Messages on the search.
    notes: Vec<String>,
}

/// An image that lacks platforms, and the Pods for which tags are looked up.
struct Lacking<'s> {
    /// Image as the Pod names it.
    given: &'s str,
    purpose: Purpose,
    lacks: PlatformSet,
    /// Alternatives for each kind of Pods.
    alternatives: Vec<Alternatives>,
    shape: &'s Shape,
}

/// Sets of platforms. A newer tag needs the platforms of one of them: those that the image has, and those of a pool that it
/// does not open.
type Alternatives = Vec<PlatformSet>;

/// State that the searches for all images share.
struct Search<'s> {
    session: &'s Session,
    survey: &'s Survey,
    end: Instant,
    lists: Semaphore,
    /// Registries that have limited requests.
    throttled: RefCell<HashSet<String>>,
}

/// Finds newer tags of the images that lack a platform, for the first [`IMAGES`] in the report's ranking.
pub(super) async fn find(
    session: &Session,
    survey: &Survey,
    examined: &[Examined],
    summary: &Summary<'_>,
) -> Vec<Newer> {
    let images = lacking(survey, examined, summary);
    let all = count(images.len() as u64, "image");
    let show = |done: usize| {
        let progress = format!("looked for newer tags of {done} of {all}");
        session.progress.show(&progress);
    };
    let search = Search {
        session,
        survey,
        end: Instant::now() + TIME,
        lists: Semaphore::new(LISTS),
        throttled: RefCell::default(),
    };
    let done = Cell::new(0);
    let one = async |image: &Lacking<'_>| {
        let newer = search.newer(image).await;
        done.set(done.get() + 1);
        show(done.get());
        newer
    };
    show(0);
    let images = stream::iter(&images).map(one);
    images.buffered(IMAGES).collect().await
}

fn lacking<'s>(
    survey: &'s Survey,
    examined: &[Examined],
    summary: &Summary<'_>,
) -> Vec<Lacking<'s>> {
    let mut ranked: IndexMap<&str, PlatformSet> = IndexMap::new();
    for ((image, cause), _) in &summary.images {
        if let Some(lacks) = cause.lacks()
            && (ranked.len() < IMAGES || ranked.contains_key(image))
        {
            *ranked.entry(image).or_default() |= lacks;
        }
    }
    let mut lacking = Vec::with_capacity(ranked.len());
    for (image, lacks) in ranked {
        lacking.extend(Lacking::of(image, lacks, survey, examined));
    }
    lacking
}

impl<'s> Lacking<'s> {
    fn of(
        image: &str,
        lacks: PlatformSet,
        survey: &'s Survey,
        examined: &[Examined],
    ) -> Option<Self> {
        let mut first = None;
        let mut alternatives: Vec<Alternatives> = Vec::new();
        for (index, examined) in examined.iter().enumerate() {
            if let Some(one) = alternatives_for(examined, image) {
                first.get_or_insert(index);
                if !alternatives.contains(&one) {
                    alternatives.push(one);
                }
            }
        }
        let shape = survey.shapes.get_index(first?)?;
        let usages = shape.pod.images();
        let usage = usages
            .iter()
            .find(|usage| shortened(usage.given) == image)?;
        Some(Self {
            given: usage.given,
            purpose: usage.purpose,
            lacks,
            alternatives,
            shape,
        })
    }

    /// Returns whether a tag that runs on these nodes is enough for the Pods of each kind.
    fn is_enough(&self, nodes: PlatformSet) -> bool {
        let mut alternatives = self.alternatives.iter();
        alternatives.all(|sets| sets.iter().any(|platforms| nodes.contains(*platforms)))
    }

    /// Returns the image with its tag, without a digest. Fails with the reason why it has no tag.
    fn tagged(&self) -> Result<ImageRef, String> {
        let name = self.given.split('@').next().unwrap_or_default();
        let image: ImageRef = name
            .parse()
            .map_err(|error: ReferenceError| error.to_string())?;
        if name != self.given && !name.ends_with(&format!(":{}", image.target())) {
            return Err("it is named by its digest alone".to_owned());
        }
        Ok(image)
    }
}

/// Returns the platforms that a newer tag needs for a Pod; `None` unless the image is known to lack a platform for the Pod.
/// The image may be unknown for other Pods, which shows neither its platforms nor how its registry answers.
fn alternatives_for(examined: &Examined, image: &str) -> Option<Alternatives> {
    if examined.skipped.is_some() {
        return None;
    }
    let mut blockers = examined.blockers.iter();
    let blocker = blockers.find(|one| one.image == image && !one.lacks().is_empty())?;
    let mut states = examined.images.iter();
    let state = states.find(|state| state.image == image);
    let has = state.and_then(|state| state.platforms).unwrap_or_default();
    let mut alternatives = Alternatives::new();
    for pool in &examined.pools {
        if pool.platforms.intersects(blocker.lacks()) {
            alternatives.push(has.union(pool.platforms));
        }
    }
    Some(alternatives)
}

impl Search<'_> {
    async fn newer(&self, image: &Lacking<'_>) -> Newer {
        let mut newer = Newer {
            image: shortened(image.given).to_owned(),
            lacks: image.lacks,
            ..Newer::default()
        };
        if let Err(why) = self.search(image, &mut newer).await {
            newer.notes.push(why);
        }
        newer
    }

    /// Searches the tags of an image. Fails with the reason why that is not possible.
    async fn search(&self, image: &Lacking<'_>, newer: &mut Newer) -> Result<(), String> {
        let current = image.tagged()?;
        if newer_tags(current.target(), []).is_none() {
            return Err(format!("its tag, {}, is no version", current.target()));
        }
        let usage = Usage {
            given: image.given,
            image: Ok(current.clone()),
            purpose: image.purpose,
        };
        if self.policy(image.shape).override_for(&usage).is_some() {
            return Err(
                "overrides in the configuration fix its platforms, those of each tag".to_owned(),
            );
        }
        let list = self.list(image, &current).await?;
        newer.tags = Some(list.tags.len());
        newer.is_complete = list.is_complete;
        newer.cut_off_by = list.failure.as_ref().map(Error::to_string);
        let tags = list.tags.iter().map(|tag| &**tag);
        let tags = newer_tags(current.target(), tags).unwrap_or_default();
        let mut tag_search = TagSearch::among(tags.len());
        while let Some(index) = tag_search.next() {
            if let Err(why) = self.may_continue(current.host()) {
                newer.notes.push(why);
                break;
            }
            let answer = self.look_up(image, &current, tags[index]).await;
            tag_search.record(index, answer);
        }
        newer.conclude(&tags, &tag_search);
        Ok(())
    }

    async fn list(&self, image: &Lacking<'_>, current: &ImageRef) -> Result<TagList, String> {
        let _permit = self.lists.acquire().await;
        self.may_continue(current.host())?;
        let Session {
            snapshot, limits, ..
        } = self.session;
        let Shape { namespace, pod, .. } = image.shape;
        let listed = snapshot.tags(namespace, pod, current, limits).await;
        let failure = match &listed {
            Ok(list) => list.failure.as_ref(),
            Err(error) => Some(error),
        };
        if failure.is_some_and(|error| matches!(error.cause(), Error::Throttled(_))) {
            self.mark_throttled(current.host());
        }
        listed.map_err(|error| match error.cause() {
            Error::NotFound => "its registry has no list of its tags".to_owned(),
            _ => format!("its tags cannot be listed: {error}"),
        })
    }

    /// Returns whether a tag has the platforms, by the webhook's own lookup for the Pod.
    async fn look_up(&self, image: &Lacking<'_>, current: &ImageRef, tag: &str) -> Answer {
        let given = format!("{}:{tag}", current.name());
        let usages = [Usage {
            given: &given,
            image: given.parse().map_err(|_| LookupError::Invalid),
            purpose: image.purpose,
        }];
        let Session {
            snapshot, limits, ..
        } = self.session;
        let Shape { namespace, pod, .. } = image.shape;
        let policy = self.policy(image.shape);
        let wait = Wait::ForAll(limits);
        let looked_up = snapshot.look_up(policy, namespace, pod, &usages, wait, |_| false);
        let looked_up = looked_up.await;
        match looked_up.images.first().map(ImageSupport::nodes) {
            Some(Ok(nodes)) if image.is_enough(nodes) => Answer::Has,
            Some(Ok(_)) => Answer::Lacks,
            Some(Err(error)) => {
                if error == LookupError::Throttled {
                    self.mark_throttled(current.host());
                }
                Answer::Unknown(error)
            }
            None => Answer::Unknown(LookupError::Internal),
        }
    }

    /// Returns the policy for the Pods of a shape.
    fn policy(&self, shape: &Shape) -> &Policy {
        let snapshot = &self.session.snapshot;
        let profile = self.survey.terms(&shape.namespace).profile;
        snapshot.policy_for(profile).unwrap_or(&snapshot.policy)
    }

    fn mark_throttled(&self, host: &str) {
        self.throttled.borrow_mut().insert(host.to_owned());
    }

    /// Fails with the reason if no more requests should go to a registry.
    fn may_continue(&self, host: &str) -> Result<(), String> {
        if self.throttled.borrow().contains(host) {
            return Err(format!("{host} limits requests, so the search was stopped"));
        }
        if self.session.snapshot.resolver.allowances().is_low(host) {
            return Err(format!(
                "{host} allows few more requests, so the search was stopped"
            ));
        }
        if Instant::now() >= self.end {
            return Err(format!("the search ended after {} s", TIME.as_secs()));
        }
        Ok(())
    }
}

impl Newer {
    /// Records the result of a search among these newer tags.
    fn conclude(&mut self, tags: &[&str], search: &TagSearch) {
        let listed = count(self.tags.unwrap_or_default() as u64, "tag");
        let listed = if self.is_complete {
            listed
        } else {
            format!("the first {listed}")
        };
        if let (Some(nearest), Some(newest)) = (search.nearest(), search.newest()) {
            self.nearest = Some(tags[nearest].to_owned());
            self.newest = Some(tags[newest].to_owned());
            self.may_be_nearer = !self.is_complete || !search.is_first(nearest);
            if !self.is_complete {
                let note =
                    format!("only {listed} were listed, so there may be nearer and newer ones");
                self.notes.push(note);
            } else if self.may_be_nearer {
                let note = format!(
                    "a tag before {} may have the platforms as well",
                    tags[nearest]
                );
                self.notes.push(note);
            }
        } else {
            let none = match tags.len() {
                0 => format!("none found among {listed}: none differs by a newer version alone"),
                all => format!(
                    "none found among {listed}; looked up, from the newest on: {} of {all} newer ones",
                    search.looked_up()
                ),
            };
            self.notes.insert(0, none);
        }
        if let Some(why) = &self.cut_off_by {
            self.notes.push(format!("the rest of the list: {why}"));
        }
        if let Some((failed, why)) = search.failed() {
            let failed = count(failed as u64, "lookup");
            let why = Reason::Unknown(why);
            self.notes.push(format!("{failed} failed: {why}"));
        }
    }

    pub(super) fn json(&self) -> Value {
        let message = self.message();
        json!({
            "image": self.image,
            "lacks": self.lacks,
            "tags": self.tags,
            "complete": self.is_complete,
            "nearest": self.nearest,
            "mayBeNearer": self.may_be_nearer,
            "newest": self.newest,
            "message": if message.is_empty() { None } else { Some(message) },
        })
    }

    /// Returns the nearest tag, with a remark if there may be a nearer one; `-` if none was found.
    pub(super) fn nearest(&self) -> String {
        match &self.nearest {
            Some(tag) if self.may_be_nearer => format!("{tag} or before"),
            Some(tag) => tag.clone(),
            None => "-".to_owned(),
        }
    }

    pub(super) fn message(&self) -> String {
        self.notes.join("; ")
    }
}
