//! A launch loop replayed on the null driver, beside the same launches in a plain loop, with the
//! ratio.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use cutape_benches::launches;
use cutape_driver::Driver;
use cutape_format::Trace;
use cutape_registry::id;
use cutape_replay::{Options, Plan, plan, replay};

const LAUNCHES: usize = 100_000;
/// Rounds; their medians are printed.
const ROUNDS: usize = 15;

/// cuLaunchKernel.
type Launch = unsafe extern "C" fn(
    u64,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u64,
    *const u64,
    *const u64,
) -> i32;

/// The null driver, which is built beside the benchmarks.
fn null_driver() -> PathBuf {
    let program = std::env::current_exe().expect("a running program has a file");
    program.with_file_name("libcutape_null.so")
}

/// The launches of the trace, issued by a plain loop.
struct Native {
    launch: Launch,
    function: u64,
    parameters: [u8; 52],
}

impl Native {
    fn new() -> Self {
        let driver = Driver::open(&null_driver()).expect("the null driver is beside us");
        let (mut context, mut module, mut function) = (0u64, 0u64, 0u64);
        let image = cutape_benches::IMAGE;
        for (id, arguments) in [
            (id::cuInit, vec![0]),
            (
                id::cuDevicePrimaryCtxRetain,
                vec![&raw mut context as u64, 0],
            ),
        ] {
            // SAFETY: the pointers are to locals that live.
            assert_eq!(unsafe { driver.call(id, &arguments) }, Ok(0));
        }
        for (id, arguments) in [
            (id::cuCtxSetCurrent, vec![context]),
            (
                id::cuModuleLoadData,
                vec![&raw mut module as u64, image.as_ptr() as u64],
            ),
        ] {
            // SAFETY: as above; the image ends with NUL.
            assert_eq!(unsafe { driver.call(id, &arguments) }, Ok(0));
        }
        let arguments = [&raw mut function as u64, module, c"k".as_ptr() as u64];
        // SAFETY: as above.
        let result = unsafe { driver.call(id::cuModuleGetFunction, &arguments) };
        assert_eq!(result, Ok(0));
        // SAFETY: `Launch` is the type of that function.
        let launch = unsafe { driver.function(id::cuLaunchKernel) }.expect("it launches");
        Self {
            launch,
            function,
            parameters: [7; 52],
        }
    }

    /// Issues all of them.
    fn run(&self) {
        let length = self.parameters.len() as u64;
        let extra = [
            1,
            self.parameters.as_ptr() as u64,
            2,
            &raw const length as u64,
            0,
        ];
        for _ in 0..LAUNCHES {
            // SAFETY: the function is loaded, and `extra` points at memory that lives.
            let result = unsafe {
                (self.launch)(
                    self.function,
                    64,
                    1,
                    1,
                    256,
                    1,
                    1,
                    0,
                    0,
                    std::ptr::null(),
                    extra.as_ptr(),
                )
            };
            assert_eq!(result, 0);
        }
    }
}

/// Replays all of it in this process.
fn replay_all(trace: &Trace, plan: &Plan, options: &Options) {
    let report = replay(trace, plan, options, &mut |_| {}).expect("the null driver fits");
    assert!(report.agrees(), "{:?}", report.divergences);
}

fn timed(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64 / LAUNCHES as f64
}

fn main() {
    let (trace, options) = (launches(LAUNCHES), Options::new(null_driver()));
    let concurrent = Options {
        threads: true,
        ..options.clone()
    };
    let (plan, native) = (plan(&trace), Native::new());
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("replay");
    group.throughput(Throughput::Elements(LAUNCHES as u64));
    group.sample_size(10);
    group.bench_function("native_launches", |bencher| bencher.iter(|| native.run()));
    group.bench_function("launches", |bencher| {
        bencher.iter(|| replay_all(&trace, &plan, &options));
    });
    group.bench_function("launches_threads", |bencher| {
        bencher.iter(|| replay_all(&trace, &plan, &concurrent));
    });
    group.finish();
    // In turn, so that other load on the machine affects all of them.
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(timed(|| native.run()));
        times[1].push(timed(|| replay_all(&trace, &plan, &options)));
        times[2].push(timed(|| replay_all(&trace, &plan, &concurrent)));
    }
    let [native, lockstep, threads] = times.map(median);
    println!(
        "a launch: native {native:.0} ns, replayed {lockstep:.0} ns ({:.2} times, {:.0} ns more), \
         with --threads {threads:.0} ns ({:.0} ns more)",
        lockstep / native,
        lockstep - native,
        threads - native
    );
}
