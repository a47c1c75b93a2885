//! What is believed of images instead of their registries.

use super::shape::{Shape, Slot, holding, key};
use tolerarch_core::policy::Override;

impl Slot for Override {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key("match", "a glob as in registries.allow", &mut self.images),
            key("platforms", "those that these images run on", &mut self.platforms),
        ])
    }

    fn validate(&self) -> Vec<String> {
        holding([
            (
                self.images == Default::default(),
                "the override has no match; write for example ghcr.io/my-org/*",
            ),
            (self.platforms.is_empty(), "the override has no platforms; write for example [linux/amd64]"),
        ])
    }
}
