//! A call of the program that is not the recorded one, for people and programs.

use std::fmt::Write;

use cutape_diff::{Change, OneByOne};
use cutape_format::{Call, SourceFrame, StackFrame, Trace};
use serde_json::{Map, Value, json};

/// Names and values of what a call is given.
type Values = Vec<(String, String)>;

/// In what they differ.
#[derive(Clone, Debug)]
pub(crate) enum Difference {
    /// The program calls another function, with these arguments.
    Function(String, Vec<(String, String)>),
    /// The function is the same, and not what it is given.
    Arguments(Vec<Change>),
    /// The recording has no further call of the thread; the function that the program calls.
    NoMore(String),
    /// The recorded call had not returned.
    InFlight,
    /// The driver cannot do what the recorded call did: its result.
    Unsupported(i32),
    /// The recording lacks bytes that the program needs, and why.
    Bytes(String),
}

/// A call of the program that is not the recorded one.
#[derive(Clone, Debug)]
pub(crate) struct Mismatch {
    pub(crate) difference: Difference,
    /// Index, function and arguments of the recorded call, and where the program made it.
    expected: Option<(u64, String, Values, Option<String>)>,
    thread: usize,
}

impl Mismatch {
    pub(crate) fn new(
        difference: Difference,
        thread: usize,
        expected: Option<&Call<'_>>,
        (trace, comparison): (&Trace, &OneByOne<'_>),
    ) -> Self {
        let expected = expected.map(|call| {
            let values = comparison.recorded_values(call.index);
            (
                call.index,
                call.signature.name.clone(),
                values,
                place_of(trace, call),
            )
        });
        Self {
            difference,
            expected,
            thread,
        }
    }

    /// Whether the program cannot have bytes that a call brings.
    pub(crate) fn is_of_bytes(&self) -> bool {
        matches!(self.difference, Difference::Bytes(_))
    }

    fn kind(&self) -> &'static str {
        match self.difference {
            Difference::Function(..) => "function",
            Difference::Arguments(_) => "arguments",
            Difference::NoMore(_) => "no-more-calls",
            Difference::InFlight => "in-flight",
            Difference::Unsupported(_) => "unsupported",
            Difference::Bytes(_) => "bytes",
        }
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let object = |values: &[(String, String)]| -> Value {
            let values = values.iter();
            values
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect()
        };
        let mut all = Map::new();
        let mut add = |name: &str, value: Value| all.insert(name.to_owned(), value);
        add("kind", json!(self.kind()));
        add("thread", json!(self.thread));
        add("text", json!(self.text()));
        if let Some((index, function, values, place)) = &self.expected {
            let expected = json!({
                "call": index,
                "function": function,
                "arguments": object(values),
                "at": place,
            });
            add("expected", expected);
        }
        match &self.difference {
            Difference::Function(function, values) => {
                let made = json!({"function": function, "arguments": object(values)});
                add("made", made);
            }
            Difference::NoMore(function) => _ = add("made", json!({"function": function})),
            Difference::Arguments(changes) => {
                let changes = changes.iter().map(|change| {
                    let [recorded, made] = &change.values;
                    json!({"what": change.what, "recorded": recorded, "made": made})
                });
                add("changes", changes.collect());
            }
            Difference::Unsupported(result) => _ = add("result", json!(name(*result))),
            Difference::Bytes(why) => _ = add("why", json!(why)),
            Difference::InFlight => {}
        }
        Value::Object(all)
    }

    /// For people: lines without a newline at the end.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("thread {}: ", self.thread);
        match &self.difference {
            Difference::Function(..) => text += "the program makes another call than the recording",
            Difference::Arguments(_) => text += "the program's call differs from the recorded one",
            Difference::NoMore(function) => {
                let _ = write!(
                    text,
                    "{function} is called, and the recording has no further call"
                );
            }
            Difference::InFlight => {
                text += "the recording ends in this call, which had not returned"
            }
            Difference::Unsupported(result) => {
                let result = name(*result);
                let _ = write!(text, "the null driver cannot do this call: {result}");
            }
            Difference::Bytes(why) => {
                let _ = write!(
                    text,
                    "the recording lacks bytes that this call brings: {why}"
                );
            }
        }
        if let Some((index, function, values, place)) = &self.expected {
            let _ = write!(
                text,
                "\n  recorded: call {index} {function}{}",
                listed(values)
            );
            if let Some(place) = place {
                let _ = write!(text, ", at {place}");
            }
        }
        match &self.difference {
            Difference::Function(function, values) => {
                let _ = write!(text, "\n  made:     {function}{}", listed(values));
            }
            Difference::Arguments(changes) => {
                for change in changes {
                    let [recorded, made] = &change.values;
                    let or = |value: &Option<String>| value.clone().unwrap_or("nothing".to_owned());
                    let (recorded, made) = (or(recorded), or(made));
                    let what = change.what.trim_end_matches(':');
                    let _ = write!(text, "\n  {what}: {recorded} recorded, {made} made");
                }
            }
            _ => {}
        }
        text
    }
}

fn name(result: i32) -> String {
    cutape_registry::result_name(result).map_or_else(|| result.to_string(), str::to_owned)
}

/// `(ByteCount: 16, dstDevice: memory#1)`
fn listed(values: &[(String, String)]) -> String {
    let values = values
        .iter()
        .map(|(name, value)| format!("{name}: {value}"));
    format!("({})", values.collect::<Vec<_>>().join(", "))
}

/// Where the recorded program made a call, as far as the trace itself says: the innermost function
/// with a known source, else the caller's symbol.
fn place_of(trace: &Trace, call: &Call<'_>) -> Option<String> {
    let stack = call.stack().and_then(|id| trace.stack(id));
    let frames = stack.map(|stack| stack.frames).unwrap_or_default();
    let known = frames.iter().find_map(|frame| match frame {
        StackFrame::Native(address) => {
            let frame = trace.source_of(*address)?.frames.first()?;
            let SourceFrame {
                function,
                file,
                line,
            } = frame;
            (!file.is_empty()).then(|| format!("{function} ({file}:{line})"))
        }
        StackFrame::Python { code, .. } => {
            let code = trace.python_code(*code)?;
            Some(format!("{} ({})", code.function, code.file))
        }
    });
    known.or_else(|| trace.symbol(call.caller).map(str::to_owned))
}
