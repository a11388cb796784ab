//! What an installation brings beside recording: the demo, the manual pages, the completions.

use std::fs;
use std::path::Path;
use std::process::Command;

use cutape_tests::{compiled, parts, run};

cutape_tests::tests![
    demo_finds_the_bug,
    demo_takes_a_free_name,
    demo_overwrites_nothing,
    demo_says_what_is_wrong,
    completions_complete,
    manual_has_all_verbs,
    manual_names_a_bad_folder,
];

/// `cutape demo` in a folder, on the null driver.
fn demo(folder: &Path, program: &str) -> Command {
    let mut command = parts().cutape(&[&"demo", &"--driver", &"null"]);
    command
        .current_dir(folder)
        .env("CUTAPE_DEMO_PROGRAM", program);
    command
}

fn demo_finds_the_bug(folder: &Path) {
    let output = run(&mut demo(folder, &compiled("demo/link_demo")));
    output.assert(0);
    let mut rest = output.stdout.as_str();
    for words in [
        "$ cutape record --driver null -o link_demo.cutape -- ",
        "EXIT-SUCCESS",
        "$ cutape check link_demo.cutape",
        "error[link-cubin-after-destroy]",
        "$ cutape replay --driver null link_demo.cutape",
        "no divergence",
        "cutape info link_demo.cutape",
    ] {
        let at = rest.find(words);
        let at = at.unwrap_or_else(|| panic!("no `{words}` in {}", output.stdout));
        rest = &rest[at + words.len()..];
    }
    assert!(folder.join("link_demo.cutape").is_file());
}

fn demo_takes_a_free_name(folder: &Path) {
    fs::write(folder.join("link_demo.cutape"), "mine").unwrap();
    run(&mut demo(folder, &compiled("demo/link_demo"))).assert(0);
    assert_eq!(fs::read(folder.join("link_demo.cutape")).unwrap(), b"mine");
    assert!(folder.join("link_demo.1.cutape").is_file());
}

fn demo_overwrites_nothing(folder: &Path) {
    fs::write(folder.join("taken"), "mine").unwrap();
    let mut command = demo(folder, &compiled("demo/link_demo"));
    let output = run(command.args(["-o", "taken"]));
    output.assert_code(2);
    assert!(
        output.stderr.contains("the demo stops"),
        "{}",
        output.stderr
    );
    assert_eq!(fs::read(folder.join("taken")).unwrap(), b"mine");
}

fn demo_says_what_is_wrong(folder: &Path) {
    for (program, words) in [
        ("/nonexistent", "CUTAPE_DEMO_PROGRAM is /nonexistent"),
        // It makes no call of the driver, so there is no trace to check.
        ("/bin/true", "cutape: the demo stops: `cutape check"),
    ] {
        let output = run(&mut demo(folder, program));
        output.assert_code(2);
        assert!(output.stderr.contains(words), "{}", output.stderr);
    }
}

fn completions_complete(folder: &Path) {
    for (shell, words) in [
        ("bash", "complete -F _cutape"),
        ("zsh", "#compdef cutape"),
        ("fish", "complete -c cutape"),
    ] {
        let output = run(&mut parts().cutape(&[&"completions", &shell]));
        output.assert(0);
        assert!(output.stdout.contains(words), "{shell}: {}", output.stdout);
        // Hidden verbs.
        assert!(!output.stdout.contains("-child"), "{shell}");
        fs::write(folder.join(shell), output.stdout).unwrap();
    }
    let script = "source ./bash
        COMP_WORDS=(cutape rep) COMP_CWORD=1
        _cutape cutape rep cutape
        echo ${COMPREPLY[@]}";
    let output = run(Command::new("bash")
        .args(["-c", script])
        .current_dir(folder));
    output.assert(0);
    let found: Vec<&str> = output.stdout.split_whitespace().collect();
    for verb in ["repair", "replay"] {
        assert!(found.contains(&verb), "{verb} of {found:?}");
    }
    assert!(!found.contains(&"record"), "{found:?}");
}

fn manual_has_all_verbs(folder: &Path) {
    run(&mut parts().cutape(&[&"manual", &folder])).assert(0);
    let help = run(&mut parts().cutape(&[&"--help"]));
    let verbs = help
        .stdout
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help");
    let mut count = 0;
    for verb in verbs {
        let page = fs::read_to_string(folder.join(format!("cutape-{verb}.1")));
        let page = page.unwrap_or_else(|error| panic!("{verb}: {error}"));
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
        count += 1;
    }
    assert!(count > 10, "{count} verbs");
}

fn manual_names_a_bad_folder(folder: &Path) {
    let file = folder.join("file");
    fs::write(&file, "mine").unwrap();
    let output = run(&mut parts().cutape(&[&"manual", &file]));
    output.assert_code(2);
    assert!(
        output.stderr.starts_with("cutape: cannot write "),
        "{}",
        output.stderr
    );
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}
