//! Processes that are killed at random moments: recorded programs, and `pack`.
//!
//! `CUTAPE_TESTS_KILLS` is how many are killed of each kind.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cutape_format::Trace;
use cutape_tests::{Suite, calls_of, files, parts, run, without_settings};

use super::programs;

pub(crate) fn add_to(suite: &mut Suite) {
    suite
        .test("killed/1-thread", |folder: &Path| {
            programs_are_killed(folder, 1)
        })
        .test("killed/16-threads", |folder: &Path| {
            programs_are_killed(folder, 16)
        })
        .test("killed/pack", packs_are_killed)
        .test("killed/rename", killed_at_the_rename);
}

fn kills() -> u32 {
    let count = std::env::var("CUTAPE_TESTS_KILLS").ok();
    count.and_then(|count| count.parse().ok()).unwrap_or(15)
}

/// Other moments in each run.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(now.map_or(1, |now| now.as_nanos() as u64) | 1)
    }

    /// A time from zero to that.
    fn up_to(&mut self, most: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        most.mul_f64((self.0 >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// Threads and how many of their calls have returned, as the program has counted them.
fn counted(file: &Path) -> Vec<(u32, u64)> {
    let bytes = fs::read(file).unwrap_or_default();
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let threads = bytes.chunks_exact(64).filter_map(|count| {
        let thread = word(count, 0).filter(|&thread| thread != 0)?;
        Some((u32::try_from(thread).ok()?, word(count, 8)?))
    });
    threads.collect()
}

fn programs_are_killed(folder: &Path, threads: u32) -> Result<(), String> {
    let library = folder.join("libcuda.so.1");
    std::os::unix::fs::symlink(&parts().interposer, &library).map_err(|e| e.to_string())?;
    let mut dice = Dice::new();
    for number in 0..kills() {
        let (trace, counts) = (folder.join("t.cutape"), folder.join("counts"));
        let mut command = Command::new(&programs().counted);
        command
            .arg(&counts)
            .arg(threads.to_string())
            .env("LD_PRELOAD", &library)
            .env("CUTAPE_DRIVER", &parts().null_driver)
            .env("CUTAPE_TRACE", &trace)
            .stdout(Stdio::null());
        let mut program = without_settings(&mut command)
            .spawn()
            .map_err(|error| error.to_string())?;
        // From the start of the process, or from its first calls.
        let start = Instant::now();
        while number % 4 != 0 && counted(&counts).is_empty() {
            if start.elapsed() > Duration::from_secs(60) {
                return Err("the program makes no calls".to_owned());
            }
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(dice.up_to(Duration::from_millis(40)));
        program.kill().map_err(|error| error.to_string())?;
        let status = program.wait().map_err(|error| error.to_string())?;
        if status.signal() != Some(libc::SIGKILL) {
            return Err(format!("kill {number}: the program has ended: {status}"));
        }
        expect_no_loss(&trace, &counts).map_err(|why| format!("kill {number}: {why}"))?;
        for file in [&trace, &counts] {
            let _ = fs::remove_file(file);
        }
    }
    Ok(())
}

/// Every call that has returned is in the trace, with its result.
fn expect_no_loss(path: &Path, counts: &Path) -> Result<(), String> {
    let counts = counted(counts);
    let returned: u64 = counts.iter().map(|(_, count)| count).sum();
    let trace = match Trace::open(path) {
        Ok(trace) => trace,
        // Killed before its first call.
        Err(_) if returned == 0 => return Ok(()),
        Err(error) => return Err(format!("{returned} calls had returned: {error}")),
    };
    if let Some(damage) = trace.verify().first() {
        return Err(format!("{damage:?}"));
    }
    for (number, count) in counts {
        let ordinal = trace
            .threads()
            .iter()
            .position(|thread| thread.number == number);
        let recorded = trace.calls().filter(|call| {
            let name = call.signature.name.as_str();
            Some(call.thread as usize) == ordinal
                && call.result() == Some(0)
                && matches!(name, "cuCtxSynchronize" | "cuMemcpyHtoD_v2")
        });
        let recorded = recorded.count() as u64;
        // One may have returned that the program has not counted yet.
        if !(count..=count + 1).contains(&recorded) {
            return Err(format!(
                "thread {number}: {count} calls have returned, {recorded} are recorded"
            ));
        }
    }
    Ok(())
}

/// The calls of `raw`.
const CALLS: usize = 20_000;

/// An unpacked trace.
fn raw(folder: &Path) -> Result<std::path::PathBuf, String> {
    let raw = folder.join("raw.cutape");
    let mut command = parts().cutape(&[
        &"record",
        &"--driver",
        &"null",
        &"--no-pack",
        &"-o",
        &raw,
        &"--",
    ]);
    command.arg(&programs().counted).arg(folder.join("counts"));
    run(command.args(["2", &(CALLS / 2).to_string()])).expect(0)?;
    Ok(raw)
}

fn expect_all_calls(path: &Path) -> Result<(), String> {
    let trace = Trace::open(path).map_err(|error| error.to_string())?;
    let calls = calls_of(&trace, "cuCtxSynchronize") + calls_of(&trace, "cuMemcpyHtoD_v2");
    match calls == CALLS && trace.verify().is_empty() {
        true => Ok(()),
        false => Err(format!("{calls} calls, {:?}", trace.verify())),
    }
}

/// Whatever is left of a pack that was killed, the trace is whole, and can be packed.
fn expect_packable(folder: &Path, trace: &Path) -> Result<(), String> {
    expect_all_calls(trace)?;
    if files(folder).len() > 2 {
        return Err(format!("{:?} are left", files(folder)));
    }
    run(&mut parts().cutape(&[&"pack", &trace])).expect_code(0)?;
    expect_all_calls(trace)?;
    match files(folder).len() {
        1 => Ok(()),
        _ => Err(format!("{:?} are left", files(folder))),
    }
}

fn packs_are_killed(folder: &Path) -> Result<(), String> {
    let raw = raw(folder)?;
    let place = folder.join("place");
    fs::create_dir(&place).map_err(|error| error.to_string())?;
    let trace = place.join("t.cutape");
    let mut dice = Dice::new();
    let mut whole = None;
    for number in 0..=kills() {
        fs::copy(&raw, &trace).map_err(|error| error.to_string())?;
        let start = Instant::now();
        let mut pack = parts().cutape(&[&"pack", &trace]);
        pack.stdout(Stdio::null()).stderr(Stdio::null());
        let mut pack = pack.spawn().map_err(|error| error.to_string())?;
        // The first shows how long it takes.
        if let Some(whole) = whole {
            thread::sleep(dice.up_to(whole));
            pack.kill().map_err(|error| error.to_string())?;
        }
        pack.wait().map_err(|error| error.to_string())?;
        whole.get_or_insert_with(|| start.elapsed());
        expect_packable(&place, &trace).map_err(|why| format!("kill {number}: {why}"))?;
        fs::remove_file(&trace).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Immediately before and after the packed trace gets the name of the other.
fn killed_at_the_rename(folder: &Path) -> Result<(), String> {
    let raw = raw(folder)?;
    for fault in ["before-rename", "after-rename"] {
        let place = folder.join(fault);
        fs::create_dir(&place).map_err(|error| error.to_string())?;
        let trace = place.join("t.cutape");
        fs::copy(&raw, &trace).map_err(|error| error.to_string())?;
        let mut pack = parts().cutape(&[&"pack", &trace]);
        pack.env("LD_PRELOAD", &programs().shim).env("FAULT", fault);
        run(&mut pack).expect_code(137)?;
        expect_packable(&place, &trace).map_err(|why| format!("{fault}: {why}"))?;
    }
    Ok(())
}
