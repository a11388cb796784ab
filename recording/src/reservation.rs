//! Reserves a trace's file name against other recordings until this one ends.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use cutape_format::writer;

use cutape_terminal::failure::Failure;
use cutape_terminal::input;
use cutape_terminal::overwrite::Overwrite;

/// The right to create a trace with a name. The recorded program creates the file, or never does.
#[derive(Debug)]
pub struct Reservation {
    trace: PathBuf,
    overwrite: Overwrite,
    _lock: Option<UnixListener>,
}

/// The outcome of an attempt to reserve a name.
enum Attempt {
    Reserved(Reservation),
    /// The file exists and may not be replaced, or another recording has reserved it.
    Taken(Failure),
}

impl Reservation {
    /// Reserves a name that the user gave.
    ///
    /// # Errors
    /// If the name is taken or the folder is not writable.
    pub fn named(trace: &Path, overwrite: Overwrite) -> Result<Self, Failure> {
        if trace.as_os_str() == "-" {
            return Err(Failure::unusable(
                "-o -: a trace cannot go to stdout, because the program maps it; give a file name",
            ));
        }
        match attempt(trace, overwrite)? {
            Attempt::Reserved(reservation) => Ok(reservation),
            Attempt::Taken(failure) => Err(failure),
        }
    }

    /// Removes the file that is to be replaced: the recorded program creates its own.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(crate) fn clear(&self) -> Result<(), Failure> {
        match self.overwrite.replaces(&self.trace)? {
            true => fs::remove_file(&self.trace)
                .map_err(|error| Failure::cannot_write(&self.trace, &error)),
            false => Ok(()),
        }
    }

    /// Reserves `STEM.cutape` in the current folder, or the first free name among
    /// `STEM.1.cutape`, `STEM.2.cutape`...
    ///
    /// # Errors
    /// If the folder is not writable.
    pub fn free(stem: &OsStr) -> Result<Self, Failure> {
        for number in 0..u32::MAX {
            let mut name = stem.to_owned();
            if number > 0 {
                name.push(format!(".{number}"));
            }
            name.push(".cutape");
            if let Attempt::Reserved(reservation) = attempt(Path::new(&name), Overwrite::default())?
            {
                return Ok(reservation);
            }
        }
        Err(Failure::unusable(
            "no free trace name in this folder; choose one with -o",
        ))
    }

    /// The trace's absolute path.
    pub fn trace(&self) -> &Path {
        &self.trace
    }
}

fn attempt(trace: &Path, overwrite: Overwrite) -> Result<Attempt, Failure> {
    let absolute = std::path::absolute(trace)
        .map_err(|error| Failure::unusable(format!("{}: {error}", trace.display())))?;
    let is_taken = || match (overwrite.replaces(&absolute), writer(&absolute)) {
        (Ok(true), Some(process)) => Some(input::still_written(&absolute, process)),
        (replaces, _) => replaces.err(),
    };
    if let Some(failure) = is_taken() {
        return Ok(Attempt::Taken(failure));
    }
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let failed = |error: io::Error| {
        Failure::unusable(format!(
            "cannot write into {}: {error}; choose another folder with -o",
            folder.display()
        ))
    };
    if !folder.metadata().map_err(failed)?.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    let Some(name) = absolute.file_name() else {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    };
    // Permissions alone do not show read-only file systems and quotas.
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
            return Ok(Attempt::Taken(Failure::unusable(format!(
                "cannot write {}: another cutape is recording to it; choose another name with -o",
                trace.display()
            ))));
        }
        // A sandbox without sockets: only the checks for an existing file protect the name.
        Err(_) => None,
    };
    // The previous holder of the lock may have created the trace.
    if let Some(failure) = is_taken() {
        return Ok(Attempt::Taken(failure));
    }
    Ok(Attempt::Reserved(Reservation {
        trace: absolute,
        overwrite,
        _lock: lock,
    }))
}

/// Whether any cutape has reserved a trace's name.
pub(crate) fn is_reserved(trace: &Path) -> bool {
    let (Some(folder), Some(name)) = (trace.parent(), trace.file_name()) else {
        return false;
    };
    // The holder of the name listens, but never answers.
    address(folder, name).is_ok_and(|address| UnixStream::connect_addr(&address).is_ok())
}

/// Reserves the name.
fn lock(folder: &Path, name: &OsStr) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&address(folder, name)?)
}

/// An abstract socket address: it has one owner at a time, is released when the owner exits, and
/// leaves no file that the program could see.
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_name_is_reserved_once() {
        let folder = std::env::temp_dir().join(format!("cutape-reserve-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let run = folder.join("run.cutape");
        let first = Reservation::named(&run, Overwrite::default()).unwrap();
        for (path, why) in [
            (run.clone(), "another cutape is recording"),
            (folder.join("none/run.cutape"), "cannot write into"),
            (folder.clone(), "it exists"),
            (PathBuf::from("-"), "cannot go to stdout"),
            (PathBuf::from("/"), "it exists"),
        ] {
            let failure = Reservation::named(&path, Overwrite::default()).unwrap_err();
            assert!(failure.message.contains(why), "{}", failure.message);
        }
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            0,
            "nothing is in the folder"
        );
        assert!(is_reserved(&run));
        assert!(!is_reserved(&folder.join("other.cutape")));
        // The child that another test starts has the socket, too, until its program begins.
        let is_free = || {
            let mut looks = (0..1000).map(|_| std::thread::sleep(Duration::from_millis(10)));
            looks.any(|()| !is_reserved(&run))
        };
        drop(first);
        assert!(is_free());
        drop(Reservation::named(&run, Overwrite::default()).unwrap());
        assert!(is_free());
        fs::write(&run, "").unwrap();
        assert!(
            Reservation::named(&run, Overwrite::default())
                .unwrap_err()
                .message
                .contains("it exists")
        );
        let again = Reservation::named(&run, Overwrite { overwrite: true }).unwrap();
        assert!(run.exists(), "until the program starts");
        again.clear().unwrap();
        assert!(!run.exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
