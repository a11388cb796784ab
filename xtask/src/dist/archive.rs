//! The archive to unpack below `/usr/local`.

use std::path::PathBuf;
use std::process::Command;

use super::Dist;
use crate::Failure;
use crate::parts::Binaries;
use crate::step::run;

pub(super) fn make(dist: &Dist, binaries: &Binaries) -> Result<PathBuf, Failure> {
    let stage = dist.stage("archive")?;
    let name = format!("cutape-{}", dist.version);
    binaries.install(dist.root, &stage.join(&name))?;
    let package = dist.folder.join(format!("{name}-x86_64-linux.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args("--sort=name --owner=0 --group=0 --numeric-owner --mode=go-w --format=gnu".split(' '))
        .arg(format!("--mtime=@{}", dist.epoch))
        .arg(format!(
            "--use-compress-program=gzip -{}n",
            if dist.is_quick { 1 } else { 9 }
        ))
        .arg("-cf")
        .arg(&package)
        .arg("-C")
        .arg(&stage)
        .arg(&name);
    run(&mut tar)?;
    Ok(package)
}
