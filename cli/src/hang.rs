//! `cutape hang`: says which work may still run, and what waits for what, in a process that is being
//! recorded or at the end of a trace.

mod core_dump;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use cutape_format::Trace;
use cutape_hang::{ProcessMemory, examine, text};

use cutape_terminal::clock;
use cutape_terminal::failure::{FOUND, Failure};
use cutape_terminal::input;
use cutape_terminal::message;
use cutape_terminal::output::{self, Format};

use crate::live::trace_named;

/// What `hang` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A trace, or a process that is being recorded, by its number.
    #[arg(value_name = "TRACE|PID")]
    what: OsString,
    /// Text for people, or JSON.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// How long to watch whether streams go on, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    watch: Duration,
    /// Then let the driver write a core dump of the GPU, which ends the program.
    /// It must have been started with CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1,
    /// CUDA_COREDUMP_PIPE and CUDA_COREDUMP_FILE.
    #[arg(long, verbatim_doc_comment)]
    core: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("`{text}` is no number of seconds"))
}

/// The memory of another process.
struct OtherMemory(File);

impl ProcessMemory for OtherMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.0.read_exact_at(bytes, address).is_ok()
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let path = trace_to_read(&arguments.what)?;
    let trace = input::open(&path)?;
    let process = trace.writer();
    let memory = process.and_then(memory_of);
    let memory = memory.as_ref().map(|memory| memory as &dyn ProcessMemory);
    let running = process.map(|_| (memory, now(&trace)));
    let mut report = examine(&trace, running, &mut || std::thread::sleep(arguments.watch));
    // What is known is worth more than a dump.
    let requested = match arguments.core {
        true => core_dump::request(&trace),
        false => Ok(()),
    };
    for path in core_dump::existing(&trace) {
        let dump = core_dump::contents(&path);
        report.add_core_dump(path, dump);
    }
    let mut out = output::stdout();
    match arguments.format {
        Format::Text => out.write_all(text(&report).as_bytes())?,
        Format::Json => output::json_line(&mut out, &report)?,
    }
    requested?;
    let is_clean =
        report.failure.is_none() && report.streams.is_empty() && report.threads.is_empty();
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FOUND)
    })
}

/// The trace of a process, unless a file has that name.
fn trace_to_read(what: &OsString) -> Result<PathBuf, Failure> {
    let number = what.to_str().and_then(|text| text.parse().ok());
    match number {
        Some(process) if !Path::new(what).exists() => {
            trace_named(process, &format!("process {process}"))
        }
        _ => Ok(what.into()),
    }
}

/// Now, by the clock of the trace, if that is the processor's.
fn now(trace: &Trace) -> Option<u64> {
    (trace.head().clock == 0).then(clock::ticks)
}

/// The memory of a process; a message if it cannot be read.
fn memory_of(process: u32) -> Option<OtherMemory> {
    match File::open(format!("/proc/{process}/mem")) {
        Ok(file) => Some(OtherMemory(file)),
        Err(error) => {
            message!(
                "the memory of process {process} cannot be read ({error}), so its breadcrumbs are \
                 not known: run `cutape hang` as root, or set /proc/sys/kernel/yama/ptrace_scope \
                 to 0"
            );
            None
        }
    }
}
