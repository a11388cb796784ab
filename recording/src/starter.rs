//! Programs that start others without passing on the environment variables or files of cutape.

use std::path::Path;

/// They start programs in a container, with its environment and file system.
const CONTAINERS: [&str; 13] = [
    "apptainer",
    "bwrap",
    "crictl",
    "ctr",
    "docker",
    "enroot",
    "flatpak",
    "kubectl",
    "lxc",
    "nerdctl",
    "podman",
    "singularity",
    "systemd-nspawn",
];

/// They start programs with a new environment, possibly on another machine.
const ENVIRONMENTS: [&str; 11] = [
    "doas",
    "env",
    "machinectl",
    "pkexec",
    "run0",
    "runuser",
    "srun",
    "ssh",
    "su",
    "sudo",
    "systemd-run",
];

/// What to do instead of giving such a program to a command of cutape, such as `record`.
pub fn advice(program: &Path, command: &str) -> Option<String> {
    let name = program.file_name()?.to_str()?;
    if CONTAINERS.contains(&name) {
        Some(format!(
            "{name} starts programs in a container without cutape's environment or files: install \
             cutape and run `cutape {command}` inside the container"
        ))
    } else if ENVIRONMENTS.contains(&name) {
        Some(format!(
            "if {name} replaced the environment, put it first: {name} ... cutape {command} -- PROGRAM"
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_starters() {
        for (program, expected) in [
            (
                "/usr/bin/docker",
                Some("docker starts programs in a container"),
            ),
            ("/usr/bin/sudo", Some("sudo ... cutape record -- PROGRAM")),
            ("/usr/bin/env", Some("env ... cutape record -- PROGRAM")),
            ("./app", None),
            ("/opt/docker/app", None),
            ("/", None),
        ] {
            let found = advice(Path::new(program), "record");
            match expected {
                None => assert_eq!(found, None, "{program}"),
                Some(words) => {
                    assert!(found.is_some_and(|text| text.contains(words)), "{program}");
                }
            }
        }
        for names in [&CONTAINERS[..], &ENVIRONMENTS] {
            assert!(names.is_sorted());
        }
    }
}
