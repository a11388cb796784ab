//! The `CUTAPE_NULL_*` environment variables.
//!
//! - `CUTAPE_NULL_FAIL=NAME[@N|@*]=CODE,...`: the Nth call (from 1; default 1; `*` all) of NAME
//!   answers CODE and does nothing. NAME is an exported symbol (`cuMemAlloc_v2`) or a documented
//!   name (`cuMemAlloc`).
//! - `CUTAPE_NULL_DELAY=NAME[@N|@*]=DURATION,...`: that call takes that much longer (`5ms`, `20us`,
//!   `1s`; default all calls).
//! - `CUTAPE_NULL_CRASH=NAME[@N|@*],...`: that call faults (SIGSEGV).
//! - `CUTAPE_NULL_NONDETERMINISTIC=KERNEL[@N|@*],...`: that launch of the kernel, alone or in a
//!   graph, writes 8 bytes that differ each time where its first parameter points (default all
//!   launches).
//! - `CUTAPE_NULL_VERSION=13000`, `CUTAPE_NULL_DEVICES=1` (0 to 64), `CUTAPE_NULL_MEMORY=16GiB`
//!   (bytes a device, with an optional `KiB`, `MiB`, `GiB`).
//! - `CUTAPE_NULL_CAPABILITY=9.0,8.0`: compute capability of each device, the last for all that
//!   follow (default 9.0).
//! - `CUTAPE_NULL_PEERS=0-1,2-3`: the pairs of devices that can access each other's memory; `none`
//!   for no pair (default all).
//! - `CUTAPE_NULL_LOG=1`: prints the lines of the driver's error log on stderr: failing calls, and
//!   what is unknown of the private tables (default 0).
//! - `CUTAPE_NULL_SCHEDULE=eager|lazy|random:SEED`: when enqueued work runs: as soon as possible
//!   (default), as late as the manual allows, or at seeded moments on a thread of its own.
//! - `CUTAPE_NULL_PLAY=TRACE`: calls get the answers of a recording, and no kernel runs (`player`).
//!   The process that creates the file `CUTAPE_NULL_PLAY_OUTCOME` is played, without it every one;
//!   with `CUTAPE_NULL_PLAY_PARENT=PID`, the process that started the program, no forked child.
//!   Bytes of kernel parameters in the file `CUTAPE_NULL_PLAY_UNSET` are not compared; with
//!   `CUTAPE_NULL_PLAY_LEARN=1`, others that differ are no mismatch, and the outcome has them.
//!   `CUTAPE_NULL_PLAY_MISMATCH=stop|warn`: what follows a call that is not the recorded one
//!   (default stop).
//!
//! A malformed setting is named on stderr and ignored. Under AT_SECURE all of them are ignored.

use std::ffi::CStr;
use std::io::Write;
use std::ops::RangeInclusive;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cutape_play::{Allowed, OnMismatch};
use cutape_registry::{Function, NullSetting};

use crate::call::answer::CUresult;
use crate::crash;

/// Which calls of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Nth(u64),
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Fail(u32),
    Delay(Duration),
    Crash,
    /// Of a kernel, not of a call.
    Nondeterminism,
}

#[derive(Debug)]
struct Fault {
    name: String,
    which: Which,
    effect: Effect,
    seen: AtomicU64,
}

/// What the environment sets.
#[derive(Debug)]
pub(crate) struct Settings {
    faults: Vec<Fault>,
    /// Kernels whose launches differ each time.
    nondeterministic: Vec<Fault>,
    /// What `cuDriverGetVersion` answers, e.g. 13000.
    pub(crate) version: i32,
    /// How many devices there are.
    pub(crate) devices: i32,
    /// Bytes of each device.
    pub(crate) memory: u64,
    /// Compute capabilities, the last for all further devices; not empty.
    capabilities: Vec<(u16, u16)>,
    /// Whether the lines of the error log go to stderr.
    pub(crate) log: bool,
    /// The pairs of devices that are peers, if not all are.
    peers: Option<Vec<(i32, i32)>>,
    /// When enqueued work runs.
    pub(crate) schedule: Schedule,
    /// The recording that answers.
    pub(crate) play: Option<cutape_play::Options>,
}

/// When enqueued work runs; see `work::schedule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// As soon as possible.
    Eager,
    /// As late as the manual allows.
    Lazy,
    /// At moments that a seed decides.
    Random(u64),
}

static SETTINGS: LazyLock<Settings> = LazyLock::new(|| {
    // SAFETY: getauxval only reads the process's auxiliary vector.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let (settings, warnings) = Settings::read(|setting| {
        let value = std::env::var_os(setting.name()).filter(|_| !is_secure)?;
        Some(value.to_string_lossy().into_owned())
    });
    for warning in warnings {
        print_line(&format!("{warning}; ignored"));
    }
    settings
});

/// Spends that time. The end of it is spent awake: a sleep ends 50 us late (Linux, timer slack), which
/// is more than most calls of a real driver take.
fn delay(duration: Duration) {
    const AWAKE: Duration = Duration::from_micros(200);
    let begin = Instant::now();
    std::thread::sleep(duration.saturating_sub(AWAKE));
    while begin.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// Writes a line to stderr; the program must not end because stderr is full.
pub(crate) fn print_line(line: &str) {
    let line = format!("cutape null driver: {line}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// The settings of this process.
pub(crate) fn get() -> &'static Settings {
    &SETTINGS
}

impl Settings {
    /// From variables, with a warning for each malformed part.
    fn read(variable: impl Fn(NullSetting) -> Option<String>) -> (Settings, Vec<String>) {
        let mut warnings = Vec::new();
        let (mut faults, mut nondeterministic) = (Vec::new(), Vec::new());
        for (setting, parse) in [
            (NullSetting::Fail, parse_fail as fn(&str) -> Option<Fault>),
            (NullSetting::Delay, parse_delay),
            (NullSetting::Crash, parse_crash),
            (NullSetting::Nondeterministic, parse_kernel),
        ] {
            let value = variable(setting).unwrap_or_default();
            let parts = value.split(',').map(str::trim);
            for part in parts.filter(|part| !part.is_empty()) {
                match parse(part) {
                    Some(fault) if fault.effect == Effect::Nondeterminism => {
                        nondeterministic.push(fault);
                    }
                    Some(fault) => faults.push(fault),
                    None => {
                        warnings.push(format!("{}: cannot understand {part:?}", setting.name()))
                    }
                }
            }
        }
        let capabilities = match variable(NullSetting::Capability) {
            None => vec![CAPABILITY],
            Some(text) => parse_capabilities(&text).unwrap_or_else(|| {
                warnings.push(format!(
                    "CUTAPE_NULL_CAPABILITY: {text:?} is no list of numbers such as 9.0,8.0"
                ));
                vec![CAPABILITY]
            }),
        };
        let peers = variable(NullSetting::Peers).and_then(|text| {
            let pairs = parse_peers(&text);
            if pairs.is_none() {
                warnings.push(format!(
                    "CUTAPE_NULL_PEERS: {text:?} is neither none nor a list of pairs such as \
                     0-1,2-3"
                ));
            }
            pairs
        });
        let schedule = variable(NullSetting::Schedule).map(|text| (parse_schedule(&text), text));
        let schedule = match schedule {
            None => Schedule::Eager,
            Some((Some(schedule), _)) => schedule,
            Some((None, text)) => {
                warnings.push(format!(
                    "CUTAPE_NULL_SCHEDULE: {text:?} is none of eager, lazy, random:SEED"
                ));
                Schedule::Eager
            }
        };
        let play = play_options(&variable, &mut warnings);
        let mut number = |setting: NullSetting, default: u64, range: RangeInclusive<u64>| {
            let Some(text) = variable(setting) else {
                return default;
            };
            let value = parse_unit(text.trim(), SIZES).filter(|value| range.contains(value));
            value.unwrap_or_else(|| {
                let (first, last) = (range.start(), range.end());
                warnings.push(format!(
                    "{}: {text:?} is not a number from {first} to {last}",
                    setting.name()
                ));
                default
            })
        };
        let settings = Settings {
            faults,
            nondeterministic,
            capabilities,
            peers,
            schedule,
            play,
            version: number(NullSetting::Version, 13_000, 11_000..=99_990) as i32,
            log: number(NullSetting::Log, 0, 0..=1) != 0,
            devices: number(NullSetting::Devices, 1, 0..=64) as i32,
            memory: number(NullSetting::Memory, 16 << 30, 32 << 20..=1 << 40),
        };
        (settings, warnings)
    }

    /// The compute capability of a device.
    pub(crate) fn capability(&self, device: i32) -> (u16, u16) {
        let own = usize::try_from(device).ok();
        let own = own.and_then(|device| self.capabilities.get(device));
        own.or(self.capabilities.last())
            .copied()
            .unwrap_or(CAPABILITY)
    }

    /// Whether a device can access the memory of another one.
    pub(crate) fn are_peers(&self, device: i32, peer: i32) -> bool {
        let is_pair =
            |&(one, other): &(i32, i32)| [(one, other), (other, one)].contains(&(device, peer));
        let pairs = self.peers.as_ref();
        device != peer && pairs.is_none_or(|pairs| pairs.iter().any(is_pair))
    }

    /// Waits, crashes, or returns the code that this call is to fail with.
    pub(crate) fn inject_fault(&self, function: &Function) -> Option<CUresult> {
        let mut code = None;
        for fault in &self.faults {
            if fault.name != function.name && fault.name != function.base {
                continue;
            }
            if !fault.is_due() {
                continue;
            }
            match fault.effect {
                Effect::Fail(number) => code = code.or(Some(CUresult(number))),
                Effect::Delay(duration) => delay(duration),
                Effect::Crash => crash::segmentation_fault(),
                Effect::Nondeterminism => {}
            }
        }
        code
    }

    /// Whether a setting names kernels that differ each time.
    pub(crate) fn has_nondeterministic_kernels(&self) -> bool {
        !self.nondeterministic.is_empty()
    }

    /// Whether this launch of a kernel differs each time.
    pub(crate) fn is_nondeterministic(&self, kernel: &CStr) -> bool {
        let mut is_due = false;
        for fault in &self.nondeterministic {
            if fault.name.as_bytes() == kernel.to_bytes() {
                is_due |= fault.is_due();
            }
        }
        is_due
    }
}

impl Fault {
    /// Counts one more call; whether the fault is of this one.
    fn is_due(&self) -> bool {
        let count = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        self.which == Which::All || self.which == Which::Nth(count)
    }
}

/// The default compute capability of every device: an H200's.
const CAPABILITY: (u16, u16) = (9, 0);

/// Reads `9.0,8.6`.
fn parse_capabilities(text: &str) -> Option<Vec<(u16, u16)>> {
    let pair = |word: &str| {
        let (major, minor) = word.trim().split_once('.')?;
        let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
        ((1..=99).contains(&major) && minor <= 9).then_some((major, minor))
    };
    text.split(',').map(pair).collect()
}

fn parse_schedule(text: &str) -> Option<Schedule> {
    match text.trim() {
        "eager" => Some(Schedule::Eager),
        "lazy" => Some(Schedule::Lazy),
        other => {
            let seed = other.strip_prefix("random:")?;
            seed.parse().ok().map(Schedule::Random)
        }
    }
}

/// Reads `0-1,2-3` and `none`.
fn parse_peers(text: &str) -> Option<Vec<(i32, i32)>> {
    if text.trim() == "none" {
        return Some(Vec::new());
    }
    let pair = |word: &str| {
        let (one, other) = word.trim().split_once('-')?;
        Some((one.parse().ok()?, other.parse().ok()?))
    };
    text.split(',').map(pair).collect()
}

/// A call, with the default for one without `@`, and what happens to it.
fn fault(call: &str, default: Which, effect: Effect) -> Option<Fault> {
    let fault = named(call, default, effect)?;
    (fault.name.len() > 2 && fault.name.starts_with("cu")).then_some(fault)
}

/// A name, with the default for one without `@`.
fn named(call: &str, default: Which, effect: Effect) -> Option<Fault> {
    let (name, which) = match call.split_once('@') {
        None => (call, default),
        Some((name, "*")) => (name, Which::All),
        Some((name, number)) => (name, Which::Nth(number.parse().ok().filter(|&n| n > 0)?)),
    };
    let is_identifier = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'$';
    let is_name = !name.is_empty() && name.bytes().all(is_identifier);
    is_name.then(|| Fault {
        name: name.to_owned(),
        which,
        effect,
        seen: AtomicU64::new(0),
    })
}

fn parse_fail(text: &str) -> Option<Fault> {
    let (call, code) = text.split_once('=')?;
    let code = code.parse().ok().filter(|&code| code > 0)?;
    fault(call, Which::Nth(1), Effect::Fail(code))
}

fn parse_delay(text: &str) -> Option<Fault> {
    let (call, duration) = text.split_once('=')?;
    let duration = Duration::from_nanos(parse_unit(duration, DURATIONS)?);
    fault(call, Which::All, Effect::Delay(duration))
}

fn parse_crash(text: &str) -> Option<Fault> {
    fault(text, Which::Nth(1), Effect::Crash)
}

fn parse_kernel(text: &str) -> Option<Fault> {
    named(text, Which::All, Effect::Nondeterminism)
}

/// Units in nanoseconds.
const DURATIONS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];
/// Units in bytes.
const SIZES: &[(&str, u64)] = &[
    ("", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// A number with one of these units.
fn parse_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = units.iter().find(|unit| unit.0 == &text[digits.len()..])?;
    digits.parse::<u64>().ok()?.checked_mul(unit.1)
}

/// The recording to play, and how.
fn play_options(
    variable: &impl Fn(NullSetting) -> Option<String>,
    warnings: &mut Vec<String>,
) -> Option<cutape_play::Options> {
    let on_mismatch = variable(NullSetting::PlayMismatch).map(|text| {
        OnMismatch::of_word(&text).unwrap_or_else(|| {
            warnings.push(format!(
                "CUTAPE_NULL_PLAY_MISMATCH: {text:?} is none of stop, warn, unknown"
            ));
            OnMismatch::Stop
        })
    });
    let mut allowed = Allowed::default();
    for line in variable(NullSetting::PlayAllow).unwrap_or_default().lines() {
        if !allowed.add(line) {
            warnings.push(format!(
                "CUTAPE_NULL_PLAY_ALLOW: {line:?} is neither kernel:PATTERN nor call:FUNCTION"
            ));
        }
    }
    variable(NullSetting::Play).map(|trace| cutape_play::Options {
        trace: trace.into(),
        unset: variable(NullSetting::PlayUnset).map(Into::into),
        learns_unset: variable(NullSetting::PlayLearn).is_some_and(|text| text == "1"),
        outcome: variable(NullSetting::PlayOutcome).map(Into::into),
        parent: variable(NullSetting::PlayParent).and_then(|text| text.parse().ok()),
        on_mismatch: on_mismatch.unwrap_or(OnMismatch::Stop),
        allowed: allowed.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &'static str, value: &'static str) -> (Settings, Vec<String>) {
        Settings::read(|asked| (asked.name() == name).then(|| value.to_owned()))
    }

    #[test]
    fn a_delay_takes_at_least_its_time() {
        for time in [0, 20, 500].map(Duration::from_micros) {
            let begin = Instant::now();
            delay(time);
            assert!(begin.elapsed() >= time, "{time:?}");
        }
    }

    #[test]
    fn faults_are_understood_or_named() {
        type Row = (&'static str, &'static str, Option<(Which, Effect)>);
        let rows: &[Row] = &[
            (
                "CUTAPE_NULL_FAIL",
                "cuMemAlloc_v2@3=2",
                Some((Which::Nth(3), Effect::Fail(2))),
            ),
            (
                "CUTAPE_NULL_FAIL",
                "cuInit=100",
                Some((Which::Nth(1), Effect::Fail(100))),
            ),
            (
                "CUTAPE_NULL_FAIL",
                "cuInit@*=100",
                Some((Which::All, Effect::Fail(100))),
            ),
            ("CUTAPE_NULL_FAIL", "cuInit@0=100", None),
            ("CUTAPE_NULL_FAIL", "cuInit=0", None),
            ("CUTAPE_NULL_FAIL", "cuInit", None),
            ("CUTAPE_NULL_FAIL", "malloc=2", None),
            (
                "CUTAPE_NULL_DELAY",
                "cuStreamSynchronize=5ms",
                Some((Which::All, Effect::Delay(Duration::from_millis(5)))),
            ),
            ("CUTAPE_NULL_DELAY", "cuStreamSynchronize=5", None),
            (
                "CUTAPE_NULL_DELAY",
                "cuStreamSynchronize=99999999999999999999s",
                None,
            ),
            (
                "CUTAPE_NULL_CRASH",
                "cuLaunchKernel@2",
                Some((Which::Nth(2), Effect::Crash)),
            ),
            ("CUTAPE_NULL_CRASH", "cuLaunchKernel@x", None),
            (
                "CUTAPE_NULL_NONDETERMINISTIC",
                "_Z3addPf@2",
                Some((Which::Nth(2), Effect::Nondeterminism)),
            ),
            (
                "CUTAPE_NULL_NONDETERMINISTIC",
                "add",
                Some((Which::All, Effect::Nondeterminism)),
            ),
            ("CUTAPE_NULL_NONDETERMINISTIC", "add=1", None),
        ];
        for &(name, value, expected) in rows {
            let (settings, warnings) = read(name, value);
            let mut faults = settings.faults.iter().chain(&settings.nondeterministic);
            let got = faults.next().map(|fault| (fault.which, fault.effect));
            assert_eq!(got, expected, "{name}={value}");
            assert_eq!(
                warnings.is_empty(),
                expected.is_some(),
                "{name}={value}: {warnings:?}"
            );
        }
    }

    #[test]
    fn numbers_have_ranges() {
        let rows: &[(&str, &str, u64, bool)] = &[
            ("CUTAPE_NULL_MEMORY", "1GiB", 1 << 30, true),
            ("CUTAPE_NULL_MEMORY", "1", 16 << 30, false),
            ("CUTAPE_NULL_MEMORY", "many", 16 << 30, false),
            ("CUTAPE_NULL_MEMORY", "64MiB", 64 << 20, true),
        ];
        for &(name, value, memory, fine) in rows {
            let (settings, warnings) = read(name, value);
            assert_eq!(
                (settings.memory, warnings.is_empty()),
                (memory, fine),
                "{name}={value}"
            );
        }
        assert_eq!(read("CUTAPE_NULL_DEVICES", "3").0.devices, 3);
        assert!(read("CUTAPE_NULL_LOG", "1").0.log && !read("CUTAPE_NULL_LOG", "2").0.log);
        assert_eq!(read("CUTAPE_NULL_VERSION", "12040").0.version, 12_040);
    }

    #[test]
    fn each_device_may_have_a_capability() {
        let name = "CUTAPE_NULL_CAPABILITY";
        for (value, first, third, fine) in [
            ("8.6", (8, 6), (8, 6), true),
            ("9.0, 8.0", (9, 0), (8, 0), true),
            ("9", (9, 0), (9, 0), false),
            ("9.0,", (9, 0), (9, 0), false),
            ("0.1", (9, 0), (9, 0), false),
        ] {
            let (settings, warnings) = read(name, value);
            let got = (settings.capability(0), settings.capability(2));
            assert_eq!(
                (got, warnings.is_empty()),
                ((first, third), fine),
                "{value}"
            );
        }
        assert_eq!(read("", "").0.capability(1), (9, 0));
    }

    #[test]
    fn pairs_of_devices_are_peers() {
        let name = "CUTAPE_NULL_PEERS";
        for (value, pairs, fine) in [
            ("none", [false, false, false], true),
            ("0-1", [true, false, false], true),
            ("2-1, 0-2", [false, true, true], true),
            ("0:1", [true, true, true], false),
            ("0-1,", [true, true, true], false),
        ] {
            let (settings, warnings) = read(name, value);
            let got = [(0, 1), (1, 2), (0, 2)].map(|(one, other)| {
                assert_eq!(
                    settings.are_peers(one, other),
                    settings.are_peers(other, one)
                );
                settings.are_peers(one, other)
            });
            assert_eq!((got, warnings.is_empty()), (pairs, fine), "{value}");
            assert!(!settings.are_peers(1, 1));
        }
    }

    #[test]
    fn schedules_have_names() {
        for (value, expected, fine) in [
            ("eager", Schedule::Eager, true),
            ("lazy", Schedule::Lazy, true),
            ("random:7", Schedule::Random(7), true),
            ("random", Schedule::Eager, false),
            ("random:x", Schedule::Eager, false),
            ("late", Schedule::Eager, false),
        ] {
            let (settings, warnings) = read("CUTAPE_NULL_SCHEDULE", value);
            let got = (settings.schedule, warnings.is_empty());
            assert_eq!(got, (expected, fine), "{value}");
        }
    }

    #[test]
    fn only_the_named_launches_differ() {
        let (settings, _) = read("CUTAPE_NULL_NONDETERMINISTIC", "add@2,fill");
        let ask = |kernel: &CStr| settings.is_nondeterministic(kernel);
        assert_eq!([(); 3].map(|()| ask(c"add")), [false, true, false]);
        assert_eq!([(); 2].map(|()| ask(c"fill")), [true; 2]);
        assert!(!ask(c"filler") && settings.faults.is_empty());
    }

    #[test]
    fn only_the_named_call_fails() {
        let (settings, _) = read("CUTAPE_NULL_FAIL", "cuMemAlloc_v2@2=2,cuMemFree=1");
        let function = cutape_registry::function("cuMemAlloc_v2").expect("registry has it");
        let codes: Vec<_> = (0..3)
            .map(|_| settings.inject_fault(function).map(|code| code.0))
            .collect();
        assert_eq!(codes, [None, Some(2), None]);
        let free = cutape_registry::function("cuMemFree_v2").expect("registry has it");
        assert_eq!(settings.inject_fault(free).map(|code| code.0), Some(1));
    }
}
