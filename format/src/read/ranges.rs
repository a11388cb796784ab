//! Increasing numbers as text: `0..3,7,9..12`, ranges without their ends.

use std::fmt;
use std::ops::Range;

/// Increasing numbers, those that follow one another as one range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Reads the text; `None` if it is no such list.
    pub fn parse(text: &str) -> Option<Self> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let range = match word.split_once("..") {
                Some((start, end)) => start.parse().ok()?..end.parse().ok()?,
                None => {
                    let number: u64 = word.parse().ok()?;
                    number..number.checked_add(1)?
                }
            };
            let behind = ranges.last().map_or(0, |last| last.end);
            if range.is_empty() || range.start < behind {
                return None;
            }
            ranges.push(range);
        }
        Some(Self(ranges))
    }

    /// The number at a position.
    pub fn get(&self, position: u64) -> Option<u64> {
        let mut passed = 0;
        for range in &self.0 {
            let length = range.end - range.start;
            if position - passed < length {
                return Some(range.start + (position - passed));
            }
            passed += length;
        }
        None
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        let lengths = self.0.iter().map(|range| range.end - range.start);
        lengths.fold(0, u64::saturating_add)
    }

    /// Whether a number is one of them.
    pub fn contains(&self, number: u64) -> bool {
        let behind = self.0.partition_point(|range| range.start <= number);
        let last = behind.checked_sub(1).and_then(|at| self.0.get(at));
        last.is_some_and(|range| number < range.end)
    }

    /// All numbers.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().cloned().flatten()
    }
}

impl FromIterator<u64> for Ranges {
    /// Of increasing numbers.
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some(last) if last.end == number => last.end += 1,
                _ => ranges.push(number..number.saturating_add(1)),
            }
        }
        Self(ranges)
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, range) in self.0.iter().enumerate() {
            if place > 0 {
                formatter.write_str(",")?;
            }
            match range.end - range.start {
                1 => write!(formatter, "{}", range.start)?,
                _ => write!(formatter, "{}..{}", range.start, range.end)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_text_and_back() {
        for (numbers, text) in [
            (&[][..], ""),
            (&[0], "0"),
            (&[0, 1, 2, 7, 9, 10], "0..3,7,9..11"),
            (&[5, u64::MAX - 1], "5,18446744073709551614"),
        ] {
            let ranges: Ranges = numbers.iter().copied().collect();
            assert_eq!(ranges.to_string(), text);
            assert_eq!(Ranges::parse(text), Some(ranges.clone()));
            assert!(ranges.iter().eq(numbers.iter().copied()));
            assert_eq!(ranges.count(), numbers.len() as u64);
            for number in 0..12 {
                assert_eq!(
                    ranges.contains(number),
                    numbers.contains(&number),
                    "{number}"
                );
            }
            for (position, &number) in (0..).zip(numbers) {
                assert_eq!(ranges.get(position), Some(number));
            }
            assert_eq!(ranges.get(numbers.len() as u64), None);
        }
        for wrong in ["x", "3..3", "5,4", "1..3,2", "-1", "1...3"] {
            assert_eq!(Ranges::parse(wrong), None, "{wrong}");
        }
    }
}
