//! Files: nothing is written but what a driver needs, and no connection is made (Landlock).

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    Scope, path_beneath_rules,
};

pub(crate) const WHAT: &str = "files are read-only but for the driver's and the outputs";

/// The newest version whose restrictions we know; an older kernel has fewer.
const VERSION: ABI = ABI::V6;

/// How the names in `/dev` of NVIDIA's devices begin, also on Tegra and under Windows. Disks are
/// `nvme`.
const GPUS: &[&str] = &["nvidia", "nvhost", "nvmap", "nvgpu", "nvsciipc", "dxg"];
/// Other devices that drivers open, or that do no harm.
const OTHERS: &[&str] = &["dri", "infiniband", "shm", "null", "zero", "full"];

pub(crate) fn restrict(outputs: &[PathBuf]) -> Result<(), String> {
    is_supported()?;
    let writable = writable(outputs);
    let files = AccessFs::from_write(VERSION);
    let restricted = Ruleset::default()
        .handle_access(files)
        .and_then(|rules| rules.handle_access(AccessNet::from_all(VERSION)))
        .and_then(|rules| rules.scope(Scope::from_all(VERSION)))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(writable, files)))
        .and_then(landlock::RulesetCreated::restrict_self);
    match restricted {
        Ok(status) if status.ruleset != RulesetStatus::NotEnforced => Ok(()),
        Ok(_) => Err("the kernel did not enforce it".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the kernel has Landlock, and a container permits it.
pub(crate) fn is_supported() -> Result<(), String> {
    const ASKS_FOR_VERSION: libc::c_uint = 1;
    let (none, size) = (std::ptr::null::<libc::c_void>(), 0_usize);
    // SAFETY: with this flag the call takes no pointer.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            none,
            size,
            ASKS_FOR_VERSION,
        )
    };
    match version {
        1.. => Ok(()),
        _ => Err(format!("Landlock: {}", crate::last_error())),
    }
}

/// What may be written, of what there is.
fn writable(outputs: &[PathBuf]) -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_gpu = |name: &String| GPUS.iter().any(|start| name.starts_with(start));
    let (gpus, others): (Vec<_>, Vec<_>) = names.partition(is_gpu);
    let mut paths: Vec<PathBuf> = Vec::new();
    if !gpus.is_empty() {
        paths.extend(compute_cache());
    }
    let others = others.into_iter().filter(|name| OTHERS.contains(&&**name));
    let devices = gpus.into_iter().chain(others);
    paths.extend(devices.map(|name| Path::new("/dev").join(name)));
    // Names of threads are written there.
    paths.push(PathBuf::from("/proc/self"));
    paths.push(std::env::temp_dir());
    paths.extend(outputs.iter().cloned());
    paths.retain(|path| path.exists());
    paths
}

/// Where the driver keeps what it compiles. It makes the folder, which it could not do later.
fn compute_cache() -> Option<PathBuf> {
    let chosen = std::env::var_os("CUDA_CACHE_PATH").filter(|path| !path.is_empty());
    let home = || std::env::var_os("HOME").filter(|home| !home.is_empty());
    let folder = match chosen {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&home()?).join(".nv/ComputeCache"),
    };
    // Without it, nothing is kept.
    let _ = fs::create_dir_all(&folder);
    Some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_disk_can_be_written() {
        let disks = ["nvme0n1", "nvram", "sda", "vda", "mem", "kmem"];
        let starts = GPUS.iter().chain(OTHERS);
        for (start, disk) in starts.flat_map(|start| disks.map(|disk| (start, disk))) {
            assert!(!disk.starts_with(start), "{start} {disk}");
        }
        for path in writable(&[]) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            assert!(!disks.iter().any(|disk| name.starts_with(disk)), "{name}");
        }
    }
}
