//! Texts of a trace and paths, so that they fit.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Display, Path};

pub use cutape_analyzer::output::{is_unprintable, printable};

/// Lines of at most `width` columns, broken at blanks.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The text, cut to `most` characters including a final ….
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.chars().nth(most).is_none() {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    Cow::Owned(kept + "…")
}

/// The text, cut to `most` characters with … for the middle: both ends of a name matter.
pub fn without_middle(text: &str, most: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= most {
        return Cow::Borrowed(text);
    }
    let kept = most.saturating_sub(1);
    let tail = kept * 2 / 5;
    let mut short: String = text.chars().take(kept - tail).collect();
    short.push('…');
    short.extend(text.chars().skip(length - tail));
    Cow::Owned(short)
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
    fn long_texts() {
        for (text, most, short, middle) in [
            ("", 0, "", ""),
            ("abc", 3, "abc", "abc"),
            ("abcd", 3, "ab…", "ab…"),
            ("äöüß", 4, "äöüß", "äöüß"),
            ("äöüßx", 4, "äöü…", "äö…x"),
            ("0123456789", 6, "01234…", "012…89"),
            ("ab", 0, "…", "…"),
        ] {
            assert_eq!(shortened(text, most), short, "{text} {most}");
            assert_eq!(without_middle(text, most), middle, "{text} {most}");
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
