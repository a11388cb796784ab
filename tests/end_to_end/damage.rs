//! Traces that are cut, and traces with a changed byte, at 1,000 positions: refused, or read with
//! the original content; never a panic.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::Trace;
use cutape_tests::{compiled, names, parts, record, run};

cutape_tests::tests![
    a_packed_trace_that_is_cut_is_refused,
    a_raw_trace_that_is_cut_keeps_the_calls_before,
    a_changed_byte_is_found_or_has_no_effect,
    every_verb_refuses_or_answers_as_before,
];

/// A recorded trace with links, images, launches and copies.
fn recorded(folder: &Path, options: &[&str]) -> PathBuf {
    let path = folder.join("sound.cutape");
    run(&mut record(&path, options, &[&compiled("demo/link_demo")])).assert(0);
    path
}

/// The first 600 positions, 400 pseudo-random ones, and the last.
fn positions(length: usize) -> Vec<usize> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let spread = std::iter::from_fn(move || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some((state % length as u64) as usize)
    });
    (0..600.min(length))
        .chain(spread.take(400))
        .chain([length - 1])
        .collect()
}

/// Everything that can be read from a trace, as lines.
fn read(trace: &Trace) -> Vec<String> {
    let mut lines: Vec<String> = trace
        .calls()
        .map(|call| {
            let before: Vec<_> = call
                .snapshots()
                .map(|snapshot| format!("{snapshot:?}"))
                .collect();
            let after: Vec<_> = call
                .leave
                .iter()
                .flat_map(|leave| leave.snapshots().map(|snapshot| format!("{snapshot:?}")))
                .collect();
            let notes: Vec<_> = call.notes().map(|note| format!("{note:?}")).collect();
            format!(
                "{} {} {:?} {:?} {before:?} {after:?} {notes:?}",
                call.thread,
                call.signature.name,
                call.packed_arguments(),
                call.result()
            )
        })
        .collect();
    for (position, length) in trace.blobs() {
        let blob = cutape_format::layout::BlobRef { position, length };
        lines.push(format!(
            "{:?}",
            trace
                .blob(blob)
                .map(|bytes| cutape_format::checksum(&bytes))
        ));
    }
    lines
}

fn a_packed_trace_that_is_cut_is_refused(folder: &Path) {
    let bytes = fs::read(recorded(folder, &[])).unwrap();
    let cut = folder.join("cut.cutape");
    for length in positions(bytes.len()) {
        fs::write(&cut, &bytes[..length]).unwrap();
        assert!(
            Trace::open(&cut).is_err(),
            "cut to {length} of {} bytes",
            bytes.len()
        );
        if let Ok(damaged) = Trace::open_damaged(&cut) {
            assert!(!damaged.damage().is_empty(), "cut to {length}");
            read(&damaged);
        }
    }
}

fn a_raw_trace_that_is_cut_keeps_the_calls_before(folder: &Path) {
    let sound = recorded(folder, &["--no-pack"]);
    let bytes = fs::read(&sound).unwrap();
    let whole = names(&Trace::open(&sound).unwrap());
    let cut = folder.join("cut.cutape");
    for length in positions(bytes.len()) {
        fs::write(&cut, &bytes[..length]).unwrap();
        let Ok(trace) = Trace::open_damaged(&cut) else {
            continue;
        };
        assert!(whole.starts_with(&names(&trace)), "cut to {length}");
        read(&trace);
    }
}

fn a_changed_byte_is_found_or_has_no_effect(folder: &Path) {
    let sound = recorded(folder, &[]);
    let bytes = fs::read(&sound).unwrap();
    let expected = read(&Trace::open(&sound).unwrap());
    let path = folder.join("changed.cutape");
    for position in positions(bytes.len()) {
        let mut changed = bytes.clone();
        changed[position] ^= 1 << (position % 8);
        fs::write(&path, &changed).unwrap();
        let Ok(trace) = Trace::open(&path) else {
            continue;
        };
        if trace.verify().is_empty() {
            assert_eq!(read(&trace), expected, "byte {position} was changed");
        }
    }
}

fn every_verb_refuses_or_answers_as_before(folder: &Path) {
    let sound = recorded(folder, &[]);
    let bytes = fs::read(&sound).unwrap();
    let path = folder.join("changed.cutape");
    let verbs: [&[&str]; 3] = [
        &["dump"],
        &["check", "--format", "json"],
        &["info", "--format", "json"],
    ];
    let answer = |verb: &[&str]| {
        let output = run(parts().cutape(&[]).args(verb).arg(&path));
        assert!(!output.stderr.contains("panicked"), "{}", output.describe());
        output
    };
    fs::write(&path, &bytes).unwrap();
    let answers: Vec<_> = verbs.iter().map(|verb| answer(verb)).collect();
    // (length, changed byte)
    let spread = positions(bytes.len());
    let cuts = spread
        .iter()
        .skip(560)
        .step_by(40)
        .map(|&length| (length, None));
    let flips = spread
        .iter()
        .skip(580)
        .step_by(40)
        .map(|&at| (bytes.len(), Some(at)));
    for (length, flip) in cuts.chain(flips) {
        let mut changed = bytes[..length].to_vec();
        if let Some(at) = flip {
            changed[at] ^= 0x20;
        }
        fs::write(&path, &changed).unwrap();
        for (verb, sound) in verbs.iter().zip(&answers) {
            let output = answer(verb);
            if flip.is_some() && output.code() == sound.code() {
                assert_eq!(
                    output.stdout,
                    sound.stdout,
                    "{flip:?} {}",
                    output.describe()
                );
                continue;
            }
            output.assert_code(2);
            assert_eq!(output.stderr.lines().count(), 1, "{}", output.describe());
            assert!(
                output.stderr.contains("changed.cutape"),
                "{}",
                output.describe()
            );
        }
    }
}
