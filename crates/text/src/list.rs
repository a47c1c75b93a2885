//! Lists that may be long: as many items as there is room for, and the number of the others.

use std::fmt::Write;

/// Form of a list, such as `redis:7, app:1, and 3 more images`.
#[derive(Clone, Copy)]
pub struct List {
    pub separator: &'static str,
    /// Text between the last item that is written and the number of the others.
    pub before_rest: &'static str,
    /// Text after that number.
    pub after_rest: &'static str,
    /// Maximum number of items.
    pub items: usize,
    /// Maximum bytes of the items, with the separators.
    pub bytes: usize,
}

impl List {
    /// Writes the list of these items, each as its text.
    pub fn write<T>(&self, items: &[T], text: impl Fn(&T) -> String) -> String {
        let mut list = String::new();
        for (place, item) in items.iter().enumerate() {
            let mut separator = "";
            let mut before_rest = "";
            if place > 0 {
                separator = self.separator;
                before_rest = self.before_rest;
            }
            let text = text(item);
            if place == self.items || list.len() + separator.len() + text.len() > self.bytes {
                let rest = items.len() - place;
                // Writing to a String cannot fail.
                let _ = write!(list, "{before_rest}and {rest} more{}", self.after_rest);
                break;
            }
            list += separator;
            list += &text;
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_counted() {
        let list = List {
            separator: "; ",
            before_rest: "; ",
            after_rest: " images",
            items: 3,
            bytes: 10,
        };
        let write = |items: &[&str]| list.write(items, |item| (*item).to_owned());
        assert_eq!(write(&[]), "");
        assert_eq!(write(&["a", "b", "c"]), "a; b; c");
        assert_eq!(write(&["a", "b", "c", "d"]), "a; b; c; and 1 more images");
        assert_eq!(
            write(&["aaaa", "bbbb", "c"]),
            "aaaa; bbbb; and 1 more images"
        );
        assert_eq!(write(&["aaaaaaaaaaa", "b"]), "and 2 more images");
    }
}
