//! What around a program may change how it is recorded or replayed: other tools, limits, a
//! container; each with what to do.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_recording::LibraryFolder;
use cutape_render::quantity::bytes;

/// Bytes that the temporary folder should have free: for the raw trace of a short run (assumed).
const FREE: u64 = 1 << 30;
/// Files that a program with many libraries may have open (assumed).
const FILES: u64 = 1024;
/// Bytes of stack with which the driver compiles PTX (assumed).
const STACK: u64 = 1 << 20;
/// Bytes of memory that a control group should permit (assumed).
const MEMORY: u64 = 2 << 30;

/// Where to look: the machine, or a test's picture of it.
pub(crate) struct Surroundings<'a> {
    /// The folder that stands for `/`.
    pub(crate) root: &'a Path,
    /// The value of an environment variable.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
    /// The folder for temporary files.
    pub(crate) temporary: &'a Path,
    /// Bytes free there, if known.
    pub(crate) free: Option<u64>,
    /// The driver, if it is not the null driver.
    pub(crate) driver: Option<&'a DriverFacts>,
}

/// What is known of a real driver.
#[derive(Debug)]
pub(crate) struct DriverFacts {
    /// Without symbolic links.
    pub(crate) path: PathBuf,
    /// As cuDriverGetVersion has it: 13000 is CUDA 13.0.
    pub(crate) version: Option<i32>,
}

/// Something to know, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) label: &'static str,
    pub(crate) text: String,
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

/// What a variable with one of cutape's libraries means.
const OWN: &str = "cutape records this process already; run other verbs outside of the recording, \
                   or open a new shell";

impl Surroundings<'_> {
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// All that is worth knowing; empty where nothing is unusual.
    pub(crate) fn advice(&self) -> Vec<Advice> {
        let mut all = Vec::new();
        for (name, meaning) in TOOLS {
            if let Some(value) = (self.variable)(name).filter(|value| !value.is_empty()) {
                let mut libraries = value.split([':', ' ']).map(Path::new);
                let is_own =
                    value.contains("libcutape_") || libraries.any(LibraryFolder::is_library);
                let meaning = if is_own { OWN } else { meaning };
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
        all.extend(self.toolkit());
        all.extend(self.module());
        all.extend(self.devices());
        all.extend(self.container());
        all.extend(self.memory());
        all.extend(self.overcommit());
        all.extend(self.low_limits());
        all.extend(self.temporary());
        all
    }

    fn exists(&self, path: &str) -> bool {
        self.root.join(path.trim_start_matches('/')).exists()
    }

    /// The toolkit's version against the newest that the driver supports.
    fn toolkit(&self) -> Option<Advice> {
        let supported = self.driver?.version?;
        let names = ["CUDA_HOME", "CUDA_PATH"];
        let named = names.iter().find_map(|name| (self.variable)(name));
        let folder = named.filter(|folder| !folder.is_empty());
        let folder = folder.unwrap_or_else(|| "/usr/local/cuda".to_owned());
        let text = self.read(&format!("{}/version.json", folder.trim_start_matches('/')))?;
        let versions: serde_json::Value = serde_json::from_str(&text).ok()?;
        let text = versions.get("cuda")?.get("version")?.as_str()?;
        let mut numbers = text
            .split('.')
            .map_while(|number| number.parse::<i32>().ok());
        let (major, minor) = (numbers.next()?, numbers.next()?);
        let (most, least) = (supported / 1000, supported % 1000 / 10);
        let consequence = match (major, minor) {
            newer if newer <= (most, least) => return None,
            // "CUDA Compatibility": within a major version all but PTX of a newer compiler works.
            (same, _) if same == most => {
                "PTX that it compiles does not load (CUDA_ERROR_UNSUPPORTED_PTX_VERSION)"
            }
            _ => "programs that use its runtime do not start",
        };
        Some(Advice {
            label: "toolkit",
            text: format!(
                "CUDA {major}.{minor} in {folder} is newer than CUDA {most}.{least}, which the \
                 driver supports: {consequence}; update the driver, or use an older toolkit"
            ),
        })
    }

    /// The kernel module against the library.
    fn module(&self) -> Option<Advice> {
        let name = self.driver?.path.file_name()?.to_str()?;
        let library = name.strip_prefix("libcuda.so.")?;
        library.contains('.').then_some(())?;
        let text = self.read("proc/driver/nvidia/version")?;
        let is_version = |word: &&str| {
            word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.')
        };
        let module = text.lines().next()?.split_whitespace().find(is_version)?;
        (module != library).then(|| Advice {
            label: "module",
            text: format!(
                "the kernel module has version {module}, the driver library {library}: cuInit \
                 fails with CUDA_ERROR_SYSTEM_DRIVER_MISMATCH unless the library is from NVIDIA's \
                 compatibility package; load the module of the library (reboot), or use the \
                 library of the module"
            ),
        })
    }

    /// The device files that the driver opens.
    fn devices(&self) -> Option<Advice> {
        self.driver?;
        // Under WSL the driver opens /dev/dxg instead.
        let is_there = self.exists("dev/nvidiactl") || self.exists("dev/dxg");
        (!is_there).then(|| Advice {
            label: "devices",
            text: match self.container_mark() {
                Some(_) => "libcuda is here, /dev/nvidiactl is not: start the container with \
                            --gpus all (Docker), or --device nvidia.com/gpu=all (Podman)"
                    .to_owned(),
                None => "libcuda is here, /dev/nvidiactl is not: the kernel module is not loaded; \
                         `nvidia-modprobe` or `modprobe nvidia` as root loads it"
                    .to_owned(),
            },
        })
    }

    /// The memory that a control group permits.
    fn memory(&self) -> Option<Advice> {
        let files = ["memory.max", "memory/memory.limit_in_bytes"];
        let limit = files
            .iter()
            .find_map(|file| self.read(&format!("sys/fs/cgroup/{file}")))?;
        let limit: u64 = limit.trim().parse().ok()?;
        (limit < MEMORY).then(|| Advice {
            label: "memory",
            text: format!(
                "a control group permits {} MiB: a replay needs the host memory that the program \
                 had, and is killed without it; raise the limit (docker run --memory)",
                limit >> 20
            ),
        })
    }

    fn overcommit(&self) -> Option<Advice> {
        let mode = self.read("proc/sys/vm/overcommit_memory")?;
        (mode.trim() == "2").then(|| Advice {
            label: "overcommit",
            text: "vm.overcommit_memory is 2: large reservations of addresses, as the driver and \
                   a replay make, may be refused; `sysctl vm.overcommit_memory=0` as root permits \
                   them"
                .to_owned(),
        })
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

    /// The file that Docker or Podman puts into containers.
    fn container_mark(&self) -> Option<&'static str> {
        let mut files = ["/.dockerenv", "/run/.containerenv"].into_iter();
        files.find(|file| self.exists(file))
    }

    fn container(&self) -> Option<Advice> {
        let file = self.container_mark()?;
        Some(Advice {
            label: "container",
            text: format!(
                "this is one ({file}): a trace needs a volume (docker run -v) to outlive it"
            ),
        })
    }

    /// The soft limit of a resource, as the kernel names it; `None` if it is unlimited or unknown.
    fn limit(&self, resource: &str) -> Option<u64> {
        let limits = self.read("proc/self/limits")?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix(resource))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// The limits of this shell, as a fact.
    pub(crate) fn limits(&self) -> Option<String> {
        self.read("proc/self/limits")?;
        let of = |resource: &str| self.limit(resource).map_or("unlimited".to_owned(), bytes);
        let files = self.limit("Max open files");
        let files = files.map_or("unlimited".to_owned(), |files| files.to_string());
        let core = match self.limit("Max core file size") {
            Some(0) => "no core files (ulimit -c unlimited permits them)".to_owned(),
            Some(most) => format!("core files to {}", bytes(most)),
            None => "core files".to_owned(),
        };
        Some(format!(
            "open files {files}, stack {}, locked memory {}, {core}",
            of("Max stack size"),
            of("Max locked memory")
        ))
    }

    fn low_limits(&self) -> Vec<Advice> {
        let mut all = Vec::new();
        let mut low = |text: String| {
            all.push(Advice {
                label: "low limit",
                text,
            });
        };
        if let Some(files) = self.limit("Max open files").filter(|files| *files < FILES) {
            low(format!(
                "only {files} files may be open: `ulimit -n {FILES}` permits more"
            ));
        }
        if let Some(space) = self.limit("Max address space") {
            low(format!(
                "only {} of addresses: the driver and a replay reserve more than they use; \
                 `ulimit -v unlimited` permits it",
                bytes(space)
            ));
        }
        if let Some(stack) = self.limit("Max stack size").filter(|stack| *stack < STACK) {
            low(format!(
                "only {} of stack: the driver compiles PTX on it; `ulimit -s {}` permits more",
                bytes(stack),
                STACK >> 10
            ));
        }
        if let Some(locked) = self.limit("Max locked memory")
            && self.exists("dev/infiniband")
        {
            low(format!(
                "only {} of locked memory: InfiniBand needs more; `ulimit -l unlimited` permits it",
                bytes(locked)
            ));
        }
        all
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

    const TOOLKIT: &str = "usr/local/cuda/version.json";
    const PAGE: &str = include_str!("../../docs/doctor.md");
    const MODULE: &str = "proc/driver/nvidia/version";

    fn driver() -> DriverFacts {
        DriverFacts {
            path: PathBuf::from("/usr/lib/libcuda.so.580.95.05"),
            version: Some(13000),
        }
    }

    #[test]
    fn missing_devices_and_limits() {
        let root = std::env::temp_dir().join(format!("cutape-devices-{}", std::process::id()));
        let limits = "Max open files  4096  4096  files\nMax core file size  0  unlimited  bytes\n";
        let real = driver();
        for (file, driver, expected) in [
            ("dev/null", Some(&real), Some("nvidia-modprobe")),
            (".dockerenv", Some(&real), Some("--gpus all")),
            ("dev/dxg", Some(&real), None),
            (".dockerenv", None, None),
        ] {
            for path in [file, "proc/self/limits"] {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, limits).unwrap();
            }
            let surroundings = Surroundings {
                root: &root,
                variable: &|_| None,
                temporary: Path::new("/tmp"),
                free: None,
                driver,
            };
            let advice = surroundings.devices().map(|advice| advice.text);
            assert_eq!(advice.is_some(), expected.is_some(), "{file} {advice:?}");
            if let (Some(advice), Some(expected)) = (advice, expected) {
                assert!(advice.contains(expected), "{advice}");
            }
            assert_eq!(
                surroundings.limits().unwrap(),
                "open files 4096, stack unlimited, locked memory unlimited, no core files (ulimit \
                 -c unlimited permits them)"
            );
            fs::remove_dir_all(&root).unwrap();
        }
    }

    const LIMITS: &str =
        "Max open files            256                  4096                 files\n";
    const ENOUGH: &str =
        "Max open files            4096                 4096                 files\n";
    const NOEXEC: &str = "tmpfs / tmpfs rw 0 0\ntmpfs /tmp tmpfs rw,noexec 0 0\n";

    type Named = &'static [(&'static str, &'static str)];

    /// Files, variables, free bytes, and words of each advice.
    const SURROUNDINGS: &[(Named, Named, Option<u64>, &[&str])] = &[
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
            &[("proc/self/limits", LIMITS)],
            &[],
            None,
            &["ulimit -n 1024"],
        ),
        (&[("proc/self/limits", ENOUGH)], &[], None, &[]),
        (
            &[("proc/self/mounts", NOEXEC)],
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
        (
            &[],
            &[("LD_AUDIT", "/usr/lib/cutape/libcutape_audit.so")],
            None,
            &["records this process already"],
        ),
        (
            &[],
            &[
                ("NVTX_INJECTION64_PATH", "/tmp/cutape-17-0/libcuda.so.1"),
                ("LD_PRELOAD", "/tmp/cutape-17-0/libcuda.so.1:/x.so"),
            ],
            None,
            &["records this process already"; 2],
        ),
        (
            &[(TOOLKIT, "{\"cuda\": {\"version\": \"13.0.2\"}}")],
            &[],
            None,
            &[],
        ),
        (
            &[(TOOLKIT, "{\"cuda\": {\"version\": \"13.1.0\"}}")],
            &[],
            None,
            &[
                "CUDA 13.1 in /usr/local/cuda is newer than CUDA 13.0, which the driver \
                   supports: PTX",
            ],
        ),
        (
            &[(
                "opt/cuda/version.json",
                "{\"cuda\": {\"version\": \"14.0.0\"}}",
            )],
            &[("CUDA_HOME", "/opt/cuda/")],
            None,
            &["CUDA 14.0 in /opt/cuda/"],
        ),
        (&[(TOOLKIT, "not JSON")], &[], None, &[]),
        (
            &[(MODULE, "NVRM version: NVIDIA x  580.95.05  Release\n")],
            &[],
            None,
            &[],
        ),
        (
            &[(MODULE, "NVRM version: NVIDIA x  570.10  Release\n")],
            &[],
            None,
            &["version 570.10, the driver library 580.95.05"],
        ),
        (&[("sys/fs/cgroup/memory.max", "max\n")], &[], None, &[]),
        (
            &[("sys/fs/cgroup/memory.max", "536870912\n")],
            &[],
            None,
            &["permits 512 MiB"],
        ),
        (
            &[("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n")],
            &[],
            None,
            &["permits 1 MiB"],
        ),
        (&[("proc/sys/vm/overcommit_memory", "1\n")], &[], None, &[]),
        (
            &[("proc/sys/vm/overcommit_memory", "2\n")],
            &[],
            None,
            &["vm.overcommit_memory is 2"],
        ),
        (
            &[(
                "proc/self/limits",
                "Max address space  1048576  unlimited  bytes\n",
            )],
            &[],
            None,
            &["ulimit -v unlimited"],
        ),
        (
            &[
                (
                    "proc/self/limits",
                    "Max locked memory  65536  65536  bytes\n",
                ),
                ("dev/infiniband/uverbs0", ""),
            ],
            &[],
            None,
            &["64.0 KiB of locked memory"],
        ),
    ];

    #[test]
    fn advice_for_surroundings() {
        let root = std::env::temp_dir().join(format!("cutape-doctor-{}", std::process::id()));
        for &(files, variables, free, expected) in SURROUNDINGS {
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(&root).unwrap();
            let device = [("dev/nvidiactl", "")];
            for (path, text) in files.iter().chain(&device) {
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
                driver: Some(&driver()),
            };
            let advice = surroundings.advice();
            assert_eq!(advice.len(), expected.len(), "{advice:?}");
            for (advice, words) in advice.iter().zip(expected) {
                assert!(advice.text.contains(words), "{advice:?}");
                let documented = format!("| `{}` |", advice.label.replace(' ', "-"));
                assert!(
                    PAGE.contains(&documented),
                    "docs/doctor.md lacks {documented}"
                );
            }
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
