//! The package for Debian, Ubuntu and their relatives.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Dist;
use super::glibc::VERSION;
use crate::parts::{Binaries, LICENCES};
use crate::step::{output, run};
use crate::{Failure, files};

const MAINTAINER: &str = "The cutape contributors <cutape@users.noreply.invalid>";

pub(super) fn make(dist: &Dist, binaries: &Binaries) -> Result<PathBuf, Failure> {
    let stage = dist.stage("deb")?;
    let usr = stage.join("usr");
    binaries.install(dist.root, &usr)?;
    let shared = usr.join("share");
    // Debian's zsh looks here, and in site-functions below /usr/local only.
    rename(
        &shared.join("zsh/site-functions"),
        &shared.join("zsh/vendor-completions"),
    )?;
    let documents = shared.join("doc/cutape");
    for licence in LICENCES {
        remove(&documents.join(licence))?;
    }
    files::write(&documents.join("copyright"), &copyright(dist.root)?)?;
    files::write(&documents.join("changelog"), &changelog(dist)?)?;
    compress(&documents.join("changelog"))?;
    for page in files::list(&shared.join("man/man1")) {
        compress(&page)?;
    }
    let overrides = shared.join("lintian/overrides/cutape");
    files::write(
        &overrides,
        "# Findings of the demo name the functions of this program.\n\
         cutape: unstripped-binary-or-object [usr/lib/cutape/link_demo]\n",
    )?;
    // Before the control files, which it does not list.
    let sums = output(Command::new("sh").current_dir(&stage).args([
        "-c",
        "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum",
    ]))?;
    let control = stage.join("DEBIAN");
    files::write(
        &control.join("md5sums"),
        &String::from_utf8_lossy(&sums.stdout),
    )?;
    files::write(&control.join("control"), &control_file(dist, &usr)?)?;
    let package = dist
        .folder
        .join(format!("cutape_{}_amd64.deb", dist.version));
    let mut build = Command::new("dpkg-deb");
    // xz: Debian before 12 cannot read the zstd that Ubuntu's dpkg-deb writes.
    build
        .args([
            "--root-owner-group",
            "-Zxz",
            if dist.is_quick { "-z0" } else { "-z6" },
        ])
        .arg("--build")
        .args([&stage, &package])
        .stdout(std::process::Stdio::null());
    run(dist.with_epoch(&mut build))?;
    Ok(package)
}

/// What dpkg needs to know.
fn control_file(dist: &Dist, usr: &Path) -> Result<String, Failure> {
    let size = output(Command::new("du").args(["-k", "-s"]).arg(usr))?;
    let size = String::from_utf8_lossy(&size.stdout);
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    let version = &dist.version;
    Ok(format!(
        "\
Package: cutape
Version: {version}
Architecture: amd64
Maintainer: {MAINTAINER}
Installed-Size: {size}
Depends: libc6 (>= {VERSION}), libgcc-s1 | libgcc1
Section: devel
Priority: optional
Description: recorder, replayer and checker of CUDA driver calls
 cutape records every CUDA driver API call of an unmodified program, replays
 the recording without the program, and explains misuse of the API that the
 driver does not report.
 .
 It works with and without a GPU: a software driver that runs no kernels is
 part of the package.
"
    ))
}

/// Both licences, in Debian's format.
fn copyright(root: &Path) -> Result<String, Failure> {
    let holder = "2026 The cutape contributors";
    let mut text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: cutape\n\nFiles: *\nCopyright: {holder}\nLicense: MIT or Apache-2.0\n\n\
         License: MIT\n"
    );
    // Debian has the text of Apache's licence, but not of MIT's.
    for line in files::read(&root.join(LICENCES[0]))?.lines() {
        text += match line {
            "" => " .".to_owned(),
            line => format!(" {line}"),
        }
        .as_str();
        text.push('\n');
    }
    text += "\nLicense: Apache-2.0\n \
             On Debian systems, the text of the Apache License, version 2.0, is in\n \
             /usr/share/common-licenses/Apache-2.0.\n";
    Ok(text)
}

fn changelog(dist: &Dist) -> Result<String, Failure> {
    let at = format!("@{}", dist.epoch);
    let mut date = Command::new("date");
    let date = output(date.env("LC_ALL", "C").args(["-u", "-R", "-d", &at]))?;
    let date = String::from_utf8_lossy(&date.stdout);
    Ok(format!(
        "cutape ({}) unstable; urgency=medium\n\n  * Packaged from its sources.\n\n \
         -- {MAINTAINER}  {}\n",
        dist.version,
        date.trim()
    ))
}

fn compress(path: &Path) -> Result<(), Failure> {
    run(Command::new("gzip").args(["-9", "-n"]).arg(path))
}

fn rename(from: &Path, to: &Path) -> Result<(), Failure> {
    std::fs::rename(from, to).map_err(|error| files::failed(from, error))
}

fn remove(path: &Path) -> Result<(), Failure> {
    std::fs::remove_file(path).map_err(|error| files::failed(path, error))
}
