//! What around a program may change how it is recorded or replayed: other tools, limits, a
//! container; each with what to do.

use std::fs;
use std::path::Path;

/// Bytes that the temporary folder should have free: for the raw trace of a short run (assumed).
const FREE: u64 = 1 << 30;
/// Files that a program with many libraries may have open (assumed).
const FILES: u64 = 1024;

/// Where to look: the machine, or a test's picture of it.
pub(super) struct Surroundings<'a> {
    /// The folder that stands for `/`.
    pub(super) root: &'a Path,
    /// The value of an environment variable.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    /// The folder for temporary files.
    pub(super) temporary: &'a Path,
    /// Bytes free there, if known.
    pub(super) free: Option<u64>,
}

/// Something to know, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) label: &'static str,
    pub(super) text: String,
}

/// Variables through which other tools come into a program: name, what it means.
const TOOLS: [(&str, &str); 4] = [
    (
        "CUDA_INJECTION64_PATH",
        "another tool (CUPTI, a sanitizer) is loaded into every CUDA program; if recording fails, \
         unset it",
    ),
    (
        "NVTX_INJECTION64_PATH",
        "another tool receives NVTX ranges, so that traces have none; unset it to record ranges",
    ),
    (
        "LD_AUDIT",
        "another audit library is in place; if nothing is recorded, unset it or use --backend \
         preload",
    ),
    (
        "LD_PRELOAD",
        "libraries are put before all others; if nothing is recorded, unset it",
    ),
];

impl Surroundings<'_> {
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// All that is worth knowing; empty where nothing is unusual.
    pub(super) fn advice(&self) -> Vec<Advice> {
        let mut all = Vec::new();
        for (name, meaning) in TOOLS {
            if let Some(value) = (self.variable)(name).filter(|value| !value.is_empty()) {
                let text = format!("{name}={value}: {meaning}");
                all.push(Advice {
                    label: "tool",
                    text,
                });
            }
        }
        let mps = (self.variable)("CUDA_MPS_PIPE_DIRECTORY");
        let pipe = mps.as_deref().unwrap_or("/tmp/nvidia-mps");
        if self
            .root
            .join(pipe.trim_start_matches('/'))
            .join("control")
            .exists()
        {
            all.push(Advice {
                label: "MPS",
                text: format!(
                    "a server is at {pipe}: programs share the GPU through it; for times that can \
                     be compared, use a GPU without it"
                ),
            });
        }
        all.extend(self.ptrace());
        all.extend(self.container());
        all.extend(self.limits());
        all.extend(self.temporary());
        all
    }

    fn ptrace(&self) -> Option<Advice> {
        let scope = self.read("proc/sys/kernel/yama/ptrace_scope")?;
        let scope: u32 = scope.trim().parse().ok()?;
        (scope >= 2).then(|| Advice {
            label: "ptrace",
            text: format!(
                "kernel.yama.ptrace_scope is {scope}: debuggers and sanitizers cannot attach to a \
                 replay; `sysctl kernel.yama.ptrace_scope=1` as root permits it"
            ),
        })
    }

    fn container(&self) -> Option<Advice> {
        let file = ["/.dockerenv", "/run/.containerenv"]
            .into_iter()
            .find(|file| self.root.join(file.trim_start_matches('/')).exists())?;
        Some(Advice {
            label: "container",
            text: format!(
                "this is one ({file}): a trace needs a volume to outlive it; docs/containers.md \
                 has the options"
            ),
        })
    }

    fn limits(&self) -> Option<Advice> {
        let limits = self.read("proc/self/limits")?;
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max open files"))?;
        let soft: u64 = line.split_whitespace().nth(3)?.parse().ok()?;
        (soft < FILES).then(|| Advice {
            label: "limits",
            text: format!("only {soft} files may be open: `ulimit -n {FILES}` permits more"),
        })
    }

    fn temporary(&self) -> Option<Advice> {
        let shown = self.temporary.display();
        let mounts = self.read("proc/self/mounts").unwrap_or_default();
        let mount = mounts
            .lines()
            .filter_map(|line| {
                let mut columns = line.split_whitespace();
                Some((columns.nth(1)?, columns.nth(1)?))
            })
            .filter(|(place, _)| self.temporary.starts_with(place))
            .max_by_key(|(place, _)| place.len());
        let is_noexec = mount.is_some_and(|(_, options)| options.split(',').any(|o| o == "noexec"));
        let text = match self.free {
            _ if is_noexec => format!(
                "{shown} is mounted noexec: libraries in it cannot be loaded; set TMPDIR to \
                 another folder"
            ),
            Some(free) if free < FREE => format!(
                "{shown} has {} MiB free: set TMPDIR to a folder with more room",
                free >> 20
            ),
            _ => return None,
        };
        Some(Advice {
            label: "temporary",
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_for_surroundings() {
        let root = std::env::temp_dir().join(format!("cutape-doctor-{}", std::process::id()));
        let limits = "Max open files            256                  4096                 files\n";
        let enough = "Max open files            4096                 4096                 files\n";
        let noexec = "tmpfs / tmpfs rw 0 0\ntmpfs /tmp tmpfs rw,noexec 0 0\n";
        type Row<'r> = (
            &'r [(&'r str, &'r str)],
            &'r [(&'r str, &'r str)],
            Option<u64>,
            &'r [&'r str],
        );
        let rows: [Row<'_>; 12] = [
            (&[], &[], None, &[]),
            (
                &[],
                &[("CUDA_INJECTION64_PATH", "/x.so")],
                None,
                &["CUDA_INJECTION64_PATH=/x.so"],
            ),
            (&[], &[("LD_PRELOAD", "")], None, &[]),
            (
                &[],
                &[("LD_AUDIT", "/a.so"), ("NVTX_INJECTION64_PATH", "/n.so")],
                None,
                &["NVTX_INJECTION64_PATH=/n.so", "LD_AUDIT=/a.so"],
            ),
            (
                &[("proc/sys/kernel/yama/ptrace_scope", "1\n")],
                &[],
                None,
                &[],
            ),
            (
                &[("proc/sys/kernel/yama/ptrace_scope", "2\n")],
                &[],
                None,
                &["ptrace_scope is 2"],
            ),
            (&[(".dockerenv", "")], &[], None, &["(/.dockerenv)"]),
            (
                &[("proc/self/limits", limits)],
                &[],
                None,
                &["ulimit -n 1024"],
            ),
            (&[("proc/self/limits", enough)], &[], None, &[]),
            (
                &[("proc/self/mounts", noexec)],
                &[],
                None,
                &["mounted noexec"],
            ),
            (
                &[("tmp/nvidia-mps/control", "")],
                &[],
                None,
                &["/tmp/nvidia-mps"],
            ),
            (&[], &[], Some(5 << 20), &["5 MiB free"]),
        ];
        for (files, variables, free, expected) in rows {
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(&root).unwrap();
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let surroundings = Surroundings {
                root: &root,
                variable: &variable,
                temporary: Path::new("/tmp"),
                free,
            };
            let advice = surroundings.advice();
            assert_eq!(advice.len(), expected.len(), "{advice:?}");
            for (advice, words) in advice.iter().zip(expected) {
                assert!(advice.text.contains(words), "{advice:?}");
            }
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
