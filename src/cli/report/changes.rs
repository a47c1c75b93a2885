//! Sections on the changes since an earlier report.

use super::contents::Report;
use super::section::{Cell, Section};

impl Report<'_> {
    /// Returns the sections on changes; none without an earlier report.
    pub(super) fn changes(&self) -> Vec<Section> {
        let Some(comparison) = &self.comparison else {
            return Vec::new();
        };
        let since = match &comparison.since {
            Some(time) => format!("What has changed since {time}"),
            None => "What has changed since the earlier report".to_owned(),
        };
        let mut numbers = Vec::new();
        for measure in &comparison.measures {
            let sign = if measure.change > 0.0 { "+" } else { "" };
            let change = format!("{sign}{}", measure.written(measure.change));
            numbers.push(vec![
                Cell::Text(measure.text.to_owned()),
                Cell::Number(measure.written(measure.before), measure.before),
                Cell::Number(measure.written(measure.now), measure.now),
                Cell::Number(change, measure.change),
            ]);
        }
        let mut images = Vec::new();
        for (change, names) in [
            ("no longer", &comparison.images_gone),
            ("new", &comparison.images_new),
        ] {
            for name in names {
                let change = Cell::Text(change.to_owned());
                images.push(vec![change, Cell::Name(name.clone())]);
            }
        }
        vec![
            Section {
                title: since,
                intro: String::new(),
                columns: vec!["What", "Before", "Now", "Change"],
                rows: numbers,
            },
            Section {
                title: "Images that no longer keep Pods from the pools, and new ones".to_owned(),
                intro: String::new(),
                columns: vec!["Keeps", "Image"],
                rows: images,
            },
        ]
    }
}
