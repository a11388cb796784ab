//! The folders whose traces a client may ask about.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use cutape_terminal::failure::Failure;
use serde::Serialize;
use serde_json::{Value, json};

/// So many traces are listed.
const MOST_LISTED: usize = 500;
/// So many entries of folders are looked at for a list.
const MOST_LOOKED_AT: usize = 100_000;

/// Folders, as absolute paths without links.
#[derive(Debug)]
pub(super) struct Folders(Vec<PathBuf>);

/// A trace in a list.
#[derive(Serialize)]
struct Listed {
    trace: String,
    bytes: u64,
    /// Seconds since 1970.
    modified: Option<u64>,
}

impl Folders {
    /// The folders that the user names.
    pub(super) fn open(given: &[PathBuf]) -> Result<Self, Failure> {
        let open = |path: &PathBuf| {
            let cannot = |error| Failure::unusable(format!("{}: {error}", path.display()));
            let folder = path.canonicalize().map_err(cannot)?;
            match folder.is_dir() {
                true => Ok(folder),
                false => Err(cannot(io::ErrorKind::NotADirectory.into())),
            }
        };
        given.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// The names of the folders.
    pub(super) fn names(&self) -> Vec<String> {
        let names = self.0.iter().map(|folder| folder.display().to_string());
        names.collect()
    }

    /// The path of a trace, or of a folder of traces, that lies in one of the folders.
    pub(super) fn resolve(&self, name: &str) -> Result<PathBuf, String> {
        let paths = self.0.iter().map(|folder| folder.join(name));
        let found = paths.filter_map(|path| path.canonicalize().ok());
        let mut found = found.filter(|path| self.contain(path));
        let path = found.next().ok_or_else(|| {
            format!(
                "{name}: no trace of this name in {}; the tool `traces` lists them",
                self.names().join(", ")
            )
        })?;
        // A verb opens each trace of a folder.
        if path.is_dir() {
            let entries = fs::read_dir(&path).map_err(|error| format!("{name}: {error}"))?;
            for entry in entries.flatten().filter(|entry| is_trace(&entry.path())) {
                let target = entry.path().canonicalize();
                if !target.is_ok_and(|target| self.contain(&target)) {
                    return Err(format!(
                        "{name}: {} leads out of the folders that the server may read; ask about \
                         the other traces one by one",
                        entry.file_name().display()
                    ));
                }
            }
        }
        Ok(path)
    }

    fn contain(&self, path: &Path) -> bool {
        self.0.iter().any(|folder| path.starts_with(folder))
    }

    /// The traces whose name has that text.
    pub(super) fn list(&self, text: &str) -> Value {
        let mut traces = Vec::new();
        let mut left = MOST_LOOKED_AT;
        for folder in &self.0 {
            self.list_below(folder, text, &mut left, &mut traces);
        }
        traces.sort_by(|a, b| a.trace.cmp(&b.trace));
        let more = traces.len() > MOST_LISTED || left == 0;
        traces.truncate(MOST_LISTED);
        json!({"folders": self.names(), "traces": traces, "more": more})
    }

    /// Links are listed if they lead to a file inside, and those to folders are not followed.
    fn list_below(&self, folder: &Path, text: &str, left: &mut usize, traces: &mut Vec<Listed>) {
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        for entry in entries.flatten() {
            if *left == 0 {
                return;
            }
            *left -= 1;
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.list_below(&path, text, left, traces);
                continue;
            }
            let target = path.canonicalize();
            let is_inside = target.is_ok_and(|target| target.is_file() && self.contain(&target));
            let (Ok(facts), true) = (path.metadata(), is_trace(&path) && is_inside) else {
                continue;
            };
            let trace = self.name_of(&path);
            if trace.contains(text) {
                let modified = facts.modified().ok();
                let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                traces.push(Listed {
                    trace,
                    bytes: facts.len(),
                    modified: since.map(|since| since.as_secs()),
                });
            }
        }
    }

    /// The name by which a client asks: from the folder, if there is one.
    fn name_of(&self, path: &Path) -> String {
        let own = match self.0.as_slice() {
            [only] => path.strip_prefix(only).unwrap_or(path),
            _ => path,
        };
        own.display().to_string()
    }
}

fn is_trace(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "cutape")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use cutape_terminal::private_folder::PrivateFolder;

    use super::*;

    #[test]
    fn nothing_leads_out() {
        let place = PrivateFolder::create("folders").unwrap();
        for folder in ["in/sub", "in/linked", "in-not", "out"] {
            fs::create_dir_all(place.path(folder)).unwrap();
        }
        for file in [
            "in/a.cutape",
            "in/sub/b.cutape",
            "in/notes",
            "out/c.cutape",
            "in-not/d.cutape",
        ] {
            fs::write(place.path(file), "").unwrap();
        }
        symlink(place.path("out/c.cutape"), place.path("in/linked/c.cutape")).unwrap();
        symlink(place.path("in/a.cutape"), place.path("in/sub/a.cutape")).unwrap();
        symlink(place.path("out"), place.path("in/outside")).unwrap();
        let folders = Folders::open(&[place.path("in")]).unwrap();
        let absolute = |name: &str| place.path(name).display().to_string();
        for (name, is_found) in [
            ("a.cutape", true),
            ("sub/../a.cutape", true),
            ("sub/a.cutape", true),
            ("sub", true),
            (".", true),
            (&absolute("in/a.cutape"), true),
            ("none.cutape", false),
            ("../out/c.cutape", false),
            ("../in-not/d.cutape", false),
            ("linked/c.cutape", false),
            ("linked", false),
            ("outside", false),
            ("outside/c.cutape", false),
            ("/etc/passwd", false),
            ("/", false),
            ("..", false),
            ("a.cutape\0", false),
            (&absolute("out/c.cutape"), false),
        ] {
            let found = folders.resolve(name);
            assert_eq!(found.is_ok(), is_found, "{name}: {found:?}");
        }
        let listed = |text| {
            let list = folders.list(text);
            let names = list["traces"].as_array().unwrap().iter();
            let names = names.map(|trace| trace["trace"].as_str().unwrap().to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(listed(""), ["a.cutape", "sub/a.cutape", "sub/b.cutape"]);
        assert_eq!(listed("b.c"), ["sub/b.cutape"]);
        assert!(Folders::open(&[place.path("none")]).is_err());
        assert!(Folders::open(&[place.path("in/notes")]).is_err());
        let two = Folders::open(&[place.path("in"), place.path("out")]).unwrap();
        assert!(two.resolve("c.cutape").is_ok() && two.resolve("linked/c.cutape").is_ok());
    }
}
