//! A trace's name, kept from other recordings until this one is over.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The right to make a trace of some name. The program makes the file itself, later or never.
#[derive(Debug)]
pub(crate) struct Reservation {
    trace: PathBuf,
    _lock: Option<UnixListener>,
}

/// Whether a name could be had.
enum Attempt {
    Reserved(Reservation),
    /// A file is there, or another recording is about to make it.
    Taken(&'static str),
}

impl Reservation {
    /// Reserves a name that the user has chosen.
    ///
    /// # Errors
    /// If something has that name, or the folder cannot be written.
    pub(crate) fn named(trace: &Path) -> Result<Self, Failure> {
        if trace.as_os_str() == "-" {
            return Err(Failure::unusable(
                "-o -: a trace is a file that the program maps, it cannot go to stdout; name a file",
            ));
        }
        match attempt(trace)? {
            Attempt::Reserved(reservation) => Ok(reservation),
            Attempt::Taken(why) => Err(Failure::unusable(format!(
                "{} {why}; choose another name with -o, or remove it",
                trace.display()
            ))),
        }
    }

    /// Reserves `STEM.cutape` in the current folder, or the first of `STEM.1.cutape`, `STEM.2.cutape`... that is free.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub(crate) fn free(stem: &OsStr) -> Result<Self, Failure> {
        for number in 0..u32::MAX {
            let mut name = stem.to_owned();
            if number > 0 {
                name.push(format!(".{number}"));
            }
            name.push(".cutape");
            if let Attempt::Reserved(reservation) = attempt(Path::new(&name))? {
                return Ok(reservation);
            }
        }
        Err(Failure::unusable(
            "no free name in this folder; choose one with -o",
        ))
    }

    /// The trace's absolute path.
    pub(crate) fn trace(&self) -> &Path {
        &self.trace
    }
}

fn attempt(trace: &Path) -> Result<Attempt, Failure> {
    let absolute = std::path::absolute(trace)
        .map_err(|error| Failure::unusable(format!("{}: {error}", trace.display())))?;
    if absolute.symlink_metadata().is_ok() {
        return Ok(Attempt::Taken("exists already"));
    }
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let failed = |error: io::Error| {
        Failure::unusable(format!(
            "cannot write into {}: {error}; choose another place with -o",
            folder.display()
        ))
    };
    if !folder.metadata().map_err(failed)?.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    let Some(name) = absolute.file_name() else {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    };
    // Made and removed, because permissions alone do not tell (read-only file systems, quotas).
    let probe = folder.join(format!(".cutape-{}", std::process::id()));
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&probe)
        .map_err(failed)?;
    fs::remove_file(&probe).map_err(failed)?;
    let lock = match lock(folder, name) {
        Ok(lock) => Some(lock),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            return Ok(Attempt::Taken("is being recorded by another cutape"));
        }
        // A sandbox without sockets: names are as safe as the moment's look at them.
        Err(_) => None,
    };
    // Whoever had the lock until just now may have made the trace.
    if absolute.symlink_metadata().is_ok() {
        return Ok(Attempt::Taken("exists already"));
    }
    Ok(Attempt::Reserved(Reservation {
        trace: absolute,
        _lock: lock,
    }))
}

/// Whether a trace's name is reserved, by us or by another cutape.
pub(crate) fn is_reserved(trace: &Path) -> bool {
    let (Some(folder), Some(name)) = (trace.parent(), trace.file_name()) else {
        return false;
    };
    // Who has the name listens, and never answers.
    address(folder, name).is_ok_and(|address| UnixStream::connect_addr(&address).is_ok())
}

/// Takes the name.
fn lock(folder: &Path, name: &OsStr) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&address(folder, name)?)
}

/// A name that the system gives to one process at a time, and takes back when that ends; nothing of it is in the folder, where
/// the program would meet it.
fn address(folder: &Path, name: &OsStr) -> io::Result<SocketAddr> {
    let folder = folder.metadata()?;
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let text = format!(
        "cutape-{:x}-{:x}-{:x}",
        folder.dev(),
        folder.ino(),
        hasher.finish()
    );
    SocketAddr::from_abstract_name(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_had_once() {
        let folder = std::env::temp_dir().join(format!("cutape-reserve-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let run = folder.join("run.cutape");
        let first = Reservation::named(&run).unwrap();
        for (path, why) in [
            (run.clone(), "is being recorded"),
            (folder.join("none/run.cutape"), "cannot write into"),
            (folder.clone(), "exists already"),
            (PathBuf::from("-"), "cannot go to stdout"),
            (PathBuf::from("/"), "exists already"),
        ] {
            let failure = Reservation::named(&path).unwrap_err();
            assert!(failure.message.contains(why), "{}", failure.message);
        }
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            0,
            "nothing is in the folder"
        );
        assert!(is_reserved(&run));
        assert!(!is_reserved(&folder.join("other.cutape")));
        drop(first);
        assert!(!is_reserved(&run));
        drop(Reservation::named(&run).unwrap());
        fs::write(&run, "").unwrap();
        assert!(
            Reservation::named(&run)
                .unwrap_err()
                .message
                .contains("exists already")
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
