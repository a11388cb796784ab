//! `cutape completions`: what a shell needs to complete cutape's verbs and options.

use std::process::ExitCode;

use clap_complete::Shell;

use cutape_terminal::failure::Failure;
use cutape_terminal::output;

/// What `completions` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The shell that will read the script.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

const EPILOGUE: &str = "\
Where shells look for it (the packages of cutape install it already):
  bash   ~/.local/share/bash-completion/completions/cutape
  zsh    a file _cutape in a folder of $fpath
  fish   ~/.config/fish/completions/cutape.fish";

/// Prints the script for `command`, the whole command line of cutape.
pub(crate) fn run(arguments: Arguments, command: &clap::Command) -> Result<ExitCode, Failure> {
    let mut command = visible(command);
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "cutape", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// The command line without its hidden verbs, which the generator for bash would list.
fn visible(command: &clap::Command) -> clap::Command {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    clap::Command::new("cutape")
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments())
        .subcommands(verbs.cloned())
}
