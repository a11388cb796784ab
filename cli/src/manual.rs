//! `cutape manual`: the manual pages of cutape and its verbs, for man(1).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap_mangen::Man;

use cutape_terminal::failure::Failure;

/// What `manual` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder for the pages; created if missing. Existing pages are
    /// overwritten. `man` finds pages in ~/.local/share/man/man1.
    #[arg(value_name = "FOLDER", verbatim_doc_comment)]
    folder: PathBuf,
}

/// Writes the pages of `command`, the whole command line of cutape, and of its verbs.
pub(crate) fn run(arguments: Arguments, command: clap::Command) -> Result<ExitCode, Failure> {
    let folder = &arguments.folder;
    let failed = |path: &Path, error: io::Error| {
        Failure::unusable(format!(
            "cannot write {}: {error}; choose another folder",
            path.display()
        ))
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for (name, page) in pages(command)? {
        let path = folder.join(name);
        fs::write(&path, page).map_err(|error| failed(&path, error))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The pages and their file names: one for `command` and one for each verb that `--help` lists.
fn pages(command: clap::Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let version = format!("cutape {}", env!("CARGO_PKG_VERSION"));
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let verbs = command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .cloned();
    let commands: Vec<clap::Command> = verbs.chain([command.clone()]).collect();
    let render = |command| {
        let man = Man::new(command)
            .source(version.as_str())
            .manual("User Commands");
        let mut page = Vec::new();
        man.render(&mut page)?;
        Ok((man.get_filename(), page))
    };
    commands.into_iter().map(render).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_verb_has_a_page() {
        let pages = pages(crate::Arguments::command()).unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["cutape.1", "cutape-record.1", "cutape-manual.1"] {
            assert!(names.contains(&name), "{name} of {names:?}");
        }
        let hidden = format!("cutape-{}.1", crate::replay::CHILD);
        assert!(!names.contains(&hidden.as_str()), "{names:?}");
        let text = |name: &str| {
            let page = pages.iter().find(|page| page.0 == name).unwrap();
            String::from_utf8_lossy(&page.1).into_owned()
        };
        assert!(text("cutape-record.1").contains("\\-\\-no\\-pack"));
        assert!(text("cutape.1").contains("Exit status:"));
        // The pages of the sources are not installed.
        for name in names {
            assert!(!text(name).contains("docs/"), "{name}");
        }
    }
}
