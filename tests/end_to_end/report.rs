//! `cutape report` in Chromium: every view shows what `info` and `check` say, filters and links
//! work, and names of a trace stay text.
//!
//! `CUTAPE_TESTS_SCREENSHOTS` names a folder for a picture of each view.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::layout::{MarkerNote, marker_action, marker_source};
use cutape_format::{NewCall, NewSnapshot, TraceBuilder};
use cutape_tests::{Browser, Verdict, compiled, parts, record, replay, root, run};
use serde_json::{Value, json};

cutape_tests::tests![
    views_show_what_info_says,
    the_filter_chooses_calls,
    findings_lead_to_the_timeline,
    the_mouse_selects_and_zooms,
    names_of_a_trace_stay_text,
    reports_of_replays_and_measurements_are_shown,
    gpu_time_of_a_profile_is_shown,
    who_wrote_memory_is_asked_and_shown,
    the_theme_follows_the_system_and_the_key,
    narrow_windows_need_no_scrolling_sideways,
    equal_traces_give_equal_pages,
    traces_of_every_kind_open,
];

const READY: &str = "document.documentElement?.dataset.ready";

/// A browser, or why there is none.
fn browser(folder: &Path) -> Result<Browser, Verdict> {
    Browser::start(folder).ok_or_else(|| {
        Verdict::Ignored("Chromium is not installed: apt-get install chromium".to_owned())
    })
}

/// A recorded program of the tests.
fn trace(folder: &Path, program: &str) -> PathBuf {
    let trace = folder.join("app.cutape");
    let _ = fs::remove_file(&trace);
    run(&mut record(
        &trace,
        &["--stacks=all"],
        &[&compiled(program)],
    ))
    .assert_code(0);
    trace
}

/// The page of a trace.
fn page(trace: &Path, options: &[&str]) -> PathBuf {
    let page = trace.with_extension("html");
    let _ = fs::remove_file(&page);
    let mut command = parts().cutape(&[&"report", &trace, &"-o", &page]);
    run(command.args(options)).assert_code(0);
    page
}

fn json(words: &[&str], trace: &Path) -> Value {
    let output = run(parts().cutape(&[&words[0]]).args(&words[1..]).arg(trace));
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}"))
}

/// Shows a view, and keeps a picture of it if that is asked for.
fn show(browser: &mut Browser, view: &str) {
    browser.evaluate(&format!("location.hash = '#/{view}'"));
    // The address is followed after the running script, a canvas is drawn in the next frame.
    browser.evaluate(
        "new Promise((done) => setTimeout(() => \
         requestAnimationFrame(() => requestAnimationFrame(() => done(1)))))",
    );
    if let Some(folder) = std::env::var_os("CUTAPE_TESTS_SCREENSHOTS") {
        let name = view.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let theme =
            browser.evaluate("isNaN(0) || matchMedia('(prefers-color-scheme: dark)').matches");
        let theme = if theme == Value::Bool(true) {
            "dark"
        } else {
            "light"
        };
        browser.screenshot(&PathBuf::from(folder).join(format!("{name}-{theme}.png")));
    }
}

/// The cells of the table with that caption or label, row by row.
fn table(browser: &mut Browser, caption: &str) -> Vec<Vec<String>> {
    let rows = browser.evaluate(&format!(
        "[...document.querySelectorAll('table')]\
         .find((table) => (table.caption?.textContent ?? table.ariaLabel) === {caption:?})\
         && [...[...document.querySelectorAll('table')]\
         .find((table) => (table.caption?.textContent ?? table.ariaLabel) === {caption:?})\
         .tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    ));
    serde_json::from_value(rows).unwrap_or_else(|error| panic!("no table {caption}: {error}"))
}

/// The cell of the row that begins with `first`.
fn cell(rows: &[Vec<String>], first: &str, column: usize) -> String {
    let row = rows.iter().find(|row| row[0].starts_with(first));
    row.unwrap_or_else(|| panic!("no row {first} in {rows:#?}"))[column].clone()
}

/// A number as the page writes it.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Sets the filter; what the page says about it.
fn filter(browser: &mut Browser, text: &str) -> String {
    browser.evaluate(&format!(
        "{{ const field = document.querySelector('#filter'); field.value = {text:?}; \
         field.dispatchEvent(new Event('input')); }}"
    ));
    browser.text("#filter-count")
}

fn press(browser: &mut Browser, key: &str) {
    browser.evaluate(&format!(
        "document.body.dispatchEvent(new KeyboardEvent('keydown', {{ key: {key:?}, bubbles: true }}))"
    ));
}

fn views_show_what_info_says(folder: &Path) -> Verdict {
    let mut browser = match browser(folder) {
        Ok(browser) => browser,
        Err(ignored) => return ignored,
    };
    for is_dark in [false, true] {
        let trace = trace(folder, "clean/nvtx_ranges");
        let page = page(&trace, &[]);
        let info = json(&["info", "--format", "json"], &trace);
        browser.set_window(1440, 900, is_dark);
        browser.open(&page, READY);

        show(&mut browser, "summary");
        let cards = browser.text(".cards");
        let total = info["calls"]["total"].as_u64().unwrap();
        assert!(cards.contains(&grouped(total)), "{total} calls: {cards}");
        let functions = table(&mut browser, "Calls by function");
        for function in info["functions"].as_array().unwrap() {
            let name = function["function"].as_str().unwrap();
            let calls = function["calls"].as_u64().unwrap();
            assert_eq!(cell(&functions, name, 1), grouped(calls), "{name}");
        }
        assert!(!table(&mut browser, "Ranges").is_empty());
        numbers_are_not_cut(&mut browser);
        // Most of the time is in it, and its name says nothing.
        let shares = browser.text(".legend");
        assert!(shares.contains("cuInit"), "{shares}");

        browser.evaluate("location.hash = '#timeline'");
        browser.wait_for("document.querySelector('[data-main]').dataset.shown === 'timeline'");
        show(&mut browser, "timeline");
        assert!(
            browser
                .text(".timeline .details")
                .contains("Streams show the calls")
        );

        show(&mut browser, "calls");
        let calls = table(&mut browser, "Calls");
        assert!(calls.len() > 20 && calls[0][4] == "cuInit", "{calls:#?}");

        show(&mut browser, "kernels");
        let kernels = table(&mut browser, "Launches by kernel");
        for kernel in info["kernels"].as_array().unwrap() {
            let name = kernel["name"].as_str().unwrap();
            let row = kernels.iter().find(|row| row[0].ends_with(name)).unwrap();
            assert_eq!(row[1], grouped(kernel["launches"].as_u64().unwrap()));
        }

        show(&mut browser, "images");
        let images = table(&mut browser, "Images");
        assert_eq!(images.len(), info["images"].as_array().unwrap().len());

        for (view, text) in [
            ("memory", "Memory over time"),
            ("findings", "Findings"),
            ("leaks", "Never destroyed"),
        ] {
            show(&mut browser, view);
            assert_eq!(browser.text("h1"), text);
        }
        let leaked: u64 = info["never_destroyed"]
            .as_array()
            .unwrap()
            .iter()
            .map(|kind| kind["count"].as_u64().unwrap())
            .sum();
        let rows = table(&mut browser, "Objects that were never destroyed");
        let shown: u64 = rows
            .iter()
            .filter_map(|row| row.get(2)?.replace(',', "").parse::<u64>().ok())
            .sum();
        assert_eq!(shown, leaked);
    }
    memory_is_as_info_says(folder, &mut browser);
    kernels_in_graphs_are_as_info_says(folder, &mut browser);
    expect_no_problems(&browser);
    Verdict::Passed
}

/// Of a number in a label that is too long, the last digits would look like another number.
fn numbers_are_not_cut(browser: &mut Browser) {
    let script = include_str!("../../report/page/script/element.js");
    for (text, width, expected) in [
        ("stream#12, 1,234 calls", 22, "stream#12, 1,234 calls"),
        ("stream#12, 1,234 calls", 21, "stream#12, … calls"),
        ("stream#12, 1,234 calls", 12, "stream#…alls"),
        ("python3 (12345)", 14, "python3 (…)"),
        ("saxpy_kernel_of_long_name", 12, "saxpy_ke…ame"),
        ("123456", 4, "…"),
    ] {
        let measured = "{ measureText: (text) => ({ width: text.length }) }";
        // The page keeps its functions to itself.
        let shown = browser.evaluate(&format!(
            "(() => {{ {script}\nreturn fitted({measured}, {text:?}, {width}); }})()"
        ));
        assert_eq!(shown, expected, "{text} in {width}");
    }
}

fn memory_is_as_info_says(folder: &Path, browser: &mut Browser) {
    let trace = trace(folder, "clean/memory_basic");
    let page = page(&trace, &[]);
    browser.open(&page, READY);
    show(browser, "memory");
    let rows = table(browser, "Allocations by kind of memory");
    let info = json(&["info", "--format", "json"], &trace);
    let accounts = info["memory"].as_object().unwrap();
    assert_eq!(rows.len(), accounts.len());
    assert!(!rows.is_empty());
    for (kind, account) in accounts {
        let name = kind.replace('-', " ");
        for (column, key) in [(1, "allocations"), (2, "freed")] {
            let expected = grouped(account[key].as_u64().unwrap());
            assert_eq!(cell(&rows, &name, column), expected, "{name} {key}");
        }
        // The peak is reached by a call that the table names.
        assert!(cell(&rows, &name, 5).starts_with("call "), "{rows:#?}");
    }
}

fn kernels_in_graphs_are_as_info_says(folder: &Path, browser: &mut Browser) {
    let trace = trace(folder, "clean/graph");
    let page = page(&trace, &[]);
    browser.open(&page, READY);
    show(browser, "kernels");
    let rows = table(browser, "Launches by kernel");
    let info = json(&["info", "--format", "json"], &trace);
    let kernels = info["kernels"].as_array().unwrap();
    assert_eq!(rows.len(), kernels.len());
    assert_ne!(info["graph_kernels"], 0);
    for kernel in kernels {
        let name = kernel["name"].as_str().unwrap();
        let row = rows.iter().find(|row| row[0].ends_with(name)).unwrap();
        for (column, key) in [(1, "launches"), (2, "in_graphs")] {
            let expected = grouped(kernel[key].as_u64().unwrap());
            assert_eq!(row[column], expected, "{name} {key}");
        }
    }
}

fn expect_no_problems(browser: &Browser) {
    assert!(browser.problems.is_empty(), "{:#?}", browser.problems);
}

fn the_filter_chooses_calls(folder: &Path) -> Verdict {
    let mut browser = match browser(folder) {
        Ok(browser) => browser,
        Err(ignored) => return ignored,
    };
    let trace = trace(folder, "clean/nvtx_ranges");
    let info = json(&["info", "--format", "json"], &trace);
    let page = page(&trace, &[]);
    browser.set_window(1200, 800, false);
    browser.open(&page, READY);
    show(&mut browser, "calls");
    let total = info["calls"]["total"].as_u64().unwrap();
    let calls_of = |name: &str| {
        let functions = info["functions"].as_array().unwrap().iter();
        let named = functions.filter(|function| function["function"].as_str() == Some(name));
        named
            .map(|function| function["calls"].as_u64().unwrap())
            .sum::<u64>()
    };
    let launches = calls_of("cuLaunchKernel");
    let in_range = |name: &str| {
        let ranges = info["ranges"].as_array().unwrap().iter();
        let named = ranges.filter(|range| range["range"].as_str() == Some(name));
        named
            .map(|range| range["calls"].as_u64().unwrap())
            .sum::<u64>()
    };
    for (words, matching) in [
        ("cuLaunchKernel", launches),
        ("function:cuLaunch*", launches),
        ("kernel:nothing", launches),
        ("kind:launch", launches),
        ("-kind:launch", total - launches),
        ("call:0", 1),
        ("2..4", 2),
        ("call:2..=4", 3),
        ("..4", 4),
        ("0", 1),
        ("0..", total),
        ("kind:launch call:0", 0),
        ("range:train", in_range("train")),
        ("failed", info["calls"]["failed"].as_u64().unwrap()),
        (">1000s", 0),
        ("<1000s", total),
        ("nothing-has-this-name", 0),
        ("-nothing-has-this-name", total),
    ] {
        let said = filter(&mut browser, words);
        let expected = format!("{} of {}", grouped(matching), grouped(total));
        assert_eq!(said, expected, "{words}");
        let rows = table(&mut browser, "Calls");
        let first = &rows[0][0];
        assert_eq!(
            first.contains("No call matches"),
            matching == 0,
            "{words}: {first}"
        );
    }
    for (words, error) in [("kind:x", "no such kind"), ("thread:x", "no thread number")] {
        let said = filter(&mut browser, words);
        assert!(said.contains(error), "{words}: {said}");
    }
    assert_eq!(filter(&mut browser, ""), "");
    filter(&mut browser, "kind:launch");
    show(&mut browser, "timeline");
    browser.evaluate("document.querySelector('[data-next]').click()");
    browser.wait_for("document.querySelector('.details h2')?.textContent === 'cuLaunchKernel'");
    show(&mut browser, "kernels");
    assert!(!table(&mut browser, "Launches by kernel").is_empty());
    filter(&mut browser, "-kind:launch");
    let rows = table(&mut browser, "Launches by kernel");
    assert_eq!(rows, [["No launch matches."]]);
    expect_no_problems(&browser);
    Verdict::Passed
}

fn findings_lead_to_the_timeline(folder: &Path) -> Verdict {
    let mut browser = match browser(folder) {
        Ok(browser) => browser,
        Err(ignored) => return ignored,
    };
    let trace = root().join("traces/misuse/module-function-after-unload.cutape");
    let copy = folder.join("misuse.cutape");
    fs::copy(trace, &copy).unwrap();
    let page = page(&copy, &[]);
    let found = json(&["check", "--format", "json"], &copy);
    let finding = &found["findings"][0];
    let call = finding["call"]["call"].as_u64().unwrap();
    browser.set_window(1440, 900, false);
    browser.open(&page, READY);
    assert_eq!(found["findings"].as_array().unwrap().len(), 1);
    show(&mut browser, "findings");
    browser.wait_for("document.querySelector('.finding[open] .body p')");
    show(&mut browser, "finding/0");
    let text = browser.text(".finding[open]");
    let object = &finding["objects"][0];
    for expected in [
        &finding["title"],
        &finding["message"],
        &object["label"],
        &object["created"],
    ] {
        let expected = expected.as_str().unwrap();
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    browser.evaluate("document.querySelector('.finding[open] .actions a').click()");
    browser.wait_for("document.querySelector('.timeline .details .badge')");
    show(&mut browser, "finding/0/timeline");
    let details = browser.text(".timeline .details");
    assert!(
        details.contains(finding["title"].as_str().unwrap()),
        "{details}"
    );
    assert!(
        details.contains(&format!("{} of", grouped(call))),
        "{details}"
    );
    // The creation of the object is a call of the page.
    let created = object["created_call"].as_u64().unwrap();
    show(&mut browser, &format!("call/{created}"));
    let details = browser.text(".timeline .details");
    assert!(
        details.contains(&format!("{} of", grouped(created))),
        "{details}"
    );
    expect_no_problems(&browser);
    Verdict::Passed
}

fn the_mouse_selects_and_zooms(folder: &Path) -> Verdict {
    let mut browser = match browser(folder) {
        Ok(browser) => browser,
        Err(ignored) => return ignored,
    };
    let trace = trace(folder, "clean/nvtx_ranges");
    let info = json(&["info", "--format", "json"], &trace);
    let page = page(&trace, &[]);
    browser.set_window(1440, 900, false);
    browser.open(&page, READY);
    show(&mut browser, "call/6");
    let selected = browser.text(".details h2");
    assert_eq!(selected, "cuLaunchKernel");
    let shown = |browser: &mut Browser| {
        browser
            .evaluate("document.querySelector('.tracks canvas').getAttribute('aria-description')")
    };
    let before = shown(&mut browser);
    let place = "(() => { const canvas = document.querySelector('.tracks canvas');\
                 const box = document.querySelector('.tracks').getBoundingClientRect();\
                 const left = canvas.getBoundingClientRect().left;\
                 return [left + Number(canvas.dataset.selected), box.top, box.bottom]; })()";
    let place: [f64; 3] = serde_json::from_value(browser.evaluate(place)).unwrap();
    let [x, top, bottom] = place;
    let key = |browser: &mut Browser, key: &str| {
        browser.evaluate(&format!(
            "document.querySelector('.tracks canvas').dispatchEvent(\
             new KeyboardEvent('keydown', {{ key: {key:?}, bubbles: true }}))"
        ));
    };
    key(&mut browser, "Escape");
    assert!(browser.text(".details").contains("Streams show the calls"));
    let mut y = top + 4.0;
    let mut seen = Vec::new();
    while y < bottom {
        browser.click(x, y);
        let heading = "document.querySelector('.details h2')?.textContent ?? ''";
        let heading = browser.evaluate(heading).as_str().unwrap_or("").to_owned();
        if !heading.is_empty() && !seen.contains(&heading) {
            seen.push(heading);
        }
        y += 12.0;
    }
    // The ranges around the call, and the call itself.
    for expected in [
        "Range train",
        "Range step",
        "Range forward",
        "cuLaunchKernel",
    ] {
        assert!(
            seen.iter().any(|heading| heading == expected),
            "{expected}: {seen:?}"
        );
    }
    browser.zoom(x, top + 60.0, -100.0);
    browser.wait_for(&format!(
        "document.querySelector('.tracks canvas').getAttribute('aria-description') !== {before}"
    ));
    // From call to call on the same thread.
    show(&mut browser, "call/8");
    key(&mut browser, "[");
    let total = info["calls"]["total"].as_u64().unwrap();
    let details = browser.text(".details");
    assert!(details.contains(&format!("7 of {total}")), "{details}");
    key(&mut browser, "0");
    show(&mut browser, "timeline");
    let duration = shown(&mut browser);
    assert!(duration.as_str().unwrap().contains("all"), "{duration}");
    expect_no_problems(&browser);
    Verdict::Passed
}

/// Text that would run if it were read as HTML, or end the element that it is in.
const HOSTILE: &str = "</script></title><img src=x onerror=\"window.broken=1\"><b>{{script}}&amp;";

fn hostile_trace(path: &Path) {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    builder.meta("program", &format!("/bin/{HOSTILE}"));
    builder.meta("argument.0", HOSTILE);
    builder.meta("environment.CUDA_HOME", HOSTILE);
    builder.thread_note(0, 7, HOSTILE);
    let name = [HOSTILE.as_bytes(), &[0]].concat();
    builder
        .call(NewCall {
            name: "cuModuleGetFunction",
            arguments: &[0x7000, 0x11, 0x400000],
            snapshots: &[NewSnapshot::pointee(2, &name)],
            ..NewCall::default()
        })
        .leave(0, 0, &[NewSnapshot::pointee(0, &0x51_u64.to_le_bytes())]);
    let marker = MarkerNote {
        ticks: 1,
        action: marker_action::MARK,
        source: marker_source::NVTX,
        ..MarkerNote::default()
    };
    builder.marker(marker, HOSTILE, HOSTILE);
    for _ in 0..3 {
        builder
            .call(NewCall {
                name: "cuLaunchKernel",
                arguments: &[0x51, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0],
                ..NewCall::default()
            })
            .leave(0, 0, &[]);
    }
    builder.write(path).unwrap();
}

fn names_of_a_trace_stay_text(folder: &Path) -> Verdict {
    let mut browser = match browser(folder) {
        Ok(browser) => browser,
        Err(ignored) => return ignored,
    };
    let trace = folder.join("<img src=x onerror=broken=1>.cutape");
    hostile_trace(&trace);
    let page = folder.join("hostile.html");
    run(&mut parts().cutape(&[&"report", &trace, &"-o", &page])).assert_code(0);
    browser.open(&page, READY);
    for view in [
        "summary", "timeline", "calls", "kernels", "memory", "findings", "images", "leaks",
    ] {
        show(&mut browser, view);
        let state = browser.evaluate(
            "[document.images.length, document.querySelectorAll('b').length, \
             typeof window.broken, document.scripts.length]",
        );
        assert_eq!(state.to_string(), r#"[0,0,"undefined",1]"#, "{view}");
    }
    show(&mut browser, "kernels");
    let kernels = table(&mut browser, "Launches by kernel");
    assert!(kernels[0][0].ends_with(HOSTILE), "{kernels:#?}");
    let requests = browser.evaluate("performance.getEntriesByType('resource').length");
    assert_eq!(requests, Value::from(0), "the page asks for nothing");
    expect_no_problems(&browser);
    // What the page forbids is refused, even to its own scripts.
    let answer =
        browser.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')");
    assert_eq!(answer, Value::from("refused"));
    let refusals = browser.problems.iter();
    assert!(
        refusals
            .clone()
            .any(|text| text.contains("Content Security Policy"))
    );
    Verdict::Passed
}

fn reports_of_replays_and_measurements_are_shown(folder: &Path) -> Verdict {
    let mut browser = match browser(folder) {
        Ok(browser) => browser,
        Err(ignored) => return ignored,
    };
    let trace = trace(folder, "clean/launch_vector_add");
    let replayed = folder.join("replay.json");
    let said = run(replay(&trace).arg("--report").arg(&replayed));
    said.assert_code(0);
    let (before, _) = said.stdout.split_once(" of ").unwrap();
    let calls = before.rsplit(' ').next().unwrap().to_owned();
    let measured = folder.join("bench.json");
    run(parts()
        .cutape(&[
            &"bench",
            &trace,
            &"--driver",
            &"null",
            &"--report",
            &measured,
        ])
        .args([
            "--samples",
            "10",
            "--measure-seconds",
            "0.1",
            "--warm-up-seconds",
            "0.1",
        ])
        .arg("--output")
        .arg(folder.join("bench")))
    .assert_code(0);
    let options = [
        "--replay",
        replayed.to_str().unwrap(),
        "--bench",
        measured.to_str().unwrap(),
    ];
    let page = page(&trace, &options);
    browser.set_window(1440, 900, false);
    browser.open(&page, READY);
    show(&mut browser, "replay");
    assert!(browser.text(".about").contains("agrees"));
    let cards = browser.text(".cards");
    let expected = format!("Calls replayed\n{calls}\n");
    assert!(cards.contains(&expected), "{expected}: {cards}");
    show(&mut browser, "bench");
    let measured: Value = serde_json::from_slice(&fs::read(measured).unwrap()).unwrap();
    let benchmarks = measured["benchmarks"].as_array().unwrap();
    let rows = table(&mut browser, "Measurements");
    assert_eq!(rows.len(), benchmarks.len());
    assert!(!rows.is_empty());
    for benchmark in benchmarks {
        let name = benchmark["name"].as_str().unwrap();
        assert!(rows.iter().any(|row| row[1] == name), "{name}: {rows:#?}");
    }
    expect_no_problems(&browser);
    Verdict::Passed
}

/// What a profile of the null driver has, by events around work.
fn profiled(trace: &Path) -> (PathBuf, Value) {
    let file = trace.with_extension("profile.json");
    let mut command = parts().cutape(&[&"profile", &trace, &"--driver", &"null"]);
    command.args(["--format", "json", "--cupti", "none", "-o"]);
    run(command.arg(&file)).assert_code(0);
    let document = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    (file, document)
}

fn gpu_time_of_a_profile_is_shown(folder: &Path) -> Verdict {
    let mut browser = match browser(folder) {
        Ok(browser) => browser,
        Err(ignored) => return ignored,
    };
    let trace = trace(folder, "clean/nvtx_ranges");
    let (file, mut document) = profiled(&trace);
    let kernel = json!({
        "call": 3, "name": "k", "dram_share": 0.5, "stalls": [{"reason": "wait", "share": 0.25}],
    });
    document["counters"] = json!({
        "version": "1", "path": "ncu", "passes": 9, "wall_ns": 2, "plain_ns": 1, "kernels": [kernel],
        "left_out": {"5": "it waits"},
    });
    fs::write(&file, document.to_string()).unwrap();
    let page = page(&trace, &["--profile", file.to_str().unwrap()]);
    let summary = &document["summary"];
    for is_dark in [false, true] {
        browser.set_window(1440, 1800, is_dark);
        browser.open(&page, READY);
        show(&mut browser, "gpu");
        assert_eq!(browser.text("h1"), "GPU time");
        assert!(browser.text(".legend").contains("the GPU had work"));
    }
    for (caption, rows) in [
        ("Busiest work", &summary["work"]),
        ("Critical path", &summary["critical_path"]["shares"]),
        (
            "Critical path by range",
            &summary["critical_path"]["ranges"],
        ),
        ("Streams on the GPU", &summary["timelines"][0]["streams"]),
        ("Host waits", &summary["stalls"]),
    ] {
        let shown = table(&mut browser, caption);
        assert_eq!(shown.len(), rows.as_array().unwrap().len(), "{caption}");
    }
    let counted = table(&mut browser, "Hardware counters");
    assert_eq!(counted.len(), 1);
    assert!(counted[0].contains(&"wait 25 %".to_owned()), "{counted:#?}");
    assert!(
        browser
            .text("[data-main]")
            .contains("no counters of call 5")
    );
    // The timeline has work and calls of the replay: keys go through them.
    let press = |browser: &mut Browser, key: &str| {
        browser.evaluate(&format!(
            "document.querySelector('.gpu-timeline .tracks canvas').dispatchEvent(\
             new KeyboardEvent('keydown', {{ key: {key:?}, bubbles: true }}))"
        ));
    };
    press(&mut browser, "]");
    let details = browser.text(".gpu-timeline .details");
    assert!(details.contains("recorded as"), "{details}");
    press(&mut browser, "]");
    assert_ne!(browser.text(".gpu-timeline .details"), details);
    show(&mut browser, "summary");
    show(&mut browser, "gpu");
    browser.set_window(360, 800, false);
    let wide = browser.evaluate(
        "document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth",
    );
    assert_eq!(wide, Value::from(0));
    expect_no_problems(&browser);
    Verdict::Passed
}

fn who_wrote_memory_is_asked_and_shown(folder: &Path) -> Verdict {
    let mut browser = match browser(folder) {
        Ok(browser) => browser,
        Err(ignored) => return ignored,
    };
    let trace = trace(folder, "clean/memory_history");
    let dumped = run(&mut parts().cutape(&[&"dump", &trace])).stdout;
    let copied = dumped.lines().find(|line| line.contains("cuMemcpyDtoH"));
    let copied = copied.unwrap().split_once(' ').unwrap().0;
    let answer = folder.join("why.json");
    let mut why = parts().cutape(&[&"why", &trace, &"--result", &copied]);
    let said = run(why.args(["--driver", "null", "--report"]).arg(&answer));
    said.assert_code(0);
    let page = page(&trace, &["--why", answer.to_str().unwrap()]);
    browser.open(&page, READY);
    show(&mut browser, "why");
    // The writers of the text, with those of what the last one read.
    let shown = browser.text("[data-main]");
    let written = said
        .stdout
        .lines()
        .filter(|line| line.contains("written by call"));
    assert!(written.clone().count() > 1, "{}", said.stdout);
    for line in written {
        let line = line.trim();
        assert!(shown.contains(line), "{line}: {shown}");
    }
    // The commands of the page are answered.
    show(&mut browser, "memory");
    let command = browser.text(".command");
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(words[..2], ["cutape", "why"], "{command}");
    let mut asked = parts().cutape(&[&"why", &trace]);
    let asked = run(asked.args(&words[3..]).args(["--driver", "null"]));
    asked.assert_code(0);
    assert!(asked.stdout.contains("written by call"), "{}", asked.stdout);
    expect_no_problems(&browser);
    let text = folder.join("text.json");
    fs::write(&text, "{}").unwrap();
    let mut command = parts().cutape(&[&"report", &trace, &"--why", &text]);
    let refused = run(command.arg("--overwrite").arg("-o").arg(&page));
    refused.assert_code(2);
    let expected = "give what `cutape why --report FILE` wrote";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    Verdict::Passed
}

fn the_theme_follows_the_system_and_the_key(folder: &Path) -> Verdict {
    let mut browser = match browser(folder) {
        Ok(browser) => browser,
        Err(ignored) => return ignored,
    };
    let trace = trace(folder, "clean/events");
    let page = page(&trace, &[]);
    let is_dark = "(() => { const [red] = getComputedStyle(document.body).backgroundColor\
                   .match(/[0-9]+/g); return Number(red) < 128; })()";
    for dark in [true, false] {
        browser.set_window(1000, 700, dark);
        browser.open(&page, READY);
        browser.evaluate("localStorage.clear(); delete document.documentElement.dataset.theme");
        assert_eq!(
            browser.evaluate(is_dark),
            Value::Bool(dark),
            "as the system"
        );
        press(&mut browser, "t");
        assert_eq!(browser.evaluate(is_dark), Value::Bool(!dark), "as chosen");
        browser.evaluate("localStorage.clear()");
    }
    press(&mut browser, "?");
    browser.wait_for("document.querySelector('dialog').open");
    assert!(browser.text("dialog").contains("previous and next call"));
    browser.evaluate("document.querySelector('dialog').close()");
    press(&mut browser, "2");
    browser.wait_for("document.querySelector('.timeline')");
    press(&mut browser, "/");
    browser.wait_for("document.activeElement.id === 'filter'");
    expect_no_problems(&browser);
    Verdict::Passed
}

fn narrow_windows_need_no_scrolling_sideways(folder: &Path) -> Verdict {
    let mut browser = match browser(folder) {
        Ok(browser) => browser,
        Err(ignored) => return ignored,
    };
    let trace = trace(folder, "clean/nvtx_ranges");
    let page = page(&trace, &[]);
    for width in [360, 800, 2560] {
        browser.set_window(width, 800, false);
        browser.open(&page, READY);
        for view in [
            "summary", "timeline", "kernels", "memory", "findings", "images", "leaks",
        ] {
            show(&mut browser, view);
            let wide = browser.evaluate(
                "Math.max(document.documentElement.scrollWidth - innerWidth, \
                 document.querySelector('main').scrollWidth \
                 - document.querySelector('main').clientWidth)",
            );
            assert_eq!(wide, Value::from(0), "{view} at {width}");
        }
    }
    expect_no_problems(&browser);
    Verdict::Passed
}

fn equal_traces_give_equal_pages(folder: &Path) {
    let trace = trace(folder, "clean/events");
    let first = fs::read(page(&trace, &[])).unwrap();
    let second = fs::read(page(&trace, &[])).unwrap();
    assert!(first == second, "the same trace gives two pages");
}

/// Real ones, and ones that are cut short or have no clock.
fn traces_of_every_kind_open(folder: &Path) -> Verdict {
    let mut browser = match browser(folder) {
        Ok(browser) => browser,
        Err(ignored) => return ignored,
    };
    browser.set_window(1200, 800, false);
    for kind in ["clean", "misuse"] {
        for entry in fs::read_dir(root().join("traces").join(kind)).unwrap() {
            let source = entry.unwrap().path();
            if source
                .extension()
                .is_none_or(|extension| extension != "cutape")
            {
                continue;
            }
            let copy = folder.join("trace.cutape");
            fs::copy(&source, &copy).unwrap();
            let page = page(&copy, &[]);
            browser.open(&page, READY);
            for view in ["timeline", "memory", "findings", "leaks"] {
                show(&mut browser, view);
            }
            let problems = &browser.problems;
            assert!(problems.is_empty(), "{}: {problems:#?}", source.display());
        }
    }
    Verdict::Passed
}
