//! Texts of a trace and paths, so that they fit on one line.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Display, Path};

/// The text with control characters escaped, so that it fits on one line.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => clean.extend(character.escape_debug()),
            false => clean.push(character),
        }
    }
    Cow::Owned(clean)
}

/// The path relative to the current folder if it lies inside.
pub fn shown(path: &Path) -> Display<'_> {
    let here = std::env::current_dir().ok();
    let short = here
        .as_deref()
        .and_then(|folder| path.strip_prefix(folder).ok());
    short
        .filter(|short| short.as_os_str() != OsStr::new(""))
        .unwrap_or(path)
        .display()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, clean) in [("a b", "a b"), ("a\n\x1b[0mß", "a\\n\\u{1b}[0mß")] {
            assert_eq!(printable(text), clean);
        }
    }

    #[test]
    fn paths_as_typed() {
        let here = std::env::current_dir().unwrap();
        for (path, text) in [
            (here.join("a/b.cutape"), "a/b.cutape".to_owned()),
            (here.clone(), here.display().to_string()),
            (PathBuf::from("/none/b.cutape"), "/none/b.cutape".to_owned()),
        ] {
            assert_eq!(shown(&path).to_string(), text);
        }
    }
}
