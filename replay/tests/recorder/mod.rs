//! Calls of the null driver, recorded as the interposer does, and replayed in guarded children.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cutape_driver::Driver;
use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};
use cutape_replay::{
    Alone, Error, Guard, Measuring, Options, PlacementStrategy, Report, run_as_child, run_guarded,
};

/// Which trace a child replays, and how.
pub(crate) const TRACE: &str = "REPLAY_TEST_TRACE";
pub(crate) const FLAGS: &str = "REPLAY_TEST_FLAGS";

pub(crate) fn null_driver() -> PathBuf {
    let folder = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned();
    let path = folder.join("libcutape_null.so");
    assert!(path.exists(), "{} is built with the tests", path.display());
    path
}

/// The body of the test `child`: nothing in an ordinary run, a replay in the process that
/// [`Recorder::replayed`] starts.
pub(crate) fn child() {
    let Some(path) = std::env::var_os(TRACE) else {
        return;
    };
    let flags = std::env::var(FLAGS).unwrap_or_default();
    let trace = Trace::open(Path::new(&path)).unwrap();
    let mut options = Options::new(null_driver());
    for flag in flags.split_whitespace() {
        match flag.split_once('=') {
            None if flag == "keep-going" => options.keep_going = true,
            None if flag == "no-placement" => {} // The guard assigns it.
            None if flag == "threads" => options.threads = true,
            None if flag == "sync-each" => options.sync_each = true,
            None if flag == "timing" => options.timing = Measuring::Calls,
            None if flag == "span" => options.timing = Measuring::Span,
            Some(("watchdog", seconds)) => {
                options.watchdog = Duration::from_secs(seconds.parse().unwrap());
            }
            Some(("alone", path)) => {
                let alone = Alone::from_file(path.as_ref()).unwrap();
                options.alone = Some(std::sync::Arc::new(alone));
            }
            Some(("fill", byte)) => options.fill = byte.parse().ok(),
            Some(("until", index)) => options.until = index.parse().ok(),
            Some(("only", name)) => {
                let name = name.to_owned();
                let only = move |call: &cutape_format::Call<'_>| call.signature.name == name;
                options.calls = Some(std::sync::Arc::new(only));
            }
            _ => panic!("{flag}?"),
        }
    }
    std::process::exit(run_as_child(&trace, &options));
}

/// Calls the null driver and records what the interposer would.
pub(crate) struct Recorder {
    pub(crate) driver: Driver,
    pub(crate) builder: TraceBuilder,
    pub(crate) index: u64,
    pub(crate) numbers: [u64; 4],
}

/// What a pointer argument points to.
pub(crate) enum Behind<'a> {
    /// Bytes that the call reads.
    Input(&'a [u8]),
    /// Bytes that it writes, and that are recorded.
    Output(&'a mut [u8]),
    /// Bytes that it writes, and that arrive later.
    Later(&'a mut [u8]),
}

impl Recorder {
    pub(crate) fn new() -> Self {
        let driver = Driver::open(&null_driver()).unwrap();
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        builder.meta("driver.kind", "null");
        Self {
            driver,
            builder,
            index: 0,
            numbers: [0; 4],
        }
    }

    /// A call of thread 0; the pointers among the arguments follow in `behind`, by position.
    pub(crate) fn call(
        &mut self,
        name: &str,
        arguments: &[u64],
        behind: &mut [(u8, Behind<'_>)],
    ) -> i32 {
        self.call_on(0, name, arguments, behind, None)
    }

    /// As `call`; `tamper` changes what is recorded as the result.
    pub(crate) fn call_on(
        &mut self,
        thread: u32,
        name: &str,
        arguments: &[u64],
        behind: &mut [(u8, Behind<'_>)],
        tamper: Option<i32>,
    ) -> i32 {
        let function = cutape_registry::function(name).unwrap();
        let mut arguments = arguments.to_vec();
        for (position, behind) in behind.iter_mut() {
            arguments[usize::from(*position)] = match behind {
                Behind::Input(bytes) => bytes.as_ptr() as u64,
                Behind::Output(bytes) | Behind::Later(bytes) => bytes.as_mut_ptr() as u64,
            };
        }
        let inputs: Vec<_> = behind
            .iter()
            .filter_map(|(position, behind)| match behind {
                Behind::Input(bytes) => Some(NewSnapshot::pointee(*position, bytes)),
                _ => None,
            })
            .collect();
        self.builder.call(NewCall {
            thread,
            name,
            arguments: &arguments,
            snapshots: &inputs,
            caller: 0,
        });
        // SAFETY: every test passes pointers to memory of its own, as long as the function needs.
        let result = unsafe { self.driver.call(function.id, &arguments) }.unwrap();
        let recorded = tamper.unwrap_or(result);
        let outputs: Vec<_> = behind
            .iter()
            .filter_map(|(position, behind)| match behind {
                Behind::Output(bytes) if recorded == 0 => {
                    Some(NewSnapshot::pointee(*position, bytes))
                }
                _ => None,
            })
            .collect();
        self.builder.leave(thread, recorded, &outputs);
        self.index += 1;
        self.numbers[thread as usize] += 1;
        result
    }

    /// Records a call without making it: `outputs` by position; `notes` adds notes in between.
    pub(crate) fn write(
        &mut self,
        name: &str,
        arguments: &[u64],
        snapshots: &[NewSnapshot<'_>],
        notes: impl FnOnce(&mut TraceBuilder),
        result: i32,
        outputs: &[NewSnapshot<'_>],
    ) -> u64 {
        self.builder.call(NewCall {
            name,
            arguments,
            snapshots,
            ..NewCall::default()
        });
        notes(&mut self.builder);
        self.builder.leave(0, result, outputs);
        self.index += 1;
        self.numbers[0] += 1;
        self.index - 1
    }

    pub(crate) fn make(&mut self, name: &str, arguments: &[u64]) -> u64 {
        let mut handle = [0; 8];
        assert_eq!(
            self.call(name, arguments, &mut [(0, Behind::Output(&mut handle))]),
            0,
            "{name}"
        );
        u64::from_le_bytes(handle)
    }

    /// cuInit and a context of its own; returns the context.
    pub(crate) fn begin(&mut self) -> u64 {
        assert_eq!(self.call("cuInit", &[0], &mut []), 0);
        self.make("cuCtxCreate_v2", &[0, 0, 0])
    }

    pub(crate) fn end(&mut self, context: u64) {
        self.call("cuCtxDestroy_v2", &[context], &mut []);
    }

    pub(crate) fn module(&mut self, image: &[u8]) -> u64 {
        let mut module = [0; 8];
        let behind = &mut [(0, Behind::Output(&mut module)), (1, Behind::Input(image))];
        assert_eq!(self.call("cuModuleLoadData", &[0, 0], behind), 0);
        u64::from_le_bytes(module)
    }

    /// Loads a module, and gets one of its functions.
    pub(crate) fn function(&mut self, image: &[u8], name: &[u8]) -> u64 {
        let mut function = [0; 8];
        let arguments = [0, self.module(image), 0];
        let behind = &mut [(0, Behind::Output(&mut function)), (2, Behind::Input(name))];
        assert_eq!(self.call("cuModuleGetFunction", &arguments, behind), 0);
        u64::from_le_bytes(function)
    }

    pub(crate) fn allocate(&mut self, length: u64) -> u64 {
        self.make("cuMemAlloc_v2", &[0, length])
    }

    pub(crate) fn upload(&mut self, target: u64, bytes: &[u8]) {
        let arguments = [target, 0, bytes.len() as u64];
        let behind = &mut [(1, Behind::Input(bytes))];
        assert_eq!(self.call("cuMemcpyHtoD_v2", &arguments, behind), 0);
    }

    pub(crate) fn download(&mut self, source: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let arguments = [0, source, length as u64];
        let behind = &mut [(0, Behind::Output(&mut bytes))];
        assert_eq!(self.call("cuMemcpyDtoH_v2", &arguments, behind), 0);
        bytes
    }

    pub(crate) fn replayed(&self, name: &str, flags: &str) -> Report {
        self.replayed_with(name, flags, &[], Duration::from_secs(60))
    }

    /// Replays in a child with some environment.
    pub(crate) fn replayed_with(
        &self,
        name: &str,
        flags: &str,
        environment: &[(&str, &str)],
        watchdog: Duration,
    ) -> Report {
        self.replayed_by(
            name,
            flags,
            environment,
            &Guard {
                attempts: 3,
                watchdog,
                placement: flags
                    .contains("no-placement")
                    .then_some(PlacementStrategy::None),
                ..Guard::default()
            },
        )
    }

    pub(crate) fn replayed_by(
        &self,
        name: &str,
        flags: &str,
        environment: &[(&str, &str)],
        guard: &Guard,
    ) -> Report {
        self.tried(name, flags, environment, guard).unwrap()
    }

    /// As above, with the reasons against a replay.
    pub(crate) fn tried(
        &self,
        name: &str,
        flags: &str,
        environment: &[(&str, &str)],
        guard: &Guard,
    ) -> Result<Report, Error> {
        self.in_child(name, flags, environment, |trace, command| {
            run_guarded(trace, command, guard, &mut |_| {})
        })
    }

    /// Writes the trace; returns it with the command that starts the test `child` on it.
    pub(crate) fn in_child<T>(
        &self,
        name: &str,
        flags: &str,
        environment: &[(&str, &str)],
        work: impl FnOnce(&Trace, &dyn Fn() -> Command) -> T,
    ) -> T {
        let file = format!("replay-{}-{name}.cutape", std::process::id());
        let path = std::env::temp_dir().join(file);
        self.builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        let done = work(&trace, &|| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", "child", "--ignored", "--nocapture"])
                .stdout(Stdio::null())
                .env(TRACE, &path)
                .env(FLAGS, flags)
                .envs(environment.iter().copied());
            command
        });
        std::fs::remove_file(&path).unwrap();
        done
    }
}

pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 % 251) as u8).collect()
}

pub(crate) fn assert_agrees(report: &Report) {
    assert!(
        report.agrees(),
        "{:#?} {:?}",
        report.divergences,
        report.died
    );
}
