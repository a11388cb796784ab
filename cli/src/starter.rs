//! Programs that are known to start others where our environment, or our files, do not come with them.

use std::path::Path;

/// They start a program in a container: with its environment, on its files.
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

/// They start a program with an environment that they make themselves, perhaps on another machine.
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

/// What to do instead of recording that program, if it is one of those.
pub(crate) fn advice(program: &Path) -> Option<String> {
    let name = program.file_name()?.to_str()?;
    if CONTAINERS.contains(&name) {
        Some(format!(
            "what {name} starts runs in a container, where our environment or our files are not: record inside it; docs/guide.md, \"In a container\", has the commands"
        ))
    } else if ENVIRONMENTS.contains(&name) {
        Some(format!(
            "if {name} gave the program another environment, put it first: {name} ... cutape record -- PROGRAM"
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
            ("/usr/bin/docker", Some("docker starts runs in a container")),
            ("/usr/bin/sudo", Some("sudo ... cutape record -- PROGRAM")),
            ("/usr/bin/env", Some("env ... cutape record -- PROGRAM")),
            ("./app", None),
            ("/opt/docker/app", None),
            ("/", None),
        ] {
            let found = advice(Path::new(program));
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
