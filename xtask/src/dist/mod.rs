//! `dist`: the packages of cutape, for machines without Rust and a compiler. `--check` installs
//! them in fresh systems.

mod archive;
mod check;
mod deb;
mod elf;
mod glibc;
mod python;
mod readme;
mod roots;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::Command;

use self::glibc::{Glibc, TARGET};
use crate::parts::{Binaries, DEMO, DEMO_SOURCE, NULL_DRIVER, PARTS, replace_folder};
use crate::{Failure, files, step};

/// Programs that making packages needs.
const NEEDED: [&str; 7] = [
    "cc", "dpkg-deb", "gzip", "md5sum", "python3", "strip", "tar",
];

/// What is built, and where.
#[derive(Debug)]
struct Dist<'a> {
    root: &'a Path,
    /// The packages.
    folder: PathBuf,
    version: String,
    /// The time of the last commit: the packages' files have it.
    epoch: String,
    /// Not optimised, and compressed quickly: to check the packages.
    is_quick: bool,
}

/// Makes all packages, or those that `words` name.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), Failure> {
    let options = ["--check", "--all-roots", "--quick"];
    let kinds: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| !options.contains(word))
        .collect();
    if let Some(word) = kinds
        .iter()
        .find(|word| !["wheel", "deb", "tarball"].contains(word))
    {
        return Err(failure!(
            "dist: {word}: unknown; choose wheel, deb or tarball, with --check, --all-roots or \
             --quick"
        ));
    }
    if let Some(missing) = NEEDED.iter().find(|program| !step::is_installed(program)) {
        return Err(failure!("dist: {missing}: not found; install it"));
    }
    let is_wanted = |kind: &str| kinds.is_empty() || kinds.contains(&kind);
    let dist = Dist {
        root,
        folder: step::target(root).join("dist/packages"),
        version: version(root)?,
        epoch: epoch(root),
        is_quick: words.contains(&"--quick"),
    };
    let binaries = dist.build()?;
    elf::check(&binaries.files())?;
    replace_folder(&dist.folder)?;
    let mut made = Vec::new();
    if is_wanted("wheel") {
        made.push(wheel::make(&dist, &binaries)?);
    }
    if is_wanted("deb") {
        made.push(deb::make(&dist, &binaries)?);
    }
    if is_wanted("tarball") {
        made.push(archive::make(&dist, &binaries)?);
    }
    for package in &made {
        let size = std::fs::metadata(package).map_or(0, |data| data.len());
        println!("{} ({:.1} MB)", package.display(), size as f64 / 1e6);
    }
    let is_all = words.contains(&"--all-roots");
    if is_all || words.contains(&"--check") {
        check::run(&dist, &made, is_all)?;
    }
    Ok(())
}

impl Dist<'_> {
    /// The folder in which one kind of package is put together; new and empty.
    fn stage(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.work(name);
        replace_folder(&folder)?;
        Ok(folder)
    }

    /// A folder beside the packages.
    fn work(&self, name: &str) -> PathBuf {
        step::target(self.root).join("dist").join(name)
    }

    /// Builds for the glibc of the packages.
    fn build(&self) -> Result<Binaries, Failure> {
        let glibc = Glibc::new(self.root)?;
        let target = step::target(self.root);
        let mut built = Vec::new();
        if self.is_quick {
            glibc.build_quick(self.root)?;
        }
        for (package, profile, file) in PARTS {
            if self.is_quick {
                built.push(target.join("debug").join(file));
                continue;
            }
            // One by one: in one build the interposer would get features that only readers need.
            step::run(&mut glibc.cargo(self.root, package, profile))?;
            built.push(target.join(TARGET).join(profile).join(file));
        }
        let library = built
            .iter()
            .find(|path| path.ends_with(NULL_DRIVER))
            .cloned();
        let demo = self.stage("demo")?.join(DEMO);
        let mut compile = glibc.cc(self.root, "-O1", DEMO_SOURCE, &demo);
        step::run(compile.arg("-Itests/programs").args(library))?;
        built.push(demo);
        Binaries::collect(self.work("bin"), &built)
    }

    /// `command` with the time that the package's files get.
    fn with_epoch<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("SOURCE_DATE_EPOCH", &self.epoch)
    }
}

/// The version in the root's `Cargo.toml`.
fn version(root: &Path) -> Result<String, Failure> {
    let path = root.join("Cargo.toml");
    let manifest: toml::Table = files::read_toml(&path)?;
    let version = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("package")?.get("version")?.as_str());
    version
        .map(str::to_owned)
        .ok_or_else(|| files::failed(&path, "no version in workspace.package"))
}

/// The seconds since 1970 of the last commit. Without git, of the first day that a zip file knows.
fn epoch(root: &Path) -> String {
    if let Ok(set) = std::env::var("SOURCE_DATE_EPOCH") {
        return set;
    }
    let mut log = Command::new("git");
    log.current_dir(root).args(["log", "-1", "--format=%ct"]);
    match step::output(&mut log) {
        Ok(said) if said.status.success() => {
            String::from_utf8_lossy(&said.stdout).trim().to_owned()
        }
        _ => "315532800".to_owned(),
    }
}
