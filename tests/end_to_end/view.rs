//! The terminal browser as a user has it, through a pseudo-terminal.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cutape_tests::{compile, compiled, parts, record, root, run, without_settings};

cutape_tests::suite![
    calls_findings_and_back,
    a_growing_trace_is_followed,
    signals_restore_the_terminal,
    it_needs_a_terminal,
    calls_that_match_nothing_are_refused,
    no_color_is_honoured,
    suspended_and_continued,
];

/// More time than any step needs.
const LIMIT: Duration = Duration::from_secs(60);

/// A program on a terminal of its own.
struct Screen {
    child: Child,
    /// The terminal's other end.
    keyboard: File,
    /// What the program has drawn.
    parser: Arc<Mutex<vt100::Parser>>,
    /// All that it has written.
    written: Arc<Mutex<Vec<u8>>>,
    /// The settings of the terminal before.
    before: libc::termios,
}

fn settings(terminal: &File) -> libc::termios {
    // SAFETY: an all-zero termios is a value of that type, and is valid for writes.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings), 0);
        settings
    }
}

impl Screen {
    fn start(mut command: Command, (lines, columns): (u16, u16)) -> Self {
        let (mut ours, mut theirs) = (-1, -1);
        let size = libc::winsize {
            ws_row: lines,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: the numbers and the size are valid for the call, which keeps nothing of them; the
        // descriptors that it returns belong to nobody else.
        let (ours, theirs) = unsafe {
            let made = libc::openpty(
                &raw mut ours,
                &raw mut theirs,
                std::ptr::null_mut(),
                std::ptr::null(),
                &raw const size,
            );
            assert_eq!(made, 0);
            (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
        };
        let keyboard = ours.try_clone().unwrap();
        let before = settings(&keyboard);
        let end = || Stdio::from(theirs.try_clone().unwrap());
        without_settings(&mut command);
        let sets_no_color = command.get_envs().any(|(name, _)| name == "NO_COLOR");
        if !sets_no_color {
            command.env_remove("NO_COLOR");
        }
        command.env("TERM", "xterm-256color");
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: both calls are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop(command);
        drop(theirs);
        let parser = Arc::new(Mutex::new(vt100::Parser::new(lines, columns, 0)));
        let written = Arc::new(Mutex::new(Vec::new()));
        let (drawn, kept, mut from) = (Arc::clone(&parser), Arc::clone(&written), ours);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The terminal's end is an error.
            while let Ok(length @ 1..) = from.read(&mut bytes) {
                drawn.lock().unwrap().process(&bytes[..length]);
                kept.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
        });
        Self {
            child,
            keyboard,
            parser,
            written,
            before,
        }
    }

    fn view(trace: &Path) -> Self {
        Self::start(parts().cutape(&[&"view", &trace]), (24, 80))
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn contents(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    /// Waits until the screen shows all texts.
    fn shows(&self, texts: &[&str]) {
        let start = Instant::now();
        loop {
            let contents = self.contents();
            if texts.iter().all(|text| contents.contains(text)) {
                return;
            }
            assert!(
                start.elapsed() < LIMIT,
                "{texts:?} is not shown:\n{contents}"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_restored(&self) -> bool {
        let now = settings(&self.keyboard);
        let flags = |s: &libc::termios| (s.c_iflag, s.c_oflag, s.c_lflag, s.c_cc);
        let parser = self.parser.lock().unwrap();
        let screen = parser.screen();
        flags(&now) == flags(&self.before) && !screen.alternate_screen() && !screen.hide_cursor()
    }

    /// Waits for the end; the terminal must be as before.
    fn ends(mut self, code: i32) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                start.elapsed() < LIMIT,
                "still running:\n{}",
                self.contents()
            );
            thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(code), "{status} {:?}", status.signal());
        while !self.is_restored() {
            assert!(
                start.elapsed() < LIMIT,
                "not restored:\n{}",
                self.contents()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Of a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A trace of a program that frees memory twice.
fn recorded(folder: &Path) -> PathBuf {
    let trace = folder.join("app.cutape");
    let program = compiled("misuse/double-free/violation");
    run(&mut record(&trace, &[], &[&program])).assert_quiet();
    trace
}

fn calls_findings_and_back(folder: &Path) {
    let mut screen = Screen::view(&recorded(folder));
    screen.shows(&["app.cutape", "[1 Calls]", "cuInit", "? help"]);
    screen.press("fcuMem*\r");
    screen.shows(&["of cuMem*", "cuMemFree_v2"]);
    screen.press("\x1b");
    screen.shows(&["cuInit"]);
    screen.press("2");
    screen.shows(&["[2 Findings", "error"]);
    screen.press("\r");
    screen.shows(&["[1 Calls]", "cuMemFree_v2 returned", "of thread 0"]);
    // To the memory, and to the call that allocated it.
    screen.press("\t\r");
    screen.shows(&["uses of memory", "created by call"]);
    screen.press("\r");
    screen.shows(&["cuMemAlloc_v2 returned"]);
    screen.press("bbb");
    screen.shows(&["[2 Findings"]);
    screen.press("?");
    screen.shows(&["next call that failed"]);
    screen.press("qq");
    screen.ends(0);
}

fn a_growing_trace_is_followed(folder: &Path) {
    let trace = folder.join("wait.cutape");
    let program = folder.join("marks");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/markers/marks.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    let mut recording = record(&trace, &[], &[program.to_str().unwrap(), "wait"]);
    let recording = without_settings(&mut recording);
    let mut recording = recording
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(recording.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let mut screen = Screen::view(&trace);
    screen.shows(&["recording, ", "cuInit"]);
    screen.press("F");
    screen.shows(&["recording, following, "]);
    drop(recording.stdin.take());
    assert!(recording.wait().unwrap().success());
    screen.shows(&["the recording has ended after"]);
    let calls = cutape_format::Trace::open(&trace).unwrap().calls().count();
    screen.shows(&[&format!(" {calls} calls ")]);
    screen.press("q");
    screen.ends(0);
}

fn signals_restore_the_terminal(folder: &Path) {
    let trace = recorded(folder);
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        let screen = Screen::view(&trace);
        screen.shows(&["cuInit"]);
        // SAFETY: no memory is involved; the process is our own child.
        unsafe { libc::kill(screen.child.id() as i32, signal) };
        screen.ends(128 + signal);
    }
    // Ctrl-C is a key there.
    let mut screen = Screen::view(&trace);
    screen.shows(&["cuInit"]);
    screen.press("\x03");
    screen.ends(0);
}

fn it_needs_a_terminal(folder: &Path) {
    let trace = recorded(folder);
    let output = run(&mut parts().cutape(&[&"view", &trace]));
    output.assert_code(2);
    assert!(
        output.stderr.contains("view needs a terminal"),
        "{}",
        output.stderr
    );
    assert!(output.stderr.contains("cutape dump"), "{}", output.stderr);
}

fn calls_that_match_nothing_are_refused(folder: &Path) {
    let trace = recorded(folder);
    let command = parts().cutape(&[&"view", &trace, &"--calls", &"kernel:nosuch"]);
    let screen = Screen::start(command, (24, 80));
    screen.shows(&["--calls kernel:nosuch: no call matches"]);
    screen.ends(2);
}

fn no_color_is_honoured(folder: &Path) {
    let trace = recorded(folder);
    let coloured = b"\x1b[38;5;1";
    for (name, option, has_colours) in [
        ("X", "--color=auto", true),
        ("NO_COLOR", "--color=auto", false),
        ("NO_COLOR", "--color=always", true),
        ("X", "--color=never", false),
        ("X", "--no-color", false),
    ] {
        let mut command = parts().cutape(&[&"view", &trace, &option]);
        command.env(name, "1");
        let mut screen = Screen::start(command, (24, 80));
        screen.shows(&["cuInit"]);
        screen.press("2");
        screen.shows(&["error"]);
        screen.press("q");
        let written = Arc::clone(&screen.written);
        screen.ends(0);
        let written = written.lock().unwrap();
        let found = written.windows(coloured.len()).any(|part| part == coloured)
            || written.windows(5).any(|part| part == b"\x1b[31m");
        assert_eq!(found, has_colours, "{name} {option}");
    }
}

fn suspended_and_continued(folder: &Path) {
    let mut screen = Screen::view(&recorded(folder));
    screen.shows(&["cuInit"]);
    screen.press("\x1a");
    let start = Instant::now();
    while !screen.is_restored() {
        assert!(
            start.elapsed() < LIMIT,
            "not suspended:\n{}",
            screen.contents()
        );
        thread::sleep(Duration::from_millis(10));
    }
    // As a shell does it. The process may not have stopped yet.
    while !screen.contents().contains("cuInit") || screen.is_restored() {
        assert!(
            start.elapsed() < LIMIT,
            "not continued:\n{}",
            screen.contents()
        );
        // SAFETY: no memory is involved; the process is our own child.
        unsafe { libc::kill(screen.child.id() as i32, libc::SIGCONT) };
        thread::sleep(Duration::from_millis(50));
    }
    screen.press("q");
    screen.ends(0);
}
