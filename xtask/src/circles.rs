//! `circles`: modules of one crate that import each other in a circle, found with cargo-modules.
//!
//! The check asks for the graph of a crate and looks for circles in it. The tool's own `--acyclic`
//! looks at items as well: two structs of one file that mention each other would be a circle.
//!
//! An edge from module A to module B means that A imports (`use`) B or an item that B defines. A
//! re-export counts as an import of the module that defines the item, so that a module that only
//! declares and re-exports others is in no circle. Not counted: `#[cfg(test)]` code, and paths that
//! are written out where they are used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde::Deserialize;

use crate::step::{output, shown};
use crate::{Failure, files};

/// How many crates are looked at at once.
const MOST_WORKERS: usize = 4;

/// Features that need software which is not on every machine; what they add is not looked at.
const LEFT_OUT: [&str; 3] = ["gum", "gum-auto-download", "import"];

#[derive(Deserialize)]
struct Manifest {
    workspace: Option<Workspace>,
    package: Option<Package>,
    #[serde(default)]
    features: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Workspace {
    members: Vec<String>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
}

/// A crate of the workspace.
struct Crate {
    folder: PathBuf,
    name: String,
    features: Vec<String>,
}

/// Checks every crate of the workspace, or the named ones.
pub(crate) fn run(root: &Path, packages: &[&str]) -> Result<(), Failure> {
    let workspace: Manifest = files::read_toml(&root.join("Cargo.toml"))?;
    let members = workspace.workspace.map_or_else(Vec::new, |w| w.members);
    let mut crates = Vec::new();
    for member in members {
        let folder = root.join(member);
        let manifest: Manifest = files::read_toml(&folder.join("Cargo.toml"))?;
        let name = manifest.package.map_or_else(String::new, |p| p.name);
        let features = manifest.features.into_keys();
        let features = features.filter(|feature| !LEFT_OUT.contains(&feature.as_str()));
        if packages.is_empty() || packages.contains(&name.as_str()) {
            crates.push(Crate {
                folder,
                name,
                features: features.collect(),
            });
        }
    }
    let is_unknown = |name: &&&str| crates.iter().all(|found| found.name != **name);
    if let Some(unknown) = packages.iter().find(is_unknown) {
        return Err(failure!("{unknown} is not a crate of this workspace"));
    }
    let mut problems = Vec::new();
    for (found, edges) in crates.iter().zip(graphs(root, &crates)) {
        let edges = edges?;
        let name = &found.name;
        let circles = circles(&edges);
        let modules: BTreeSet<&str> = edges
            .iter()
            .flat_map(|(from, to)| [from.as_str(), to.as_str()])
            .collect();
        println!(
            "{name:<20} {:>3} modules, {:>3} in {} circles",
            modules.len(),
            circles.iter().map(BTreeSet::len).sum::<usize>(),
            circles.len()
        );
        problems.extend(circles.iter().map(|circle| {
            let edges = edges_of(circle, &edges);
            format!("{name}: import circle, break it: {circle:?}{edges}")
        }));
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::new(problems.join("\n")))
}

/// The edges of each crate. The tool uses one processor most of the time, and up to 1.5 GiB of
/// memory, so a few run at once: the 20 crates take 77 s and 79 s on two processors, and one after
/// the other 144 s and 149 s (2026-11-23).
fn graphs(root: &Path, crates: &[Crate]) -> Vec<Result<BTreeSet<Edge>, Failure>> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = crates.get(at) else { break };
            let edges = edges(root, one);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.insert(at, edges);
        }
    };
    let workers = thread::available_parallelism().map_or(1, |all| all.get().min(MOST_WORKERS));
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.into_values().collect()
}

type Edge = (String, String);

/// Which module uses which, as the tool prints it.
fn edges(root: &Path, of: &Crate) -> Result<BTreeSet<Edge>, Failure> {
    let Crate {
        folder,
        name: package,
        features,
    } = of;
    let mut command = Command::new("cargo-modules");
    command
        .current_dir(root)
        .args(["modules", "dependencies", "--package", package])
        .args(["--no-externs", "--no-sysroot"]);
    if folder.join("src/lib.rs").is_file() {
        command.arg("--lib");
    } else {
        command.args(["--bin", package]);
    }
    for feature in features {
        command.args(["--features", feature]);
    }
    let said = output(&mut command)?;
    if !said.status.success() {
        return Err(failure!(
            "{} failed ({}): {}",
            shown(&command),
            said.status,
            String::from_utf8_lossy(&said.stderr).trim()
        ));
    }
    read(&String::from_utf8_lossy(&said.stdout))
        .ok_or_else(|| failure!("{} printed an edge in an unknown form", shown(&command)))
}

/// The edges between modules in a graph in the DOT language, whose lines are `"a" [label=...]; //
/// "mod" node` and `"a" -> "a::B" [...]; // "uses" edge`. Edges from items other than modules are
/// signatures and fields, not imports.
fn read(graph: &str) -> Option<BTreeSet<Edge>> {
    let lines = || graph.lines().map(str::trim);
    let modules: BTreeSet<&str> = lines()
        .filter(|line| line.ends_with("// \"mod\" node") || line.ends_with("// \"crate\" node"))
        .map(|line| Some(line.strip_prefix('"')?.split_once('"')?.0))
        .collect::<Option<_>>()?;
    let mut edges = BTreeSet::new();
    for line in lines().filter(|line| line.ends_with("// \"uses\" edge")) {
        let (from, rest) = line.strip_prefix('"')?.split_once("\" -> \"")?;
        let to = module_of(rest.split_once('"')?.0, &modules)?;
        if modules.contains(from) && from != to {
            edges.insert((short(from), short(to)));
        }
    }
    Some(edges)
}

/// The module that an item belongs to; a module itself.
fn module_of<'a>(mut path: &'a str, modules: &BTreeSet<&str>) -> Option<&'a str> {
    while !modules.contains(path) {
        path = path.rsplit_once("::")?.0;
    }
    Some(path)
}

/// A module's path in its crate.
fn short(path: &str) -> String {
    path.split_once("::")
        .map_or("crate", |(_, rest)| rest)
        .to_owned()
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
    fn edges_are_read_from_the_tools_output() {
        let text = r#"digraph {
    "a" [label="crate|a"]; // "crate" node
    "a::b" [label="mod|b"]; // "mod" node
    "a::b::c" [label="mod|b::c"]; // "mod" node
    "a::b::c::D" [label="struct|b::c::D"]; // "struct" node
    "a" -> "a::b" [label="owns"] [constraint=true]; // "owns" edge
    "a" -> "a::b::c::D" [label="uses"] [constraint=false]; // "uses" edge
    "a::b" -> "a" [label="uses"] [constraint=false]; // "uses" edge
    "a::b" -> "a::b::c" [label="uses"] [constraint=false]; // "uses" edge
    "a::b::c::D" -> "a::b" [label="uses"] [constraint=false]; // "uses" edge
}"#;
        let expected = graph(&[("crate", "b::c"), ("b", "crate"), ("b", "b::c")]);
        assert_eq!(read(text), Some(expected));
        assert_eq!(read(r#""a" -> "b" // "uses" edge"#), None);
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
}
