//! `debug` moves forward and back, at a prompt, from scripts and for an editor.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use cutape_tests::{Output, Screen, Verdict, compiled, parts, record, root, run};
use serde_json::{Value, json};

cutape_tests::tests![
    a_script_moves_both_ways,
    memory_is_read_and_watched_both_ways,
    nodes_of_graphs_change_memory,
    checkpoints_change_no_answer,
    checkpoints_end_with_the_session,
    a_script_ends_at_the_first_line_that_fails,
    lines_come_from_stdin,
    a_prompt_repeats_and_completes,
    an_editor_steps_through_calls,
    an_editor_is_told_what_is_wrong,
    a_real_client_debugs,
];

fn recorded(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join("app.cutape");
    let program = compiled(&format!("clean/{name}"));
    run(&mut record(&path, &["--stacks=all"], &[&program])).assert_code(0);
    path
}

fn debug(trace: &Path, lines: &[&str]) -> Output {
    let script = trace.with_extension("script");
    fs::write(&script, lines.join("\n")).unwrap();
    let script: &Path = &script;
    let arguments: [&dyn AsRef<std::ffi::OsStr>; 6] =
        [&"debug", &"--driver", &"null", &trace, &"-x", &script];
    run(&mut parts().cutape(&arguments))
}

/// The answer to each line of a script, which is whole.
fn answers(trace: &Path, lines: &[&str]) -> Vec<String> {
    let output = debug(trace, lines);
    output.assert_code(0);
    assert_eq!(output.stderr, "");
    let mut parts = output.stdout.split("(cutape) ");
    assert_eq!(parts.next(), Some(""));
    let answer = |(part, line): (&str, &&str)| {
        let answer = part
            .strip_prefix(line)
            .and_then(|rest| rest.strip_prefix('\n'));
        answer
            .unwrap_or_else(|| panic!("{line}: {part}"))
            .to_owned()
    };
    let answers: Vec<String> = parts.zip(lines).map(answer).collect();
    assert_eq!(answers.len(), lines.len(), "{}", output.stdout);
    answers
}

/// The number of the call in the last line of an answer.
fn call(answer: &str) -> u64 {
    let last = answer.lines().last().unwrap();
    let number = last
        .strip_prefix('#')
        .and_then(|rest| rest.split(' ').next());
    number
        .unwrap_or_else(|| panic!("{answer}"))
        .parse()
        .unwrap()
}

fn a_script_moves_both_ways(folder: &Path) {
    let trace = recorded(folder, "memory_history");
    let lines = [
        "break kernel:step", // 0
        "continue",
        "next",
        "step", // 3
        "reverse-next",
        "rs",
        "info ranges", // 6
        "finish",
        "next",
        "reverse-finish", // 9
        "c",
        "rc",
        "rc", // 12
        "bt",
        "info modules",
        "info memory", // 15
        "info threads",
        "list",
        "info breakpoints", // 18
        "delete 1",
        "c",
        "rc", // 21
    ];
    let answers = answers(&trace, &lines);
    assert_eq!(answers[0], "breakpoint 1: 30 calls\n");
    assert!(answers[1].starts_with("breakpoint 1\n#") && answers[1].contains("\"step\""));
    let first = call(&answers[1]);
    // Each range has 7 calls, and the next one begins where it ends.
    let second = first + 7;
    for (line, expected) in [
        (2, first + 1),
        (3, first + 2),
        (4, first + 1),
        (5, first),
        (7, second),
        (8, second + 1),
        (9, second),
        (10, second + 7),
        (11, second),
        (12, first),
        (21, 0),
    ] {
        assert_eq!(call(&answers[line]), expected, "{line}: {}", answers[line]);
    }
    assert_eq!(answers[6], "step\n");
    for (line, part) in [
        (13, "memory_history.c:"),
        (14, "module#1 0x"),
        (15, "memory#5 0x"),
        (15, " 4,194,304 bytes, call "),
        (16, "-> thread 0"),
        (17, &*format!("-> #{first} ")),
        (18, "1 breakpoint kernel:step, 30 calls\n"),
        (20, "end of the trace, after "),
    ] {
        assert!(answers[line].contains(part), "{line}: {}", answers[line]);
    }
}

fn memory_is_read_and_watched_both_ways(folder: &Path) {
    let trace = recorded(folder, "memory_history");
    let found = answers(&trace, &["break cuMemsetD32_v2", "c"]);
    let memset = call(&found[1]);
    // The memory gets sevens, and then what was copied to other memory.
    let at = format!("call {}", memset + 3);
    let lines = [
        &at,
        "watch memory#3+2048 u32",
        "reverse-continue",
        "p memory#3+2048+8 u32",
        "p memory#3+2048+8 u32 after",
        "continue", // 5
        "continue",
        "p memory#3+2048+8",
        "info breakpoints",
        "rc", // 9
        "rc",
        "rc",
        "finish", // 12, not reached
    ];
    let output = debug(&trace, &lines);
    output.assert_code(1);
    assert!(
        output.stderr.contains(":13: no range of NVTX"),
        "{}",
        output.stderr
    );
    let found = answers(&trace, &lines[..12]);
    assert!(
        found[2].starts_with("watchpoint 1: memory#3+2048: +0: 0 -> 7, written by call"),
        "{}",
        found[2]
    );
    assert_eq!(call(&found[2]), memset);
    let before = format!("8 bytes), before call {memset}\n  +0: 0 0\n");
    assert!(found[3].ends_with(&before), "{}", found[3]);
    let after = format!("8 bytes), after call {memset}\n  +0: 7 7\n");
    assert!(found[4].ends_with(&after), "{}", found[4]);
    assert_eq!(call(&found[5]), memset + 1);
    assert!(
        found[6].contains("7 -> 1048576, written by call"),
        "{}",
        found[6]
    );
    assert!(found[6].contains("cuMemcpyDtoD_v2"), "{}", found[6]);
    assert!(
        found[7].ends_with("\n  +0: 00 00 10 00 01 08 10 00\n"),
        "{}",
        found[7]
    );
    assert!(
        found[8].starts_with("1 watchpoint memory#3+2048: 0x"),
        "{}",
        found[8]
    );
    assert_eq!(call(&found[9]), call(&found[6]) - 1);
    assert_eq!(call(&found[10]), memset);
    assert!(
        found[11].contains("its memory is made by call"),
        "{}",
        found[11]
    );
}

fn nodes_of_graphs_change_memory(folder: &Path) {
    let trace = recorded(folder, "graph");
    let lines = ["c", "watch memory#2", "rc", "rc", "rc", "rc"];
    let found = answers(&trace, &lines);
    let mut back = found[2..].iter();
    let is_node = |answer: &&String| answer.contains(" of the graph of call ");
    let by_node = back.find(is_node);
    assert!(
        by_node.is_some_and(|answer| answer.contains("cuGraphLaunch")),
        "{found:#?}"
    );
}

/// Goes back through memory that calls write, and that no call reads any more.
const BACK: [&str; 16] = [
    "call 150",
    "print memory#4+0+32 u32",
    "rn",
    "print memory#4+0+32 u32",
    "print memory#5+0+32",
    "print memory#1+0+8 u64",
    "watch memory#3+2048+8 u32",
    "rc",
    "print memory#3+2048+8 u32 after",
    "delete",
    "call 60",
    "print memory#3+2048+8 u32 after",
    "watch memory#4",
    "rc",
    "rc",
    "print memory#2+0+32 u32",
];

fn with_checkpoints(trace: &Path, options: &[&str]) -> Output {
    let script = trace.with_extension("script");
    fs::write(&script, BACK.join("\n")).unwrap();
    let mut command = parts().cutape(&[&"debug", &"--driver", &"null", &"--log", &"debug"]);
    run(command.args(options).arg("-x").arg(&script).arg(trace))
}

fn checkpoints_change_no_answer(folder: &Path) {
    let trace = recorded(folder, "memory_history");
    let eager = "--eager-checkpoints";
    let none = with_checkpoints(&trace, &["--checkpoints=0", eager]);
    none.assert_code(0);
    let taken = |output: &Output| output.stderr.matches("checkpoint at call ").count();
    assert_eq!(taken(&none), 0, "{}", none.stderr);
    let refused = "since no checkpoint can be taken: one takes ";
    // Room for two, and for none.
    for (size, least, is_refused) in [("70K", 10, false), ("1K", 0, true)] {
        let found = with_checkpoints(&trace, &["--checkpoints", size, eager]);
        found.assert_code(0);
        assert_eq!(found.stdout, none.stdout, "{size}");
        assert!(taken(&found) >= least, "{size}: {}", found.stderr);
        let count = found.stderr.matches(refused).count();
        assert_eq!(count, usize::from(is_refused), "{size}: {}", found.stderr);
    }
}

fn checkpoints_end_with_the_session(folder: &Path) {
    let trace = recorded(folder, "memory_history");
    let files = folder.join("files");
    fs::create_dir(&files).unwrap();
    let left = || fs::read_dir(&files).unwrap().count();
    for signal in ["", "INT", "TERM"] {
        let mut command = parts().cutape(&[&"debug", &"--driver", &"null", &trace]);
        command.arg("--eager-checkpoints").env("TMPDIR", &files);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let lines = "call 60\nprint memory#3\nrn\nprint memory#3\nrn\nprint memory#3\n";
        input.write_all(lines.as_bytes()).unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut answers = 0;
        while answers < 3 {
            let line = output.next().unwrap().unwrap();
            answers += usize::from(line.starts_with("  +0: "));
        }
        let inside = fs::read_dir(&files)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        assert!(fs::read_dir(inside).unwrap().count() > 2);
        if !signal.is_empty() {
            let number = child.id().to_string();
            run(Command::new("kill").args(["-s", signal, &number])).assert_code(0);
        }
        let open = (!signal.is_empty()).then_some(input);
        let status = child.wait().unwrap();
        assert_eq!((status.success(), left()), (open.is_none(), 0), "{signal}");
    }
}

fn a_script_ends_at_the_first_line_that_fails(folder: &Path) {
    let trace = recorded(folder, "memory_history");
    for (lines, line, why) in [
        (
            &["brake 1"][..],
            1,
            "no command `brake`; did you mean `break`?",
        ),
        (
            &["# words", "", "c", "c"],
            4,
            "this is the end of the trace",
        ),
        (&["rc"], 1, "this is the begin of the trace"),
        (
            &["break kernel:nothing"],
            1,
            "no kernel `nothing` is launched",
        ),
        (&["break range:"], 1, "no name after `range:`"),
        (&["call 100000"], 1, "calls, numbered from 0"),
        (&["print memory#3"], 1, "no memory is called memory#3"),
        (&["print 0x1000"], 1, "no memory lies at 0x1000"),
        (&["print param:0"], 1, "call 0 does not launch a kernel"),
        (&["delete 7"], 1, "there is no breakpoint 7"),
        (&["delete"], 1, "there are no breakpoints"),
        (&["view"], 1, "view needs the prompt"),
    ] {
        let output = debug(&trace, lines);
        output.assert_code(1);
        let place = format!("app.script:{line}: ");
        let is_said = output.stderr.contains(&place) && output.stderr.contains(why);
        assert!(is_said, "{lines:?}: {}", output.stderr);
    }
    let nothing = run(&mut parts().cutape(&[&"debug", &trace, &"-x", &"/no/script"]));
    nothing.assert_code(2);
    run(&mut parts().cutape(&[&"debug"])).assert_code(2);
    let end = debug(&trace, &["quit", "brake"]);
    end.assert_code(0);
}

fn lines_come_from_stdin(folder: &Path) {
    let trace = recorded(folder, "memory_history");
    let mut command = Command::new("bash");
    command.args(["-c", "printf 'info streams\nlast\n' | \"$@\"", "bash"]);
    command
        .arg(&parts().cutape)
        .args(["debug", "--driver", "null"]);
    let output = run(command.arg(&trace));
    output.assert_code(1);
    assert!(output.stdout.contains("no streams"), "{}", output.stdout);
    assert!(output.stderr.contains("stdin:2: "), "{}", output.stderr);
}

fn a_prompt_repeats_and_completes(folder: &Path) {
    let trace = recorded(folder, "memory_history");
    let command = parts().cutape(&[&"debug", &"--driver", &"null", &trace]);
    let mut screen = Screen::start(command, (24, 120));
    screen.shows(&["(cutape)"]);
    screen.press("step\r");
    screen.shows(&["#1 @0"]);
    screen.press("\r");
    screen.shows(&["#2 @0"]);
    screen.press("reverse-s\t\r");
    screen.shows(&["(cutape) reverse-step"]);
    screen.press("nonsense\r");
    screen.shows(&["no command `nonsense`"]);
    // What is typed while the prompt is not there is lost.
    while !screen.contents().trim_end().ends_with("(cutape)") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    screen.press("call 16\r");
    screen.shows(&["#16 @0"]);
    screen.press("view\r");
    screen.shows(&["[1 Calls]", "cuLaunchKernel returned", "? help"]);
    screen.press("q");
    screen.shows(&["(cutape) view"]);
    screen.press("next\r");
    screen.shows(&["#17 @0"]);
    screen.press("quit\r");
    screen.ends(0);
}

/// An editor.
struct Editor {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    seq: u64,
    events: Vec<Value>,
}

impl Editor {
    fn start(trace: Option<&Path>) -> Self {
        let mut command = parts().cutape(&[&"debug", &"--dap", &"--driver", &"null"]);
        command
            .args(trace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            seq: 0,
            events: Vec::new(),
        }
    }

    fn message(&mut self) -> Value {
        let mut head = String::new();
        self.output.read_line(&mut head).unwrap();
        let length = head.trim_end().strip_prefix("Content-Length: ");
        let length = length
            .unwrap_or_else(|| panic!("{head:?}"))
            .parse()
            .unwrap();
        let mut bytes = vec![0; 2];
        self.output.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, b"\r\n");
        bytes.resize(length, 0);
        self.output.read_exact(&mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// The response; events before it are kept.
    fn ask(&mut self, command: &str, arguments: Value) -> Value {
        self.seq += 1;
        let request = json!({
            "seq": self.seq, "type": "request", "command": command, "arguments": arguments,
        });
        let text = request.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
        loop {
            let message = self.message();
            if message["type"] == "event" {
                self.events.push(message);
                continue;
            }
            assert_eq!(message["type"], "response");
            assert_eq!(message["request_seq"], self.seq);
            assert_eq!(message["command"], command);
            return message;
        }
    }

    /// The body of a response that succeeds.
    fn get(&mut self, command: &str, arguments: Value) -> Value {
        let response = self.ask(command, arguments);
        assert_eq!(response["success"], true, "{response:#}");
        response["body"].clone()
    }

    /// The body of the next event, of that name.
    fn event(&mut self, name: &str) -> Value {
        let event = match self.events.is_empty() {
            false => self.events.remove(0),
            true => self.message(),
        };
        assert_eq!(event["event"], name, "{event:#}");
        event["body"].clone()
    }

    /// Moves, and where it stopped: why, and the first frame.
    fn moves(&mut self, command: &str) -> (String, Value) {
        self.get(command, json!({ "threadId": 1 }));
        let stopped = self.event("stopped");
        assert_eq!(stopped["threadId"], 1);
        let stack = self.get("stackTrace", json!({ "threadId": 1 }));
        let reason = stopped["reason"].as_str().unwrap().to_owned();
        (reason, stack["stackFrames"][0].clone())
    }

    fn end(mut self) {
        self.get("disconnect", json!({}));
        assert!(self.child.wait().unwrap().success());
    }
}

fn started(trace: &Path) -> Editor {
    let mut editor = Editor::start(None);
    let able = editor.get("initialize", json!({ "adapterID": "cutape" }));
    for name in [
        "supportsStepBack",
        "supportsReadMemoryRequest",
        "supportsFunctionBreakpoints",
    ] {
        assert_eq!(able[name], true, "{name}");
    }
    editor.get("launch", json!({ "trace": trace }));
    editor.event("initialized");
    editor
}

fn is_at(frame: &Value, function: &str) -> bool {
    frame["name"].as_str().unwrap().contains(function)
}

fn an_editor_steps_through_calls(folder: &Path) {
    let mut editor = started(&recorded(folder, "memory_history"));
    let wanted = json!({ "breakpoints": [{ "name": "kernel:step" }, { "name": "kernel:no" }] });
    let set = editor.get("setFunctionBreakpoints", wanted);
    assert_eq!(set["breakpoints"][0], json!({ "id": 1, "verified": true }));
    assert_eq!(set["breakpoints"][1]["verified"], false);
    editor.get("setExceptionBreakpoints", json!({ "filters": [] }));
    editor.get("configurationDone", json!({}));
    assert_eq!(editor.event("stopped")["reason"], "entry");
    let threads = editor.get("threads", json!({}));
    assert_eq!(threads["threads"][0]["id"], 1);

    let (reason, launch) = editor.moves("continue");
    assert_eq!(reason, "breakpoint");
    assert!(is_at(&launch, "cuLaunchKernel"), "{launch}");
    assert!(launch["line"].as_u64() > Some(0), "{launch}");
    let scopes = editor.get("scopes", json!({ "frameId": launch["id"] }));
    let reference =
        |at: usize| json!({ "variablesReference": scopes["scopes"][at]["variablesReference"] });
    let arguments = editor.get("variables", reference(0));
    let all = arguments["variables"].as_array().unwrap();
    let output = all
        .iter()
        .find(|argument| argument["name"] == "parameter 1")
        .unwrap();
    let memory = editor.get("variables", reference(1))["variables"].clone();
    assert_eq!(memory[2]["name"], "memory#3");
    assert_eq!(memory[2]["memoryReference"], output["memoryReference"]);

    let out = &output["memoryReference"];
    let wanted = json!({ "memoryReference": out, "offset": 4, "count": 8 });
    let read = editor.get("readMemory", wanted.clone());
    assert_eq!(read["data"], "BwAAAAcAAAA=", "two sevens");
    let written = json!({ "memoryReference": out, "offset": 4, "data": "AQIDBA==" });
    assert_eq!(editor.get("writeMemory", written)["bytesWritten"], 4);
    assert_eq!(
        editor.get("readMemory", wanted.clone())["data"],
        "AQIDBAcAAAA="
    );

    let (reason, copy) = editor.moves("next");
    assert!(
        reason == "step" && is_at(&copy, "cuMemcpyDtoD_v2"),
        "{copy}"
    );
    assert_eq!(copy["source"]["name"], "memory_history.c");
    let watched = json!({ "expression": "memory#3+4+8 u32", "context": "watch" });
    let watched = editor.get("evaluate", watched);
    let numbers = watched["result"].as_str().unwrap();
    assert!(
        numbers.ends_with("+0: 67305985 7"),
        "what was written: {numbers}"
    );
    let (reason, again) = editor.moves("stepBack");
    assert!(
        reason == "breakpoint" && again["name"] == launch["name"],
        "{again}"
    );
    let read = editor.get("readMemory", wanted);
    assert_eq!(
        read["data"], "BwAAAAcAAAA=",
        "what was written is forgotten"
    );
    let (_, next) = editor.moves("stepIn");
    assert_eq!(next["name"], copy["name"]);
    let (_, ranged) = editor.moves("stepOut");
    assert!(is_at(&ranged, "cuLaunchKernel"), "{ranged}");

    let source = json!({ "source": copy["source"], "breakpoints": [{ "line": copy["line"] }] });
    let set = editor.get("setBreakpoints", source);
    assert_eq!(set["breakpoints"][0]["verified"], true, "{set}");
    editor.get("setFunctionBreakpoints", json!({ "breakpoints": [] }));
    let (reason, back) = editor.moves("reverseContinue");
    assert_eq!((&*reason, &back["line"]), ("breakpoint", &copy["line"]));
    let evaluated = editor.get("evaluate", json!({ "expression": "watch memory#3 u32" }));
    assert!(
        evaluated["result"]
            .as_str()
            .unwrap()
            .starts_with("watchpoint ")
    );
    let (reason, _) = editor.moves("reverseContinue");
    assert_eq!(reason, "data breakpoint");
    editor.get("evaluate", json!({ "expression": "call 3" }));
    assert_eq!(editor.event("stopped")["reason"], "goto");
    let targets = editor.get("completions", json!({ "text": "info m", "column": 7 }));
    assert_eq!(targets["targets"][0]["label"], "memory");
    editor.get("pause", json!({ "threadId": 1 }));
    assert_eq!(editor.event("stopped")["reason"], "pause");
    editor.end();
}

fn an_editor_is_told_what_is_wrong(folder: &Path) {
    let mut editor = Editor::start(None);
    assert_eq!(editor.ask("threads", json!({}))["success"], false);
    for (arguments, why) in [
        (json!({}), "launch needs `trace`"),
        (json!({ "trace": "/no/trace" }), "/no/trace"),
    ] {
        let refused = editor.ask("launch", arguments);
        assert_eq!(refused["success"], false);
        assert!(
            refused["message"].as_str().unwrap().contains(why),
            "{refused}"
        );
    }
    editor.end();
    let mut editor = started(&recorded(folder, "memory_history"));
    for (command, arguments, why) in [
        ("gotoTargets", json!({}), "gotoTargets is not supported"),
        ("scopes", json!({ "frameId": 9 }), "no such frame"),
        (
            "variables",
            json!({ "variablesReference": 9 }),
            "no such variables",
        ),
        (
            "readMemory",
            json!({ "memoryReference": "0x10", "count": 4 }),
            "no memory lies at 0x10",
        ),
        (
            "readMemory",
            json!({ "memoryReference": "x", "count": 4 }),
            "`x` is no address",
        ),
        (
            "evaluate",
            json!({ "expression": "brake" }),
            "did you mean `break`?",
        ),
        ("setBreakpoints", json!({}), "a source with a path"),
    ] {
        let refused = editor.ask(command, arguments);
        assert_eq!(refused["success"], false, "{command}");
        assert!(
            refused["message"].as_str().unwrap().contains(why),
            "{refused}"
        );
    }
    editor.get("configurationDone", json!({}));
    assert_eq!(editor.event("stopped")["reason"], "entry");
    let (_, frame) = editor.moves("continue");
    assert_eq!(frame, Value::Null, "no call follows the last");
    let (reason, _) = editor.moves("continue");
    assert_eq!(reason, "pause");
    editor.get("terminate", json!({}));
    editor.event("terminated");
    editor.end();
}

/// The client of Visual Studio Code's own tests of debug adapters.
fn a_real_client_debugs(folder: &Path) -> Verdict {
    let target = parts().cutape.ancestors().nth(2).unwrap();
    let modules = target.join("dap/node_modules");
    if !modules.join("@vscode/debugadapter-testsupport").is_dir() {
        let why = "the client is not installed: `cargo xtask tools` does that, with npm";
        return Verdict::Ignored(why.to_owned());
    }
    let trace = recorded(folder, "memory_history");
    let adapter = folder.join("adapter");
    let cutape = parts().cutape.display();
    fs::write(
        &adapter,
        format!("exec '{cutape}' debug --dap --driver null\n"),
    )
    .unwrap();
    let session = root().join("tests/dap/session.js");
    let mut client = Command::new("node");
    client.env("NODE_PATH", modules);
    run(client.args([&session, &adapter, &trace])).assert_code(0);
    Verdict::Passed
}
