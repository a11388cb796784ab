//! `--graph`: stretches of work are captured, and launched as graphs.

use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{CopyOp, FUNCTIONS, Family, Function, LaunchOp, MemoryType, id};

use super::edited::{Edited, Known};
use super::job::{Applied, WhatIf};
use super::stretch::{Stretch, stretches};
use crate::api::buffer::{Buffer, set_word};
use crate::api::{Api, Code, result_name};
use crate::calls::steps::{Issued, Step};
use crate::compare::received::read_memory;

/// The fewest calls that are worth a graph.
const FEWEST: usize = 2;

pub(super) fn apply(
    edited: &mut Edited,
    known: Known<'_, '_>,
    job: &WhatIf,
) -> Result<Applied, String> {
    let is_chosen =
        |issued: &Issued| job.graph.contains(&issued.index) && can_be_captured(edited, issued);
    let mut stretches = stretches(&edited.steps, is_chosen);
    stretches.retain(|stretch| stretch.at.len() >= FEWEST);
    if stretches.is_empty() {
        return Err(format!(
            "the calls have no {FEWEST} launches, fills or copies after each other on one stream \
             that a graph can have (a copy of pageable host memory is none, nor a synchronous call)"
        ));
    }
    let api = &known.player.api;
    let before = api.current_context().unwrap_or(0);
    let made = stretches
        .iter()
        .map(|stretch| capture(edited, api, stretch))
        .collect::<Result<Vec<u64>, String>>();
    let _ = api.set_current(before);
    let executables = made?;
    let mut calls = 0;
    let launch = FUNCTIONS.get(usize::from(id::cuGraphLaunch));
    let launch = launch.ok_or("this build does not know cuGraphLaunch")?;
    let mut left_out = vec![false; edited.steps.len()];
    for (stretch, executable) in stretches.iter().zip(executables) {
        calls += stretch.at.len() as u64;
        let (Some(&first), Some(&last)) = (stretch.at.first(), stretch.at.last()) else {
            continue;
        };
        for at in first + 1..=last {
            // The program's own time between the calls is not spent, either.
            let is_own = stretch.at.binary_search(&at).is_ok();
            if let (Some(out), Some(step)) = (left_out.get_mut(at), edited.steps.get(at)) {
                *out = is_own || matches!(step, Step::Pause(_));
            }
        }
        if let Some(Step::Call(issued)) = edited.steps.get_mut(first) {
            *issued = Issued {
                index: issued.index,
                function: launch,
                args: vec![executable, stretch.stream],
                context: stretch.context,
            };
        }
    }
    let mut out = left_out.into_iter();
    edited.steps.retain(|_| !out.next().unwrap_or(false));
    Ok(Applied {
        edit: "graph".to_owned(),
        calls,
        what: format!("{calls} calls in {} launches of graphs", stretches.len()),
    })
}

/// Whether a call enqueues work that a graph can have.
fn can_be_captured(edited: &Edited, issued: &Issued) -> bool {
    let function = issued.function;
    match function.family {
        Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)) => true,
        Family::Memset => function.stream.is_some(),
        Family::Copy(CopyOp::Linear(copy)) => {
            let side = edited.host.get(&issued.index);
            let on_device = copy.from == MemoryType::Device && copy.to == MemoryType::Device;
            function.stream.is_some() && (on_device || side.is_some_and(|side| side.is_pinned))
        }
        _ => false,
    }
}

/// Captures the calls of a stretch on a stream of its own; the executable graph.
fn capture(edited: &mut Edited, api: &Api, stretch: &Stretch) -> Result<u64, String> {
    let failed =
        |what: &'static str| move |code: Code| format!("{what} returned {}", result_name(code));
    if stretch.context != 0 {
        let set = api.set_current(stretch.context);
        set.map_err(failed("cuCtxSetCurrent"))?;
    }
    let stream = api.create_stream().map_err(failed("cuStreamCreate"))?;
    edited.made.streams.push(stream);
    api.begin_capture(stream)
        .map_err(failed("cuStreamBeginCapture"))?;
    let mut refused = None;
    for &at in &stretch.at {
        let Some(Step::Call(issued)) = edited.steps.get(at) else {
            continue;
        };
        let mut captured = issued.clone();
        redirect(&mut captured, stream, &mut edited.made.buffers);
        // SAFETY: the arguments are those of a repeated call, on another live stream; the memory
        // that they point to is kept with the steps and with what the edit has made.
        let code = unsafe { api.call(captured.function.id, &captured.args) };
        if code != Ok(0) {
            let code = code.map_or_else(|error| error.to_string(), result_name);
            refused = Some(format!(
                "call {} {} cannot be captured: {code}",
                issued.index, issued.function.name
            ));
            break;
        }
    }
    let graph = api.end_capture(stream);
    if let Some(refused) = refused {
        return Err(refused);
    }
    let graph = graph.map_err(failed("cuStreamEndCapture"))?;
    edited.made.graphs.push(graph);
    let executable = api.instantiate(graph);
    let executable = executable.map_err(failed("cuGraphInstantiate"))?;
    edited.made.executables.push(executable);
    Ok(executable)
}

/// Lets a call use another stream.
pub(super) fn redirect(issued: &mut Issued, stream: u64, buffers: &mut Vec<Buffer>) {
    const CONFIG_STREAM: usize = offset_of("CUlaunchConfig", "hStream");
    let function: &Function = issued.function;
    if let Some(position) = function.stream {
        if let Some(argument) = issued.args.get_mut(usize::from(position)) {
            *argument = stream;
        }
        return;
    }
    if let Family::Launch(LaunchOp::Config(launch)) = function.family
        && let Some(argument) = issued.args.get_mut(usize::from(launch.config))
    {
        // The config is in memory that the steps keep.
        let mut config = read_memory(*argument, size_of("CUlaunchConfig"));
        set_word(&mut config, CONFIG_STREAM, stream);
        let buffer = Buffer::of(&config);
        *argument = buffer.address();
        buffers.push(buffer);
    }
}
