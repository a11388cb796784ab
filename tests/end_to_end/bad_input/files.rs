//! What the tests of bad input have in common: a sound trace, a user without rights, and what a
//! refusal looks like.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cutape_tests::{Output, ending, parts, record, run};

/// One line on stderr with all the words, status 2, and nothing on stdout.
pub(crate) fn expect_refusal(output: &Output, words: &[&str]) -> Result<(), String> {
    output.expect_code(2)?;
    let line = output.stderr.trim_end();
    let complaint = match words.iter().find(|word| !line.contains(**word)) {
        _ if line.lines().count() != 1 => "expected one line on stderr".to_owned(),
        _ if line.contains("panicked") => "a panic".to_owned(),
        _ if !output.stdout.is_empty() => "expected nothing on stdout".to_owned(),
        Some(word) => format!("expected `{word}` on stderr"),
        None => return Ok(()),
    };
    Err(format!("{complaint}\n{}", output.describe()))
}

/// The bytes of a small sound trace, which is put into the folder as `sound.cutape`.
pub(crate) fn sound(folder: &Path) -> Vec<u8> {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let path = folder.join("sound.cutape");
    let bytes = BYTES.get_or_init(|| {
        run(&mut record(&path, &[], &[&ending(), "end"])).assert(0);
        fs::read(&path).unwrap()
    });
    if !path.exists() {
        fs::write(&path, bytes).unwrap();
    }
    bytes.clone()
}

pub(crate) fn is_root() -> bool {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The user without rights.
pub(crate) const NOBODY: u32 = 65534;

/// Makes the command run as a user without rights, in a folder that this user can write.
pub(crate) fn as_user(user: u32, command: &mut Command, folder: &Path) -> Result<(), String> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).map_err(|e| e.to_string())?;
    let cutape = &parts().cutape;
    let reach = run(Command::new("test")
        .args([
            "-x".as_ref(),
            cutape.as_os_str(),
            "-a".as_ref(),
            "-w".as_ref(),
        ])
        .arg(folder)
        .uid(user)
        .gid(user));
    if reach.code() != Some(0) {
        return Err(format!("user {user} cannot reach {}", folder.display()));
    }
    command.uid(user).gid(user);
    Ok(())
}

/// All files of a folder that can be read.
pub(crate) fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    fs::read_dir(folder)
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_file())
        .filter_map(|entry| Some((entry.path(), fs::read(entry.path()).ok()?)))
        .collect()
}
