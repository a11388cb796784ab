//! Which module of a crate imports which, read from its source.
//!
//! An edge from module A to module B means that A imports (`use`) B, or an item that B defines. What B
//! re-exports counts as an import of the module that defines it, so that a module that only declares
//! and re-exports others is in no circle. Code under `#[cfg(test)]` and paths that are written out
//! where they are used do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

use crate::{Failure, files};

/// A module that imports another: their paths in the crate.
pub(crate) type Edge = (String, String);

/// The name of a crate's root in an [`Edge`].
const ROOT: &str = "crate";

/// A path in the crate: the names of the modules, then perhaps of an item.
type Names = Vec<String>;

/// The modules of a crate.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// By path: what a module imports, and under which name.
    imports: BTreeMap<Names, Vec<Import>>,
}

#[derive(Clone, Debug)]
struct Import {
    /// As it is written, from the module.
    path: Names,
    /// The name in the module; `None` for all that the path has.
    name: Option<String>,
}

impl Modules {
    /// Reads the modules from the file of the crate's root on.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let mut modules = Self::default();
        let folder = root.parent().unwrap_or(Path::new(""));
        modules.read_file(root, folder, Vec::new())?;
        Ok(modules)
    }

    fn read_file(&mut self, file: &Path, folder: &Path, module: Names) -> Result<(), Failure> {
        let text = files::read(file)?;
        let parsed = syn::parse_file(&text);
        let parsed = parsed.map_err(|error| failure!("{}: {error}", file.display()))?;
        self.add(&parsed.items, folder, module)
    }

    /// Adds a module; the files of the modules that it declares are in the folder.
    fn add(&mut self, items: &[Item], folder: &Path, module: Names) -> Result<(), Failure> {
        let mut found = Found::default();
        items.iter().for_each(|item| found.visit_item(item));
        self.imports.insert(module.clone(), found.imports);
        for declared in found.modules {
            let name = declared.ident.to_string();
            let inside = folder.join(&name);
            let path = [module.as_slice(), std::slice::from_ref(&name)].concat();
            match &declared.content {
                Some((_, items)) => self.add(items, &inside, path)?,
                None => {
                    let file = file_of(&declared, folder, &name);
                    self.read_file(&file, &inside, path)?;
                }
            }
        }
        Ok(())
    }

    /// How many modules there are.
    pub(crate) fn count(&self) -> usize {
        self.imports.len()
    }

    /// Which module imports which.
    pub(crate) fn edges(&self) -> BTreeSet<Edge> {
        let mut edges = BTreeSet::new();
        for (module, imports) in &self.imports {
            for import in imports {
                let to = self.absolute(module, &import.path);
                if let Some(to) = to.and_then(|path| self.home(&path, &mut Vec::new()))
                    && to != *module
                {
                    edges.insert((shown(module), shown(&to)));
                }
            }
        }
        edges
    }

    /// A path in a module, from the root; `None` if it leads to another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Names> {
        let (first, rest) = path.split_first()?;
        let (start, rest) = match first.as_str() {
            "crate" => (Vec::new(), rest),
            "self" => (module.to_vec(), rest),
            "super" => {
                let levels = path.iter().take_while(|name| *name == "super").count();
                let ancestor = module.get(..module.len().checked_sub(levels)?)?;
                (ancestor.to_vec(), path.get(levels..)?)
            }
            _ => {
                let child = [module, std::slice::from_ref(first)].concat();
                let imports = self.imports.get(module)?;
                let named = imports.iter().find(|one| one.name.as_ref() == Some(first));
                match named {
                    _ if self.imports.contains_key(&child) => (child, rest),
                    // A name that an import of the module has made, unless it is that import.
                    Some(import) if import.path != path && import.path.first() != Some(first) => {
                        (self.absolute(module, &import.path)?, rest)
                    }
                    _ => return None,
                }
            }
        };
        Some([start, rest.to_vec()].concat())
    }

    /// The module that defines what a path from the root leads to.
    fn home(&self, path: &[String], seen: &mut Vec<Names>) -> Option<Names> {
        if self.imports.contains_key(path) {
            return Some(path.to_vec());
        }
        let (module, name) = (1..=path.len())
            .filter_map(|end| path.get(..path.len() - end).zip(path.get(path.len() - end)))
            .find(|(module, _)| self.imports.contains_key(*module))?;
        if seen.iter().any(|one| one == path) {
            return None;
        }
        seen.push(path.to_vec());
        let imports = self.imports.get(module)?;
        let named = imports
            .iter()
            .find(|import| import.name.as_ref() == Some(name));
        let rest = path.get(module.len() + 1..).unwrap_or_default();
        if let Some(import) = named {
            let to = self.absolute(module, &import.path)?;
            return self.home(&[to, rest.to_vec()].concat(), seen);
        }
        Some(module.to_vec())
    }
}

/// The file of a module that another declares, whose modules are in that folder.
fn file_of(declared: &ItemMod, folder: &Path, name: &str) -> PathBuf {
    let named = declared.attrs.iter().find_map(|attribute| {
        let value = &attribute.meta.require_name_value().ok()?.value;
        let syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(path),
            ..
        }) = value
        else {
            return None;
        };
        attribute.path().is_ident("path").then(|| path.value())
    });
    match named {
        Some(path) => folder.join(path),
        None => {
            let file = folder.join(format!("{name}.rs"));
            match file.is_file() {
                true => file,
                false => folder.join(name).join("mod.rs"),
            }
        }
    }
}

fn shown(module: &[String]) -> String {
    match module {
        [] => ROOT.to_owned(),
        _ => module.join("::"),
    }
}

/// What a module contains.
#[derive(Default)]
struct Found {
    imports: Vec<Import>,
    modules: Vec<ItemMod>,
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes: &[Attribute] = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => &[],
        };
        if !attributes.iter().any(is_for_tests) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.modules.push(item.clone());
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add(&mut Vec::new(), &item.tree);
    }
}

impl Found {
    fn add(&mut self, path: &mut Names, tree: &UseTree) {
        let mut push = |path: &[String], last: Option<String>, name| {
            let path = path.iter().cloned().chain(last).collect();
            self.imports.push(Import { path, name });
        };
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.add(path, &tree.tree);
                path.pop();
            }
            UseTree::Name(tree) if tree.ident == "self" => push(path, None, path.last().cloned()),
            UseTree::Name(tree) => {
                let name = tree.ident.to_string();
                push(path, Some(name.clone()), Some(name));
            }
            UseTree::Rename(tree) => {
                let renamed = Some(tree.rename.to_string());
                match tree.ident == "self" {
                    true => push(path, None, renamed),
                    false => push(path, Some(tree.ident.to_string()), renamed),
                }
            }
            UseTree::Glob(_) => push(path, None, None),
            UseTree::Group(tree) => tree.items.iter().for_each(|tree| self.add(path, tree)),
        }
    }
}

/// Whether an attribute is `#[cfg(test)]`, or one that asks for more than that.
fn is_for_tests(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    let text = list.tokens.to_string();
    list.path.is_ident("cfg") && (text == "test" || text.starts_with("all (test"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_lead_to_the_modules_that_define_what_they_name() {
        let text = r#"
            mod a {
                mod inner {
                    use super::helper;
                    use crate::b::LIMIT as MOST;
                    pub struct Shown;
                    #[cfg(test)]
                    mod tests { use crate::c::Thing; }
                }
                pub use inner::Shown;
                use std::fmt;
                fn helper() { use super::c::Thing; }
            }
            mod b {
                use crate::a::{self, Shown};
                pub const LIMIT: u32 = 1;
            }
            mod c { pub use self::things::*; mod things {} pub struct Thing; }
        "#;
        let mut modules = Modules::default();
        let parsed = syn::parse_file(text).unwrap();
        modules
            .add(&parsed.items, Path::new(""), Vec::new())
            .unwrap();
        let expected = [
            ("a", "a::inner"),
            ("a", "c"),
            ("a::inner", "a"),
            ("a::inner", "b"),
            ("b", "a"),
            ("b", "a::inner"),
            ("c", "c::things"),
        ];
        let expected = expected.map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(modules.edges(), expected.into_iter().collect());
        assert_eq!(modules.count(), 6);
    }
}
