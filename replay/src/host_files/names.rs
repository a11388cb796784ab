//! Names of a trace's inputs and outputs, from a TOML file beside it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cutape_analyzer::glob::matches;
use cutape_analyzer::suggestion::did_you_mean;
use cutape_format::Trace;
use cutape_render::npy::Format;
use cutape_render::text::shown;
use cutape_render::{ELEMENTS, Element};
use serde::Deserialize;

/// The calls of a set in the language of `--calls`; the error is one line.
pub type CallsOf<'a> = dyn Fn(&str) -> Result<Vec<u64>, String> + 'a;

/// Whether host memory is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The copy reads it.
    Input,
    /// The copy writes it.
    Output,
}

/// The file.
#[derive(Debug)]
pub(super) struct Names {
    path: PathBuf,
    content: Content,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    inputs: BTreeMap<String, Place>,
    #[serde(default)]
    outputs: BTreeMap<String, Place>,
}

/// Host memory of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    call: Option<u64>,
    /// A set of calls, e.g. `range:step[0]`, of which one is meant.
    within: Option<String>,
    /// Glob.
    function: Option<String>,
    /// Which of those that match, from 0.
    number: Option<usize>,
    pub(super) parameter: String,
    #[serde(rename = "type")]
    element: Option<String>,
    shape: Option<Vec<u64>>,
}

impl Names {
    /// Reads the file, by default that beside the trace.
    pub(super) fn beside(trace: &Trace, path: Option<&Path>) -> Result<Self, String> {
        let path = path.map_or_else(|| trace.path().with_extension("io.toml"), Path::to_owned);
        let shown = shown(&path).to_string();
        let text = fs::read_to_string(&path).map_err(|error| {
            format!("{shown}: {error}; names of inputs and outputs come from this file (--io)")
        })?;
        let content = parse(&text).map_err(|why| format!("{shown}: {why}"))?;
        Ok(Self { path, content })
    }

    /// The place of a name.
    pub(super) fn place(&self, name: &str, direction: Direction) -> Result<Place, String> {
        let (inputs, outputs) = (&self.content.inputs, &self.content.outputs);
        let (list, others, what, other) = match direction {
            Direction::Input => (inputs, outputs, "input", "output"),
            Direction::Output => (outputs, inputs, "output", "input"),
        };
        let shown = shown(&self.path);
        list.get(name).cloned().ok_or_else(|| {
            if others.contains_key(name) {
                return format!("{name} is an {other} in {shown}, not an {what}");
            }
            let known: Vec<&str> = list.keys().map(String::as_str).collect();
            match known.is_empty() {
                true => format!("{shown} names no {what}s"),
                false => {
                    let names = known.join(", ");
                    let suggestion = did_you_mean(name, known);
                    format!("{shown} has no {what} {name}; it has {names}{suggestion}")
                }
            }
        })
    }
}

/// Parses the file; the error is one line.
fn parse(text: &str) -> Result<Content, String> {
    let content: Content = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = 1 + text.get(..at).unwrap_or(text).matches('\n').count();
        format!("line {line}: {}", error.message().replace('\n', " "))
    })?;
    for (kind, list) in [("inputs", &content.inputs), ("outputs", &content.outputs)] {
        for (name, place) in list {
            place
                .check()
                .map_err(|why| format!("{kind}.{name}: {why}"))?;
        }
    }
    Ok(content)
}

impl Place {
    /// Host memory of the call of that index.
    pub(super) fn of_call(call: u64, parameter: &str) -> Self {
        Self {
            call: Some(call),
            parameter: parameter.to_owned(),
            ..Self::default()
        }
    }

    fn check(&self) -> Result<(), String> {
        let by_match = self.within.is_some() || self.function.is_some();
        match (self.call, by_match) {
            (None, false) => return Err("give call, or within and function".into()),
            (Some(_), true) => return Err("give call, or within and function, not both".into()),
            (Some(_), false) if self.number.is_some() => {
                return Err("number chooses among calls of within and function".into());
            }
            _ => {}
        }
        if let Some(element) = &self.element
            && Element::named(element).is_none()
        {
            let names = ELEMENTS.map(|element| element.name);
            let suggestion = did_you_mean(element, names);
            let names = names.join(", ");
            return Err(format!(
                "no type {element:?}; the types are {names}{suggestion}"
            ));
        }
        match (&self.element, &self.shape) {
            (None, Some(_)) => Err("a shape needs a type".into()),
            _ => Ok(()),
        }
    }

    /// The call that is meant.
    pub(super) fn call(&self, trace: &Trace, calls_of: &CallsOf<'_>) -> Result<u64, String> {
        if let Some(call) = self.call {
            return Ok(call);
        }
        let chosen = calls_of(self.within.as_deref().unwrap_or(".."))?;
        let mut chosen = chosen.into_iter().peekable();
        let glob = self.function.as_deref().unwrap_or("*");
        let mut found = Vec::new();
        for call in trace.calls() {
            if chosen.next_if_eq(&call.index).is_some()
                && (matches(glob, &call.signature.name) || matches(glob, &call.signature.base))
            {
                found.push(call.index);
            }
        }
        let count = found.len();
        match (self.number, found.as_slice()) {
            (None, &[only]) => Ok(only),
            (None, _) => Err(format!(
                "{count} calls match; one is meant{}",
                if count > 1 { ", so give number" } else { "" }
            )),
            (Some(number), found) => found
                .get(number)
                .copied()
                .ok_or_else(|| format!("number {number}: {count} calls match, numbered from 0")),
        }
    }

    /// Type and shape, as the file gives them.
    pub(super) fn format(&self) -> Format {
        Format {
            element: self.element.as_deref().and_then(Element::named),
            shape: self.shape.clone(),
        }
    }

    /// Takes type and shape that the user says with a file.
    pub(super) fn set_format(&mut self, format: &Format) {
        self.element = format.element.map(|element| element.name.to_owned());
        self.shape.clone_from(&format.shape);
    }

    /// Checks type and shape against the bytes that the call copies.
    pub(super) fn check_length(&self, bytes: Option<u64>) -> Result<(), String> {
        let (Some(element), Some(bytes)) = (&self.element, bytes) else {
            return Ok(());
        };
        let size = Element::named(element).map_or(1, |element| element.bytes);
        let Some(shape) = &self.shape else {
            return match bytes.is_multiple_of(size) {
                true => Ok(()),
                false => Err(format!(
                    "the call copies {bytes} bytes, no multiple of {element}"
                )),
            };
        };
        let wanted = shape
            .iter()
            .try_fold(size, |product, side| product.checked_mul(*side));
        match wanted == Some(bytes) {
            true => Ok(()),
            false => Err(format!(
                "the call copies {bytes} bytes, {element} of shape {shape:?} has {}",
                wanted.map_or("more than there are".to_owned(), |wanted| wanted
                    .to_string())
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_files() {
        let text = r#"
            [inputs.x]
            call = 57
            parameter = "srcHost"
            type = "f32"
            shape = [32, 64]
            [outputs.loss]
            within = "range:step[-1]"
            function = "cuMemcpyDtoH*"
            number = 0
            parameter = "dstHost"
        "#;
        let content = parse(text).unwrap();
        let x = &content.inputs["x"];
        assert_eq!((x.call, &*x.parameter), (Some(57), "srcHost"));
        for (bytes, is_good) in [
            (Some(32 * 64 * 4), true),
            (None, true),
            (Some(32 * 64), false),
            (Some(0), false),
        ] {
            assert_eq!(x.check_length(bytes).is_ok(), is_good, "{bytes:?}");
        }
        assert!(content.outputs["loss"].check_length(Some(7)).is_ok());
        assert!(parse("").is_ok());
    }

    #[test]
    fn errors_say_where() {
        for (text, what) in [
            (
                "[inputs.x]\ncall = 1\n",
                "line 1: missing field `parameter`",
            ),
            ("[inputs.x]\ncall = -1\nparameter = \"a\"", "line 2: "),
            ("[input.x]", "line 1: unknown field `input`"),
            (
                "[inputs.x]\nparameter = \"a\"",
                "inputs.x: give call, or within",
            ),
            (
                "[inputs.x]\nparameter = \"a\"\ncall = 1\nwithin = \"3\"",
                "inputs.x: give call, or within and function, not both",
            ),
            (
                "[outputs.y]\nparameter = \"a\"\ncall = 1\ntype = \"float\"",
                "outputs.y: no type \"float\"; the types are bool, u8",
            ),
            (
                "[outputs.y]\nparameter = \"a\"\ncall = 1\nshape = [1]",
                "outputs.y: a shape needs a type",
            ),
            (
                "[outputs.y]\nparameter = \"a\"\ncall = 1\nnumber = 0",
                "outputs.y: number chooses",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
            assert!(!error.contains('\n'), "{text}: {error}");
        }
    }
}
