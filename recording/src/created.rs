//! Whether a trace existed that is gone at the end: deleted while the program ran.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::mem::size_of;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Notes which files are created in a folder.
pub(crate) struct CreatedFiles {
    /// `None` where the system does not tell.
    events: Option<File>,
}

impl CreatedFiles {
    /// Begins with the folder of that file.
    pub(crate) fn beside(trace: &Path) -> Self {
        let folder = trace.parent().unwrap_or(Path::new("/"));
        let Ok(folder) = CString::new(folder.as_os_str().as_bytes()) else {
            return Self { events: None };
        };
        // SAFETY: no memory is involved.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        if descriptor < 0 {
            return Self { events: None };
        }
        // SAFETY: the descriptor is new and belongs to nobody else.
        let events = unsafe { File::from_raw_fd(descriptor) };
        // SAFETY: the path ends in NUL and outlives the call.
        let watch =
            unsafe { libc::inotify_add_watch(descriptor, folder.as_ptr(), libc::IN_CREATE) };
        Self {
            events: (watch >= 0).then_some(events),
        }
    }

    /// Those created since the last call, in the order of their creation, by name.
    pub(crate) fn names(&mut self) -> Vec<PathBuf> {
        let mut names = Vec::new();
        let mut bytes = [0; 1 << 14];
        while let Some(length @ 1..) = self.events.as_mut().and_then(|e| e.read(&mut bytes).ok()) {
            let mut rest = &bytes[..length];
            // The last member of the head is the length of the name.
            while let Some((head, after)) = rest.split_at_checked(size_of::<libc::inotify_event>())
                && let Some(padded) = head.last_chunk().map(|tail| u32::from_ne_bytes(*tail))
                && let Some((name, next)) = after.split_at_checked(padded as usize)
            {
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                names.push(PathBuf::from(OsStr::from_bytes(name)));
                rest = next;
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_that_are_gone_are_named() {
        let folder = std::env::temp_dir().join(format!("cutape-created-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("before"), "").unwrap();
        let mut created = CreatedFiles::beside(&folder.join("run.cutape"));
        assert_eq!(created.names(), [] as [PathBuf; 0]);
        for name in ["run.cutape", "a"] {
            fs::write(folder.join(name), "").unwrap();
        }
        fs::remove_file(folder.join("run.cutape")).unwrap();
        assert_eq!(created.names(), ["run.cutape", "a"].map(PathBuf::from));
        assert_eq!(created.names(), [] as [PathBuf; 0]);
        fs::remove_dir_all(&folder).unwrap();
        let mut nowhere = CreatedFiles::beside(&folder.join("none/run.cutape"));
        assert_eq!(nowhere.names(), [] as [PathBuf; 0]);
    }
}
