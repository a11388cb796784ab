//! Files that a trace names.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file, and nothing that would wait for somebody else or do something when it is opened, as
/// pipes and devices.
pub(crate) fn open(path: &Path) -> Option<File> {
    // Again after it has been opened, because it may be another one by then.
    path.metadata().ok().filter(fs::Metadata::is_file)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn pipes_and_devices_are_not_opened() {
        let pipe = std::env::temp_dir().join(format!("cutape-pipe-{}", std::process::id()));
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for (path, opens) in [
            (&*pipe, false),
            (Path::new("/dev/zero"), false),
            (Path::new("/"), false),
            (&*std::env::current_exe().unwrap(), true),
        ] {
            assert_eq!(open(path).is_some(), opens, "{}", path.display());
        }
        fs::remove_file(&pipe).unwrap();
    }
}
