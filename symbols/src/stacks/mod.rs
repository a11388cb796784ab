//! Call stacks with their sources: addresses resolved with debug information, frames of Python in
//! the place of the interpreter's.

mod lines;
mod own;
mod python_lines;
mod weave;

use cutape_analyzer::Frame;
use cutape_format::{ResolvedAddress, SourceFrame, StackFrame, Trace};

use crate::resolver::Resolver;

/// The sources of all addresses in the stacks of a trace, except those that it already has.
pub fn sources(trace: &Trace) -> Vec<ResolvedAddress> {
    let ids = trace.stack_ids().into_iter();
    let frames = ids
        .filter_map(|id| trace.stack(id))
        .flat_map(|stack| stack.frames);
    let mut addresses: Vec<u64> = frames
        .filter_map(|frame| match frame {
            StackFrame::Native(address) => Some(address),
            StackFrame::Python { .. } => None,
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let resolver = Resolver::default();
    addresses
        .into_iter()
        .filter(|&address| trace.source_of(address).is_none())
        .filter_map(|address| Some(resolver.source(trace, address).ok()?.0))
        .collect()
}

/// The frames of a stack, the innermost first; `None` if the trace does not have it.
pub fn frames(trace: &Trace, resolver: &Resolver, id: u64) -> Option<Vec<Frame>> {
    let stack = trace.stack(id)?;
    let mut native = Vec::new();
    let mut python = Vec::new();
    for frame in stack.frames {
        match frame {
            StackFrame::Native(address) => native.push(native_frames(trace, resolver, address)),
            StackFrame::Python {
                code,
                offset,
                is_last_of_native,
            } => python.push((python_frame(trace, code, offset), is_last_of_native)),
        }
    }
    let mut frames = weave::woven(native, python);
    own::mark(&mut frames);
    Some(frames)
}

/// The function that holds a return address, behind those that are inlined there.
fn native_frames(trace: &Trace, resolver: &Resolver, address: u64) -> Vec<Frame> {
    let (source, missing) = match trace.source_of(address) {
        Some(source) => (source.clone(), String::new()),
        None => match resolver.source(trace, address) {
            Ok((source, missing)) => (source, missing),
            Err(why) => (unresolved(trace, address), why),
        },
    };
    let count = source.frames.len();
    let frames = source.frames.into_iter().zip(1..);
    let frames = frames.map(|(frame, number)| Frame {
        missing: match (&*missing, frame.line) {
            (_, 1..) => String::new(),
            ("", _) => "no debug information".to_owned(),
            (missing, _) => missing.to_owned(),
        },
        function: frame.function,
        file: frame.file,
        line: frame.line,
        module: source.module.clone(),
        address,
        is_inlined: number < count,
        ..Frame::default()
    });
    frames.collect()
}

/// An address of which only the memory map is known.
fn unresolved(trace: &Trace, address: u64) -> ResolvedAddress {
    let mut maps = trace.mappings().iter();
    let mapping = maps.find(|map| (map.start..map.end).contains(&address));
    let function = mapping.map_or_else(String::new, |map| {
        format!("{:#x}", address - map.start + map.offset)
    });
    ResolvedAddress {
        address,
        module: mapping.map_or_else(String::new, |map| map.path.clone()),
        frames: vec![SourceFrame {
            function,
            ..SourceFrame::default()
        }],
    }
}

fn python_frame(trace: &Trace, code: u64, offset: u32) -> Frame {
    let Some(code) = trace.python_code(code) else {
        return Frame {
            is_python: true,
            missing: "the trace does not have its code".to_owned(),
            ..Frame::default()
        };
    };
    let line = python_lines::line(&code, offset);
    Frame {
        function: code.function,
        file: code.file,
        line: line.unwrap_or(0),
        is_python: true,
        missing: match line {
            Some(_) => String::new(),
            None => "no line".to_owned(),
        },
        ..Frame::default()
    }
}

/// A frame on a line of its own.
pub use lines::write_lines;
