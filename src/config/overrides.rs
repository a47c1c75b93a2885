//! What is believed of images instead of their registries.

use super::shape::{Shape, Slot, key};
use tolerarch_core::policy::Override;

impl Slot for Vec<Override> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::List(self)
    }
}

impl Slot for Override {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key("match", "a glob as in registries.allow", &mut self.images),
            key("platforms", "those that these images run on", &mut self.platforms),
        ])
    }

    fn objections(&self) -> Vec<String> {
        let no_match = self.images == Default::default();
        let no_match =
            no_match.then(|| "the override has no match; write for example ghcr.io/my-org/*".to_owned());
        let none = self.platforms.is_empty();
        let none = none.then(|| "the override has no platforms; write for example [linux/amd64]".to_owned());
        no_match.into_iter().chain(none).collect()
    }
}
