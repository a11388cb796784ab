//! The README of an extracted program.

use cutape_analyzer::demangle::demangle;
use cutape_format::Trace;
use cutape_render::quantity;
use cutape_replay::{ExchangeCounts, Observed, ObservedCall};

/// The replay that gave the contents of memory.
pub(super) struct Replay {
    trace: String,
    device: String,
    divergences: u64,
    exchanges: ExchangeCounts,
}

impl Replay {
    pub(super) fn of(trace: &Trace, observed: &Observed) -> Self {
        let name = trace.path().file_name().unwrap_or_default();
        let launches = observed
            .calls
            .iter()
            .filter_map(|call| call.launch.as_ref());
        let device = launches.map(|launch| launch.device.clone()).next();
        Self {
            trace: name.to_string_lossy().into_owned(),
            device: device.unwrap_or_default(),
            divergences: observed.report.divergence_count,
            exchanges: observed.report.exchanges.clone(),
        }
    }

    fn text(&self) -> String {
        let Self { trace, device, .. } = self;
        let exchanges = match (&self.exchanges.left_out[..], &self.exchanges.first_missing) {
            (_, Some(first)) => format!(
                " What call {} changed is missing ({}): from there on memory is not what the \
                 program had.",
                first.call, first.why
            ),
            ([], None) => String::new(),
            (_, None) => " Work that exchanges data with other ranks was left out, and what it \
                          changed was put back."
                .to_owned(),
        };
        let divergences = match self.divergences {
            0 => "no divergence from the recording".to_owned(),
            count => format!(
                "{} from the recording: results may be wrong",
                quantity::count(count, "divergence")
            ),
        };
        format!(
            "cutape replayed {trace} on {device} and read the memory before and after the launch, \
             with {divergences}.{exchanges}"
        )
    }
}

/// One launch.
pub(super) struct Summary {
    replay: Replay,
    /// As in the source.
    pub(super) kernel: String,
    call: u64,
    shape: String,
    pub(super) memory_bytes: u64,
}

impl Summary {
    pub(super) fn of(trace: &Trace, observed: &Observed, call: &ObservedCall) -> Self {
        let launch = call.launch.clone().unwrap_or_default();
        let three = |values: [u32; 3]| values.map(|value| value.to_string()).join(" x ");
        Self {
            replay: Replay::of(trace, observed),
            kernel: demangle(&launch.kernel),
            call: call.call,
            shape: format!(
                "{} blocks of {} threads, {} bytes of dynamic shared memory",
                three(launch.grid),
                three(launch.block),
                launch.shared
            ),
            memory_bytes: call.memory.iter().map(|memory| memory.length).sum(),
        }
    }
}

const RUNNING: &str = "\
The programs place memory at its recorded addresses, because the parameters and the memory hold
pointers. Where an address is taken in the process, they start themselves again, without and then
with address randomisation, and give up after 8 attempts. Host memory that the kernel reads or
writes is replaced by device memory where that is possible.

The result is the last line of the output:

| result | exit status | meaning |
|---|---|---|
| `same` | 0 | the kernel wrote what it wrote in the replay, bit for bit |
| `same within f32=1e-5` | 0 | as `--tolerance f32=1e-5` allows |
| `nondeterministic` | 1 | it wrote something else, and two launches from the same memory differ |
| `different` | 1 | it wrote something else, three times the same |
| `failed` | 1 | the launch returned an error |
| `refused` | 2 | the launch cannot be made here, for the reason that is printed |

Not in these programs: what kernels print, and addresses of functions in memory, which differ from
process to process.
";

const FILES: &str = "\
| file | contents |
|---|---|
| `launch.cpp`, `CMakeLists.txt` | the program in C++, for libcuda alone: it needs no CUDA toolkit |
| `launch.py` | the same in Python, without packages |
";

/// The README of a launch.
pub(super) fn of_launch(summary: &Summary, image: &str) -> String {
    let Summary {
        replay,
        kernel,
        call,
        shape,
        memory_bytes,
    } = summary;
    let memory = quantity::bytes(*memory_bytes);
    let replay = wrapped(&replay.text());
    let first = wrapped(&format!(
        "This folder makes one launch of `{kernel}` as call {call} of {} made it: {shape}. It has \
         the {memory} of memory that the kernel can reach, and compares what the kernel writes.",
        summary.replay.trace
    ));
    format!(
        "# One launch of a recorded program\n\n{first}\n```sh\n\
         python3 launch.py                     # or:\n\
         cmake -S . -B build && cmake --build build && build/launch launch.txt\n```\n\n\
         {replay}\n{FILES}\
         | `launch.txt` | the launch: kernel, grid, block, parameters, memory; can be edited |\n\
         | `{image}` | the image of the kernel; `module-*` are those of other variables |\n\
         | `memory.bin` | contents of memory, without zeros |\n\n{RUNNING}"
    )
}

/// The README of all launches.
pub(super) fn of_all(replay: &Replay, count: &str) -> String {
    let text = wrapped(&replay.text());
    let first = wrapped(&format!(
        "This folder has {} of {}, each with the memory that its kernel can reach. `run_all.py` \
         makes each in a process of its own, compares what it writes, and prints a table.",
        count, replay.trace
    ));
    format!(
        "# Launches of a recorded program\n\n{first}\n```sh\n\
         python3 run_all.py                          # with launch.py\n\
         cmake -S . -B build && cmake --build build  # run_all.py uses build/launch if it is there\n\
         python3 launch.py launches/000057.txt       # one of them\n```\n\n{text}\n{FILES}\
         | `run_all.py` | runs all |\n\
         | `index.json` | the launches, and which were left out, and why |\n\
         | `launches/` | a description of each launch, named by its call; can be edited |\n\
         | `images/` | the images of the kernels |\n\
         | `memory.bin` | contents of memory, equal pages once, without zeros |\n\n{RUNNING}"
    )
}

/// A paragraph of lines of at most 100 columns.
fn wrapped(text: &str) -> String {
    cutape_render::text::wrapped(text, 100).join("\n") + "\n"
}
