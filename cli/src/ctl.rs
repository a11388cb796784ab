//! `cutape ctl`: starts, stops and asks about recordings of running programs, through the control
//! chunks of their traces.

mod status;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use cutape_format::{LiveControl, Trace};
use cutape_terminal::failure::Failure;
use cutape_terminal::{clock, message};

use crate::{live, mark};
use status::{Format, Status};

/// How long `keep` waits for the flight recorder.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it looks.
const PAUSE: Duration = Duration::from_millis(10);

/// What `ctl` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The recorded process, or the trace that it is recording to.
    #[arg(value_name = "PID|TRACE")]
    target: PathBuf,
    /// What to do.
    #[arg(value_enum)]
    action: Action,
    /// The text of `mark`.
    text: Option<String>,
    /// Also all processes that descend from PID and are recorded.
    #[arg(long)]
    all_processes: bool,
    /// How `status` answers.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
    /// Write the answer of `status` for the node exporter of Prometheus, whole
    /// at any moment.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    textfile: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Record, after `stop` or `record --start-paused`.
    Start,
    /// Leave out calls that only give the device work, wait, or ask.
    Stop,
    /// Put a mark with a text into the recording.
    Mark,
    /// Have the flight recorder keep what it has.
    Keep,
    /// Say what the recording does.
    Status,
}

impl Arguments {
    /// Refuses what does not belong to the action.
    fn check(&self) -> Result<(), Failure> {
        let unusable = |why: &str| Err(Failure::unusable(why));
        match (self.action, &self.text) {
            (Action::Mark, None) => return unusable("mark needs a text: cutape ctl PID mark TEXT"),
            (Action::Mark, Some(text)) => mark::check(text)?,
            (_, Some(_)) => return unusable("only mark takes a text"),
            _ => {}
        }
        if self.action != Action::Status && (self.textfile.is_some() || self.format != Format::Text)
        {
            return unusable("--format and --textfile are for status");
        }
        Ok(())
    }

    /// The traces that are meant.
    fn traces(&self) -> Result<Vec<PathBuf>, Failure> {
        let process = self
            .target
            .to_str()
            .and_then(|text| text.parse::<u32>().ok());
        let Some(process) = process else {
            if self.all_processes {
                return Err(Failure::unusable(format!(
                    "--all-processes needs the number of a process; {} is a file",
                    self.target.display()
                )));
            }
            return Ok(vec![self.target.clone()]);
        };
        if !self.all_processes {
            return Ok(vec![live::trace_named(
                process,
                &format!("process {process}"),
            )?]);
        }
        let found = live::descendants(process).into_iter();
        let mut traces: Vec<_> = found.filter_map(|one| live::trace_of(one).ok()).collect();
        traces.sort();
        traces.dedup();
        if traces.is_empty() {
            return Err(Failure::unusable(format!(
                "{process}: neither this process nor one that descends from it is being recorded"
            )));
        }
        Ok(traces)
    }

    /// Whether a trace is one of many, and its process has ended since they were looked for.
    fn may_miss(&self, path: &Path) -> bool {
        self.all_processes && Trace::follow(path).is_ok_and(|trace| trace.writer().is_none())
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    // The moment is when it was asked for.
    let ticks = clock::ticks();
    arguments.check()?;
    let traces = arguments.traces()?;
    if arguments.action == Action::Status {
        let mut all = Vec::new();
        for path in &traces {
            match Status::of(path) {
                Err(_) if arguments.may_miss(path) => {}
                status => all.push(status?),
            }
        }
        if let Some(file) = &arguments.textfile {
            status::write_textfile(file, &all)?;
        } else {
            status::print(arguments.format, &all)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    for path in &traces {
        let text = arguments.text.as_deref().unwrap_or_default();
        match act(path, arguments.action, ticks, text) {
            Err(_) if arguments.may_miss(path) => {}
            done => done?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn act(path: &Path, action: Action, ticks: u64, text: &str) -> Result<(), Failure> {
    if action == Action::Mark {
        return mark::put(path, ticks, text);
    }
    let trace = Trace::follow(path)?;
    trace.writer().ok_or_else(|| live::not_recorded(path))?;
    let control = live::control_of(&trace)?;
    // Another clock is known to the recorder alone.
    let ticks = if trace.head().clock == 0 { ticks } else { 0 };
    let name = path.display();
    match action {
        Action::Start if !control.resume(ticks) => message!("{name}: it is recording already"),
        Action::Stop if control.pausing().is_refused() => {
            return Err(Failure::unusable(format!(
                "{name}: --digests and --outputs-of-exchanges need all calls; record without them \
                 to be able to stop"
            )));
        }
        Action::Stop if !control.pause(ticks) => message!("{name}: it is paused already"),
        Action::Keep => keep(&trace, &control)?,
        _ => {}
    }
    Ok(())
}

/// Asks the flight recorder to keep what it has, and waits until it has answered.
fn keep(trace: &Trace, control: &LiveControl) -> Result<(), Failure> {
    let name = trace.path().display();
    let Some(number) = control.ask_to_keep() else {
        return Err(Failure::unusable(format!(
            "{name}: no flight recorder runs; all calls are kept anyway"
        )));
    };
    let asked = Instant::now();
    while control.kept() < number {
        if trace.writer().is_none() {
            return Err(live::not_recorded(trace.path()));
        }
        if asked.elapsed() > PATIENCE {
            return Err(Failure::unusable(format!(
                "{name}: the flight recorder has not answered within {} s; it answers when the \
                 program calls the driver",
                PATIENCE.as_secs()
            )));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
