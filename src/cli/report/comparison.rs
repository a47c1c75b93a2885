//! Comparison with an earlier report, which is read from its JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::prices::is_currency;
use tolerarch_core::pod::is_name;

/// Maximum bytes of an earlier report. One on 5,000 Pods has a few megabytes.
const BYTES: u64 = 64 << 20;

/// Maximum bytes of each of its sums, which have few members. Parsed, they may take twenty times as much memory.
const SUMS: usize = 64 << 10;
/// Largest number that a report can have: sums saturate.
const LARGEST: f64 = 1e17;

const MONEY: &str = "/money/";

/// Numbers of a report: the JSON pointer and the description of each.
const MEASURES: [(&str, &str); 15] = [
    (
        "/totals/all/cpuCores",
        "cores whose images run on every platform",
    ),
    (
        "/totals/partial/cpuCores",
        "cores kept by images that lack a platform",
    ),
    ("/totals/unknown/cpuCores", "cores of unknown images"),
    ("/totals/skipped/cpuCores", "cores that are not decided on"),
    (
        "/totals/all/pods",
        "Pods whose images run on every platform",
    ),
    (
        "/totals/partial/pods",
        "Pods kept by images that lack a platform",
    ),
    ("/totals/unknown/pods", "Pods with unknown images"),
    ("/progress/eligible/cpuCores", "cores that are eligible"),
    (
        "/progress/architectures/amd64/cpuCores",
        "of these on amd64",
    ),
    (
        "/progress/architectures/arm64/cpuCores",
        "of these on arm64",
    ),
    (
        "/progress/waiting/cpuCores",
        "of these waiting for a restart",
    ),
    ("/money/today", "cost a month, today"),
    (
        "/money/after",
        "cost a month, if all that may ran where it costs least",
    ),
    ("/money/saved", "saved by that"),
    ("/money/kept", "more, if images had the platforms they lack"),
];

/// Parts of an earlier report that are compared. Its texts are validated, except the names of images.
#[derive(Debug)]
pub(super) struct EarlierReport {
    time: Option<String>,
    namespace: Option<Option<String>>,
    totals: Value,
    progress: Value,
    money: Value,
    images: Vec<BlockingImage>,
}

/// An earlier report in the form of its file.
#[derive(Deserialize)]
struct Document<'a> {
    /// Absent in reports of earlier versions, like `namespace`, `progress` and `money`.
    time: Option<String>,
    #[serde(default, deserialize_with = "present")]
    namespace: Option<Option<String>>,
    #[serde(borrow)]
    totals: &'a RawValue,
    #[serde(borrow)]
    progress: Option<&'a RawValue>,
    #[serde(borrow)]
    money: Option<&'a RawValue>,
    images: Vec<BlockingImage>,
}

#[derive(Debug, Deserialize)]
struct BlockingImage {
    image: String,
}

#[derive(Debug, thiserror::Error)]
#[error("--compare {}: {why}", path.display())]
pub(in crate::cli) struct EarlierError {
    path: PathBuf,
    why: Unreadable,
}

#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("larger than {BYTES} bytes")]
    TooLarge,
    #[error("not a report of `tolerarch report -o json`")]
    NoReport,
}

/// Difference between two reports.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Comparison {
    /// Time of the earlier report; `None` if it has none.
    pub(super) since: Option<String>,
    pub(super) measures: Vec<Measure>,
    /// Images that kept Pods from the pools, and no longer do.
    pub(super) images_gone: Vec<String>,
    /// Images that keep Pods from the pools, and did not before.
    pub(super) images_new: Vec<String>,
    /// Notes on differences that make the reports hard to compare.
    #[serde(skip)]
    pub(super) notes: Vec<String>,
}

/// A number of both reports.
#[derive(Debug, Serialize)]
pub(super) struct Measure {
    /// JSON pointer in a report, such as `/totals/all/cpuCores`.
    #[serde(rename = "place")]
    pointer: &'static str,
    #[serde(skip)]
    pub(super) text: &'static str,
    pub(super) before: f64,
    pub(super) now: f64,
    pub(super) change: f64,
}

impl Measure {
    /// Formats a value: money with two decimals.
    pub(super) fn written(&self, value: f64) -> String {
        if self.pointer.starts_with(MONEY) {
            format!("{value:.2}")
        } else {
            value.to_string()
        }
    }
}

impl EarlierReport {
    pub(super) fn load(path: &Path) -> Result<Self, EarlierError> {
        read(path).map_err(|why| EarlierError {
            path: path.to_owned(),
            why,
        })
    }

    /// Compares with a later report's JSON.
    pub(super) fn compare(&self, report: &Value) -> Comparison {
        let mut notes = Vec::new();
        let namespace = report["namespace"].as_str();
        if let Some(earlier) = &self.namespace
            && earlier.as_deref() != namespace
        {
            notes.push(format!(
                "the earlier report is of {}, and this one of {}: they are not compared",
                earlier.as_deref().unwrap_or("all namespaces"),
                namespace.unwrap_or("all namespaces")
            ));
            return Comparison {
                since: self.time.clone(),
                notes,
                ..Comparison::default()
            };
        }
        let has_same_currency = self.compare_prices(report, &mut notes);
        let images = report["images"].as_array().into_iter().flatten();
        let now: BTreeSet<&str> = images.filter_map(|one| one["image"].as_str()).collect();
        let before: BTreeSet<&str> = self.images.iter().map(|one| &*one.image).collect();
        let owned = |image: &&str| (*image).to_owned();
        Comparison {
            since: self.time.clone(),
            measures: self.measures(report, has_same_currency),
            images_gone: before.difference(&now).map(owned).collect(),
            images_new: now.difference(&before).map(owned).collect(),
            notes,
        }
    }

    /// Adds a note if the reports have different currencies or prices; returns whether the currencies are the same, as
    /// far as both reports name one.
    fn compare_prices(&self, report: &Value, notes: &mut Vec<String>) -> bool {
        let (Some(before), Some(now)) = (currency(&self.money), currency(&report["money"])) else {
            return true;
        };
        if before != now {
            notes.push(format!(
                "the earlier report is in {before}, and this one in {now}"
            ));
            return false;
        }
        if prices(&self.money) != prices(&report["money"]) {
            notes.push(
                "the earlier report has other prices, so its costs differ by these as well"
                    .to_owned(),
            );
        }
        true
    }

    /// Returns the numbers that both reports have, without money in different currencies.
    fn measures(&self, report: &Value, has_same_currency: bool) -> Vec<Measure> {
        let mut measures = Vec::new();
        for (pointer, text) in MEASURES {
            if pointer.starts_with(MONEY) && !has_same_currency {
                continue;
            }
            if let (Some(before), Some(now)) = (self.number(pointer), number(report, pointer)) {
                measures.push(Measure {
                    pointer,
                    text,
                    before,
                    now,
                    change: rounded(now - before),
                });
            }
        }
        measures
    }

    /// Returns whether a report can have these values.
    fn is_plausible(&self) -> bool {
        let mut namespaces = self.namespace.iter().flatten();
        let mut numbers = MEASURES
            .iter()
            .filter_map(|(pointer, _)| self.number(pointer));
        let is_time = |time: &String| humantime::parse_rfc3339(time).is_ok();
        self.time.iter().all(is_time)
            && namespaces.all(|namespace| is_name(namespace))
            && currency(&self.money).is_none_or(is_currency)
            && numbers.all(|number| (0.0..=LARGEST).contains(&number))
    }

    fn number(&self, pointer: &str) -> Option<f64> {
        let (part, pointer) = pointer.strip_prefix('/')?.split_once('/')?;
        let part = match part {
            "totals" => &self.totals,
            "progress" => &self.progress,
            _ => &self.money,
        };
        number(part, &format!("/{pointer}"))
    }
}

/// Returns the number at a JSON pointer. An architecture on which nothing runs is absent, and counts as 0.
fn number(value: &Value, pointer: &str) -> Option<f64> {
    if let Some(number) = value.pointer(pointer) {
        return number.as_f64();
    }
    let (progress, _) = pointer.split_once("/architectures/")?;
    value.pointer(progress)?.get("architectures")?;
    Some(0.0)
}

fn currency(money: &Value) -> Option<&str> {
    money["currency"].as_str()
}

/// Returns the hourly prices by architecture; `None` if there are none.
fn prices(money: &Value) -> Option<BTreeMap<String, BTreeMap<String, f64>>> {
    Deserialize::deserialize(money.get("prices")?).ok()
}

/// Reads a member that is present, so that null differs from an absent member.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

fn read(path: &Path) -> Result<EarlierReport, Unreadable> {
    let mut text = Vec::new();
    let mut file = File::open(path)?.take(BYTES + 1);
    file.read_to_end(&mut text)?;
    if text.len() as u64 > BYTES {
        return Err(Unreadable::TooLarge);
    }
    parse(&text)
}

fn parse(text: &[u8]) -> Result<EarlierReport, Unreadable> {
    let document: Document<'_> = serde_json::from_slice(text).map_err(|_| Unreadable::NoReport)?;
    let earlier = EarlierReport {
        time: document.time,
        namespace: document.namespace,
        totals: sums(Some(document.totals))?,
        progress: sums(document.progress)?,
        money: sums(document.money)?,
        images: document.images,
    };
    if earlier.is_plausible() {
        Ok(earlier)
    } else {
        Err(Unreadable::NoReport)
    }
}

/// Parses sums of a report; null if the report does not have them.
fn sums(raw: Option<&RawValue>) -> Result<Value, Unreadable> {
    let text = raw.map_or("null", RawValue::get);
    if text.len() > SUMS {
        return Err(Unreadable::NoReport);
    }
    serde_json::from_str(text).map_err(|_| Unreadable::NoReport)
}

/// Rounds to a millionth, because the difference of two decimal numbers is not exact in binary.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn implausible_report_is_rejected() {
        let valid = r#"{"time":"2026-11-01T00:00:00Z","namespace":"shop","totals":{"all":{"cpuCores":3}},"progress":{"waiting":{"cpuCores":1}},"money":{"currency":"EUR","today":5.5},"images":[{"image":"a"}]}"#;
        assert!(parse(valid.as_bytes()).is_ok());
        for (before, after) in [
            ("2026-11-01T00:00:00Z", "yesterday"),
            ("2026-11-01T00:00:00Z", "@octocat"),
            ("shop", "https://a.test"),
            ("shop", "a\\u001bb"),
            ("EUR", "@octocat"),
            (":3", ":1e305"),
            (":3", ":-1"),
            (":1}}", ":2e17}}"),
            ("5.5", "1e305"),
        ] {
            let text = valid.replacen(before, after, 1);
            assert_ne!(text, valid);
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        let large = format!(r#"{{"all":[{}0]}}"#, "0,".repeat(100_000));
        let empty = r#"{"totals":{},"progress":{},"money":{},"images":[]}"#;
        assert!(parse(empty.as_bytes()).is_ok());
        for part in ["totals", "progress", "money"] {
            let text = empty.replace(&format!("\"{part}\":{{}}"), &format!("\"{part}\":{large}"));
            assert!(parse(text.as_bytes()).is_err(), "{part}");
        }
    }

    #[test]
    fn new_architecture_is_compared_with_zero() {
        let arm64 = "/progress/architectures/arm64/cpuCores";
        let report = |architectures: Value| json!({"totals": {}, "progress": {"architectures": architectures}, "images": []});
        let amd64 = report(json!({"amd64": {"cpuCores": 3}}));
        let both = report(json!({"amd64": {"cpuCores": 1}, "arm64": {"cpuCores": 2}}));
        for (before, now, expected) in [(&amd64, &both, 2.0), (&both, &amd64, -2.0)] {
            let earlier = parse(before.to_string().as_bytes()).unwrap();
            let measures = earlier.compare(now).measures;
            let changes = measures.iter().filter(|measure| measure.pointer == arm64);
            let changes: Vec<f64> = changes.map(|measure| measure.change).collect();
            assert_eq!(changes, [expected]);
        }
        // Reports of earlier versions have no progress, so nothing can be compared.
        let earlier = parse(br#"{"totals": {}, "images": []}"#).unwrap();
        assert!(earlier.compare(&both).measures.is_empty());
    }
}
