//! `cutape dump`: prints the calls of a trace, one per line, with decoded arguments.

mod markers;
mod source;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use cutape_analyzer::{CallResult, Frame, TraceContext};
use cutape_format::{Call, Marker, Note, Trace};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use self::markers::MarkerLines;
use self::source::SourceCalls;
use cutape_calls::{self, CallSet};
use cutape_format::TraceClock;
use cutape_model::Scope;
use cutape_render::quantity;
use cutape_render::{Limits, Renderer, notes};
use cutape_symbols::Resolver;
use cutape_symbols::SymbolContext;
use cutape_symbols::stacks::write_lines;
use cutape_terminal::failure::Failure;
use cutape_terminal::input::Completeness;
use cutape_terminal::output::{self, Format, printable};
use cutape_terminal::progress::Progress;

/// What `dump` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The trace.
    trace: PathBuf,
    /// Print only these calls.
    #[arg(long, value_name = "SET", long_help = cutape_calls::help("Print only these calls."))]
    calls: Option<String>,
    /// Text for people, or one JSON object per line.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Print only calls of this thread, by its ordinal.
    #[arg(long, value_name = "N")]
    thread: Option<u32>,
    /// Print the call stack of each call that has one.
    #[arg(long)]
    stacks: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let calls = arguments.calls.as_deref().map(CallSet::parse).transpose();
    let wrong = |error| Failure::unusable(format!("--calls: {error}"));
    let calls = calls.map_err(wrong)?;
    let trace = match calls.as_ref().and_then(CallSet::range) {
        Some(_) => cutape_terminal::input::open_indexed(&arguments.trace)?,
        None => cutape_terminal::input::open(&arguments.trace)?,
    };
    let calls = calls.map(|set| set.resolve(&trace)).transpose();
    let calls = calls.map_err(wrong)?;
    let filter = CallFilter {
        calls,
        thread: arguments.thread,
        stacks: arguments.stacks,
    };
    let coloured = output::coloured() && arguments.format == Format::Text;
    let stdout = output::coloured_stdout(coloured);
    let progress = if stdout.is_terminal() {
        Progress::hidden()
    } else {
        Progress::over_calls("writing", [&trace])
    };
    let mut out = BufWriter::with_capacity(1 << 16, stdout);
    let style = match coloured {
        true => Palette::COLOURED,
        false => Palette::default(),
    };
    let shown = write_calls(&trace, &filter, arguments.format, style, progress, &mut out)?;
    out.flush()?;
    if shown == 0 {
        nothing_matches(&arguments, &filter, &trace)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails if the user chose calls, since none of them was printed.
fn nothing_matches(
    arguments: &Arguments,
    filter: &CallFilter,
    trace: &Trace,
) -> Result<(), Failure> {
    if let (Some(text), Some(set)) = (&arguments.calls, &filter.calls) {
        set.some_calls(text, trace)?;
    }
    let Some(thread) = filter.thread else {
        return Ok(());
    };
    Err(Failure::unusable(match &arguments.calls {
        Some(text) => format!("--calls {text} --thread {thread}: no call matches both"),
        None => format!(
            "--thread {thread}: {}",
            CallSet::of_thread(thread).no_match(trace)
        ),
    }))
}

/// Which calls to print.
struct CallFilter {
    calls: Option<CallSet>,
    thread: Option<u32>,
    /// Whether their stacks are printed.
    stacks: bool,
}

impl CallFilter {
    /// A range that contains all matching calls.
    fn range(&self) -> Range<u64> {
        let range = self.calls.as_ref().and_then(CallSet::range);
        range.unwrap_or(0..u64::MAX)
    }

    fn contains(&self, call: &Call<'_>, renderer: &mut Renderer<'_>) -> bool {
        self.thread.is_none_or(|thread| thread == call.thread)
            && self
                .calls
                .as_ref()
                .is_none_or(|set| set.contains_rendered(call, renderer))
    }

    /// Whether to print a marker: where calls are chosen by ranges or marks, one that lies in them.
    fn shows(&self, marker: &Marker) -> bool {
        let of_thread = |thread| marker.thread == Some(thread);
        self.thread.is_none_or(of_thread)
            && self.calls.as_ref().is_none_or(|set| {
                // The end of a range is the first moment behind it.
                set.contains_moment(marker.ticks)
                    || set.contains_moment(marker.ticks.saturating_sub(1))
            })
    }
}

/// Prints the matching calls; returns how many.
fn write_calls(
    trace: &Trace,
    filter: &CallFilter,
    format: Format,
    palette: Palette,
    mut progress: Progress,
    out: &mut dyn Write,
) -> Result<u64, Failure> {
    let limits = match format {
        Format::Text => Limits::TEXT,
        Format::Json => Limits::JSON,
    };
    let mut renderer = Renderer::new(trace, limits, Scope::Kernels);
    let resolver = Resolver::default();
    let symbols = SymbolContext::new(trace, &resolver);
    let mut sites = CallSites {
        symbols,
        clock: TraceClock::of(trace),
        callers: HashMap::new(),
        stacks: filter.stacks.then(HashMap::new),
        source: SourceCalls::of(trace),
    };
    let mut line = String::new();
    let mut shown = 0;
    let state = Completeness::of(trace);
    if format == Format::Json && state != Completeness::default() {
        output::json_line(out, &state)?;
    }
    let range = filter.range();
    let shows = |marker: &Marker| filter.shows(marker);
    let mut markers = MarkerLines::new(trace, sites.clock, format, palette.side);
    let walked = trace.walk().calls(range.clone()).run(|call| {
        progress.step();
        markers.write_before(call.ticks, &shows, out)?;
        renderer.observe(call);
        if !range.contains(&call.index) || !filter.contains(call, &mut renderer) {
            return Ok(());
        }
        shown += 1;
        match format {
            Format::Text => {
                line.clear();
                text_lines(call, &mut renderer, &mut sites, palette, &mut line);
                out.write_all(line.as_bytes())?;
            }
            Format::Json => {
                output::json_line(out, &json_line(call, &mut renderer, &mut sites))?;
            }
        }
        Ok::<_, Failure>(())
    })?;
    cutape_terminal::input::known_functions(trace, walked.unknown_function())?;
    markers.write_before(u64::MAX, &shows, out)?;
    // Functions whose calls would be listed if the recorder knew them; not with a filter.
    let forwarded = trace
        .forwarded()
        .filter(|_| filter.calls.is_none() && filter.thread.is_none());
    for (name, by) in forwarded {
        match format {
            Format::Text => {
                let (name, by) = (name.escape_debug(), by.escape_debug());
                writeln!(
                    out,
                    "not recorded: calls of `{name}`, which the recorder does not know; first by \
                     {by}"
                )?;
            }
            Format::Json => {
                output::json_line(out, &json!({ "not_recorded": name, "first_by": by }))?;
            }
        }
    }
    Ok(shown)
}

/// When and from where calls were made.
struct CallSites<'t> {
    symbols: SymbolContext<'t>,
    clock: TraceClock,
    callers: HashMap<u64, String>,
    /// By id; `None` if stacks are not printed.
    stacks: Option<HashMap<u64, Vec<Frame>>>,
    /// Of a cut trace.
    source: Option<SourceCalls>,
}

impl CallSites<'_> {
    /// The return address: as a symbol, as file and offset, or bare.
    fn caller(&mut self, address: u64) -> &str {
        let symbols = &self.symbols;
        self.callers.entry(address).or_insert_with(|| {
            symbols
                .symbol(address)
                .unwrap_or_else(|| format!("{address:#x}"))
        })
    }

    /// The call's stack, if it is to be printed; empty if it has none.
    fn frames(&mut self, call: &Call<'_>) -> Option<&[Frame]> {
        let (symbols, known) = (&self.symbols, self.stacks.as_mut()?);
        let frames = match call.stack() {
            None => &[][..],
            Some(id) => known.entry(id).or_insert_with(|| symbols.frames(id)),
        };
        Some(frames)
    }

    fn duration(&self, call: &Call<'_>) -> Option<u64> {
        self.clock.between(call.ticks, call.leave?.ticks)
    }
}

/// The styles of the parts of a line.
#[derive(Clone, Copy, Default)]
struct Palette {
    name: Style,
    failure: Style,
    side: Style,
}

impl Palette {
    const COLOURED: Self = Self {
        name: Style::new().bold(),
        failure: AnsiColor::Red.on_default().bold(),
        side: Style::new().dimmed(),
    };
}

/// Writes the call's line and a line for each note.
fn text_lines(
    call: &Call<'_>,
    renderer: &mut Renderer<'_>,
    sites: &mut CallSites<'_>,
    palette: Palette,
    out: &mut String,
) {
    let Palette {
        name,
        failure,
        side,
    } = palette;
    let rendered = renderer.render(call);
    // Writing to a String never fails.
    let _ = write!(out, "{side}{} @{}", call.index, call.thread);
    if let Some(time) = sites.clock.since_start(call.ticks) {
        let _ = write!(out, " +{}ms", quantity::milliseconds(time));
    }
    let _ = write!(
        out,
        "{side:#} {name}{}{name:#}(",
        printable(&call.signature.name)
    );
    let mut values = String::new();
    rendered.write_arguments(&mut values);
    out.push_str(&printable(&values));
    out.push(')');
    match (call.result(), &rendered.result) {
        (None, _) => {
            let _ = write!(out, " = {failure}? (did not return){failure:#}");
        }
        (Some(code), Some(text)) => {
            let style = if code == 0 { Style::new() } else { failure };
            let _ = write!(out, " = {style}{}{style:#}", printable(text));
        }
        (Some(code), None) => {
            let _ = write!(out, " = {code}");
        }
    }
    if !rendered.decoded.outputs.is_empty() {
        out.push_str(" → ");
        values.clear();
        rendered.write_outputs(&mut values);
        out.push_str(&printable(&values));
    }
    let took = sites
        .duration(call)
        .map(|duration| format!("[{}]", quantity::time(duration)));
    let from = (call.caller != 0).then(|| sites.caller(call.caller).to_owned());
    if took.is_some() || from.is_some() {
        let parts: Vec<String> = took.into_iter().chain(from).collect();
        let _ = write!(out, "  {side}{}{side:#}", printable(&parts.join(" ")));
    }
    out.push('\n');
    if let Some(frames) = sites.frames(call) {
        write_lines(frames, "    ", out);
    }
    if let Some((index, source, is_smaller)) = sites
        .source
        .as_ref()
        .and_then(|all| all.of_call(call.index))
    {
        let smaller = if is_smaller { ", made smaller" } else { "" };
        let _ = writeln!(
            out,
            "    {side}note: call {index} of {source}{smaller}{side:#}"
        );
    }
    for note in call.notes() {
        if let Some(text) = notes::text(&note, &renderer.calls) {
            let _ = writeln!(out, "    {side}note: {}{side:#}", printable(&text));
        }
    }
}

/// A line of JSON; keys are only ever added.
#[derive(Debug, Serialize)]
struct JsonLine<'c> {
    call: u64,
    thread: u32,
    function: &'c str,
    time_ns: Option<u64>,
    /// `null` for a call in flight.
    duration_ns: Option<u64>,
    caller: String,
    caller_symbol: &'c str,
    /// By parameter: `value`, and where they exist `name`, `label`, `pointee`, `pieces`.
    arguments: Map<String, Json>,
    /// By parameter, with `.piece` for further pieces.
    outputs: Map<String, Json>,
    /// `null` for a call in flight.
    result: Option<CallResult>,
    launch: Option<Json>,
    notes: Vec<Json>,
    /// In a cut trace: the index in its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_call: Option<u64>,
    /// With --stacks: the call's stack, the innermost frame first.
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: Option<Vec<Frame>>,
}

fn json_line<'c>(
    call: &Call<'c>,
    renderer: &mut Renderer<'_>,
    sites: &'c mut CallSites<'_>,
) -> JsonLine<'c> {
    let rendered = renderer.render(call);
    let arguments = rendered.decoded.arguments.iter().map(|argument| {
        let mut object = argument.value.argument_json();
        if let Some(pointee) = &argument.pointee {
            object.insert("pointee".into(), pointee.json());
        }
        if !argument.pieces.is_empty() {
            let pieces: Map<String, Json> = argument
                .pieces
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.json()))
                .collect();
            object.insert("pieces".into(), json!(pieces));
        }
        (argument.name.to_owned(), Json::Object(object))
    });
    let outputs = rendered.decoded.outputs.iter().map(|output| {
        let key = output.full_name().into();
        (key, Json::Object(output.value.argument_json()))
    });
    let notes = call
        .notes()
        .filter_map(|note: Note<'_>| notes::json(&note, &renderer.calls))
        .collect();
    JsonLine {
        call: call.index,
        thread: call.thread,
        function: &call.signature.name,
        time_ns: sites.clock.since_start(call.ticks),
        duration_ns: sites.duration(call),
        caller: format!("{:#x}", call.caller),
        arguments: arguments.collect(),
        outputs: outputs.collect(),
        result: call.result().map(|code| CallResult {
            code,
            name: rendered.result,
        }),
        launch: rendered.launch.map(|launch| launch.json()),
        notes,
        source_call: sites
            .source
            .as_ref()
            .and_then(|all| Some(all.of_call(call.index)?.0)),
        frames: sites.frames(call).map(<[Frame]>::to_vec),
        caller_symbol: sites.caller(call.caller),
    }
}

#[cfg(test)]
mod tests;
