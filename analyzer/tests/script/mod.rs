//! A small language for call sequences, so that a test is a few lines: one call a line, `[t1]
//! function parameter=value ... [-> result]`.
//!
//! `at N` sets the clock for the next record, `meta KEY VALUE` adds metadata, and after `looped`
//! all calls of a function come from one place. `p=[1,2,0*3]` an array or struct of words that the
//! call reads, `p=[4:1,2]` of four bytes each; `p=0x10` a value; `p:=0x30` the output behind a
//! pointer, `p:=[1,2]` several; `p="text"` a string; `p@0x5000` puts a pointer there (else every
//! parameter has an address of its own); `p@0x5000:NAME` an image of that name; `p?` memory that
//! cannot be read; `p/17="text"` and `p/7:NAME` further pieces after the call, `p/9~a.so:4096:64`
//! one that is part of a file; `opts@0x8000=3:0x9000,4:64` an option array with its values,
//! `left=0x9000,0` what the driver leaves there, `state_values=..` what is in the array of a link;
//! `bodies=0x801` the graphs that the driver makes for a conditional node;
//! `params=1,2` kernel parameters, `layout=8,8` their sizes; `libopts=1:1` library options; `p%1,2`
//! 32-bit words behind a pointer, `launch_attrs=4:2,1,1;8:5` launch attributes with the words of
//! their values, `extra_words=1,0x5000,0` those of `extra`, `extra_bytes=8` the length of the
//! buffer in it. `file=40` says which file the descriptor of the call names, `mapped=40:0x8000:4096`
//! of which file the registered memory is a mapping there, and of how many bytes; several with
//! commas. `gap=2` says that two calls are missing before. `nested=cuMemFree_v2:800` is a call that was made inside this one, with its result. `-> !`
//! is a call in flight. `t1> call` enters only, `t1<` leaves what thread 1 has
//! entered. `loop 20 call; call` repeats calls, with the round, from 1, for each `$`. A line `meta
//! KEY VALUE` is metadata.

#![allow(dead_code, reason = "each test file uses its own part")]

mod images;
mod line;
pub(crate) mod ranks;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use cutape_analyzer::{Analyzer, Finding};
use cutape_format::layout::{DescriptorNote, field, note_kind};
use cutape_format::{NewCall, NewSnapshot, Signatures, Trace, TraceBuilder, ValueType};
use line::{Line, Piece, number};

/// PTX with a kernel "k" and a global "g".
pub(crate) const PTX: &str = "// comment\n.version 7.0\n.target sm_70\n.address_size 64\n.visible .global .u32 g;\n\
    .visible .entry k(.param .u64 p)\n{\n ret;\n}\n.visible .entry _Z5scalePf(.param .u64 p)\n{\n\
    ret;\n}\n";

/// Of device 0, as of an H200, and of device 1, a smaller one.
const DEVICE_ATTRIBUTES: [(&str, &[u64]); 15] = [
    ("MAX_GRID_DIM_X", &[0x7fff_ffff, 0x7fff_ffff]),
    ("MAX_GRID_DIM_Y", &[65535, 65535]),
    ("MAX_GRID_DIM_Z", &[65535, 65535]),
    ("MAX_BLOCK_DIM_X", &[1024, 1024]),
    ("MAX_BLOCK_DIM_Y", &[1024, 1024]),
    ("MAX_BLOCK_DIM_Z", &[64, 64]),
    ("MAX_THREADS_PER_BLOCK", &[1024, 1024]),
    ("MAX_SHARED_MEMORY_PER_BLOCK", &[49152, 49152]),
    ("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", &[232_448, 101_376]),
    ("MAX_REGISTERS_PER_BLOCK", &[65536, 65536]),
    ("MULTIPROCESSOR_COUNT", &[132, 40]),
    ("COOPERATIVE_LAUNCH", &[1, 0]),
    ("COOPERATIVE_MULTI_DEVICE_LAUNCH", &[1, 1, 0]),
    ("CLUSTER_LAUNCH", &[1, 0]),
    ("MAX_ACCESS_POLICY_WINDOW_SIZE", &[134_217_728, 134_217_728]),
];

/// The lines of a script with their callers; loops are unrolled.
fn lines(script: &str) -> Vec<(u64, String)> {
    let mut lines = Vec::new();
    for (place, text) in script.lines().enumerate() {
        let caller = 0x40_0000 + 16 * place as u64;
        let Some((count, body)) = text.trim().strip_prefix("loop ").map(|rest| {
            let (count, body) = rest.split_once(' ').expect("a count and a body");
            (number(count), body)
        }) else {
            lines.push((caller, text.to_owned()));
            continue;
        };
        for round in 1..=count {
            let calls = body.split(';').enumerate();
            lines.extend(calls.map(|(at, call)| {
                let text = call.replace('$', &format!("{round:x}"));
                (caller + at as u64, text)
            }));
        }
    }
    lines
}

/// Makes the trace that a script describes.
pub(crate) fn trace(script: &str) -> Trace {
    let mut writer = Writer::new();
    for (caller, text) in lines(script) {
        let text = text.split('#').next().unwrap_or_default();
        let tokens: Vec<&str> = text.split_whitespace().collect();
        writer.statement(caller, &tokens);
    }
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "analyzer-{}-{}.cutape",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let path: PathBuf = std::env::temp_dir().join(name);
    writer.builder.write(&path).expect("a trace file");
    let trace = Trace::open(&path).expect("a sound trace");
    std::fs::remove_file(&path).expect("the trace file");
    trace
}

/// Writes the statements of a script into a trace.
struct Writer {
    signatures: Signatures,
    builder: TraceBuilder,
    /// Whether all calls of a function come from one place.
    is_looped: bool,
    /// What calls return that were only entered, by thread.
    open: HashMap<u32, (i32, Vec<Piece>)>,
}

impl Writer {
    fn new() -> Self {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        builder
            .meta("device.0.compute-capability", "9.0")
            .meta("driver.version", "13000")
            .meta("device.0.name", "a GPU")
            .meta("device.1.name", "a GPU");
        for (name, values) in DEVICE_ATTRIBUTES {
            for (device, value) in values.iter().enumerate() {
                builder.meta(
                    &format!("device.{device}.attribute.{name}"),
                    &value.to_string(),
                );
            }
        }
        Self {
            signatures: Signatures::parse(cutape_registry::SIGNATURE_TEXT).expect("signatures"),
            builder,
            is_looped: false,
            open: HashMap::new(),
        }
    }

    fn statement(&mut self, caller: u64, tokens: &[&str]) {
        match tokens {
            [] => {}
            ["at", ticks] => drop(self.builder.at(number(ticks))),
            ["at", ticks, "until", end, tokens @ ..] => {
                self.builder.at(number(ticks));
                self.call(caller, tokens, Some(number(end)));
            }
            ["looped"] => self.is_looped = true,
            ["meta", key, value] => drop(self.builder.meta(key, value)),
            _ => self.call(caller, tokens, None),
        }
    }

    /// `t1` enters and leaves; `t1>` only enters, `t1<` leaves what was entered.
    fn call(&mut self, caller: u64, tokens: &[&str], until: Option<u64>) {
        let is_thread = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
        let thread_word = tokens[0].strip_prefix('t').filter(|word| is_thread(word));
        let Some(word) = thread_word else {
            return self.enter_and_leave((0, caller), tokens, until);
        };
        let thread = number(word.trim_end_matches(['>', '<'])) as u32;
        if word.ends_with('<') {
            let (result, after) = self.open.remove(&thread).expect("a call that was entered");
            self.leave(thread, result, &after);
        } else if word.ends_with('>') {
            let (result, line) = self.enter((thread, caller), &tokens[1..]);
            let result = result.expect("a result");
            self.open.insert(thread, (result, line.after));
        } else {
            self.enter_and_leave((thread, caller), &tokens[1..], until);
        }
    }

    fn enter_and_leave(&mut self, place: (u32, u64), tokens: &[&str], until: Option<u64>) {
        let (result, mut line) = self.enter(place, tokens);
        let Some(result) = result else { return };
        if let Some(ticks) = until {
            self.builder.at(ticks);
        }
        // A call that failed has no outputs but the option values and logs.
        if result != 0 {
            line.after.retain(|piece| piece.field != field::POINTEE);
        }
        self.leave(place.0, result, &line.after);
    }

    fn leave(&mut self, thread: u32, result: i32, after: &[Piece]) {
        let after: Vec<NewSnapshot<'_>> = after.iter().map(Piece::view).collect();
        self.builder.leave(thread, result, &after);
    }

    /// Writes the entry of a call, with its notes; its result, without one if it is in flight.
    fn enter(&mut self, (thread, caller): (u32, u64), tokens: &[&str]) -> (Option<i32>, Line) {
        let arrow = tokens.iter().position(|token| *token == "->");
        let result = match arrow.map(|arrow| tokens[arrow + 1]) {
            None => Some(0),
            Some("!") => None,
            Some(word) => Some(number(word) as i32),
        };
        let tokens = &tokens[..arrow.unwrap_or(tokens.len())];
        let (function, tokens) = tokens.split_first().expect("a function");
        let signature = self.signatures.by_name(function);
        let signature = signature.unwrap_or_else(|| panic!("no function {function}"));
        let line = Line::parse(&self.signatures, signature, tokens);
        let words: Vec<u64> = std::iter::zip(&signature.parameters, &line.arguments)
            .flat_map(|(parameter, &value)| match parameter.value_type {
                ValueType::Memory(bytes) => vec![value; usize::from(bytes).div_ceil(8)],
                _ => vec![value],
            })
            .collect();
        let caller = match self.is_looped {
            true => 0x40_0000 + 16 * u64::from(signature.id),
            false => caller,
        };
        let before: Vec<NewSnapshot<'_>> = line.before.iter().map(Piece::view).collect();
        self.builder.call(NewCall {
            thread,
            name: function,
            arguments: &words,
            snapshots: &before,
            caller,
        });
        self.notes(thread, &line);
        (result, line)
    }

    fn notes(&mut self, thread: u32, line: &Line) {
        let builder = &mut self.builder;
        if let Some((handle, layout)) = &line.layout {
            builder.layout_note(thread, *handle, layout);
        }
        if let Some(inode) = line.file {
            let note = DescriptorNote {
                descriptor: 9,
                mode: 0o100_600,
                device: 1,
                inode,
                size: 0,
                owner: 0,
                mark: 0,
            };
            builder.note(thread, note_kind::DESCRIPTOR, note, &[]);
        }
        for &mapping in &line.mapped {
            builder.note(thread, note_kind::SHARED_MAPPING, mapping, b"/dev/shm/x");
        }
        if let Some(gap) = line.gap {
            builder.note(thread, note_kind::GAP, gap, &[]);
        }
        for &nested in &line.nested {
            builder.note(thread, note_kind::NESTED_CALL, nested, &[]);
        }
    }
}

/// What the analyzer says about a script.
pub(crate) fn findings(script: &str) -> Vec<Finding> {
    findings_until(script, true)
}

/// The same, where later calls of the program may be missing.
pub(crate) fn findings_until(script: &str, is_end: bool) -> Vec<Finding> {
    let trace = trace(script);
    let mut analyzer = Analyzer::new();
    let mut findings: Vec<Finding> = trace
        .calls()
        .flat_map(|call| analyzer.push(&trace, &call))
        .collect();
    findings.extend(analyzer.finish(&trace, is_end));
    findings
}

/// The rules' ids alone.
pub(crate) fn rules(script: &str) -> Vec<&'static str> {
    findings(script)
        .into_iter()
        .map(|finding| finding.rule)
        .collect()
}
