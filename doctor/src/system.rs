//! What the system allows.

use std::fs;
use std::io::Write;
use std::path::Path;

use cutape_recording::LibraryFolder;
use cutape_terminal::failure::Failure;

use crate::checklist::Checklist;

/// Checks what the system allows.
pub(crate) fn check(checks: &mut Checklist<impl Write>) -> Result<(), Failure> {
    // SAFETY: reads the personality of this thread, sets one flag and restores it.
    let allowed = unsafe {
        let now = libc::personality(0xffff_ffff);
        let fixed =
            now >= 0 && libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) >= 0;
        if fixed {
            libc::personality(now as libc::c_ulong);
        }
        fixed
    };
    match allowed {
        true => checks.line(
            "addresses",
            "randomisation can be disabled, as replay needs",
        )?,
        false => checks.advise(
            "addresses",
            "randomisation cannot be disabled (seccomp forbids personality): replay retries in \
             new processes until addresses are free; in Docker, --security-opt \
             seccomp=unconfined permits it",
        )?,
    }
    sandbox(checks)?;
    if !can_read_itself() {
        checks.advise(
            "seccomp",
            "process_vm_readv is forbidden: what invalid pointers point at is not recorded; in \
             Docker, --cap-add SYS_PTRACE or --security-opt seccomp=unconfined permits it",
        )?;
    }
    let source =
        fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if let Ok(source) = source {
        let source = source.trim();
        // The kernel selects tsc only if the processor's counter is reliable.
        match source {
            "tsc" => checks.line("clock", "tsc: calls have times")?,
            _ => checks.advise("clock", &format!("{source}: calls may have no times"))?,
        }
    }
    let temporary = std::env::temp_dir().display().to_string();
    match LibraryFolder::new(Path::new("/nonexistent")) {
        Ok(_) => checks.line("temporary", temporary),
        Err(_) => checks.fail(
            "temporary",
            temporary + " NOT WRITABLE: set TMPDIR to a writable folder",
        ),
    }
}

/// Which parts of the sandbox of replays this system has.
fn sandbox(checks: &mut Checklist<impl Write>) -> Result<(), Failure> {
    let layers = cutape_sandbox::support();
    let (refused, applied): (Vec<_>, Vec<_>) =
        layers.iter().partition(|layer| layer.refused.is_some());
    let applied: Vec<String> = applied.into_iter().map(ToString::to_string).collect();
    checks.paragraph("sandbox", &format!("a replay {}", applied.join("; ")))?;
    for layer in refused {
        let text =
            format!("{layer}: replay traces from strangers in a container or virtual machine");
        checks.advise("sandbox", &text)?;
    }
    Ok(())
}

/// Whether this process may read its own memory with process_vm_readv, as the interposer does.
fn can_read_itself() -> bool {
    let (source, mut target) = (7u8, 0u8);
    let place = |byte: *const u8| libc::iovec {
        iov_base: byte.cast_mut().cast(),
        iov_len: 1,
    };
    let (from, to) = (place(&raw const source), place(&raw mut target));
    // SAFETY: both vectors describe one byte that outlives the call; only the target is written.
    unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) == 1 }
}

/// Bytes that an ordinary user may still write in a folder.
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let path = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: an all-zero statvfs is a value of that type; the path ends with NUL, and both outlive
    // the call.
    unsafe {
        let mut facts: libc::statvfs = std::mem::zeroed();
        let is_known = libc::statvfs(path.as_ptr(), &raw mut facts) == 0;
        is_known.then(|| facts.f_bavail.saturating_mul(facts.f_frsize))
    }
}
