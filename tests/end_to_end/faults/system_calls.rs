//! System calls of the recorder that fail: each of them, once and from then on.

use std::fs;
use std::path::Path;

use cutape_format::Trace;
use cutape_tests::{Suite, calls_of, parts, run};

use super::programs;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.test("failing-system-calls", failing_system_calls);
}

const CALLS: usize = 9000;

/// What the user gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// Everything, and no line.
    All,
    /// What came before, and a line with the reason.
    Start,
    /// Nothing, and a line with the reason.
    Nothing,
}

use Kept::{All, Nothing, Start};

/// A function, an error, which of its calls fail (the first, and how many), and what is kept.
const FAULTS: &[(&str, i32, (u32, u32), Kept)] = &[
    ("open", libc::EMFILE, (0, 1), Nothing),
    ("open", libc::EINTR, (0, 1), All),
    ("open", libc::EMFILE, (1, FOR_EVER), All),
    ("fallocate", libc::ENOSPC, (0, 1), Nothing),
    ("fallocate", libc::ENOSPC, (12, FOR_EVER), Start),
    ("fallocate", libc::EDQUOT, (12, FOR_EVER), Start),
    // A file system without the call.
    ("fallocate", libc::EOPNOTSUPP, (0, FOR_EVER), All),
    ("fallocate", libc::EINTR, (0, 20), All),
    ("pwrite", libc::EINTR, (0, 20), All),
    ("pwrite", libc::EIO, (60, FOR_EVER), Start),
    ("pwritev", libc::EINTR, (0, 20), All),
    ("pwritev", libc::EIO, (20, 1), Start),
    ("pwritev", SHORT, (0, FOR_EVER), All),
    ("pwrite", SHORT, (0, FOR_EVER), All),
    ("pread", libc::EIO, (0, FOR_EVER), All),
    ("mmap", libc::ENOMEM, (0, 1), Nothing),
    ("mmap", libc::ENOMEM, (1, FOR_EVER), Start),
    ("madvise", libc::EINVAL, (0, FOR_EVER), All),
    ("madvise", libc::EFAULT, (0, FOR_EVER), Start),
];

const FOR_EVER: u32 = 1_000_000;
/// Not an error: a part is written.
const SHORT: i32 = -1;

fn failing_system_calls(folder: &Path) -> Result<(), String> {
    for &(function, error, (first, count), kept) in FAULTS {
        let fault = format!("{function}:{error}:{first}:{count}");
        expect_kept(folder, &fault, kept).map_err(|why| format!("{fault}: {why}"))?;
    }
    Ok(())
}

fn expect_kept(folder: &Path, fault: &str, kept: Kept) -> Result<(), String> {
    let path = folder.join(format!("{fault}.cutape"));
    let mut command = parts().cutape(&[
        &"record",
        &"--driver",
        &"null",
        &"--no-pack",
        &"-o",
        &path,
        &"--",
    ]);
    command
        .arg(&programs().counted)
        .arg(folder.join("counts"))
        .args(["1", &CALLS.to_string()])
        .env("LD_PRELOAD", &programs().shim)
        .env("FAULT", fault);
    let output = run(&mut command);
    output.expect_code(0)?;
    let error = fault.split(':').nth(1).unwrap_or_default();
    let reason = std::io::Error::from_raw_os_error(error.parse().unwrap_or(0)).to_string();
    let reason = reason.split(" (").next().unwrap_or_default();
    // The recorder and `record` each say it, since one of them may have no stderr.
    let lines: Vec<_> = output.stderr.lines().collect();
    let is_said = match kept {
        All => lines.is_empty(),
        Start | Nothing => lines.len() == 2 && lines.iter().all(|line| line.contains(reason)),
    };
    if output.stdout != "EXIT-SUCCESS\n" || !is_said {
        return Err(output.describe());
    }
    if kept == Nothing {
        return match path.exists() {
            false => Ok(()),
            true => Err("a useless trace is left".into()),
        };
    }
    let trace = Trace::open(&path).map_err(|error| error.to_string())?;
    if let Some(damage) = trace.verify().first() {
        return Err(format!("{damage:?}"));
    }
    let calls = calls_of(&trace, "cuCtxSynchronize") + calls_of(&trace, "cuMemcpyHtoD_v2");
    let is_right = match kept {
        All => calls == CALLS,
        _ => calls < CALLS && !trace.has_all_calls(),
    };
    fs::remove_file(&path).map_err(|error| error.to_string())?;
    match is_right {
        true => Ok(()),
        false => Err(format!("{calls} calls\n{}", output.describe())),
    }
}
