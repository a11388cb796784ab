//! The terms of a call set that markers of the trace decide: `range:NAME` and `mark:NAME..`.

use std::ops::Range;

use cutape_analyzer::glob::matches;
use cutape_format::{MarkedRange, Marker, MarkerAction, Trace, marked_ranges};

use super::nested_names;
use super::number::is_number;

/// How many names an error lists.
const SHOWN: usize = 6;

/// Some moments of a trace.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Marked {
    /// Within ranges.
    Ranges(Pattern),
    /// From one mark to the next one.
    Between(Option<Pattern>, Option<Pattern>),
}

/// Moments, in ticks, by begin; they neither overlap nor touch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moments(Vec<Range<u64>>);

impl Moments {
    /// Nested and overlapping ones become one.
    fn of(mut all: Vec<Range<u64>>) -> Self {
        all.sort_by_key(|moments| moments.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for next in all {
            match joined.last_mut() {
                Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
                _ => joined.push(next),
            }
        }
        Self(joined)
    }

    pub(super) fn contain(&self, ticks: u64) -> bool {
        let behind = self.0.partition_point(|range| range.start <= ticks);
        let last = behind.checked_sub(1).and_then(|at| self.0.get(at));
        last.is_some_and(|range| ticks < range.end)
    }
}

/// Names ranges or marks: `[DOMAIN@]NAME[NUMBER]`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    text: String,
    /// Glob.
    domain: Option<String>,
    /// Glob for the name, or for the end of the path of names.
    name: String,
    occurrence: Option<Occurrence>,
}

/// Which of the ranges or marks that match, in the order of their begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occurrence {
    /// From 0.
    First(usize),
    /// From the last one, which is 1.
    Last(usize),
    /// The first, and the one after the last.
    From(usize, usize),
}

impl Marked {
    /// Parses a word; `None` if it is another kind of term.
    pub(super) fn parse(word: &str) -> Option<Result<Self, String>> {
        if let Some(text) = word.strip_prefix("range:") {
            return Some(Pattern::parse(text, "range:").map(Self::Ranges));
        }
        let is_bound = |bound: &str| bound.starts_with("mark:");
        let (from, to) = match word.strip_prefix("..") {
            Some(to) if is_bound(to) => ("", to),
            _ if is_bound(word) => match split_bounds(word) {
                Some(bounds) => bounds,
                None => return Some(Err(no_bounds(word))),
            },
            _ => return None,
        };
        let bound = |text: &str| {
            let pattern = text.strip_prefix("mark:");
            pattern
                .map(|text| Pattern::parse(text, "mark:"))
                .transpose()
        };
        Some(bound(from).and_then(|from| Ok(Self::Between(from, bound(to)?))))
    }

    /// Its moments in a trace; an error if it names nothing there.
    pub(super) fn moments(&self, markers: &Markers) -> Result<Moments, String> {
        Ok(Moments::of(match self {
            Self::Ranges(pattern) => {
                let found = pattern.select(markers.matching_ranges(pattern)?, "range")?;
                let ranges = found.into_iter().filter_map(|at| markers.ranges.get(at));
                ranges
                    .map(|range| range.begin..range.end.unwrap_or(u64::MAX))
                    .collect()
            }
            Self::Between(from, to) => vec![between(from.as_ref(), to.as_ref(), markers)?],
        }))
    }
}

/// `mark:A..` and `mark:A..mark:B` at the first dots that nothing or a mark follows.
fn split_bounds(word: &str) -> Option<(&str, &str)> {
    let places = word.char_indices();
    let mut splits = places.filter_map(|(at, _)| {
        let (from, rest) = word.split_at(at);
        Some((from, rest.strip_prefix("..")?))
    });
    splits.find(|(_, to)| to.is_empty() || to.starts_with("mark:"))
}

fn no_bounds(word: &str) -> String {
    let shown = word.escape_debug();
    match word.contains("..") {
        true => format!("`{shown}`: a range that begins with a mark ends with a mark"),
        false => format!(
            "`{shown}`: a mark is a moment, which has no calls; write {shown}.. for what follows \
             it, or {shown}..mark:NAME; names with spaces need quotes"
        ),
    }
}

/// From one mark to the next one; from the begin or to the end of the trace without one.
fn between(
    from: Option<&Pattern>,
    to: Option<&Pattern>,
    markers: &Markers,
) -> Result<Range<u64>, String> {
    let marks = |pattern: &Pattern| pattern.select(markers.matching_marks(pattern)?, "mark");
    let first = from.map(marks).transpose()?.unwrap_or_default();
    let begin = first.first().copied().unwrap_or(0);
    let Some(pattern) = to else {
        return Ok(begin..u64::MAX);
    };
    let mut last = marks(pattern)?.into_iter();
    // The first such mark after the begin, unless the occurrence is given.
    let end = match pattern.occurrence {
        Some(_) => last.next_back(),
        None => last.find(|ticks| *ticks > begin),
    };
    match end {
        Some(end) if end > begin => Ok(begin..end),
        Some(_) => Err("the second mark does not come after the first".into()),
        None => Err(format!(
            "no mark `{}` follows the begin",
            pattern.text.escape_debug()
        )),
    }
}

impl Pattern {
    fn parse(text: &str, prefix: &str) -> Result<Self, String> {
        let shown = text.escape_debug();
        let (rest, occurrence) = match text.strip_suffix(']').and_then(|t| t.rsplit_once('[')) {
            Some((rest, number)) => match Occurrence::parse(number) {
                Some(occurrence) => (rest, Some(occurrence)),
                None => (text, None),
            },
            None => (text, None),
        };
        let (domain, name) = match rest.split_once('@') {
            Some((domain, name)) => (Some(domain.to_owned()), name),
            None => (None, rest),
        };
        if name.is_empty() {
            return Err(format!("`{prefix}{shown}`: no name after `{prefix}`"));
        }
        Ok(Self {
            text: text.to_owned(),
            domain,
            name: name.to_owned(),
            occurrence,
        })
    }

    fn matches_domain(&self, domain: &str) -> bool {
        self.domain
            .as_ref()
            .is_none_or(|glob| matches(glob, domain))
    }

    /// Those of the found ones that the occurrence names.
    fn select<T: Clone>(&self, found: Vec<T>, what: &str) -> Result<Vec<T>, String> {
        let chosen = match self.occurrence {
            None => Some(&found[..]),
            Some(Occurrence::First(number)) => found.get(number..=number),
            Some(Occurrence::Last(number)) => found
                .len()
                .checked_sub(number)
                .and_then(|at| found.get(at..=at)),
            Some(Occurrence::From(first, end)) => found.get(first..end),
        };
        chosen.map(<[T]>::to_vec).ok_or_else(|| {
            format!(
                "`{}`: the trace has {} such {what}{}, numbered from 0",
                self.text.escape_debug(),
                found.len(),
                if found.len() == 1 { "" } else { "s" }
            )
        })
    }
}

impl Occurrence {
    fn parse(text: &str) -> Option<Self> {
        // No trace has as many ranges as a number that is too large.
        let number = |text: &str| is_number(text).then(|| text.parse().unwrap_or(usize::MAX));
        if let Some((first, end)) = text.split_once("..") {
            let (first, end) = (number(first)?, number(end)?);
            return (first < end).then_some(Self::From(first, end));
        }
        match text.strip_prefix('-') {
            Some(text) => number(text).filter(|n| *n > 0).map(Self::Last),
            None => number(text).map(Self::First),
        }
    }
}

/// The markers of a trace and their ranges.
#[derive(Debug, Default)]
pub struct Markers {
    /// In the order of their begin.
    pub list: Vec<Marker>,
    /// In the order of their begin.
    pub ranges: Vec<MarkedRange>,
}

impl Markers {
    /// Those of a trace.
    pub fn of(trace: &Trace) -> Self {
        let list = trace.markers();
        let ranges = marked_ranges(&list);
        Self { list, ranges }
    }

    /// The names of the ranges around a range and its own, from the outermost.
    pub fn path(&self, range: usize) -> String {
        let mut names = Vec::new();
        let mut at = Some(range);
        while let Some(range) = at.and_then(|at| self.ranges.get(at)) {
            names.push(range.name.as_str());
            at = range.parent;
        }
        names.reverse();
        names.join("/")
    }

    /// Those whose name matches, alone or with names of the ranges around it: `train/step`. An
    /// error if there is none.
    fn matching_ranges(&self, pattern: &Pattern) -> Result<Vec<usize>, String> {
        let is_in_domain = |at: &usize| {
            let range = self.ranges.get(*at);
            range.is_some_and(|range| pattern.matches_domain(&range.domain))
        };
        let mut found = nested_names::matching(&pattern.name, &self.ranges);
        found.retain(is_in_domain);
        match found.is_empty() {
            true => Err(self.no_match(pattern, "range")),
            false => Ok(found),
        }
    }

    /// The moments of those whose name matches; an error if there is none.
    fn matching_marks(&self, pattern: &Pattern) -> Result<Vec<u64>, String> {
        let marks = self.marks();
        let found: Vec<u64> = marks
            .filter(|mark| pattern.matches_domain(&mark.domain))
            .filter(|mark| matches(&pattern.name, &mark.text))
            .map(|mark| mark.ticks)
            .collect();
        match found.is_empty() {
            true => Err(self.no_match(pattern, "mark")),
            false => Ok(found),
        }
    }

    fn marks(&self) -> impl Iterator<Item = &Marker> {
        let is_mark = |marker: &&Marker| marker.action == MarkerAction::Mark;
        self.list.iter().filter(is_mark)
    }

    /// What the trace has instead of a range or mark that it lacks.
    fn no_match(&self, pattern: &Pattern, what: &str) -> String {
        let mut names: Vec<&str> = Vec::new();
        let all: Vec<&str> = match what {
            "range" => self.ranges.iter().map(|range| &*range.name).collect(),
            _ => self.marks().map(|mark| &*mark.text).collect(),
        };
        for name in all {
            if !names.contains(&name) && names.len() <= SHOWN {
                names.push(name);
            }
        }
        let shown = pattern.text.escape_debug();
        if names.is_empty() {
            return format!(
                "no {what} `{shown}`: the trace has no {what}s, because the program made none, \
                 through NVTX or otherwise, while it was recorded"
            );
        }
        let more = if names.len() > SHOWN { ", ..." } else { "" };
        names.truncate(SHOWN);
        let quote = match names.iter().any(|name| name.contains(' ')) {
            true => format!("; names with spaces need quotes, {what}:\"NAME\""),
            false => String::new(),
        };
        let names: Vec<String> = names
            .iter()
            .map(|name| name.escape_debug().to_string())
            .collect();
        format!(
            "no {what} `{shown}`; the trace has {}{more}{quote}",
            names.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let pattern = |domain: Option<&str>, name: &str, occurrence| {
            (domain.map(str::to_owned), name.to_owned(), occurrence)
        };
        for (text, expected) in [
            ("step", pattern(None, "step", None)),
            ("step[3]", pattern(None, "step", Some(Occurrence::First(3)))),
            ("step[-1]", pattern(None, "step", Some(Occurrence::Last(1)))),
            (
                "s*[2..5]",
                pattern(None, "s*", Some(Occurrence::From(2, 5))),
            ),
            ("train/step", pattern(None, "train/step", None)),
            ("nccl@all*", pattern(Some("nccl"), "all*", None)),
            ("@step", pattern(Some(""), "step", None)),
            ("sizes = [2, 3]", pattern(None, "sizes = [2, 3]", None)),
            ("step[x]", pattern(None, "step[x]", None)),
            ("step[+1]", pattern(None, "step[+1]", None)),
            ("step[--1]", pattern(None, "step[--1]", None)),
            ("step[1..+2]", pattern(None, "step[1..+2]", None)),
        ] {
            let found = Pattern::parse(text, "range:").unwrap();
            assert_eq!(
                (found.domain, found.name, found.occurrence),
                expected,
                "{text}"
            );
        }
        for text in ["", "[3]", "nccl@"] {
            assert!(Pattern::parse(text, "range:").is_err(), "{text}");
        }
    }

    #[test]
    fn terms() {
        for (word, is_marked, is_good) in [
            ("range:step", true, true),
            ("range:", true, false),
            ("mark:a..", true, true),
            ("..mark:a", true, true),
            ("mark:a..mark:b[1]", true, true),
            ("mark:a", true, false),
            ("mark:a..7", true, false),
            ("mark:..", true, false),
            ("mark:a..b..mark:c", true, true),
            ("mark:a..b..", true, true),
            ("mark:a...", true, true),
            ("mark:ü..", true, true),
            ("cuMem*", false, false),
            ("..7", false, false),
        ] {
            let parsed = Marked::parse(word);
            assert_eq!(parsed.is_some(), is_marked, "{word}");
            assert_eq!(parsed.is_some_and(|term| term.is_ok()), is_good, "{word}");
        }
    }
}
