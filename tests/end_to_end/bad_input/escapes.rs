//! Names of a trace that are commands of a terminal: no verb hands them to one.

use std::fs;
use std::path::Path;
use std::process::Command;

use cutape_format::layout::{FramesNote, MarkerNote, OriginNote, PythonCodeNote};
use cutape_format::layout::{Mapping, marker_action, note_kind, python_frame};
use cutape_format::{NewCall, NewSnapshot, TraceBuilder};
use cutape_tests::{Screen, Suite, ending, parts, run};

use super::streams::commands;

/// A colour, a title, the clipboard, a link, a bell, a C1 sequence, the direction of text, a line of
/// its own.
const PLANTED: &str =
    "a\x1b[5;35mb\x1b]2;t\x07\x1b]52;c;YQ==\x07\x1b]8;;http://x\x1b\\\u{9b}2J\u{202e}\r";

/// For names that have no slash and nothing that divides the signature text.
const WORD: &str = "\x1b[5;35m\x07\u{9b}2J\u{202e}";

/// The first with the end of a line, where a name may have one.
fn planted() -> String {
    format!("{PLANTED}\nFORGED")
}

pub(crate) fn add_to(suite: &mut Suite) {
    suite.test("escapes/to-a-file", every_verb);
    suite.test("escapes/to-a-terminal", on_a_terminal);
}

/// A trace whose names are all planted.
fn trace() -> TraceBuilder {
    let evil = &*planted();
    let result = "CUDA_ERROR_OUT_OF_MEMORY=";
    let signatures = cutape_registry::SIGNATURE_TEXT
        .replace(result, &format!("CUDA_ERROR_{WORD}="))
        .replace("\tbytesize|", &format!("\tbytesize{WORD}|"));
    let mut builder = TraceBuilder::new(&signatures);
    put_facts(&mut builder, evil);
    put_tables(&mut builder, evil);
    put_calls(&mut builder, evil);
    builder
}

fn put_facts(builder: &mut TraceBuilder, evil: &str) {
    let forwarded = format!("forwarded.cuNew{evil}");
    let variable = format!("environment.CUDA_{evil}");
    for key in [
        "recorder.version",
        "recorder.via",
        "payloads",
        "stacks",
        "program",
        "argument.0",
        "argument.1",
        "directory",
        "host.kernel",
        "host.memory",
        "driver.path",
        "device.0.name",
        "device.0.uuid",
        "device.0.compute-capability",
        "incomplete.why",
        "kept.reason",
        "repair.0",
        "cut.source",
        "cut.choice",
        "cut.version",
        "cut.state-driver",
        "cut.state-devices",
        "rank",
        &forwarded,
        &variable,
    ] {
        builder.meta(key, evil);
    }
    for (key, value) in [
        ("driver.version", "13000"),
        ("driver.kind", "null"),
        ("device.count", "1"),
        ("exit.signal", "11"),
        ("incomplete", "calls"),
        ("clock.ticks-per-second", "10000000"),
        ("cut.source-calls", "9"),
        ("cut.calls", "0-8"),
        ("cut.state", "replay"),
    ] {
        builder.meta(key, value);
    }
}

fn put_tables(builder: &mut TraceBuilder, evil: &str) {
    builder.mapping(Mapping {
        start: 0x1000,
        end: 0x9000,
        offset: 0,
        path: format!("/{evil}"),
        build_id: vec![1; 20],
    });
    let code = PythonCodeNote {
        id: 9,
        version: 0x030b,
        first_line: 1,
    };
    builder.python_code(code, evil, evil, &[0x80, 0]).stack(
        FramesNote { id: 8, flags: 0 },
        &[python_frame::MARK, 9, 0x2000],
    );
}

fn put_calls(builder: &mut TraceBuilder, evil: &str) {
    let name = format!("{evil}\0");
    let image = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k{PLANTED}() {{ ret; }}\n\0"
    );
    let marker = MarkerNote {
        number: 4242,
        action: marker_action::PUSH,
        ..MarkerNote::default()
    };
    let call = |name, arguments| NewCall {
        name,
        arguments,
        caller: 0x2000,
        ..NewCall::default()
    };
    builder
        .call(call("cuModuleLoadData", &[0x7ff0, 0x400000]))
        .thread_note(0, 4242, "a\x1b[5;35m\x07\r\n")
        .leave(0, 0, &[NewSnapshot::pointee(0, &0x50_u64.to_le_bytes())])
        .call(NewCall {
            snapshots: &[NewSnapshot::pointee(1, image.as_bytes())],
            ..call("cuModuleLoadData", &[0x7ff0, 0x400000])
        })
        .leave(0, 0, &[NewSnapshot::pointee(0, &0x58_u64.to_le_bytes())])
        .marker(marker, evil, evil)
        .call(NewCall {
            snapshots: &[NewSnapshot::pointee(2, name.as_bytes())],
            ..call("cuModuleGetFunction", &[0x7000, 0x50, 0x400000])
        })
        .leave(0, 0, &[NewSnapshot::pointee(0, &0x51_u64.to_le_bytes())])
        .call(call(
            "cuLaunchKernel",
            &[0x51, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0],
        ))
        .stack_note(0, 8)
        .leave(0, 0, &[])
        .call(call(
            "cuLaunchKernel",
            &[0x52, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0],
        ))
        .origin_note(
            0,
            OriginNote {
                handle: 0x52,
                owner: 0x50,
                is_kernel: 0,
            },
            evil,
        )
        .leave(0, 700, &[])
        .call(call("cuMemAlloc_v2", &[0x7ff0, 1 << 50]))
        .stack_note(0, 8)
        .text_note(0, note_kind::STOPPED, evil)
        .text_note(0, note_kind::UNKNOWN_SYMBOL, evil)
        .note(0, note_kind::DRIVER_MESSAGE, 0_u64, evil.as_bytes())
        .leave(0, 2, &[])
        .call(call("cuModuleUnload", &[0x50]))
        .leave(0, 0, &[])
        .call(call("cuModuleUnload", &[0x50]))
        .stack_note(0, 8)
        .leave(0, 0, &[])
        .call(call("cuModuleUnload", &[0x60]));
}

/// Puts the trace into the folder by itself, and twice into the folder `ranks` under planted names.
fn prepare(folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let trace = trace();
    trace.write(&folder.join("sound.cutape")).map_err(failed)?;
    let ranks = folder.join("ranks");
    fs::create_dir(&ranks).map_err(failed)?;
    for number in 0..2 {
        let name = format!("{WORD}{number}.cutape");
        trace.write(&ranks.join(name)).map_err(failed)?;
    }
    fs::write(ranks.join(format!("bad{WORD}.cutape")), "no trace").map_err(failed)?;
    fs::copy(ending(), folder.join("program")).map_err(failed)?;
    Ok(())
}

/// Beside those that the other tests of all verbs run.
const OTHER_COMMANDS: &[&str] = &[
    "dump --stacks sound.cutape",
    "dump --format json sound.cutape",
    "info --format json sound.cutape",
    "info ranks",
    "check ranks",
    "check --show-stacks --all sound.cutape",
    "check --explain-silence sound.cutape",
    "check --format json sound.cutape",
    "replay --driver null --force sound.cutape",
    "replay --driver null --force ranks",
    "diff sound.cutape ranks",
];

fn words(line: &str, number: usize) -> Vec<String> {
    let new = format!("new{number}.cutape");
    let words = line.split(' ').map(|word| match word {
        "OUT" => &*new,
        word => word,
    });
    words.map(str::to_owned).collect()
}

fn every_verb(folder: &Path) -> Result<(), String> {
    prepare(folder)?;
    let others = OTHER_COMMANDS.iter().map(|&line| line.to_owned());
    let mut wrong = Vec::new();
    for (number, line) in commands().into_iter().chain(others).enumerate() {
        let mut command = Command::new(&parts().cutape);
        command.args(words(&line, number)).current_dir(folder);
        let output = run(&mut command);
        for text in [&output.stdout, &output.stderr] {
            let lines = text.lines().zip(text.lines().skip(1));
            let forged = lines.filter(|(_, line)| line.trim_start().starts_with("FORGED"));
            wrong.extend(forged.map(|(before, _)| format!("{line}: a line after {before:?}")));
            let acting = text.lines().filter(|line| line.contains(acts));
            wrong.extend(acting.map(|text| format!("{line}: {text:?}")));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n")),
    }
}

/// Whether a terminal obeys it. This is not the list of the code that is tested.
fn acts(c: char) -> bool {
    let is_bidirectional = matches!(u32::from(c), 0x202a..=0x202e | 0x2066..=0x2069);
    (c.is_control() && c != '\n' && c != '\t') || is_bidirectional
}

/// On a terminal there are colours, and `view` runs.
fn on_a_terminal(folder: &Path) -> Result<(), String> {
    prepare(folder)?;
    for (line, keys) in [
        ("dump --stacks sound.cutape", ""),
        ("check --show-stacks --all sound.cutape", ""),
        ("check ranks", ""),
        ("info sound.cutape", ""),
        ("info ranks", ""),
        ("sound.cutape", ""),
        ("view sound.cutape", "jjjjq"),
    ] {
        // The status is of no interest here, and stderr may have the progress.
        let script = r#""$@" 2>stderr; true"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&parts().cutape);
        command.args(words(line, 0)).current_dir(folder);
        let mut screen = Screen::start(command, (40, 160));
        if !keys.is_empty() {
            screen.shows(&["cuModuleUnload"]);
            screen.press(keys);
        }
        let written = screen.written();
        screen.ends(0);
        let bytes = written.lock().map_err(|error| error.to_string())?.clone();
        let text = String::from_utf8_lossy(&bytes);
        // What was planted, and what no verb writes.
        for wrong in [
            "\x1b[5;35m",
            "\x1b]",
            "\u{9b}",
            "\u{202e}",
            "\x07",
            "\nFORGED",
        ] {
            if text.contains(wrong) {
                return Err(format!("{line}: {wrong:?} in {text:?}"));
            }
        }
        let is_coloured = line.starts_with("dump") || line.starts_with("check --show");
        if is_coloured && !text.contains("\x1b[0m") {
            return Err(format!("{line}: no colours in {text:?}"));
        }
        if !text.contains("5;35m") {
            return Err(format!("{line}: the planted names are not shown: {text:?}"));
        }
    }
    Ok(())
}
