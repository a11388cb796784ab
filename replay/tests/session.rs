//! A replay that stops at calls, forward and back.

mod recorder;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cutape_format::Trace;
use cutape_replay::{
    Guard, Options, Session, SessionError, Stop, WatchedRange, Writer, serve_as_child,
};

use recorder::{Recorder, TRACE, null_driver, pattern};

#[test]
#[ignore = "not a test: the other tests start it as the child process that replays"]
fn child() {
    let Some(path) = std::env::var_os(TRACE) else {
        return;
    };
    let trace = Trace::open(Path::new(&path)).unwrap();
    let options = Options {
        keep_going: true,
        ..Options::new(null_driver())
    };
    std::process::exit(serve_as_child(&trace, &options));
}

/// A recorded program, in a file of its own.
struct Recorded(PathBuf);

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn session(recorder: &Recorder, name: &str) -> (Recorded, Session) {
    let file = format!("session-{}-{name}.cutape", std::process::id());
    let path = std::env::temp_dir().join(file);
    recorder.builder.write(&path).unwrap();
    let trace = Arc::new(Trace::open(&path).unwrap());
    let child = path.clone();
    let command = move || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .stdout(Stdio::null())
            .env(TRACE, &child);
        command
    };
    let guard = Guard {
        watchdog: Duration::from_secs(1),
        ..Guard::default()
    };
    (Recorded(path), Session::new(trace, command, guard))
}

fn before(call: u64) -> Stop {
    Stop {
        call,
        is_after: false,
    }
}

fn after(call: u64) -> Stop {
    Stop {
        call,
        is_after: true,
    }
}

/// Two uploads to the same memory with another call between them; the calls of both, the last call,
/// and the memory.
fn uploads() -> (Recorder, [u64; 3], u64) {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let memory = recorder.allocate(64);
    let mut upload = |bytes: &[u8]| {
        let call = recorder.index;
        recorder.upload(memory, bytes);
        call
    };
    let first = upload(&pattern(64));
    upload(&pattern(64));
    let second = upload(b"second");
    recorder.download(memory, 64);
    recorder.call("cuMemFree_v2", &[memory], &mut []);
    recorder.end(context);
    let last = recorder.index - 1;
    (recorder, [first, second, last], memory)
}

#[test]
fn memory_is_read_forward_and_back() {
    let (recorder, [first, second, last], memory) = uploads();
    let (_recorded, mut session) = session(&recorder, "read");
    let whole = pattern(64);
    let changed = [b"second", &whole[6..]].concat();
    for (stop, expected) in [
        (before(second), &whole),
        (after(first), &whole),
        (after(second), &changed),
        (before(second), &whole),
        (before(second + 1), &changed),
    ] {
        assert_eq!(
            &session.read(stop, memory, 64).unwrap(),
            expected,
            "{stop:?}"
        );
    }
    let part = session.read(after(second), memory + 60, 100).unwrap();
    assert_eq!(part, whole[60..], "as far as the memory goes");
    for stop in [before(0), after(last)] {
        match session.read(stop, memory, 4) {
            Err(SessionError::Refused(why)) => assert!(why.contains("no memory lies"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    let beyond = session.read(before(last + 1), memory, 4).unwrap_err();
    assert!(matches!(beyond, SessionError::Replay(_)), "{beyond}");
    assert_eq!(session.divergences(), 0);
}

#[test]
fn what_is_written_stays_until_the_session_goes_back() {
    let (recorder, [first, second, _], memory) = uploads();
    let (_recorded, mut session) = session(&recorder, "write");
    session
        .write(before(second), memory + 8, b"written")
        .unwrap();
    let read = session.read(after(second), memory, 15).unwrap();
    let whole = pattern(64);
    assert_eq!(read, [b"second", &whole[6..8], b"written"].concat());
    let read = session.read(after(first), memory, 15).unwrap();
    assert_eq!(read, whole[..15]);
    let long = session.write(after(first), memory + 60, b"written");
    assert!(matches!(long, Err(SessionError::Refused(_))), "{long:?}");
}

#[test]
fn the_next_and_the_last_change_are_found() {
    let (recorder, [first, second, last], memory) = uploads();
    let (_recorded, mut session) = session(&recorder, "watch");
    let range = WatchedRange {
        address: memory,
        length: 4,
        until: None,
    };
    let mut changes = |is_last, from, to| {
        let found = match is_last {
            true => session.last_change(from, to, &[range]),
            false => session.first_change(from, to, &[range]),
        };
        let (seen, left_out) = found.unwrap();
        assert!(left_out.is_empty(), "{left_out:?}");
        let change = seen[0].last.back();
        change.map(|change| (change.call, change.by.clone()))
    };
    let begins = Some((first - 1, Writer::Begins));
    let one = Some((first, Writer::Call));
    let two = Some((second, Writer::Call));
    for (is_last, from, to, expected) in [
        (false, before(0), after(last), &begins),
        (false, before(first), after(last), &one),
        // The upload in between changes nothing.
        (false, before(first + 1), after(last), &two),
        (false, before(first + 1), before(second), &None),
        (
            false,
            before(second + 1),
            after(last),
            &Some((second + 2, Writer::Ends)),
        ),
        (true, before(0), before(second + 1), &two),
        (true, before(0), before(second), &one),
        (true, before(0), before(first), &begins),
        (true, before(second), after(second), &two),
        (true, before(first + 1), before(second), &None),
    ] {
        assert_eq!(&changes(is_last, from, to), expected, "{from:?} {to:?}");
    }
}

#[test]
fn a_child_that_waits_is_not_taken_for_one_that_hangs() {
    let (recorder, [first, second, _], memory) = uploads();
    let (_recorded, mut session) = session(&recorder, "wait");
    session.read(after(first), memory, 1).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    session.write(before(second), memory, b"x").unwrap();
    assert_eq!(session.read(before(second), memory, 1).unwrap(), b"x");
}
