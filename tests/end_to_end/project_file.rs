//! `cutape.toml`: which file is read, what the command line overrules, and errors with their line.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_tests::{compiled, parts, record, run};

cutape_tests::tests![
    options_come_from_the_nearest_file,
    the_command_line_wins,
    a_child_has_the_options,
    errors_have_a_line,
];

/// A recording with one finding, `link-cubin-after-destroy`.
fn trace(folder: &Path) -> PathBuf {
    let trace = folder.join("app.cutape");
    run(&mut record(&trace, &[], &[&compiled("demo/link_demo")])).assert(0);
    trace
}

/// Status and output of a command in a folder.
fn said(folder: &Path, words: &[&str]) -> (i32, String) {
    let said = run(parts().cutape(&[]).args(words).current_dir(folder));
    (said.code().unwrap(), said.stdout + &said.stderr)
}

const FOUND: &str = "1 error";
const NOTHING: &str = "no findings";

fn options_come_from_the_nearest_file(folder: &Path) {
    let trace = trace(folder);
    let trace = trace.to_str().unwrap();
    let inner = folder.join("a/b");
    fs::create_dir_all(&inner).unwrap();
    fs::write(
        folder.join("cutape.toml"),
        "[check]\nrules = \"memory-*\"\n",
    )
    .unwrap();
    let check = ["check", trace];
    assert_eq!(said(folder, &check).0, 0);
    assert_eq!(said(&inner, &check).0, 0);
    fs::write(folder.join("a/list.txt"), "link-* # known\n").unwrap();
    let near = "[check]\nsuppress = \"list.txt\"\n[record]\nstacks = \"all\"\n";
    fs::write(folder.join("a/cutape.toml"), near).unwrap();
    // Paths start at the file's folder.
    let (code, text) = said(&inner, &check);
    assert!(code == 0 && text.contains("1 suppressed"), "{text}");
    assert_eq!(said(&inner, &["--no-config", "check", trace]).0, 1);
    let (code, text) = said(&inner, &["check", trace, "--config", "../../cutape.toml"]);
    assert!(code == 0 && text.contains("of other rules"), "{text}");
    let (code, text) = said(&inner, &["check", trace, "--config", "nosuch.toml"]);
    assert!(
        code == 2 && text.contains("cannot read nosuch.toml"),
        "{text}"
    );
    // Another verb's table.
    let program = compiled("demo/link_demo");
    let words = ["record", "-o", "near.cutape", "--", &program];
    assert_eq!(said(&inner, &words).0, 0);
    let (code, text) = said(&inner, &["dump", "--calls", "stack:main", "near.cutape"]);
    assert_eq!(code, 0, "{text}");
}

fn the_command_line_wins(folder: &Path) {
    let trace = trace(folder);
    let trace = trace.to_str().unwrap();
    let rules = "rules = \"memory-*\"";
    for (options, words, code, expected) in [
        (rules, &[][..], 0, NOTHING),
        (rules, &["--rules", "link-*"], 1, FOUND),
        ("fail-on = \"never\"", &[], 0, FOUND),
        ("fail-on = \"never\"", &["--fail-on", "error"], 1, FOUND),
        ("allow = [\"memory-leak\", \"link-*\"]", &[], 0, NOTHING),
        ("allow = \"link-*\"", &[], 0, NOTHING),
        (
            "allow = [\"link-*\"]",
            &["--allow", "memory-leak"],
            1,
            FOUND,
        ),
        ("allow = []", &[], 1, FOUND),
        ("most-repeats = 3", &[], 1, FOUND),
        ("show-stacks = true\nall = false", &[], 1, FOUND),
        // What conflicts with the command line does not count.
        ("calls = \"0\"", &[], 0, NOTHING),
        (
            "calls = \"0\"",
            &["--explain-silence", "link-cubin-after-destroy", "0"],
            0,
            "link-cubin-after-destroy at call 0",
        ),
    ] {
        fs::write(folder.join("cutape.toml"), format!("[check]\n{options}\n")).unwrap();
        let (found, text) = said(folder, &[&["check", trace], words].concat());
        assert_eq!(found, code, "{options} {words:?}: {text}");
        assert!(text.contains(expected), "{options} {words:?}: {text}");
    }
}

/// The calls are re-issued in a process of their own.
fn a_child_has_the_options(folder: &Path) {
    let trace = trace(folder);
    let trace = trace.to_str().unwrap();
    // A file may have the name of the verb.
    let file = folder.join("replay");
    let replay = |options: &str| {
        fs::write(&file, format!("[replay]\ndriver = \"null\"\n{options}\n")).unwrap();
        let words = ["--config", "replay", "replay", trace, "--format", "json"];
        let (code, text) = said(folder, &words);
        assert_eq!(code, 0, "{options}: {text}");
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        (report["calls_replayed"].as_u64().unwrap(), report)
    };
    let (all, untimed) = replay("");
    let (some, _) = replay("until = 3");
    assert!(some < all && some <= 3, "{some} of {all}");
    let is_timed = |report: &serde_json::Value| !report["timing"].as_object().unwrap().is_empty();
    assert!(!is_timed(&untimed));
    // An option whose value may be left out.
    assert!(is_timed(&replay("timing = true").1));
    assert!(!is_timed(&replay("timing = false").1));
}

fn errors_have_a_line(folder: &Path) {
    let trace = trace(folder);
    let trace = trace.to_str().unwrap();
    let file = folder.join("cutape.toml");
    for (text, expected) in [
        (
            "[chek]",
            "line 1: no verb is called `chek`; did you mean `check`?",
        ),
        ("[replay-child]", "line 1: no verb is called `replay-child`"),
        (
            "[check]\nrule = \"x\"",
            "line 2: `check` has no option --rule; did you mean `rules`?",
        ),
        (
            "[check]\ntrace = \"x\"",
            "line 2: `check` has no option --trace",
        ),
        (
            "[dump]\n\nstack = true",
            "line 3: `dump` has no option --stack",
        ),
        (
            "[check]\nrules = \"lnk-*\"",
            "line 2: invalid value 'lnk-*' for '--rules <RULES>'",
        ),
        (
            "[check]\nconfidence = \"sure\"",
            "line 2: invalid value 'sure' for '--confidence <WHAT>' [possible values: certain, \
             contents, assumed]",
        ),
        (
            "[check]\nmost-repeats = [3]",
            "line 2: most-repeats takes one value, not an array",
        ),
        ("[check]\nall = 3", "line 2: all is true or false"),
        (
            "[check]\nreport = {}",
            "line 2: the value of report is neither text nor a number",
        ),
        (
            "[trim]\ncalls = \"3\"",
            "line 2: --calls can be given on the command line only",
        ),
        ("[check]\nrules = memory", "line 2: "),
        ("check = 3", "line 1: "),
        (
            "[check]\ncalls = \"3\"\nexplain-silence = [\"a\", \"b\"]",
            "line 3: 2 values required",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let (code, said) = said(folder, &["check", trace]);
        let expected = format!("{}: {expected}", file.display());
        assert_eq!(code, 2, "{text}: {said}");
        assert!(said.contains(&expected), "{text}: {said}");
    }
    fs::write(&file, "[bench]\nbaseline = \"a\"\nsave-baseline = \"b\"\n").unwrap();
    let (code, said) = said(folder, &["bench", trace]);
    let expected = "line 2: the argument '--baseline <NAME>' cannot be used with";
    assert!(code == 2 && said.contains(expected), "{said}");
}
