//! The viewer without a terminal: keys go in, and what is drawn comes out; the threads are real.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder, pack};
use cutape_render::test_trace;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use crate::draw;
use crate::draw::theme::Theme;
use crate::engine::Engine;
use crate::engine::shared::SharedTrace;
use crate::engine::worker::{Listener, Said};
use crate::state::State;
use crate::state::reply::Request;

/// More time than any step needs.
const LIMIT: Duration = Duration::from_secs(20);

/// A viewer of a trace.
struct Session {
    state: State,
    engine: Engine,
    said: Receiver<Said>,
}

impl Session {
    fn new(trace: Trace, size: (u16, u16)) -> Self {
        let shared = Arc::new(SharedTrace::new(trace, false));
        let (sender, said) = channel();
        let listener: Listener = Arc::new(move |what| {
            let _ = sender.send(what);
        });
        Self {
            state: State::new("app.cutape".to_owned(), size),
            engine: Engine::start(&shared, &listener),
            said,
        }
    }

    fn ask(&self, requests: Vec<Request>) {
        requests
            .into_iter()
            .for_each(|request| self.engine.ask(request));
    }

    /// Takes replies until that is true.
    fn until(&mut self, is_so: impl Fn(&State) -> bool) {
        while !is_so(&self.state) {
            let Ok(Said::Reply(reply)) = self.said.recv_timeout(LIMIT) else {
                panic!("nothing more is said:\n{}", self.screen());
            };
            let requests = self.state.receive(reply);
            self.ask(requests);
        }
    }

    /// Presses keys, in words: `Enter`, `Tab`, or characters; `found` waits for a search,
    /// `loaded` for the details.
    fn press(&mut self, keys: &str) {
        for word in keys.split(' ').filter(|word| !word.is_empty()) {
            let code = match word {
                "found" => {
                    self.until(|state| !state.search.as_ref().is_some_and(|s| s.is_running));
                    continue;
                }
                "loaded" => {
                    self.until(|state| state.pane.is_loaded);
                    continue;
                }
                "Enter" => vec![KeyCode::Enter],
                "Tab" => vec![KeyCode::Tab],
                "Esc" => vec![KeyCode::Esc],
                "Down" => vec![KeyCode::Down],
                "PageDown" => vec![KeyCode::PageDown],
                "End" => vec![KeyCode::End],
                "Backspace" => vec![KeyCode::Backspace],
                text => text.chars().map(KeyCode::Char).collect(),
            };
            for code in code {
                let event = Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
                let requests = self.state.handle(&event);
                self.ask(requests);
            }
        }
    }

    /// Takes replies until the screen shows all texts.
    fn shows(&mut self, texts: &[&str]) {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if texts.iter().all(|text| screen.contains(text)) {
                return;
            }
            let left = LIMIT.saturating_sub(start.elapsed());
            match self.said.recv_timeout(left) {
                Ok(Said::Reply(reply)) => {
                    let requests = self.state.receive(reply);
                    self.ask(requests);
                }
                Ok(Said::Bug) => panic!("a thread panicked"),
                Err(_) => panic!("{texts:?} is not shown:\n{screen}"),
            }
        }
    }

    fn terminal(&self, theme: Theme) -> ratatui::Terminal<TestBackend> {
        let (columns, lines) = self.state.size;
        let mut terminal = ratatui::Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal
            .draw(|frame| draw::draw(&self.state, theme, frame))
            .unwrap();
        terminal
    }

    fn screen(&self) -> String {
        self.terminal(Theme::new(true)).backend().to_string()
    }
}

/// A call of a function that succeeds and returns a handle through its first parameter.
fn makes(builder: &mut TraceBuilder, name: &str, arguments: &[u64], handle: u64) {
    builder
        .call(NewCall {
            name,
            arguments,
            ..NewCall::default()
        })
        .leave(0, 0, &[NewSnapshot::pointee(0, &handle.to_le_bytes())]);
}

fn call(builder: &mut TraceBuilder, name: &str, arguments: &[u64], result: i32) {
    builder
        .call(NewCall {
            name,
            arguments,
            ..NewCall::default()
        })
        .leave(0, result, &[]);
}

/// Objects whose handles are reused, a launch, a copy with its bytes, a failure, many calls.
fn sample() -> TraceBuilder {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    call(&mut builder, "cuInit", &[0], 0);
    makes(&mut builder, "cuCtxCreate_v2", &[1, 0, 0], 0xc0);
    makes(&mut builder, "cuMemAlloc_v2", &[1, 0x100], 0x1000);
    makes(&mut builder, "cuModuleLoadData", &[1, 2], 0x11);
    test_trace::get_function(&mut builder, 0x51, "_Z5saxpyifPfS_");
    builder
        .call(NewCall {
            name: "cuMemcpyHtoD_v2",
            arguments: &[0x1010, 0x7000, 16],
            snapshots: &[NewSnapshot::pointee(1, b"sixteen bytes ok")],
            ..NewCall::default()
        })
        .leave(0, 0, &[]);
    test_trace::launch(&mut builder, 0x51, [7, 1, 1]);
    call(&mut builder, "cuMemFree_v2", &[0x1000], 0);
    makes(&mut builder, "cuMemAlloc_v2", &[1, 0x200], 0x1000);
    call(&mut builder, "cuModuleUnload", &[0x99], 400);
    for _ in 0..300 {
        call(&mut builder, "cuCtxSynchronize", &[], 0);
    }
    call(&mut builder, "cuModuleUnload", &[0x11], 0);
    call(&mut builder, "cuModuleUnload", &[0x11], 0);
    builder
}

fn opened(name: &str) -> Trace {
    test_trace::open(&sample(), name)
}

/// A name, keys, and texts that they show.
const KEYS: &[(&str, &str, &[&str])] = &[
    (
        "start",
        "",
        &["app.cutape", "312 calls", "cuInit(Flags = 0)"],
    ),
    (
        "first-call",
        "",
        &["cuInit returned CUDA_SUCCESS", "call 0 of thread 0"],
    ),
    ("end", "End", &[" 311 @0 cuModuleUnload"]),
    (
        "output-pointers-last",
        "",
        &["cuMemAlloc_v2(bytesize = 256, dptr = 0x1) → dptr = 0x1000 memory#1"],
    ),
    ("page", "PageDown PageDown", &["call 18 "]),
    (
        "launch",
        ":6 Enter",
        &["saxpy, grid = 7x1x1", "kernel = saxpy(int, float, float*"],
    ),
    (
        "bytes",
        ":5 Enter",
        &["uses memory#1 0x1000, 256", "Bytes of srcHost"],
    ),
    (
        "bytes-below",
        ":5 Enter loaded Tab End",
        &["73 69 78 74 65 65 6e", "sixteen bytes ok"],
    ),
    (
        "failure",
        "e",
        &["cuModuleUnload returned CUDA_ERROR_INVALID_HANDLE"],
    ),
    (
        "failure-wraps",
        "E",
        &["call 9 of thread 0", "from the other end"],
    ),
    ("filter", "fcuMem* Enter", &["4 of cuMem*", "cuMemFree_v2"]),
    (
        "filter-kernel",
        "fkernel:saxpy Enter",
        &[" 1 of kernel:saxpy", "saxpy, grid"],
    ),
    (
        "filter-nothing",
        "fthread:7 Enter",
        &["no call matches", " no calls"],
    ),
    (
        "filter-wrong",
        "fcuNo Enter",
        &["no function of the trace's signature table"],
    ),
    (
        "filter-cancelled",
        "fcuMem* Enter Esc",
        &["cuInit(Flags = 0)"],
    ),
    ("search", "/saxpy", &["/saxpy", "call 4 of thread 0"]),
    (
        "search-again",
        "/saxpy found Enter n",
        &["call 6 of thread 0"],
    ),
    (
        "search-back",
        "/unload found Enter N",
        &["call 311 of thread 0", "from the other end"],
    ),
    (
        "search-nothing",
        "/nothinglikeit Enter",
        &["no `nothinglikeit`"],
    ),
    ("search-cancelled", "/saxpy Esc", &["call 0 of thread 0"]),
    ("go-too-far", ":999 Enter", &["the last call is 311"]),
    ("go-nowhere", ":x Enter", &["not a call number: x"]),
    (
        "object",
        ":7 Enter loaded Tab Enter",
        &[
            "3 uses of memory#1 0x1000",
            "created by call 2 cuMemAlloc_v2",
            "ended by call 7",
        ],
    ),
    (
        "second-generation",
        ":8 Enter loaded Tab Enter",
        &[
            "1 use of memory#2 0x1000",
            "created by call 8",
            "not ended",
            "stood for 1 objects",
        ],
    ),
    (
        "module",
        ":310 Enter loaded Tab Enter",
        &[
            "uses of module#1 0x11",
            "created by call 3",
            "ended by call 310",
        ],
    ),
    (
        "object-creator",
        ":7 Enter loaded Tab Enter loaded Enter",
        &["cuMemAlloc_v2 returned", "call 2 of"],
    ),
    (
        "back",
        ":7 Enter loaded Tab Enter loaded Enter b b b",
        &["cuInit returned", " call 0 "],
    ),
    ("nowhere-back", "b", &["nowhere to go back to"]),
    ("no-follow", "F", &["the recording has ended"]),
    (
        "help",
        "?",
        &["search in function, arguments, result", "one page down"],
    ),
    ("help-end", "? End", &["a comma joins several"]),
    ("help-closes", "? q", &["cuInit(Flags = 0)"]),
    ("unknown-key", "x", &["no such key; ? shows the keys"]),
    (
        "findings",
        "2",
        &["[2 Findings", "error   ", "cuModuleUnload"],
    ),
];

#[test]
fn keys_and_what_they_show() {
    for &(name, keys, texts) in KEYS {
        let mut session = Session::new(opened(&format!("view-{name}")), (80, 24));
        session.shows(&["312 calls "]);
        session.press(keys);
        session.shows(texts);
    }
}

#[test]
fn findings_lead_to_calls_and_back() {
    let mut session = Session::new(opened("view-findings"), (80, 24));
    session.shows(&["312 calls "]);
    session.press("2");
    session.shows(&["call 311", "module-"]);
    session.press("End");
    session.press("Enter");
    session.shows(&["[1 Calls]", "call 311 of thread 0"]);
    session.press("b");
    session.shows(&["[2 Findings"]);
    // The finding names the call that unloaded the module first.
    session.press("Tab");
    session.shows(&["Enter follow link"]);
}

#[test]
fn a_packed_trace_is_read_from_any_call() {
    let folder = std::env::temp_dir().join(format!("cutape-view-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut builder = sample();
    for round in 0..40_000_u64 {
        makes(
            &mut builder,
            "cuMemAlloc_v2",
            &[1, 64],
            0x2000 + 64 * (round % 16),
        );
        call(
            &mut builder,
            "cuMemFree_v2",
            &[0x2000 + 64 * (round % 16)],
            0,
        );
    }
    let (raw, packed) = (folder.join("raw.cutape"), folder.join("packed.cutape"));
    builder.write(&raw).unwrap();
    pack(&Trace::open(&raw).unwrap(), &packed, &[], &[]).unwrap();
    for (path, is_packed) in [(&raw, false), (&packed, true)] {
        let trace = Trace::open_indexed(path).unwrap();
        assert_eq!(trace.counted_calls(), is_packed.then_some(80_312));
        let mut session = Session::new(trace, (120, 30));
        // At once, before the scan is done.
        if is_packed {
            session.shows(&["80,312 calls"]);
            session.press("End");
            session.shows(&["80311 @0"]);
        }
        session.shows(&["80,312 calls "]);
        session.press("End");
        session.shows(&["cuMemFree_v2(dptr = 0x23c0 memory#40002)"]);
        session.shows(&[
            "call 80311 of thread 0",
            "ends memory#40002 0x23c0, 64 bytes, from call 80310",
        ]);
        session.press("fkernel:* Enter");
        session.shows(&[" 1 of kernel:*", "saxpy"]);
        session.press("f Backspace Backspace");
        session.press("Esc");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn every_size_is_drawn() {
    let mut session = Session::new(opened("view-sizes"), (80, 24));
    session.shows(&["312 calls ", "cuInit returned"]);
    for (columns, lines) in [(200, 60), (80, 24), (40, 10), (39, 9), (10, 3), (1, 1)] {
        let requests = session.state.handle(&Event::Resize(columns, lines));
        session.ask(requests);
        for keys in ["", "End", "2", "?", "?", "1", "Tab", "Tab", "+", "-", "g"] {
            session.press(keys);
            // A panic would fail the test.
            let _ = session.screen();
        }
    }
    let requests = session.state.handle(&Event::Resize(80, 24));
    session.ask(requests);
    session.shows(&["cuInit returned CUDA_SUCCESS"]);
}

#[test]
fn without_colours_nothing_is_coloured() {
    for is_coloured in [true, false] {
        let mut session = Session::new(opened("view-colours"), (80, 24));
        session.shows(&["312 calls "]);
        session.press("e");
        session.shows(&["returned CUDA_ERROR_INVALID_HANDLE"]);
        let terminal = session.terminal(Theme::new(is_coloured));
        let cells = &terminal.backend().buffer().content;
        let has_colour = cells.iter().any(|cell| cell.fg != Color::Reset);
        assert_eq!(has_colour, is_coloured);
        // The background is the terminal's own, light or dark.
        assert!(cells.iter().all(|cell| cell.bg == Color::Reset));
        let has_bold = cells
            .iter()
            .any(|cell| cell.modifier.contains(Modifier::BOLD));
        assert!(has_bold);
    }
}
