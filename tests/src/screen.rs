//! A program on a pseudo-terminal, and what it draws there.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::without_settings;

/// More time than any step needs.
const LIMIT: Duration = Duration::from_secs(60);

/// A program on a terminal of its own.
pub struct Screen {
    child: Child,
    /// The terminal's other end.
    keyboard: File,
    /// Ends when nothing has the terminal any more.
    reader: thread::JoinHandle<()>,
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
    /// Starts a command on a terminal of that many lines and columns.
    ///
    /// # Panics
    /// If the system gives no terminal, or the command cannot be run.
    pub fn start(mut command: Command, (lines, columns): (u16, u16)) -> Self {
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
        let reader = thread::spawn(move || {
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
            reader,
            parser,
            written,
            before,
        }
    }

    /// The process that runs there.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// All that it writes, also from now on.
    pub fn written(&self) -> Arc<Mutex<Vec<u8>>> {
        Arc::clone(&self.written)
    }

    /// Sends keys.
    ///
    /// # Panics
    /// If the terminal is closed.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// What the screen shows.
    ///
    /// # Panics
    /// If reading it has failed.
    pub fn contents(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    /// Waits until the screen shows all texts.
    ///
    /// # Panics
    /// If it does not in time.
    pub fn shows(&self, texts: &[&str]) {
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

    /// Whether the terminal is as before.
    pub fn is_restored(&self) -> bool {
        let now = settings(&self.keyboard);
        let flags = |s: &libc::termios| (s.c_iflag, s.c_oflag, s.c_lflag, s.c_cc);
        let parser = self.parser.lock().unwrap();
        let screen = parser.screen();
        flags(&now) == flags(&self.before) && !screen.alternate_screen() && !screen.hide_cursor()
    }

    /// Waits for the end; the terminal must be as before. Returns what the screen shows.
    ///
    /// # Panics
    /// If it does not end in time, or differently.
    pub fn ends(mut self, code: i32) -> String {
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
        // What it wrote last is still on its way.
        while !self.reader.is_finished() {
            assert!(start.elapsed() < LIMIT, "its terminal is still open");
            thread::sleep(Duration::from_millis(1));
        }
        while !self.is_restored() {
            assert!(
                start.elapsed() < LIMIT,
                "not restored:\n{}",
                self.contents()
            );
            thread::sleep(Duration::from_millis(10));
        }
        self.contents()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Of a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
