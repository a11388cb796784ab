//! Builds that run with an older glibc than this machine's.
//!
//! Zig's Python package describes every version of glibc. It makes libraries without code that
//! have the symbols of one version, and the object with which programs start; the machine's own
//! compiler links with these instead of its own. (zig's linker does not know `--auxiliary`, which
//! the interposer needs.)

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::python;
use crate::step::{self, run};
use crate::{Failure, files, install};

/// The packages run with this glibc and with later ones: the oldest that Rust supports, and that of
/// the wheels' tag manylinux2014.
pub(super) const VERSION: Version = Version(2, 17);

/// The target that cargo builds for: naming it keeps build scripts apart, which run here.
pub(super) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// This machine's libgcc_s may need its own glibc.
const ALLOW: &str = "-Wl,--allow-shlib-undefined";

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u32, pub(super) u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The folder with the libraries of glibc `VERSION`.
#[derive(Debug)]
pub(super) struct Glibc(PathBuf);

impl Glibc {
    /// Makes the folder if it is missing.
    pub(super) fn new(root: &Path) -> Result<Self, Failure> {
        let folder = step::target(root).join(format!("dist/glibc-{VERSION}"));
        // Written last.
        if !folder.join("libc.so").is_file() {
            make(root, &folder)?;
        }
        Ok(Self(folder))
    }

    /// A build of cargo that links with it.
    pub(super) fn cargo(&self, root: &Path, package: &str, profile: &str) -> Command {
        let mut command = step::cargo(root, "build --quiet");
        command.args(["--target", TARGET, "--profile", profile, "-p", package]);
        let home = install::cargo_home().unwrap_or_default();
        let mut flags = self.flags().to_vec();
        // Panic messages name source files: not by the paths of this machine.
        flags.extend([
            format!("--remap-path-prefix={}=cutape", root.display()),
            format!("--remap-path-prefix={}=cargo", home.display()),
        ]);
        command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        command
    }

    /// Builds the parts that link with it without optimisation, from crates that are built for this
    /// machine: only what is linked is compiled again.
    pub(super) fn build_quick(&self, root: &Path) -> Result<(), Failure> {
        run(step::cargo(root, "parts").env("CUTAPE_LINK_ARGUMENTS", self.arguments().join("\x1f")))?;
        for package in ["cutape-interposer", "cutape-audit"] {
            let mut command = step::cargo(root, "rustc --quiet --lib -p");
            run(command.args([package, "--"]).args(self.flags()))?;
        }
        Ok(())
    }

    /// Arguments of the linker.
    fn arguments(&self) -> [String; 4] {
        let folder = self.0.display();
        [
            // A library may otherwise need functions that this glibc does not have.
            "-Wl,-z,defs".to_owned(),
            ALLOW.to_owned(),
            format!("-B{folder}"),
            format!("-L{folder}"),
        ]
    }

    /// The same for rustc.
    fn flags(&self) -> [String; 4] {
        self.arguments()
            .map(|argument| format!("-Clink-arg={argument}"))
    }

    /// A compiler for C programs that links with it.
    pub(super) fn cc(&self, root: &Path, level: &str, source: &str, output: &Path) -> Command {
        let mut command = step::cc(root, level, source, output);
        let folder = self.0.display();
        command.args([
            ALLOW.to_owned(),
            format!("-B{folder}"),
            format!("-L{folder}"),
            format!("-ffile-prefix-map={}=cutape", root.display()),
        ]);
        command
    }
}

/// Lets zig link an empty program, and takes what it made for that.
fn make(root: &Path, folder: &Path) -> Result<(), Failure> {
    let work = folder.with_extension("work");
    let cache = work.join("cache");
    let _ = std::fs::remove_dir_all(folder);
    files::make_folder(folder)?;
    files::write(&work.join("empty.c"), "int main(void) { return 0; }\n")?;
    let mut zig = python::command(root)?;
    zig.current_dir(&work)
        .args("-m ziglang build-exe -lc -fPIE -fno-compiler-rt -fno-ubsan-rt empty.c".split(' '))
        .args(["-target", &format!("x86_64-linux-gnu.{VERSION}")])
        .args(["--global-cache-dir", "cache", "--cache-dir", "cache"]);
    run(&mut zig)?;
    let is_wanted =
        |name: &str| name.contains(".so.") || matches!(name, "Scrt1.o" | "libc_nonshared.a");
    for part in files::list(&cache.join("o"))
        .iter()
        .flat_map(|folder| files::list(folder))
    {
        let name = files::name(&part);
        if !is_wanted(&name) {
            continue;
        }
        files::copy(&part, &folder.join(&name))?;
        // `-lm` looks for libm.so.
        if let Some((stem, _)) = name.split_once(".so.")
            && stem != "libc"
        {
            files::copy(&part, &folder.join(format!("{stem}.so")))?;
        }
    }
    let script = format!(
        "GROUP ( {0}/libc.so.6 {0}/libc_nonshared.a AS_NEEDED ( {0}/libld.so.2 ) )\n",
        folder.display()
    );
    files::write(&folder.join("libc.so"), &script)?;
    std::fs::remove_dir_all(&work).map_err(|error| files::failed(&work, error))
}
