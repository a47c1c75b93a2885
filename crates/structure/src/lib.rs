//! Which file uses which other, read from the tokens of the files. Code that is compiled for tests only is left out.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Names from a crate down to a module or an item.
pub type Names = Vec<String>;

/// A module in a file, by the names of its items.
#[derive(Default)]
struct Module {
    /// What `use` brings into scope, and what it is called there.
    imported: Vec<(Names, String)>,
    defined: BTreeSet<String>,
    /// All paths in the code but those of `pub use`, which only pass something on.
    mentioned: Vec<Names>,
}

/// Modules, each with the paths that its file mentions.
pub struct Uses(BTreeMap<Names, Module>);

impl Uses {
    /// Reads files, each with the module that it is.
    pub fn read(files: impl IntoIterator<Item = (Names, PathBuf)>) -> Self {
        let mut modules = BTreeMap::new();
        for (name, file) in files {
            let tokens: TokenStream = fs::read_to_string(file).unwrap().parse().unwrap();
            let mut module = Module::default();
            module.read(tokens, true);
            modules.insert(name, module);
        }
        Self(modules)
    }

    /// Renders the uses that are part of a circle of units: the user, the used file, and the path by which it is used.
    /// `unit` makes of a file's module the unit that the file belongs to.
    pub fn in_circles(&self, unit: impl Fn(&Names) -> Names) -> Vec<String> {
        let mut uses = Vec::new();
        let mut used_by: BTreeMap<Names, BTreeSet<Names>> = BTreeMap::new();
        for (user, module) in &self.0 {
            for (used, path) in self.used_by(user, module) {
                if unit(user) != unit(&used) {
                    used_by.entry(unit(user)).or_default().insert(unit(&used));
                    uses.push((user, path, used));
                }
            }
        }
        let leads_back = |user: &Names, used: &Names| {
            let mut seen = BTreeSet::new();
            let mut left = vec![used.clone()];
            while let Some(next) = left.pop() {
                if seen.insert(next.clone()) {
                    left.extend(used_by.get(&next).into_iter().flatten().cloned());
                }
            }
            seen.contains(user)
        };
        uses.retain(|(user, _, used)| leads_back(&unit(user), &unit(used)));
        let shown = uses.iter().map(|(user, path, used)| {
            let [user, path, used] = [*user, *path, used].map(|names| names.join("::"));
            format!("{user} uses {used} ({path})")
        });
        shown.collect()
    }

    /// Returns the files that a file uses, each with a path by which it does.
    fn used_by<'a>(&self, user: &Names, module: &'a Module) -> BTreeMap<Names, &'a Names> {
        let paths = module.mentioned.iter();
        paths
            .filter_map(|path| Some((self.find(user, path, 0)?, path)))
            .filter(|(used, _)| used != user && self.0.contains_key(used))
            .collect()
    }

    /// Returns the file that defines what a path in a module means; `None` if it is of another crate.
    fn find(&self, module: &Names, path: &[String], depth: usize) -> Option<Names> {
        let (first, rest) = path.split_first()?;
        let parent = || module[..module.len() - 1].to_vec();
        let child = [&**module, std::slice::from_ref(first)].concat();
        match &**first {
            _ if depth > 9 => None,
            "crate" => self.below(&module[..1].to_vec(), rest, depth),
            "self" => self.below(module, rest, depth),
            "super" => self.below(&parent(), rest, depth),
            _ if self.0.contains_key(&child) => self.below(&child, rest, depth),
            _ if self.0.contains_key(std::slice::from_ref(first)) => {
                self.below(&vec![first.clone()], rest, depth)
            }
            _ => {
                let imported = self.0[module].imported.iter();
                let mut meant = imported.filter(|(whole, name)| name == first && whole != path);
                let (whole, _) = meant.next()?;
                self.find(module, &[whole, rest].concat(), depth + 1)
            }
        }
    }

    fn below(&self, module: &Names, path: &[String], depth: usize) -> Option<Names> {
        let Some((first, rest)) = path.split_first() else {
            return Some(module.clone());
        };
        let child = [&**module, std::slice::from_ref(first)].concat();
        if first == "super" {
            return self.below(&module[..module.len() - 1].to_vec(), rest, depth);
        } else if self.0.contains_key(&child) {
            return self.below(&child, rest, depth);
        }
        let own = self.0.get(module)?;
        let is_passed_on =
            !own.defined.contains(first) && own.imported.iter().any(|(_, name)| name == first);
        if is_passed_on {
            self.find(module, path, depth + 1)
        } else {
            Some(module.clone())
        }
    }
}

impl Module {
    fn read(&mut self, tokens: TokenStream, is_top: bool) {
        let mut tokens = tokens.into_iter().peekable();
        let mut path: Names = Vec::new();
        let mut before = String::new();
        let mut is_public = false;
        while let Some(token) = tokens.next() {
            let text = token.to_string();
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let attribute = tokens
                        .next()
                        .map(|attribute| attribute.to_string())
                        .unwrap_or_default();
                    if attribute.contains("cfg") && attribute.contains("test") {
                        skip_item(&mut tokens);
                    }
                    continue;
                }
                TokenTree::Ident(_) if text == "use" => {
                    let tree = tokens.by_ref().take_while(|token| token.to_string() != ";");
                    let at = self.imported.len();
                    self.import(&[], tree.collect());
                    if !is_public {
                        let paths = self.imported[at..].iter().map(|(path, _)| path.clone());
                        self.mentioned.extend(paths);
                    }
                    is_public = false;
                }
                TokenTree::Ident(_) => {
                    is_public = text == "pub";
                    let is_definition =
                        ["fn", "struct", "enum", "trait", "type", "const", "static"]
                            .contains(&&*before);
                    if is_top && is_definition {
                        self.defined.insert(text.clone());
                    }
                    if !before.ends_with("::") {
                        self.mentioned.push(std::mem::take(&mut path));
                    }
                    path.push(text.clone());
                }
                // Of `pub(super)`.
                TokenTree::Group(_) if before == "pub" => {}
                TokenTree::Group(group) => {
                    self.read(group.stream(), false);
                    is_public = false;
                }
                _ => {}
            }
            before = if text == ":" && before == ":" {
                "::".to_owned()
            } else {
                text
            };
        }
        self.mentioned.push(path);
        self.mentioned.retain(|path| path.len() > 1);
    }

    /// Reads a tree of `use` below a prefix.
    fn import(&mut self, prefix: &[String], tree: Vec<TokenTree>) {
        let mut path = prefix.to_vec();
        let mut name = None;
        let mut tree = tree.into_iter();
        while let Some(token) = tree.next() {
            match token {
                TokenTree::Ident(ident) if ident == "as" => {
                    name = tree.next().map(|name| name.to_string());
                }
                TokenTree::Ident(ident) => path.push(ident.to_string()),
                TokenTree::Group(group) => {
                    let parts: Vec<TokenTree> = group.stream().into_iter().collect();
                    let parts = parts.split(|token| token.to_string() == ",");
                    parts
                        .filter(|part| !part.is_empty())
                        .for_each(|part| self.import(&path, part.to_vec()));
                    return;
                }
                _ => {}
            }
        }
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if let Some(name) = name.or_else(|| path.last().cloned()) {
            self.imported.push((path, name));
        }
    }
}

/// Skips an item: up to its semicolon or its body.
fn skip_item(tokens: &mut impl Iterator<Item = TokenTree>) {
    let mut is_use = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => is_use |= ident == "use",
            TokenTree::Punct(punct) if punct.as_char() == ';' => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !is_use => return,
            _ => {}
        }
    }
}
