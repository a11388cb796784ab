//! Chromium without a window, driven over the two pipes of its DevTools protocol.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};

use crate::process::stop_group;

/// The names under which systems install it.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The longest that the browser may take for one answer.
const LIMIT: Duration = Duration::from_secs(60);

/// The descriptors at which Chromium reads commands and writes answers.
const COMMANDS: i32 = 3;
const ANSWERS: i32 = 4;

/// A browser with one page.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    next: u64,
    /// Errors that pages have reported: exceptions, console errors, violations of their policy.
    pub problems: Vec<String>,
}

impl Browser {
    /// Starts one that keeps its files in `folder`; `None` if none is installed.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(folder: &Path) -> Option<Self> {
        let program = installed()?;
        let (their_commands, to) = pipe();
        let (from, their_answers) = pipe();
        let mut command = Command::new(program);
        command.args([
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-sync",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--force-device-scale-factor=1",
        ]);
        command.arg(format!(
            "--user-data-dir={}",
            folder.join("browser").display()
        ));
        command.env("HOME", folder).process_group(0);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let pipes = (their_commands.as_raw_fd(), their_answers.as_raw_fd());
        // SAFETY: between fork and exec only system calls are made, on descriptors of this process.
        unsafe { command.pre_exec(move || give(pipes.0, pipes.1)) };
        let child = command.spawn().unwrap_or_else(|error| panic!("{error}"));
        drop((their_commands, their_answers));
        let mut browser = Self {
            child,
            to: to.into(),
            from: BufReader::new(from.into()),
            session: None,
            next: 0,
            problems: Vec::new(),
        };
        let page = browser.send("Target.createTarget", &json!({ "url": "about:blank" }));
        let target = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.send("Target.attachToTarget", &target);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.send(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Sets the size of the window, and whether the system is dark.
    pub fn set_window(&mut self, width: u32, height: u32, is_dark: bool) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.send("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if is_dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.send(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [feature] }),
        );
    }

    /// Opens a file and waits until `is_ready` is true in it; how long that took.
    ///
    /// # Panics
    /// If it never is.
    pub fn open(&mut self, file: &Path, is_ready: &str) -> Duration {
        let start = Instant::now();
        let url = format!("file://{}", file.display());
        self.send("Page.navigate", &json!({ "url": url }));
        self.wait_for(is_ready);
        start.elapsed()
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// If it never is.
    pub fn wait_for(&mut self, expression: &str) {
        let start = Instant::now();
        while self.evaluate(&format!("Boolean({expression})")) != Value::Bool(true) {
            assert!(
                start.elapsed() < LIMIT,
                "never true: {expression}\n{:#?}",
                self.problems
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The value of an expression, or what its promise resolves to.
    ///
    /// # Panics
    /// If it throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
        });
        let answer = self.send("Runtime.evaluate", &params);
        let thrown = &answer["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}\n{thrown:#}");
        answer["result"]["value"].clone()
    }

    /// The text of the first element that a selector finds.
    ///
    /// # Panics
    /// If it finds none.
    pub fn text(&mut self, selector: &str) -> String {
        let text = self.evaluate(&format!("document.querySelector({selector:?})?.innerText"));
        let text = text.as_str().map(str::to_owned);
        text.unwrap_or_else(|| panic!("the page has no {selector}"))
    }

    /// Clicks with the mouse at a point of the window.
    pub fn click(&mut self, x: f64, y: f64) {
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let pressed = i32::from(kind != "mouseMoved");
            let params = json!({
                "type": kind, "x": x, "y": y, "button": "left", "clickCount": pressed,
            });
            self.send("Input.dispatchMouseEvent", &params);
        }
    }

    /// Turns the mouse wheel with Ctrl at a point of the window; less than zero is away.
    pub fn zoom(&mut self, x: f64, y: f64, turned: f64) {
        const CONTROL: u32 = 2;
        let params = json!({
            "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": turned,
            "modifiers": CONTROL,
        });
        self.send("Input.dispatchMouseEvent", &params);
    }

    /// Writes a picture of the window to a PNG file.
    ///
    /// # Panics
    /// If that fails.
    pub fn screenshot(&mut self, file: &Path) {
        let picture = self.send("Page.captureScreenshot", &json!({}));
        let data = picture["data"].as_str().unwrap_or_default();
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(data)
            .unwrap_or_else(|error| panic!("{error}"));
        std::fs::write(file, bytes).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    /// Sends a command; its result.
    fn send(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let written = self.to.write_all(format!("{message}\0").as_bytes());
        written.unwrap_or_else(|error| panic!("{method}: the browser has ended: {error}"));
        loop {
            let mut answer = self.receive(method);
            if answer["id"] == json!(self.next) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.note(&answer);
        }
    }

    fn receive(&mut self, method: &str) -> Value {
        if self.from.buffer().is_empty() {
            let mut poll = libc::pollfd {
                fd: self.from.get_ref().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let limit = LIMIT.as_millis() as i32;
            // SAFETY: one descriptor, which lives as long as the browser.
            let ready = unsafe { libc::poll(&raw mut poll, 1, limit) };
            assert!(ready > 0, "{method}: the browser does not answer");
        }
        let mut message = Vec::new();
        let read = self.from.read_until(0, &mut message);
        assert!(
            read.is_ok_and(|length| length > 0),
            "{method}: the browser has ended"
        );
        message.pop();
        serde_json::from_slice(&message).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Keeps what an event says is wrong with the page.
    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        let is_problem = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => {
                matches!(
                    params["type"].as_str(),
                    Some("error" | "warning" | "assert")
                )
            }
            Some("Log.entryAdded") => {
                matches!(params["entry"]["level"].as_str(), Some("error" | "warning"))
            }
            _ => false,
        };
        if is_problem {
            self.problems.push(params.to_string());
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        stop_group(self.child.id());
        let _ = self.child.wait();
    }
}

/// The browser of this machine.
fn installed() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    let mut files = PROGRAMS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.find(|file| file.is_file())
}

/// A pipe: the end to read from and the end to write to.
fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0, "no pipe");
    // SAFETY: both are new and nobody else's.
    unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) }
}

/// In the new process: moves the pipes to where Chromium expects them.
fn give(commands: i32, answers: i32) -> std::io::Result<()> {
    // One pipe may be where the other belongs.
    const ABOVE: i32 = 10;
    for (from, to) in [(commands, COMMANDS), (answers, ANSWERS)].map(|(from, to)| {
        // SAFETY: duplicates an open descriptor.
        (
            unsafe { libc::fcntl(from, libc::F_DUPFD_CLOEXEC, ABOVE) },
            to,
        )
    }) {
        // SAFETY: replaces a descriptor of this process, which is about to become another program.
        if from < 0 || unsafe { libc::dup2(from, to) } < 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}
