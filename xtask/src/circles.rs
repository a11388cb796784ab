//! `circles`: modules of one crate that import each other in a circle, and folders of a crate whose
//! folders are floors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::imports::{Edge, Modules};
use crate::{Failure, files};

/// Crates in which a folder imports only from folders below it.
const WITH_FLOORS: [&str; 2] = ["cutape-replay", "cutape-view"];

#[derive(Deserialize)]
struct Manifest {
    workspace: Option<Workspace>,
    package: Option<Package>,
}

#[derive(Deserialize)]
struct Workspace {
    members: Vec<String>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
}

/// The folder and the name of each crate of the workspace.
pub(crate) fn crates(root: &Path) -> Result<Vec<(PathBuf, String)>, Failure> {
    let workspace: Manifest = files::read_toml(&root.join("Cargo.toml"))?;
    let members = workspace.workspace.map_or_else(Vec::new, |w| w.members);
    let mut crates = Vec::new();
    for member in members {
        let folder = root.join(member);
        let manifest: Manifest = files::read_toml(&folder.join("Cargo.toml"))?;
        let name = manifest.package.map_or_else(String::new, |p| p.name);
        crates.push((folder, name));
    }
    Ok(crates)
}

/// Checks every crate of the workspace, or the named ones.
pub(crate) fn run(root: &Path, packages: &[&str]) -> Result<(), Failure> {
    let mut crates = crates(root)?;
    crates.retain(|(_, name)| packages.is_empty() || packages.contains(&name.as_str()));
    let is_unknown = |name: &&&str| crates.iter().all(|(_, found)| found != **name);
    if let Some(unknown) = packages.iter().find(is_unknown) {
        return Err(failure!("{unknown} is not a crate of this workspace"));
    }
    let mut problems = Vec::new();
    for (folder, name) in &crates {
        let modules = Modules::read(&root_file(folder))?;
        let edges = modules.edges();
        let circles = circles(&edges);
        println!(
            "{name:<20} {:>3} modules, {:>3} in {} circles",
            modules.count(),
            circles.iter().map(BTreeSet::len).sum::<usize>(),
            circles.len()
        );
        problems.extend(described(name, &circles, &edges));
        if WITH_FLOORS.contains(&name.as_str()) {
            let edges = between_folders(&edges);
            problems.extend(described(name, &self::circles(&edges), &edges));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::new(problems.join("\n")))
}

/// Each circle, with its edges.
fn described(
    name: &str,
    circles: &BTreeSet<BTreeSet<String>>,
    edges: &BTreeSet<Edge>,
) -> Vec<String> {
    let text = |circle| {
        let edges = edges_of(circle, edges);
        format!("{name}: import circle, break it: {circle:?}{edges}")
    };
    circles.iter().map(text).collect()
}

/// Which folder imports from which: modules by the first name of their path.
fn between_folders(edges: &BTreeSet<Edge>) -> BTreeSet<Edge> {
    let folder = |module: &str| {
        let first = module.split("::").next();
        first.unwrap_or_default().to_owned()
    };
    let edges = edges.iter().map(|(from, to)| (folder(from), folder(to)));
    edges.filter(|(from, to)| from != to).collect()
}

/// The file that a crate begins with.
fn root_file(folder: &Path) -> PathBuf {
    let names = ["src/lib.rs", "src/main.rs"];
    let mut files = names.map(|name| folder.join(name)).into_iter();
    let found = files.find(|file| file.is_file());
    found.unwrap_or_else(|| folder.join("src/lib.rs"))
}

/// The sets of modules in which each can be reached from each; modules that are in none are left
/// out.
fn circles(edges: &BTreeSet<Edge>) -> BTreeSet<BTreeSet<String>> {
    let reachable = |start: &str| {
        let mut found = BTreeSet::new();
        let mut left = vec![start];
        while let Some(module) = left.pop() {
            for (from, to) in edges {
                if from == module && found.insert(to.as_str()) {
                    left.push(to);
                }
            }
        }
        found
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = edges
        .iter()
        .map(|(from, _)| (from.as_str(), reachable(from)))
        .collect();
    let circle = |(module, others): (&&str, &BTreeSet<&str>)| -> BTreeSet<String> {
        let is_back = |other: &&&str| {
            reached
                .get(*other)
                .is_some_and(|back| back.contains(module))
        };
        others
            .iter()
            .filter(is_back)
            .map(|&other| other.to_owned())
            .collect()
    };
    let in_one = reached
        .iter()
        .filter(|(module, others)| others.contains(*module));
    in_one.map(circle).collect()
}

/// The edges of a circle, one a line.
fn edges_of(circle: &BTreeSet<String>, edges: &BTreeSet<Edge>) -> String {
    edges
        .iter()
        .filter(|(from, to)| circle.contains(from) && circle.contains(to))
        .map(|(from, to)| format!("\n  {from} -> {to}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &str) -> BTreeSet<String> {
        names.split_whitespace().map(str::to_owned).collect()
    }

    fn graph(edges: &[(&str, &str)]) -> BTreeSet<Edge> {
        edges
            .iter()
            .map(|&(from, to)| (from.to_owned(), to.to_owned()))
            .collect()
    }

    #[test]
    fn circles_are_found() {
        for (edges, expected) in [
            (&[("a", "b"), ("b", "c"), ("a", "c")][..], vec![]),
            (&[("a", "b"), ("b", "a"), ("a", "c")], vec![set("a b")]),
            (
                &[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "c")],
                vec![set("a b c d")],
            ),
            (
                &[("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c")],
                vec![set("a b"), set("c d")],
            ),
        ] {
            assert_eq!(
                circles(&graph(edges)),
                expected.into_iter().collect(),
                "{edges:?}"
            );
        }
    }

    #[test]
    fn folders_that_import_each_other_are_found() {
        let edges = graph(&[
            ("a::x", "b::y"),
            ("b::z", "a::w"),
            ("a::x", "a::w"),
            ("c", "a::x"),
        ]);
        assert!(circles(&edges).is_empty());
        let folders = between_folders(&edges);
        assert_eq!(folders, graph(&[("a", "b"), ("b", "a"), ("c", "a")]));
        assert_eq!(circles(&folders), [set("a b")].into());
    }
}
