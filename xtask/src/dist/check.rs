//! Installs the packages in fresh systems and runs there what the README shows.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::readme::{ARCHIVE, Commands, DEB, WHEEL};
use super::roots::{FEW, Root, SYSTEMS, System};
use super::{Dist, python};
use crate::step::{self, output};
use crate::{Failure, files};

/// The program that the README's `cutape record -- python3 train.py` runs.
const PROGRAM: &str = include_str!("train.py");

/// What the README's commands print, in this order.
const EXPECTED: [&str; 6] = [
    "EXIT-SUCCESS",
    "error[link-cubin-after-destroy]",
    "link_demo.cutape: 19 of 19 calls replayed",
    "TRAINED",
    "python3.cutape: no findings",
    "python3.cutape: 10 of 10 calls replayed",
];

/// What the wheel also brings: the module of Python, used for the trace of the README's commands.
const MODULE: &str = "\
python3 -c 'import cutape
trace = cutape.open(\"python3.cutape\")
copies, = trace.tables(\"copies\")
print(len(list(trace)), \"calls,\", len(copies), \"copies by Python\")
print(len(cutape.check(trace)), \"findings\", trace.replay(driver=\"null\"))'";
const EXPECTED_OF_MODULE: [&str; 2] = [
    "10 calls, 2 copies by Python",
    "0 findings <cutape.ReplayReport 10 of 10 calls replayed, 0 divergences>",
];

/// What each package must have installed below its prefix.
const SHARED: [&str; 4] = [
    "share/man/man1/cutape-record.1",
    "share/bash-completion/completions/cutape",
    "share/fish/vendor_completions.d/cutape.fish",
    "share/zsh",
];

/// Tries the packages: the wheel in a virtual environment, each of the others in a fresh system of
/// its kind. `is_all`: every package in every system that takes it.
pub(super) fn run(dist: &Dist, packages: &[PathBuf], is_all: bool) -> Result<(), Failure> {
    let commands = Commands::read(dist.root)?;
    let wheel = packages
        .iter()
        .find(|path| files::has_extension(path, "whl"));
    if let Some(wheel) = wheel {
        in_environment(dist, wheel, &commands)?;
    }
    let systems = if is_all { &SYSTEMS } else { &SYSTEMS[..FEW] };
    for &system in systems {
        let fits = |path: &&PathBuf| match (files::extension(path), system.has_lib64) {
            ("deb", has_lib64) => !has_lib64,
            ("whl", _) => is_all,
            (_, has_lib64) => is_all || has_lib64,
        };
        let wanted: Vec<_> = packages.iter().filter(fits).collect();
        if wanted.is_empty() {
            continue;
        }
        let root = match Root::new(&dist.work("roots"), system) {
            Ok(root) => root,
            Err(why) => {
                println!("check {}: ignored: {why}", system.name);
                continue;
            }
        };
        for package in wanted {
            in_root(&root, system, package, &commands)?;
        }
    }
    lint(dist, packages)
}

/// Tries the wheel in a new virtual environment of this machine.
fn in_environment(dist: &Dist, wheel: &Path, commands: &Commands) -> Result<(), Failure> {
    let start = Instant::now();
    let folder = dist.stage("environment")?;
    let environment = folder.join("env");
    let mut make = Command::new("python3");
    step::run(make.args(["-m", "venv"]).arg(&environment))?;
    prepare(&folder.join("work"), wheel)?;
    let mut shell = Command::new("sh");
    shell
        .args(["-euc", &script(&commands.install(WHEEL), commands, MODULE)])
        .current_dir(folder.join("work"))
        .env_clear()
        .env(
            "PATH",
            format!("{}/bin:/usr/bin:/bin", environment.display()),
        )
        .env("HOME", &folder)
        .env("LANG", "C.UTF-8")
        .env("PIP_NO_INDEX", "1");
    judge("environment, wheel", &mut shell, &EXPECTED_OF_MODULE, start)?;
    has_shared("environment", &environment)
}

/// Tries one package in a fresh system, and uninstalls it.
fn in_root(
    root: &Root,
    system: System,
    package: &Path,
    commands: &Commands,
) -> Result<(), Failure> {
    let name = system.name;
    let start = Instant::now();
    let (kind, words, before, after, prefix) = match files::extension(package) {
        "whl" => (
            "wheel",
            WHEEL,
            "python3 -m venv /env; PATH=/env/bin:$PATH",
            "",
            "env",
        ),
        "deb" => ("deb", DEB, "", "apt remove --yes cutape", "usr"),
        _ => ("archive", ARCHIVE, "", "", "usr/local"),
    };
    let (module, expected) = match kind {
        "wheel" => (MODULE, &EXPECTED_OF_MODULE[..]),
        _ => ("", &[][..]),
    };
    prepare(&root.path("work"), package)?;
    let install = commands.install(words);
    let steps = script(&install, commands, module);
    // First, so that the shared files are still there afterwards.
    judge(
        &format!("{name}, {kind}"),
        &mut root.shell(&format!("set -eu\ncd /work\n{before}\n{steps}")),
        expected,
        start,
    )?;
    has_shared(name, &root.path(prefix))?;
    if !after.is_empty() {
        let removed = output(&mut root.shell(after))?;
        if !removed.status.success() || root.path("usr/lib/cutape").exists() {
            return Err(failure!("{name}: {after}: cutape is still there"));
        }
    } else {
        let rest = "rm -rf /env /usr/local/bin/cutape /usr/local/lib/cutape";
        output(&mut root.shell(rest))?;
    }
    Ok(())
}

/// A new folder with the package, and the program that is recorded.
fn prepare(folder: &Path, package: &Path) -> Result<(), Failure> {
    crate::parts::replace_folder(folder)?;
    files::copy(package, &folder.join(files::name(package)))?;
    files::write(&folder.join("train.py"), PROGRAM)
}

/// The README's commands, and further ones.
fn script(install: &str, commands: &Commands, more: &str) -> String {
    // Questions that a person would answer.
    let install = install.replace("apt install", "apt install --yes");
    format!("{install}\n{}\n{more}", commands.first_steps)
}

/// Runs a script; fails unless it prints what is expected, `more` last.
fn judge(what: &str, shell: &mut Command, more: &[&str], start: Instant) -> Result<(), Failure> {
    let said = output(shell)?;
    let text = String::from_utf8_lossy(&said.stdout);
    let errors = String::from_utf8_lossy(&said.stderr);
    let shown = || format!("{text}\n{errors}");
    if !said.status.success() {
        return Err(failure!("check {what}: {}\n{}", said.status, shown()));
    }
    let mut rest = &*text;
    for words in EXPECTED.iter().chain(more) {
        let at = rest
            .find(words)
            .ok_or_else(|| failure!("check {what}: no `{words}` in:\n{}", shown()))?;
        rest = &rest[at + words.len()..];
    }
    println!("check {what}: ok ({:.1} s)", start.elapsed().as_secs_f64());
    Ok(())
}

/// Fails unless manual pages and completions are below a prefix.
fn has_shared(what: &str, prefix: &Path) -> Result<(), Failure> {
    for path in SHARED {
        let compressed = prefix.join(format!("{path}.gz"));
        if !prefix.join(path).exists() && !compressed.exists() {
            return Err(failure!("check {what}: {path} was not installed"));
        }
    }
    Ok(())
}

/// Lints the Debian package and the container recipe.
fn lint(dist: &Dist, packages: &[PathBuf]) -> Result<(), Failure> {
    if let Some(deb) = packages
        .iter()
        .find(|path| files::has_extension(path, "deb"))
    {
        if step::is_installed("lintian") {
            step::run(
                Command::new("lintian")
                    .args(["--fail-on", "error,warning", "--allow-root"])
                    .arg(deb),
            )?;
        } else {
            println!("check lintian: ignored: not installed");
        }
    }
    let mut hadolint = python::tool(dist.root, "hadolint")?;
    step::run(hadolint.arg(dist.root.join("dist/Dockerfile")))?;
    println!("check Dockerfile: ok");
    Ok(())
}
