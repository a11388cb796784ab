//! What a trace says about itself, its program and its machine.

use std::collections::BTreeMap;

use cutape_format::layout::FILE_PACKED;
use cutape_format::{Error, Trace};
use cutape_render::Completeness;
use serde::Serialize;

use super::cut::CutFacts;
use super::kept::KeptFacts;

/// The file.
#[derive(Debug, Serialize)]
pub struct TraceFacts {
    /// Where it is.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// It was packed.
    pub packed: bool,
    /// `MAJOR.MINOR`.
    pub format: String,
    /// How many blobs it has.
    pub blobs: u64,
    /// Uncompressed.
    pub blob_bytes: u64,
    /// The version of the recorder.
    pub recorder_version: Option<String>,
    /// The policy for bytes copied to devices: `all`, `hash`, `none`.
    pub payloads: Option<String>,
    /// The policy for bytes copied from devices.
    pub outputs: Option<String>,
    /// Which calls have call stacks: `off`, `some` or `all`; `None` if the recorder knew none.
    pub stacks: Option<String>,
    /// How many of them are distinct.
    pub distinct_stacks: u64,
    /// Its source, if it was cut.
    pub cut: Option<CutFacts>,
    /// Why it was kept, if a flight recorder wrote it.
    pub kept: Option<KeptFacts>,
    /// What it lacks.
    #[serde(flatten)]
    pub state: Completeness,
}

/// The recorded program.
#[derive(Debug, Serialize)]
pub struct ProgramFacts {
    /// Its path.
    pub path: Option<String>,
    /// Its arguments, with its own name.
    pub arguments: Vec<String>,
    /// The folder that it was started in.
    pub directory: Option<String>,
    /// Its process.
    #[serde(flatten)]
    pub process: ProcessFacts,
    /// The variables of its environment that the recorder keeps.
    pub environment: BTreeMap<String, String>,
}

/// The machine and its driver.
#[derive(Debug, Serialize)]
pub struct MachineFacts {
    /// The operating system's kernel.
    pub kernel: Option<String>,
    /// The path of the driver's library.
    pub driver_path: Option<String>,
    /// As `cuDriverGetVersion` returns it, e.g. 13000.
    pub driver_version: Option<u64>,
    /// `null` for the null driver.
    pub driver_kind: Option<String>,
    /// The devices, by ordinal.
    pub devices: Vec<DeviceFacts>,
}

/// A device.
#[derive(Debug, Serialize)]
pub struct DeviceFacts {
    /// Its name.
    pub name: Option<String>,
    /// Its UUID, in hexadecimal.
    pub uuid: Option<String>,
    /// E.g. `9.0`.
    pub compute_capability: Option<String>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
}

/// A thread that made calls.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ThreadFacts {
    /// From 0, in the order of their first calls.
    pub ordinal: u32,
    /// The operating system's thread id; 0 if the trace lacks it.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// How many calls it made.
    pub calls: u64,
}

/// The recorded process and its end.
#[derive(Debug, Serialize)]
pub struct ProcessFacts {
    /// Its number.
    pub process: u32,
    /// Its parent's number.
    pub parent: Option<u32>,
    /// In a parallel program: the number among all processes.
    pub rank: Option<u64>,
    /// The number among those of the machine.
    pub local_rank: Option<u64>,
    /// Its exit status.
    pub exit_status: Option<i64>,
    /// The signal that ended it.
    pub exit_signal: Option<i64>,
}

impl ProcessFacts {
    /// Of a trace.
    pub fn of(trace: &Trace) -> Self {
        Self {
            process: trace.head().process,
            parent: number(trace, "parent"),
            rank: number(trace, "rank"),
            local_rank: number(trace, "rank.local"),
            exit_status: number(trace, "exit.status"),
            exit_signal: number(trace, "exit.signal"),
        }
    }
}

impl TraceFacts {
    pub(super) fn of(trace: &Trace) -> Result<Self, Error> {
        let head = trace.head();
        let file = std::fs::metadata(trace.path()).map_err(|source| Error::Io {
            path: trace.path().to_owned(),
            source,
        })?;
        let (blobs, blob_bytes) = trace.blobs().fold((0, 0_u64), |(count, sum), (_, length)| {
            (count + 1, sum + length)
        });
        Ok(Self {
            path: trace.path().display().to_string(),
            bytes: file.len(),
            packed: head.flags & FILE_PACKED != 0,
            format: format!("{}.{}", head.major, head.minor),
            blobs,
            blob_bytes,
            recorder_version: text(trace, "recorder.version"),
            payloads: text(trace, "payloads"),
            outputs: text(trace, "outputs"),
            stacks: text(trace, "stacks"),
            distinct_stacks: trace.stack_count() as u64,
            cut: CutFacts::of(trace),
            kept: KeptFacts::of(trace),
            state: Completeness::of(trace),
        })
    }
}

impl ProgramFacts {
    pub(super) fn of(trace: &Trace) -> Self {
        let arguments = (0..)
            .map_while(|place: usize| text(trace, &format!("argument.{place}")))
            .collect();
        let environment = trace
            .meta()
            .iter()
            .filter_map(|(key, value)| {
                Some((key.strip_prefix("environment.")?.to_owned(), value.clone()))
            })
            .collect();
        Self {
            path: text(trace, "program"),
            arguments,
            directory: text(trace, "directory"),
            process: ProcessFacts::of(trace),
            environment,
        }
    }
}

impl MachineFacts {
    pub(super) fn of(trace: &Trace) -> Self {
        // Ignores `device.count`, which a damaged or hostile trace may inflate.
        let devices = (0..)
            .map(|place: usize| {
                let of = |what: &str| text(trace, &format!("device.{place}.{what}"));
                let key = format!("device.{place}.memory");
                DeviceFacts {
                    name: of("name"),
                    uuid: of("uuid"),
                    compute_capability: of("compute-capability"),
                    memory_bytes: number(trace, &key),
                }
            })
            .take_while(|device| device.name.is_some() || device.compute_capability.is_some())
            .collect();
        Self {
            kernel: text(trace, "host.kernel"),
            driver_path: text(trace, "driver.path"),
            driver_version: number(trace, "driver.version"),
            driver_kind: text(trace, "driver.kind"),
            devices,
        }
    }
}

/// The value of a key.
pub(super) fn text(trace: &Trace, key: &str) -> Option<String> {
    trace.meta_value(key).map(str::to_owned)
}

/// The value of a key, if it is a number.
pub(super) fn number<N: std::str::FromStr>(trace: &Trace, key: &str) -> Option<N> {
    trace.meta_value(key)?.parse().ok()
}
