//! Files that are no trace, or a damaged one, given to every verb that reads a trace.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use cutape_format::layout::{
    ChunkHead, FILE_HEAD_LENGTH, FileHead, MAJOR, chunk_kind, record_kind,
};
use cutape_format::{NewCall, Trace, TraceBuilder};
use cutape_tests::{Reader, Suite, Verdict, parts, readers, run};

use super::files::{NOBODY, as_user, contents, expect_refusal, is_root, sound};

pub(crate) fn add_to(suite: &mut Suite) {
    suite.test("misnumbered/repaired", numbers_of_lost_calls);
    for reader in readers() {
        let reader = Arc::new(reader);
        for bad in BAD_TRACES {
            let name = format!("{}/{}", bad.name, reader.name);
            let reader = Arc::clone(&reader);
            suite.test(name, move |folder| bad_trace(folder, bad, &reader));
        }
    }
}

/// A file that is not a trace that can be read.
struct BadTrace {
    name: &'static str,
    /// Makes the file in a folder; its path.
    make: fn(&Path) -> PathBuf,
    /// What the message contains.
    expected: &'static [&'static str],
}

const BAD_TRACES: &[BadTrace] = &[
    BadTrace {
        name: "missing",
        make: |folder| folder.join("none.cutape"),
        expected: &["none.cutape", "No such file"],
    },
    BadTrace {
        name: "folder",
        make: |folder| {
            let place = folder.join("place");
            fs::create_dir(&place).unwrap();
            place
        },
        expected: &["not a regular file"],
    },
    BadTrace {
        name: "device",
        make: |_| "/dev/null".into(),
        expected: &["/dev/null", "not a regular file"],
    },
    BadTrace {
        name: "pipe",
        make: |folder| {
            let path = folder.join("bad.cutape");
            run(Command::new("mkfifo").arg(&path)).assert_code(0);
            path
        },
        expected: &["bad.cutape", "not a regular file"],
    },
    BadTrace {
        name: "unreadable",
        make: unreadable,
        expected: &["bad.cutape", "ermission denied"],
    },
    BadTrace {
        name: "empty",
        make: |folder| write(folder, b""),
        expected: &["bad.cutape", "0 bytes, too short"],
    },
    BadTrace {
        name: "text",
        make: |folder| write(folder, &b"a text, no trace\n".repeat(500)),
        expected: &["bad.cutape", "not a cutape trace"],
    },
    BadTrace {
        name: "random",
        make: |folder| write(folder, &random()),
        expected: &["bad.cutape", "not a cutape trace"],
    },
    BadTrace {
        name: "wrong-magic",
        make: |folder| write(folder, &changed(folder, |b| b[0] ^= 1)),
        expected: &["bad.cutape", "not a cutape trace"],
    },
    BadTrace {
        name: "newer",
        make: |folder| write(folder, &newer(folder)),
        expected: &["bad.cutape", "format 2", "use a later cutape"],
    },
    BadTrace {
        name: "head-only",
        make: |folder| write(folder, &sound(folder)[..100]),
        expected: &["bad.cutape", "damaged at byte"],
    },
    BadTrace {
        name: "cut-short",
        make: |folder| write(folder, &cut(folder, 5000)),
        expected: &["bad.cutape", "damaged at byte"],
    },
    BadTrace {
        name: "cut-by-one",
        make: |folder| write(folder, &cut(folder, -1)),
        expected: &["bad.cutape", "damaged at byte"],
    },
    BadTrace {
        name: "flipped-head",
        make: |folder| write(folder, &changed(folder, |b| b[30] ^= 4)),
        expected: &["bad.cutape", "damaged at byte 0"],
    },
    BadTrace {
        name: "flipped-body",
        make: |folder| write(folder, &changed(folder, flip_in_calls)),
        expected: &["bad.cutape", "damaged at byte"],
    },
    BadTrace {
        name: "misnumbered",
        make: |folder| write(folder, &misnumbered(1 << 62)),
        expected: &["bad.cutape", "damaged at byte", "begins with call"],
    },
    BadTrace {
        name: "unknown-call",
        make: unknown_call,
        expected: &["bad.cutape", "damaged at byte"],
    },
];

fn write(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join("bad.cutape");
    fs::write(&path, bytes).unwrap();
    path
}

/// Bytes without meaning, the same each time.
fn random() -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..20_000).map(|_| next()).collect()
}

fn changed(folder: &Path, change: fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = sound(folder);
    change(&mut bytes);
    bytes
}

/// Cuts to a length, or by a number of bytes.
fn cut(folder: &Path, length: isize) -> Vec<u8> {
    let mut bytes = sound(folder);
    let length = if length < 0 {
        bytes.len().saturating_add_signed(length)
    } else {
        length as usize
    };
    bytes.truncate(length);
    bytes
}

fn newer(folder: &Path) -> Vec<u8> {
    let mut bytes = sound(folder);
    let (head, _) = cutape_format::codec::decode::<FileHead>(&bytes).unwrap();
    let head = FileHead {
        major: MAJOR + 1,
        ..head
    }
    .encode();
    bytes[..head.len()].copy_from_slice(&head);
    bytes
}

/// In the first chunk after the head.
fn flip_in_calls(bytes: &mut [u8]) {
    bytes[4096 + 64 + 40] ^= 0x10;
}

/// The first chunk of calls names that number as the one of its first call.
fn misnumbered(number: u64) -> Vec<u8> {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    for _ in 0..3 {
        builder.call(NewCall {
            name: "cuInit",
            arguments: &[0],
            ..NewCall::default()
        });
        builder.leave(0, 0, &[]);
    }
    let mut bytes = builder.bytes();
    let mut at = FILE_HEAD_LENGTH;
    loop {
        let (head, _) = cutape_format::codec::decode::<ChunkHead>(&bytes[at..]).unwrap();
        if head.kind == chunk_kind::CALLS {
            let first = number;
            let head = ChunkHead { first, ..head }.encode();
            bytes[at..at + head.len()].copy_from_slice(&head);
            return bytes;
        }
        at += head.length as usize;
    }
}

/// Calls that a repaired trace lacks keep their numbers, and take no memory.
fn numbers_of_lost_calls(folder: &Path) -> Result<(), String> {
    for number in [100_000_000, 1 << 32, 1 << 62] {
        let bad = write(folder, &misnumbered(number));
        let repaired = folder.join(format!("{number}.cutape"));
        run(&mut parts().cutape(&[&"repair", &bad, &"-o", &repaired])).expect_code(0)?;
        let part = folder.join(format!("{number}.part.cutape"));
        let cutape = &parts().cutape;
        for words in [
            vec!["trim", "--last", "1", path(&repaired), "-o", path(&part)],
            vec!["diff", path(&repaired), path(&repaired)],
            vec!["check", path(&repaired)],
        ] {
            // Address space, in KiB.
            let line = r#"ulimit -v 1000000; exec "$@""#;
            let mut command = Command::new("bash");
            command.args(["-c", line, "bash"]).arg(cutape).args(&words);
            let output = run(&mut command);
            output
                .expect_code(0)
                .map_err(|error| format!("{words:?}: {error}"))?;
        }
        let kept = Trace::open(&part).map_err(|error| error.to_string())?;
        if let Some(damage) = kept.verify().first() {
            return Err(format!("{number}: {damage:?}"));
        }
    }
    Ok(())
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a name in UTF-8")
}

fn unreadable(folder: &Path) -> PathBuf {
    let path = write(folder, &sound(folder));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
    path
}

fn unknown_call(folder: &Path) -> PathBuf {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    builder.call(NewCall {
        name: "cuInit",
        arguments: &[0],
        ..NewCall::default()
    });
    builder.leave(0, 0, &[]);
    builder.record(0, record_kind::ENTER, 60_000, &[0; 24]);
    write(folder, &builder.bytes())
}

fn bad_trace(folder: &Path, bad: &BadTrace, reader: &Reader) -> Result<Verdict, String> {
    sound(folder);
    let path = (bad.make)(folder);
    let before = contents(folder);
    let mut command = Command::new(&parts().cutape);
    command
        .args(reader.words_for(&path, "new.cutape".as_ref()))
        .current_dir(folder);
    if fs::metadata(&path).is_ok_and(|found| found.mode() & 0o777 == 0) && is_root() {
        // Root may read every file, another user may not.
        if let Err(why) = as_user(NOBODY, &mut command, folder) {
            return Ok(Verdict::Ignored(why));
        }
    }
    let output = run(&mut command);
    let new = folder.join("new.cutape");
    // Some damage cannot be repaired: a lost signature table, an unknown function.
    if reader.repairs
        && bad
            .expected
            .iter()
            .any(|word| word.starts_with("damaged at byte"))
    {
        let refused = output.stderr.contains("nothing can be kept");
        output.expect_code(if refused { 2 } else { 0 })?;
        if output.stderr.is_empty() || output.stderr.contains("panicked") {
            return Err(format!(
                "expected the damage on stderr\n{}",
                output.describe()
            ));
        }
        if new.exists() == refused {
            return Err(format!(
                "status {:?}, but a file was written: {}\n{}",
                output.code(),
                new.exists(),
                output.describe()
            ));
        }
        if !refused
            && let Some(damage) = Trace::open(&new)
                .map_err(|e| e.to_string())?
                .verify()
                .first()
        {
            return Err(format!("the repaired trace is damaged: {damage:?}"));
        }
    } else {
        expect_refusal(&output, bad.expected)?;
        if new.exists() {
            return Err(format!(
                "{} was written\n{}",
                new.display(),
                output.describe()
            ));
        }
    }
    for (name, bytes) in before {
        if fs::read(&name).ok() != Some(bytes) {
            return Err(format!(
                "{} was changed\n{}",
                name.display(),
                output.describe()
            ));
        }
    }
    Ok(Verdict::Passed)
}
