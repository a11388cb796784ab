//! Which key does what; the help screen is made from the same table.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Open,
    Back,
    OtherHalf,
    Search,
    SearchNext,
    SearchPrevious,
    Filter,
    GoTo,
    NextFailure,
    PreviousFailure,
    Follow,
    Calls,
    Findings,
    Object,
    Grow,
    Shrink,
    Help,
    Cancel,
    Suspend,
    Quit,
}

/// A line of the help screen and its keys.
pub(super) struct Binding {
    keys: &'static [KeyCode],
    /// With Ctrl held down.
    control: &'static [char],
    /// As the help screen names them.
    pub(super) shown: &'static str,
    pub(super) command: Command,
    pub(super) help: &'static str,
}

const fn binding(
    command: Command,
    keys: &'static [KeyCode],
    control: &'static [char],
    shown: &'static str,
    help: &'static str,
) -> Binding {
    Binding {
        keys,
        control,
        shown,
        command,
        help,
    }
}

use KeyCode::{Char, Esc};

/// All keys, in the order of the help screen.
#[rustfmt::skip]
pub(super) const BINDINGS: &[Binding] = &[
    binding(Command::Up, &[KeyCode::Up, Char('k')], &[], "↑ k", "one line up"),
    binding(Command::Down, &[KeyCode::Down, Char('j')], &[], "↓ j", "one line down"),
    binding(Command::PageUp, &[KeyCode::PageUp], &['b', 'u'], "PgUp", "one page up"),
    binding(Command::PageDown, &[KeyCode::PageDown, Char(' ')], &['f', 'd'], "PgDn Space", "one page down"),
    binding(Command::First, &[KeyCode::Home, Char('g')], &[], "Home g", "first line"),
    binding(Command::Last, &[KeyCode::End, Char('G')], &[], "End G", "last line"),
    binding(Command::OtherHalf, &[KeyCode::Tab, KeyCode::BackTab], &[], "Tab", "between list and details"),
    binding(Command::Open, &[KeyCode::Enter], &[], "Enter", "list: show details; details: follow the link"),
    binding(Command::Back, &[KeyCode::Backspace, Char('b')], &['o'], "b", "back to where you came from"),
    binding(Command::Filter, &[Char('f')], &[], "f", "show only some calls: cuMem*, kernel:NAME, 10..20"),
    binding(Command::Search, &[Char('/')], &[], "/", "search in function, arguments, result"),
    binding(Command::SearchNext, &[Char('n')], &[], "n", "next match"),
    binding(Command::SearchPrevious, &[Char('N')], &[], "N", "previous match"),
    binding(Command::NextFailure, &[Char('e')], &[], "e", "next call that failed"),
    binding(Command::PreviousFailure, &[Char('E')], &[], "E", "previous call that failed"),
    binding(Command::GoTo, &[Char(':')], &[], ":", "go to a call by its number"),
    binding(Command::Calls, &[Char('1')], &[], "1", "calls"),
    binding(Command::Findings, &[Char('2')], &[], "2", "findings of the check"),
    binding(Command::Object, &[Char('o')], &[], "o", "details of the object whose uses are listed"),
    binding(Command::Follow, &[Char('F')], &[], "F", "stay at the last call while the program runs"),
    binding(Command::Grow, &[Char('+')], &[], "+", "more room for details"),
    binding(Command::Shrink, &[Char('-')], &[], "-", "less room for details"),
    binding(Command::Cancel, &[Esc], &[], "Esc", "stop the search; show all calls again"),
    binding(Command::Help, &[Char('?'), Char('h'), KeyCode::F(1)], &[], "? h", "this help"),
    binding(Command::Suspend, &[], &['z'], "Ctrl-Z", "suspend"),
    binding(Command::Quit, &[Char('q')], &['c'], "q", "quit"),
];

/// What a key asks for outside of an input line.
pub(super) fn command(key: KeyEvent) -> Option<Command> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let has_key = |binding: &&Binding| match key.code {
        Char(letter) if is_control => binding.control.contains(&letter.to_ascii_lowercase()),
        code => binding.keys.contains(&code),
    };
    BINDINGS.iter().find(has_key).map(|binding| binding.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_one_meaning() {
        let mut seen = Vec::new();
        for binding in BINDINGS {
            for &key in binding.keys {
                assert!(!seen.contains(&(key, false)), "{key:?}");
                seen.push((key, false));
                let event = KeyEvent::new(key, KeyModifiers::NONE);
                assert_eq!(command(event), Some(binding.command));
            }
            for &letter in binding.control {
                assert!(!seen.contains(&(Char(letter), true)), "Ctrl-{letter}");
                seen.push((Char(letter), true));
                let event = KeyEvent::new(Char(letter), KeyModifiers::CONTROL);
                assert_eq!(command(event), Some(binding.command));
            }
            assert!(binding.help.chars().count() <= 52, "{}", binding.help);
        }
        for unknown in [Char('x'), Char('Q'), KeyCode::F(5)] {
            assert_eq!(command(KeyEvent::new(unknown, KeyModifiers::NONE)), None);
        }
    }
}
