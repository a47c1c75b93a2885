//! Lists that may be long: as many items as fit, and the number of the others.

use std::fmt::Write;

/// The form of a list such as `redis:7, app:1, and 3 more images`.
#[derive(Clone, Copy)]
pub struct List {
    pub separator: &'static str,
    /// Text between the last written item and the number of the others.
    pub before_rest: &'static str,
    /// Text after that number.
    pub after_rest: &'static str,
    /// Maximum number of written items.
    pub items: usize,
    /// Maximum bytes of the written items, with their separators.
    pub bytes: usize,
}

impl List {
    /// Writes the list of these items; `text` returns the text of an item.
    pub fn write<T>(&self, items: &[T], text: impl Fn(&T) -> String) -> String {
        let mut list = String::new();
        for (index, item) in items.iter().enumerate() {
            let mut separator = "";
            let mut before_rest = "";
            if index > 0 {
                separator = self.separator;
                before_rest = self.before_rest;
            }
            let text = text(item);
            let length = list.len() + separator.len() + text.len();
            if index == self.items || length > self.bytes {
                let rest = items.len() - index;
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
    fn items_that_do_not_fit_are_counted() {
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
