//! Which part of a program is recorded: the words of `record --start-at` and `--for`, which the
//! interposer reads as well.

/// When recording starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartCondition<'a> {
    /// Before the first launch of a kernel whose name in its image matches the pattern.
    Kernel(&'a str),
    /// Before the call of that number, from 1, of a function.
    Call {
        /// Its documented name, or that of one of its versions.
        function: &'a str,
        /// Counted from the start of the program.
        number: u64,
    },
    /// At a mark or the beginning of a range with that text.
    Mark(&'a str),
}

impl<'a> StartCondition<'a> {
    /// From `kernel:PATTERN`, `call:FUNCTION`, `call:FUNCTION:N` or `mark:TEXT`.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        if rest.is_empty() {
            return None;
        }
        Some(match kind {
            "kernel" => Self::Kernel(rest),
            "mark" => Self::Mark(rest),
            "call" => {
                let (function, number) = match rest.split_once(':') {
                    Some((function, number)) => (function, number.parse().ok()?),
                    None => (rest, 1),
                };
                let mut functions = crate::FUNCTIONS.iter();
                let is_known = functions.any(|known| [known.name, known.base].contains(&function));
                (is_known && number > 0).then_some(Self::Call { function, number })?
            }
            _ => return None,
        })
    }
}

/// How much is recorded from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedLength {
    /// So many launches of kernels and graphs.
    Launches(u64),
    /// So many calls.
    Calls(u64),
    /// So many milliseconds.
    Milliseconds(u64),
}

impl RecordedLength {
    /// From `100 launches`, `100 calls`, `10s` or `500ms`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at_checked(digits)?;
        let number = number.parse().ok().filter(|&number: &u64| number > 0)?;
        Some(match unit.trim_start() {
            "launches" | "launch" => Self::Launches(number),
            "calls" | "call" => Self::Calls(number),
            "s" => Self::Milliseconds(number.checked_mul(1000)?),
            "ms" => Self::Milliseconds(number),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_have_words() {
        use StartCondition::{Call, Kernel, Mark};
        let call = |number| {
            Some(Call {
                function: "cuMemAlloc",
                number,
            })
        };
        for (text, expected) in [
            ("kernel:step*", Some(Kernel("step*"))),
            ("kernel:a:b", Some(Kernel("a:b"))),
            ("mark:after warm-up", Some(Mark("after warm-up"))),
            ("call:cuMemAlloc", call(1)),
            ("call:cuMemAlloc:12", call(12)),
            ("call:cuMemAlloc:0", None),
            ("call:cuMemAlloc:x", None),
            ("call:cuNoSuchFunction", None),
            ("kernel:", None),
            ("kernel", None),
            ("launch:3", None),
            ("", None),
        ] {
            assert_eq!(StartCondition::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn lengths_have_units() {
        use RecordedLength::{Calls, Launches, Milliseconds};
        for (text, expected) in [
            ("100 launches", Some(Launches(100))),
            ("1 launch", Some(Launches(1))),
            ("7calls", Some(Calls(7))),
            ("10s", Some(Milliseconds(10_000))),
            ("500 ms", Some(Milliseconds(500))),
            ("0s", None),
            ("10", None),
            ("s", None),
            ("-1s", None),
            ("1.5s", None),
            ("18446744073709551615s", None),
            ("18446744073709551616 calls", None),
            ("", None),
        ] {
            assert_eq!(RecordedLength::parse(text), expected, "{text}");
        }
    }
}
