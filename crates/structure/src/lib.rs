//! Finds which file uses which, from the tokens of the files. Code that is compiled only for tests is left out.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The path of a module or an item, beginning with its crate.
pub type Names = Vec<String>;

/// The keywords before the name of an item.
const DEFINITIONS: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "const", "static"];

/// A module in a file.
#[derive(Default)]
struct Module {
    /// The paths that `use` imports, each with its name in the module.
    imported: Vec<(Names, String)>,
    /// The names of the items that the module defines.
    defined: BTreeSet<String>,
    /// All paths in the code, except those of `pub use`, which only re-exports.
    mentioned: Vec<Names>,
}

/// A use of a file by another one.
struct Use {
    user: Names,
    used: Names,
    /// The path in the code.
    path: Names,
}

/// The modules of some files.
pub struct Uses(BTreeMap<Names, Module>);

impl Uses {
    /// Reads files, each with the path of its module.
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

    /// Returns the uses that are part of a circle of units: the user, the used file, and a path by which it is used.
    /// `unit` maps the module of a file to the unit to which the file belongs.
    pub fn in_circles(&self, unit: impl Fn(&Names) -> Names) -> Vec<String> {
        let mut uses = Vec::new();
        let mut used_units: BTreeMap<Names, BTreeSet<Names>> = BTreeMap::new();
        for (user, module) in &self.0 {
            for (used, path) in self.files_used_by(user, module) {
                let user_unit = unit(user);
                let used_unit = unit(&used);
                if user_unit == used_unit {
                    continue;
                }
                used_units.entry(user_unit).or_default().insert(used_unit);
                uses.push(Use {
                    user: user.clone(),
                    used,
                    path: path.clone(),
                });
            }
        }
        let mut in_circles = Vec::new();
        for Use { user, used, path } in uses {
            if is_reachable(&unit(&user), &unit(&used), &used_units) {
                let [user, used, path] = [user, used, path].map(|names| names.join("::"));
                in_circles.push(format!("{user} uses {used} ({path})"));
            }
        }
        in_circles
    }

    /// Returns the files that a file uses, each with a path by which it does.
    fn files_used_by<'a>(&self, user: &Names, module: &'a Module) -> BTreeMap<Names, &'a Names> {
        let mut files = BTreeMap::new();
        for path in &module.mentioned {
            if let Some(used) = self.find(user, path, 0)
                && used != *user
                && self.0.contains_key(&used)
            {
                files.insert(used, path);
            }
        }
        files
    }

    /// Returns the file that defines the item of a path in a module, or `None` if the item is of another crate.
    fn find(&self, module: &Names, path: &[String], depth: usize) -> Option<Names> {
        let (first, rest) = path.split_first()?;
        if depth > 9 {
            return None;
        }
        match first.as_str() {
            "crate" => return self.below(&module[..1].to_vec(), rest, depth),
            "self" => return self.below(module, rest, depth),
            "super" => return self.below(&parent_of(module), rest, depth),
            _ => {}
        }
        let child = child_of(module, first);
        if self.0.contains_key(&child) {
            return self.below(&child, rest, depth);
        }
        let crate_root = vec![first.clone()];
        if self.0.contains_key(&crate_root) {
            return self.below(&crate_root, rest, depth);
        }
        let mut imported = self.0[module].imported.iter();
        let (imported_path, _) = imported.find(|(whole, name)| name == first && whole != path)?;
        let whole_path = [imported_path, rest].concat();
        self.find(module, &whole_path, depth + 1)
    }

    /// Returns the file that defines the item of a path below a module.
    fn below(&self, module: &Names, path: &[String], depth: usize) -> Option<Names> {
        let Some((first, rest)) = path.split_first() else {
            return Some(module.clone());
        };
        if first == "super" {
            return self.below(&parent_of(module), rest, depth);
        }
        let child = child_of(module, first);
        if self.0.contains_key(&child) {
            return self.below(&child, rest, depth);
        }
        let file = self.0.get(module)?;
        let is_defined = file.defined.contains(first);
        let is_imported = file.imported.iter().any(|(_, name)| name == first);
        if is_imported && !is_defined {
            self.find(module, path, depth + 1)
        } else {
            Some(module.clone())
        }
    }
}

fn parent_of(module: &Names) -> Names {
    module[..module.len() - 1].to_vec()
}

fn child_of(module: &Names, name: &str) -> Names {
    let mut child = module.clone();
    child.push(name.to_owned());
    child
}

/// Whether the uses lead from a unit to a target.
fn is_reachable(
    target: &Names,
    from: &Names,
    used_units: &BTreeMap<Names, BTreeSet<Names>>,
) -> bool {
    let mut visited = BTreeSet::new();
    let mut pending = vec![from];
    while let Some(next) = pending.pop() {
        if visited.insert(next) {
            pending.extend(used_units.get(next).into_iter().flatten());
        }
    }
    visited.contains(target)
}

impl Module {
    /// Reads the items and paths of some tokens. `is_top` means that the tokens are not in a group.
    fn read(&mut self, tokens: TokenStream, is_top: bool) {
        let mut tokens = tokens.into_iter().peekable();
        let mut path: Names = Vec::new();
        let mut before = String::new();
        let mut is_public = false;
        while let Some(token) = tokens.next() {
            let text = token.to_string();
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let attribute = tokens.next();
                    let attribute = attribute.map(|group| group.to_string());
                    let attribute = attribute.unwrap_or_default();
                    if attribute.contains("cfg") && attribute.contains("test") {
                        skip_item(&mut tokens);
                    }
                    continue;
                }
                TokenTree::Ident(_) if text == "use" => {
                    let tree = tokens.by_ref().take_while(|token| token.to_string() != ";");
                    self.read_use(tree.collect(), is_public);
                    is_public = false;
                }
                TokenTree::Ident(_) => {
                    is_public = text == "pub";
                    let is_definition = DEFINITIONS.contains(&&*before);
                    if is_top && is_definition {
                        self.defined.insert(text.clone());
                    }
                    if !before.ends_with("::") {
                        self.mentioned.push(std::mem::take(&mut path));
                    }
                    path.push(text.clone());
                }
                // The group of `pub(super)`.
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

    /// Reads a `use`. Its paths are mentioned unless it is public.
    fn read_use(&mut self, tree: Vec<TokenTree>, is_public: bool) {
        let imported_before = self.imported.len();
        self.import(&[], tree);
        if is_public {
            return;
        }
        for (path, _) in &self.imported[imported_before..] {
            self.mentioned.push(path.clone());
        }
    }

    /// Reads the tree of a `use` below a prefix.
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
                    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                    for part in tokens.split(|token| token.to_string() == ",") {
                        if !part.is_empty() {
                            self.import(&path, part.to_vec());
                        }
                    }
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

/// Skips an item, up to its semicolon or its body.
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
