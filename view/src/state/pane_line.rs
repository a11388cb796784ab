//! Lines of the lower half of the screen: parts with a role each, and a link to follow.

use super::object_key::ObjectKey;

/// What a part of a line is, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Plain,
    /// A function's name, a heading.
    Strong,
    /// What is beside the point.
    Dim,
    Success,
    Failure,
    Warning,
    /// What Enter follows.
    Link,
}

/// Where Enter leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Call(u64),
    Object(ObjectKey),
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PaneLine {
    pub(crate) parts: Vec<(String, Role)>,
    pub(crate) link: Option<Link>,
}

impl PaneLine {
    /// A line of one part.
    pub(crate) fn new(text: impl Into<String>, role: Role) -> Self {
        Self::default().and(text, role)
    }

    /// A line `name = value`.
    pub(crate) fn named(name: &str, value: &str) -> Self {
        Self::new(format!("  {name} = "), Role::Dim).and(value, Role::Plain)
    }

    /// An empty line.
    pub(super) fn empty() -> Self {
        Self::default()
    }

    /// The line with one more part.
    pub(crate) fn and(mut self, text: impl Into<String>, role: Role) -> Self {
        self.parts.push((text.into(), role));
        self
    }

    /// The line with a link.
    pub(crate) fn to(mut self, link: Link) -> Self {
        self.link = Some(link);
        self
    }

    /// Its text without roles.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        self.parts.iter().map(|(text, _)| text.as_str()).collect()
    }

    /// The line in lines of at most `width` characters; those after the first are indented.
    pub(super) fn wrapped(self, width: usize) -> Vec<Self> {
        const INDENT: &str = "      ";
        let width = width.max(2 * INDENT.len());
        let mut lines = vec![Self::default()];
        let mut used = 0;
        let link = self.link;
        for (text, role) in self.parts {
            let mut rest = text.as_str();
            while !rest.is_empty() {
                if used >= width {
                    lines.push(Self::new(INDENT, Role::Plain));
                    used = INDENT.len();
                }
                let end = rest.char_indices().nth(width - used);
                let (now, later) = rest.split_at(end.map_or(rest.len(), |(end, _)| end));
                used += now.chars().count();
                if let Some(line) = lines.last_mut() {
                    line.parts.push((now.to_owned(), role));
                }
                rest = later;
            }
        }
        for line in &mut lines {
            line.link = link;
        }
        lines
    }
}

/// Lines of a text, with a link in each that names a call: `call 12`.
pub(super) fn linked(text: &str, width: usize) -> Vec<PaneLine> {
    let lines = text.lines().flat_map(|line| {
        let mut parts = PaneLine::default();
        let mut rest = line;
        while let Some((start, end, call)) = call_in(rest) {
            let (before, after) = (&rest[..start], &rest[end..]);
            parts = parts
                .and(before, Role::Plain)
                .and(&rest[start..end], Role::Link);
            // A line has one link, to the first call that it names.
            parts.link = parts.link.or(Some(Link::Call(call)));
            rest = after;
        }
        parts.and(rest, Role::Plain).wrapped(width)
    });
    lines.collect()
}

/// The first `call NUMBER` of a text: where it begins and ends, and the number.
fn call_in(text: &str) -> Option<(usize, usize, u64)> {
    let mut from = 0;
    while let Some(at) = text.get(from..)?.find("call ") {
        let start = from + at;
        let number = start + "call ".len();
        let digits = text.get(number..)?;
        let digits = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        let is_word = !text[..start].ends_with(|c: char| c.is_alphanumeric());
        if is_word && let Ok(call) = text.get(number..number + digits)?.parse() {
            return Some((start, number + digits, call));
        }
        from = number;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_texts() {
        for (text, expected) in [
            ("created by call 12, at main", Some((11, 18, 12))),
            ("call 7", Some((0, 6, 7))),
            ("a recall 7", None),
            ("the call was in call 3", Some((16, 22, 3))),
            ("call x", None),
            ("", None),
        ] {
            assert_eq!(call_in(text), expected, "{text}");
        }
    }

    #[test]
    fn long_lines_are_wrapped() {
        let line = PaneLine::new("a".repeat(10), Role::Plain)
            .and("ä".repeat(12), Role::Link)
            .to(Link::Call(3));
        let lines = line.wrapped(16);
        let texts: Vec<String> = lines.iter().map(PaneLine::text).collect();
        let rest = format!("      {}", "ä".repeat(6));
        assert_eq!(
            texts,
            [format!("{}{}", "a".repeat(10), "ä".repeat(6)), rest]
        );
        assert!(lines.iter().all(|line| line.link == Some(Link::Call(3))));
        assert_eq!(PaneLine::empty().wrapped(10), [PaneLine::empty()]);
    }
}
