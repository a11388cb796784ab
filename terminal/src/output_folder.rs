//! A folder, or files, written beside their place and renamed when they are whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::ending;
use crate::failure::Failure;
use crate::overwrite::Overwrite;

/// A folder in progress. It is removed if it is not finished, also when a signal ends cutape.
#[derive(Debug)]
pub struct Folder {
    target: PathBuf,
    partial: PathBuf,
    overwrite: Overwrite,
    is_finished: bool,
}

impl Folder {
    /// Begins a folder.
    pub fn create(target: &Path, overwrite: Overwrite) -> Result<Self, Failure> {
        if !overwrite.overwrite || !target.is_dir() {
            overwrite.replaces(target)?;
        }
        Self::begin(target, "folder", overwrite)
    }

    /// Begins a file, which is written into a folder until [`Folder::finish_files`].
    pub fn for_file(target: &Path, overwrite: Overwrite) -> Result<Self, Failure> {
        overwrite.replaces(target)?;
        Self::begin(target, "file", overwrite)
    }

    fn begin(target: &Path, what: &str, overwrite: Overwrite) -> Result<Self, Failure> {
        let cannot = |why: &dyn std::fmt::Display| {
            let target = target.display();
            Failure::unusable(format!("cannot write {target}: {why}; name another {what}"))
        };
        let Some(name) = target.file_name() else {
            return Err(cannot(&format_args!("this is not the name of a {what}")));
        };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".partial-{}", std::process::id()));
        let partial = target.with_file_name(hidden);
        ending::begin_partial(&partial, 0o777).map_err(|error| cannot(&error))?;
        Ok(Self {
            target: target.to_owned(),
            partial,
            overwrite,
            is_finished: false,
        })
    }

    /// Where the folder is until it is finished.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Where a file of the folder is until the folder is finished.
    pub fn path(&self, name: &str) -> PathBuf {
        self.partial.join(name)
    }

    fn cannot_write(&self, error: &io::Error) -> Failure {
        Failure::unusable(format!("cannot write {}: {error}", self.target.display()))
    }

    /// Puts the files of the folder in the place of the target, the first one last.
    pub fn finish_files(self, files: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
        let names = files.iter().filter_map(|file| file.file_name());
        let targets = names.map(|name| self.target.with_file_name(name));
        let targets: Vec<PathBuf> = targets.collect();
        let cannot = |target: &Path, why: &dyn std::fmt::Display| {
            Failure::unusable(format!("cannot write {}: {why}", target.display()))
        };
        for target in &targets {
            self.overwrite.replaces(target)?;
        }
        for (file, target) in files.iter().zip(&targets).rev() {
            fs::rename(file, target).map_err(|error| cannot(target, &error))?;
        }
        Ok(targets)
    }

    /// Removes what is at the place of the folder, unless that has names which the folder lacks:
    /// then another command, or the user, has put something there.
    fn remove_older(&self) -> Result<(), Failure> {
        let failed = |error: io::Error| self.cannot_write(&error);
        if !self.target.is_dir() {
            return fs::remove_file(&self.target).map_err(failed);
        }
        for entry in fs::read_dir(&self.target).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if !self.partial.join(&name).exists() {
                let path = self.target.join(name);
                return Err(Failure::unusable(format!(
                    "cannot replace {}: this command did not write {}; remove it, or name another \
                     folder",
                    self.target.display(),
                    path.display()
                )));
            }
        }
        fs::remove_dir_all(&self.target).map_err(failed)
    }

    /// Puts the folder in its place.
    pub fn finish(mut self) -> Result<(), Failure> {
        if self.overwrite.overwrite && self.target.exists() {
            self.remove_older()?;
        }
        fs::rename(&self.partial, &self.target).map_err(|error| self.cannot_write(&error))?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Writing may have failed because a signal ends the program: its status says so.
        ending::await_ending();
        if !self.is_finished {
            let _ = fs::remove_dir_all(&self.partial);
        }
        ending::end_partial(&self.partial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_appear_whole_or_not_at_all() {
        let place = std::env::temp_dir().join(format!("cutape-files-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        let target = place.join("out");
        let begin = || {
            let folder = Folder::for_file(&target, Overwrite::default()).unwrap();
            let files = ["out", "out.2"].map(|name| folder.path(name));
            fs::write(&files[0], "first").unwrap();
            fs::write(&files[1], "second").unwrap();
            (folder, files)
        };
        fs::write(place.join("out.2"), "another").unwrap();
        let (folder, files) = begin();
        let failure = folder.finish_files(&files).unwrap_err();
        assert!(failure.message.contains("it exists"), "{}", failure.message);
        assert!(!target.exists());
        fs::remove_file(place.join("out.2")).unwrap();
        let (folder, files) = begin();
        folder.finish_files(&files).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"first");
        assert_eq!(fs::read(place.join("out.2")).unwrap(), b"second");
        assert_eq!(fs::read_dir(&place).unwrap().count(), 2);
        let failure = Folder::for_file(&target, Overwrite::default()).unwrap_err();
        assert!(failure.message.contains("it exists; choose another name"));
        let folder = Folder::for_file(&target, Overwrite { overwrite: true }).unwrap();
        let file = folder.path("out");
        fs::write(&file, "third").unwrap();
        folder.finish_files(&[file]).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"third");
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let place = std::env::temp_dir().join(format!("cutape-folder-{}", std::process::id()));
        let names = |path: &Path| fs::read_dir(path).map(Iterator::count).ok();
        fs::create_dir(&place).unwrap();
        let target = place.join("out");
        let folder = Folder::create(&target, Overwrite::default()).unwrap();
        fs::write(folder.path("file"), "text").unwrap();
        assert!(!target.exists());
        drop(folder);
        assert_eq!(names(&place), Some(0), "nothing is left");
        let folder = Folder::create(&target, Overwrite::default()).unwrap();
        fs::create_dir(folder.path("inner")).unwrap();
        fs::write(folder.path("inner/run"), "#!/bin/sh\n").unwrap();
        folder.finish().unwrap();
        assert_eq!(fs::read(target.join("inner/run")).unwrap(), b"#!/bin/sh\n");
        assert_eq!(names(&place), Some(1));
        for (target, why) in [
            (target.clone(), "it exists; choose another name"),
            (place.join("no/where"), "No such file"),
            (PathBuf::from("/"), "it exists"),
        ] {
            let failure = Folder::create(&target, Overwrite::default()).unwrap_err();
            assert!(failure.message.contains(why), "{}", failure.message);
        }
        let replace = || {
            let folder = Folder::create(&target, Overwrite { overwrite: true })?;
            fs::write(folder.path("inner"), "a file now")?;
            folder.finish()
        };
        replace().unwrap();
        assert_eq!(fs::read(target.join("inner")).unwrap(), b"a file now");
        fs::write(target.join("mine"), "").unwrap();
        let failure = replace().unwrap_err();
        assert!(
            failure.message.contains("did not write"),
            "{}",
            failure.message
        );
        assert_eq!(names(&target), Some(2));
        assert_eq!(names(&place), Some(1), "nothing else is left");
        fs::remove_dir_all(&place).unwrap();
    }
}
