//! The commands that the README shows under "Install", so that `--check` runs these and no others.

use std::path::Path;

use crate::{Failure, files};

/// The commands, several lines each.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Commands {
    /// How each kind of package is installed: what its command contains, and the commands.
    pub(super) installs: Vec<(&'static str, String)>,
    /// What works after each of them.
    pub(super) first_steps: String,
}

/// What the command that installs a package contains.
pub(super) const WHEEL: &str = "pip install";
pub(super) const DEB: &str = "apt install";
pub(super) const ARCHIVE: &str = "tar -xzf";
const FIRST_STEPS: &str = "cutape demo";

impl Commands {
    /// Reads them.
    pub(super) fn read(root: &Path) -> Result<Self, Failure> {
        let path = root.join("README.md");
        Self::parse(&files::read(&path)?).map_err(|missing| {
            files::failed(
                &path,
                format!("no block of commands with `{missing}` under \"Install\""),
            )
        })
    }

    /// # Errors
    /// What no block contains.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let blocks = blocks(text);
        let find = |words: &'static str| {
            let block = blocks.iter().find(|block| block.contains(words));
            block.cloned().ok_or(words)
        };
        Ok(Self {
            installs: [WHEEL, DEB, ARCHIVE]
                .into_iter()
                .map(|words| find(words).map(|block| (words, block)))
                .collect::<Result<_, _>>()?,
            first_steps: find(FIRST_STEPS)?,
        })
    }

    /// The commands that install that kind of package. In a fresh system root runs them: without
    /// sudo.
    pub(super) fn install(&self, words: &str) -> String {
        let found = self.installs.iter().find(|install| install.0 == words);
        found.map_or_else(String::new, |install| install.1.replace("sudo ", ""))
    }
}

/// The blocks of shell commands in the section "Install".
fn blocks(text: &str) -> Vec<String> {
    let section = text
        .lines()
        .skip_while(|line| *line != "## Install")
        .skip(1)
        .take_while(|line| !line.starts_with("## "));
    let mut blocks: Vec<String> = Vec::new();
    let mut is_inside = false;
    for line in section {
        match line.trim() {
            "```sh" => {
                is_inside = true;
                blocks.push(String::new());
            }
            "```" => is_inside = false,
            line if is_inside => {
                if let Some(block) = blocks.last_mut() {
                    *block += line;
                    block.push('\n');
                }
            }
            _ => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# x
```sh
pip install other
```
## Install
```sh
pip install x
```
```sh
sudo apt install ./x
```
```sh
sudo tar -xzf x
```
```sh
cutape demo      # a comment
cutape info x
```
## Next
";

    #[test]
    fn blocks_of_the_section_are_found() {
        let commands = Commands::parse(TEXT).unwrap();
        assert_eq!(commands.install(WHEEL), "pip install x\n");
        assert_eq!(commands.install(DEB), "apt install ./x\n");
        assert_eq!(commands.install(ARCHIVE), "tar -xzf x\n");
        assert_eq!(
            commands.first_steps,
            "cutape demo      # a comment\ncutape info x\n"
        );
    }

    #[test]
    fn missing_blocks_are_named() {
        for (from, missing) in [
            ("pip install x", WHEEL),
            ("tar -xzf", ARCHIVE),
            ("## Install", WHEEL),
            ("cutape demo", FIRST_STEPS),
        ] {
            assert_eq!(Commands::parse(&TEXT.replace(from, "")), Err(missing));
        }
    }

    #[test]
    fn the_readme_has_them() {
        let commands = Commands::read(&crate::root()).unwrap();
        assert!(
            commands.first_steps.contains("cutape record -- python3"),
            "{commands:?}"
        );
    }
}
