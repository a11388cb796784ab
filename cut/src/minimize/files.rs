//! The folder of a search beside its output: the smallest trace so far, and what is searched for.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cutape_format::{Ranges, file_hash};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::minimize::environment::Environment;

const STATE: &str = "state.json";
const CANDIDATE: &str = "candidate.cutape";

/// What the folder says of the search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    source_blake3: String,
    choice: String,
    /// Hashes of the images of `--replace-image`.
    images_blake3: Vec<String>,
    /// The number in the name of the smallest trace so far. One that was put there when the search
    /// was killed, before this says so, has another.
    best: u64,
    /// Its calls, by their indices in the source.
    calls: Option<String>,
    /// Those of them that were made smaller.
    changed: String,
    tests: u64,
    /// Hash of the output, if this search has written one.
    output_blake3: Option<String>,
}

/// The smallest trace so far.
#[derive(Clone, Debug)]
pub(super) struct Best {
    /// Its calls, by their indices in the source.
    pub(super) calls: Ranges,
    /// Those of them that were made smaller.
    pub(super) changed: Ranges,
}

/// The files of a search.
pub(super) struct Files<'e> {
    environment: &'e dyn Environment,
    target: PathBuf,
    folder: PathBuf,
    state: State,
}

impl<'e> Files<'e> {
    /// Makes the folder, or goes on with that of an earlier search for the same.
    pub(super) fn open(
        environment: &'e dyn Environment,
        target: &Path,
        hash: &str,
        choice: &str,
        images: Vec<String>,
    ) -> Result<Self, Error> {
        let mut name = target.as_os_str().to_owned();
        name.push(".minimize");
        let folder = PathBuf::from(name);
        let new = State {
            source_blake3: hash.to_owned(),
            choice: choice.to_owned(),
            images_blake3: images,
            best: 0,
            calls: None,
            changed: String::new(),
            tests: 0,
            output_blake3: None,
        };
        let state = match fs::read(folder.join(STATE)) {
            Ok(bytes) => serde_json::from_slice::<State>(&bytes)
                .ok()
                .filter(|state| {
                    state.source_blake3 == hash
                        && state.choice == choice
                        && state.images_blake3 == new.images_blake3
                })
                .ok_or_else(|| {
                    Error::Unusable(format!(
                        "{}: an unfinished search of another trace, with other images or for something \
                         else; remove \
                         it, or choose another place with -o",
                        folder.display()
                    ))
                })?,
            Err(_) => new,
        };
        let files = Self {
            environment,
            target: target.to_owned(),
            folder,
            state,
        };
        files.check_target()?;
        match fs::create_dir(&files.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(cannot_write(&files.target, error));
            }
            _ => {}
        }
        files.write_state()?;
        Ok(files)
    }

    /// An output that another command has written is not replaced.
    fn check_target(&self) -> Result<(), Error> {
        if self.target.symlink_metadata().is_err() {
            return Ok(());
        }
        match &self.state.output_blake3 {
            Some(hash) if file_hash(&self.target).ok().as_ref() == Some(hash) => Ok(()),
            _ => self.environment.may_replace(&self.target),
        }
    }

    fn write_state(&self) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(&self.state).unwrap_or_default();
        let new = self.folder.join("state.new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, self.folder.join(STATE)))
            .map_err(|error| cannot_write(&self.folder, error))
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of the smallest trace so far.
    pub(super) fn best_path(&self) -> PathBuf {
        self.folder.join(format!("best-{}.cutape", self.state.best))
    }

    /// The smallest trace so far.
    pub(super) fn best(&self) -> Result<Option<Best>, Error> {
        let Some(calls) = &self.state.calls else {
            return Ok(None);
        };
        let parsed = Ranges::parse(calls).zip(Ranges::parse(&self.state.changed));
        let parsed = parsed.filter(|_| self.best_path().exists());
        let best = parsed.map(|(calls, changed)| Some(Best { calls, changed }));
        best.ok_or_else(|| {
            Error::Unusable(format!(
                "{}: files of the search are missing; remove it",
                self.folder.display()
            ))
        })
    }

    /// A path for the next attempt.
    pub(super) fn candidate(&self) -> Result<PathBuf, Error> {
        let path = self.folder.join(CANDIDATE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(cannot_write(&self.folder, error))
            }
            _ => Ok(path),
        }
    }

    /// The attempt is the smallest trace so far.
    pub(super) fn keep_candidate(&mut self, best: &Best, tests: u64) -> Result<(), Error> {
        let old = self.best_path();
        self.state.best += 1;
        fs::rename(self.folder.join(CANDIDATE), self.best_path())
            .map_err(|error| cannot_write(&self.folder, error))?;
        self.state.calls = Some(best.calls.to_string());
        self.state.changed = best.changed.to_string();
        self.state.tests = tests;
        self.write_state()?;
        // Of the first one there is none.
        let _ = fs::remove_file(old);
        Ok(())
    }

    /// Puts the smallest trace so far into its place; removes the folder if the search is over.
    pub(super) fn publish(&mut self, is_over: bool) -> Result<(), Error> {
        self.check_target()?;
        let best = self.best_path();
        let cannot = |error| cannot_write(&self.target, error);
        // The folder keeps its own file until the search is over.
        let copy = self.folder.join(CANDIDATE);
        fs::copy(&best, &copy).map_err(cannot)?;
        let hash = file_hash(&copy).ok();
        fs::rename(&copy, &self.target).map_err(cannot)?;
        if is_over {
            fs::remove_dir_all(&self.folder).map_err(|error| cannot_write(&self.folder, error))?;
        } else {
            self.state.output_blake3 = hash;
            self.write_state()?;
        }
        Ok(())
    }
}

fn cannot_write(path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    Error::Write { path, source }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.folder.join(CANDIDATE));
        // Nothing was found: there is nothing to go on with.
        if self.state.calls.is_none() {
            let _ = fs::remove_file(self.folder.join(STATE));
            let _ = fs::remove_dir(&self.folder);
        }
    }
}
