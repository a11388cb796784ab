//! The options that `record` and `check -- PROGRAM` share.

use std::path::PathBuf;
use std::time::Duration;

use cutape_format::{PayloadPolicies, PayloadPolicy, Secret, Secrets};
use cutape_registry::{
    Digests, HostMemory, MemoryContents, RecordedLength, Stacks, StartCondition, WhenFull,
};

use crate::payloads;
use crate::policy::Policy;
use crate::signals::UserSignal;
use crate::words::{self, BackendChoice};
use cutape_render::quantity;
use cutape_terminal::failure::Failure;

/// How to record a program.
#[derive(Clone, clap::Args)]
pub struct Recording {
    /// What to keep of the bytes that the program copies to devices.
    #[arg(long, value_parser = words::payloads(), default_value = "all", value_name = "WHAT")]
    pub payloads: PayloadPolicy,
    /// What to keep of the bytes that the program copies from devices.
    #[arg(long, value_parser = words::payloads(), default_value = "all", value_name = "WHAT")]
    pub outputs: PayloadPolicy,
    /// Which pinned, registered and managed memory to compare before launches,
    /// to record what the CPU has changed in it.
    #[arg(
        long,
        value_parser = words::host_memory(),
        default_value = "reachable",
        value_name = "WHICH",
        verbatim_doc_comment
    )]
    pub host_memory: HostMemory,
    /// Record for `play` what the program can see in memory that the device writes without a copy.
    #[arg(skip)]
    pub cassette: bool,
    /// Read the page-locked source of each asynchronous copy again when the
    /// copy is complete: `check` reports what the CPU overwrote too early.
    #[arg(long, verbatim_doc_comment)]
    pub check_sources: bool,
    /// Which calls get a call stack: functions, files and lines, also of
    /// Python. --stacks alone means some. Default: some for `check -- PROGRAM`,
    /// off for `record`.
    #[arg(
        long,
        value_parser = words::stacks(),
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "some",
        verbatim_doc_comment
    )]
    pub stacks: Option<Stacks>,
    /// When to digest device memory, so that a replay can compare it. --digests
    /// alone means end. The recorder then puts all work of a context in order,
    /// and sets new memory to zeros.
    #[arg(
        long,
        value_parser = words::digests(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "end",
        value_name = "WHEN",
        verbatim_doc_comment
    )]
    pub digests: Option<Digests>,
    /// Keep what exchanges with other processes change in the memory of this
    /// one, so that `replay --rank` can put it back. An exchange is a launch or
    /// a copy that reaches memory which a process exported or imported. SIZE is
    /// the page-locked memory for copies, 256M if not given.
    #[arg(
        long,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "256M",
        value_name = "SIZE",
        value_parser = size_of_copies,
        verbatim_doc_comment
    )]
    pub outputs_of_exchanges: Option<u64>,
    /// Let each stream write a word after each EVERYth launch, 16th if not
    /// given, and around graphs, host functions and waits, so that `hang` knows
    /// how far its work is when the program hangs or has failed.
    #[arg(
        long,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "16",
        value_name = "EVERY",
        value_parser = clap::value_parser!(u32).range(1..),
        verbatim_doc_comment
    )]
    pub breadcrumbs: Option<u32>,
    /// Which device memory to read where a part of the recording begins, so that
    /// it replays with what memory held there: after `cutape ctl start`, where
    /// --start-at begins, and with --keep-last in each half of what is kept.
    /// The program waits meanwhile.
    #[arg(
        long,
        value_parser = words::memory(),
        default_value = "none",
        value_name = "WHICH",
        verbatim_doc_comment
    )]
    pub memory: MemoryContents,
    /// After which time, and how many bytes of the trace, memory is read again; 0 for never.
    #[arg(skip)]
    pub memory_interval: Option<(Duration, u64)>,
    /// Of one launch in so many, inputs and digests of outputs are kept.
    #[arg(skip)]
    pub deep: Option<u64>,
    /// The most bytes that the trace of a process may have while it is recorded,
    /// such as 20G.
    #[arg(long, value_name = "SIZE", value_parser = size_of_trace, verbatim_doc_comment)]
    pub max_size: Option<u64>,
    /// What to leave out when a trace is nearly as long as --max-size.
    #[arg(
        long,
        value_parser = words::when_full(),
        default_value = "drop-payloads",
        value_name = "WHAT",
        requires = "max_size"
    )]
    pub when_full: WhenFull,
    /// Remove secrets when the trace is packed, as `cutape redact --remove` does.
    /// --redact alone means payloads, parameters, environment, paths. What of
    /// that the recorder can leave out is never written.
    #[arg(
        long,
        value_name = "WHAT",
        value_parser = words::secrets(),
        value_delimiter = ',',
        num_args = 0..,
        require_equals = true,
        default_missing_values = ["payloads", "parameters", "environment", "paths"],
        verbatim_doc_comment
    )]
    pub redact: Vec<Secret>,
    /// Do not record ranges and marks of NVTX.
    #[arg(long)]
    pub no_nvtx: bool,
    /// Do not record what the driver's error log says about failing calls.
    #[arg(long)]
    pub no_driver_log: bool,
    /// The driver to call: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    pub driver: Option<PathBuf>,
    /// How to intercept the program's calls.
    #[arg(
        long,
        alias = "via",
        value_parser = words::backend(),
        default_value = "auto",
        value_name = "NAME"
    )]
    pub backend: BackendChoice,
    /// Begin with a pause: of the calls that only give the device work, wait or
    /// ask, none is recorded until `cutape ctl PID start`.
    #[arg(long, verbatim_doc_comment)]
    pub start_paused: bool,
    /// Begin with a pause that ends before a launch, before a call, or at a mark
    /// or range of the program: kernel:PATTERN, call:FUNCTION:N or mark:TEXT.
    #[arg(
        long,
        value_name = "CONDITION",
        value_parser = start_condition,
        verbatim_doc_comment
    )]
    pub start_at: Option<String>,
    /// Begin with a pause that ends when cutape gets this signal (USR1, USR2, HUP,
    /// RTMIN+N), as does each later pause. The program does not get it then.
    #[arg(long, value_name = "SIGNAL", verbatim_doc_comment)]
    pub start_signal: Option<UserSignal>,
    /// Pause when cutape gets this signal; if it is that of --start-signal, the
    /// recording starts and pauses in turn.
    #[arg(long, value_name = "SIGNAL", verbatim_doc_comment)]
    pub stop_signal: Option<UserSignal>,
    /// Pause after so much: '100 launches', '1000 calls', 10s or 500ms.
    #[arg(long = "for", value_name = "LENGTH", value_parser = recorded_length)]
    pub length: Option<String>,
    /// Measure what recording costs, which itself costs a little.
    #[arg(skip)]
    pub measures_cost: bool,
}

/// The least memory for copies.
const LEAST: u64 = 1 << 20;

fn size_of_copies(text: &str) -> Result<u64, String> {
    match quantity::parse_bytes(text)? {
        bytes @ LEAST.. => Ok(bytes),
        _ => Err("at least 1M is needed".to_owned()),
    }
}

/// The least size of a trace: thread buffers and tables need some.
const LEAST_TRACE: u64 = 16 << 20;

fn size_of_trace(text: &str) -> Result<u64, String> {
    match quantity::parse_bytes(text)? {
        bytes @ LEAST_TRACE.. => Ok(bytes),
        _ => Err("at least 16M are needed".to_owned()),
    }
}

fn start_condition(text: &str) -> Result<String, String> {
    match StartCondition::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(
            "give kernel:PATTERN, call:FUNCTION, call:FUNCTION:N with a function of the driver, or \
             mark:TEXT"
                .to_owned(),
        ),
    }
}

fn recorded_length(text: &str) -> Result<String, String> {
    match RecordedLength::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("give a number and launches, calls, s or ms, as in '100 launches'".to_owned()),
    }
}

impl Recording {
    /// These options with what the machine's policy asks for, and without what is to be redacted
    /// and need not be written.
    ///
    /// # Errors
    /// If options contradict each other or the policy, or the policy cannot be read.
    pub fn limited(&self) -> Result<Self, Failure> {
        let policy = Policy::find()?;
        let mut limited = self.clone();
        let asked: Secrets = self.redact.iter().copied().collect();
        let secrets = asked.and(policy.redact);
        limited.redact = secrets.iter().collect();
        if secrets.has(Secret::Payloads) {
            limited.payloads = PayloadPolicy::None;
            limited.outputs = PayloadPolicy::None;
            limited.refuse_contents(&policy)?;
        }
        limited.no_nvtx |= secrets.has(Secret::Names);
        limited.no_driver_log |= secrets.has(Secret::Names) || secrets.has(Secret::Paths);
        limited.check()?;
        Ok(limited)
    }

    /// Refuses options that keep what is removed with payloads.
    fn refuse_contents(&self, policy: &Policy) -> Result<(), Failure> {
        let keeps_memory = self.memory != MemoryContents::None;
        let option = match (self.digests, self.outputs_of_exchanges) {
            (Some(_), _) => "--digests",
            (_, Some(_)) => "--outputs-of-exchanges",
            _ if keeps_memory => "--memory",
            _ if self.deep.is_some() => "--deep",
            _ => return Ok(()),
        };
        let asks = policy.asks_for(Secret::Payloads, "--redact");
        Err(Failure::unusable(format!(
            "{option} keeps contents of memory, which {asks} removes with payloads: give one of \
             the two"
        )))
    }

    /// Refuses `--no-pack` where packing removes or hashes something.
    ///
    /// # Errors
    /// If it does.
    pub fn check_no_pack(&self) -> Result<(), Failure> {
        payloads::check_no_pack(self.kept())?;
        let policy = Policy::find()?;
        let asked: Secrets = self.redact.iter().copied().collect();
        let Some(first) = asked.and(policy.redact).iter().next() else {
            return Ok(());
        };
        let asks = policy.asks_for(first, "--redact");
        Err(Failure::unusable(format!(
            "--no-pack conflicts with {asks}: packing removes {}; leave out --no-pack",
            asked.and(policy.redact).words().replace(',', ", ")
        )))
    }

    /// Refuses options that contradict each other.
    fn check(&self) -> Result<(), Failure> {
        if self.memory != MemoryContents::None {
            self.check_memory("--memory")?;
        }
        if self.deep.is_some() {
            self.check_memory("--deep")?;
        }
        if self.deep.is_some() && self.digests.is_some() {
            return Err(Failure::unusable(
                "--digests digests what all launches reach, --deep what some do: give one of the two",
            ));
        }
        if self.outputs_of_exchanges.is_some() && self.payloads != PayloadPolicy::All {
            return Err(Failure::unusable(format!(
                "--outputs-of-exchanges keeps bytes that a replay puts back; --payloads {} leaves \
                 them out: give one of the two",
                self.payloads.word()
            )));
        }
        if self.cassette {
            self.check_cassette()?;
        }
        let excluding = [
            ("--digests", self.digests.is_some()),
            (
                "--outputs-of-exchanges",
                self.outputs_of_exchanges.is_some(),
            ),
        ];
        let pausing = [
            ("--start-paused", self.start_paused),
            ("--start-at", self.start_at.is_some()),
            ("--start-signal", self.start_signal.is_some()),
            ("--stop-signal", self.stop_signal.is_some()),
            ("--for", self.length.is_some()),
        ];
        let given = |options: &[(&'static str, bool)]| {
            let mut given = options.iter().filter(|(_, is_given)| *is_given);
            given.next().map(|(option, _)| *option)
        };
        if let (Some(option), Some(pause)) = (given(&excluding), given(&pausing)) {
            return Err(Failure::unusable(format!(
                "{option} says what all work leaves in memory, {pause} leaves work out: give one of \
                 the two"
            )));
        }
        Ok(())
    }

    /// Refuses options with which the contents of memory would be left out later.
    fn check_memory(&self, option: &str) -> Result<(), Failure> {
        let other = match self.payloads {
            PayloadPolicy::All if self.max_size.is_none() => return Ok(()),
            PayloadPolicy::All => "--max-size".to_owned(),
            payloads => format!("--payloads {}", payloads.word()),
        };
        Err(Failure::unusable(format!(
            "{option} keeps bytes that a replay puts back; {other} leaves them out: give one of the \
             two"
        )))
    }

    /// Refuses options that leave out what `play` needs.
    fn check_cassette(&self) -> Result<(), Failure> {
        let other = match (self.payloads, self.outputs, self.host_memory) {
            (PayloadPolicy::All, PayloadPolicy::All, HostMemory::Off) => {
                "--host-memory off".to_owned()
            }
            (PayloadPolicy::All, PayloadPolicy::All, _) => return Ok(()),
            (PayloadPolicy::All, outputs, _) => format!("--outputs {}", outputs.word()),
            (payloads, ..) => format!("--payloads {}", payloads.word()),
        };
        Err(Failure::unusable(format!(
            "--cassette keeps bytes that `play` needs; {other} leaves them out: give one of the two"
        )))
    }

    /// What packing keeps of payloads.
    pub fn kept(&self) -> PayloadPolicies {
        PayloadPolicies {
            payloads: self.payloads,
            outputs: self.outputs,
            embeds_files: false,
        }
    }
}
