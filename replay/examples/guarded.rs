//! Replays a trace in a guarded child and writes the report as JSON: `guarded TRACE DRIVER
//! [--no-placement] [--stop]`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use cutape_format::Trace;
use cutape_replay::{Guard, Options, PlacementStrategy, run_as_child, run_guarded};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(path), Some(driver)) = (arguments.first(), arguments.get(1)) else {
        return Err("usage: guarded TRACE DRIVER [--no-placement] [--force] [--threads] [--stop] [--in-process]".into());
    };
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let trace = Trace::open_damaged(Path::new(path))?;
    let mut options = Options::new(PathBuf::from(driver));
    options.keep_going = !has("--stop");
    options.force = has("--force");
    options.threads = has("--threads");
    if std::env::var_os("CUTAPE_REPLAY_CHILD").is_some() {
        std::process::exit(run_as_child(&trace, &options));
    }
    let report = if has("--in-process") {
        let plan = cutape_replay::plan(&trace);
        cutape_replay::replay(&trace, &plan, &options, &mut |_| {})?
    } else {
        let own = std::env::current_exe()?;
        let command = || {
            let mut command = Command::new(&own);
            command.args(&arguments);
            command
        };
        let guard = Guard {
            placement: has("--no-placement").then_some(PlacementStrategy::None),
            ..Guard::default()
        };
        run_guarded(&trace, &command, &guard, &mut |_| {})?
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(if report.agrees() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
