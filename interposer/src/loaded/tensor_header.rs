//! Which parts of a safetensors file are tensors, as its header says: its length in 8 bytes, then JSON
//! that has `"data_offsets":[BEGIN,END]` for each tensor, counted from the end of the header.
//!
//! A wrong answer does no harm: what is found there is compared with the payload.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::data_files::SHORTEST;
use crate::process::memory::Scratch;

/// Longer headers are not read. The format allows 100 MB; a header of 100,000 tensors has 10 MB.
const MOST_HEADER: u64 = 32 << 20;
/// Bytes before the header.
const LENGTH: usize = 8;
/// By so many bytes a file is recognised.
pub(super) const SIGNATURE: usize = LENGTH + 1;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tensor {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Where the tensors of a file are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tensors {
    /// The end of the header.
    pub(super) start: u64,
    /// Those that are not too short to be looked for, by offset.
    pub(super) all: Vec<Tensor>,
}

/// Whether a file that begins like this has tensors.
pub(super) fn has_tensors(signature: &[u8; SIGNATURE]) -> bool {
    header_length(signature).is_some()
}

/// The length of the header.
fn header_length(signature: &[u8; SIGNATURE]) -> Option<u64> {
    let (length, first) = signature.split_first_chunk::<LENGTH>()?;
    let length = u64::from_le_bytes(*length);
    (first == b"{" && length <= MOST_HEADER).then_some(length)
}

impl Tensors {
    /// Of a file of that length.
    pub(super) fn of(file: &File, file_length: u64) -> Option<Self> {
        let mut signature = [0; SIGNATURE];
        file.read_exact_at(&mut signature, 0).ok()?;
        let length = header_length(&signature).filter(|length| *length < file_length)?;
        let start = length + LENGTH as u64;
        let mut scratch = Scratch::new(usize::try_from(length).ok()?)?;
        let header = scratch.bytes();
        file.read_exact_at(header, LENGTH as u64).ok()?;
        let mut all = Vec::new();
        for (begin, end) in data_offsets(header) {
            let range = (start.checked_add(begin), end.checked_sub(begin));
            let (Some(offset), Some(length)) = range else {
                continue;
            };
            let end = offset.checked_add(length);
            if length >= SHORTEST && end.is_some_and(|end| end <= file_length) {
                all.try_reserve(1).ok()?;
                all.push(Tensor { offset, length });
            }
        }
        all.sort_unstable();
        Some(Self { start, all })
    }
}

/// The pairs of numbers behind each `"data_offsets"`.
fn data_offsets(header: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    const KEY: &[u8] = b"\"data_offsets\"";
    let mut rest = Text(header);
    std::iter::from_fn(move || {
        loop {
            let quote = rest.0.iter().position(|&byte| byte == b'"')?;
            rest.skip(quote);
            if !rest.0.starts_with(KEY) {
                rest.skip(1);
                continue;
            }
            rest.skip(KEY.len());
            if let Some(pair) = rest.pair() {
                return Some(pair);
            }
        }
    })
}

/// What is left of a text.
struct Text<'a>(&'a [u8]);

impl Text<'_> {
    fn skip(&mut self, count: usize) {
        self.0 = self.0.get(count..).unwrap_or_default();
    }

    /// `:[NUMBER,NUMBER]`
    fn pair(&mut self) -> Option<(u64, u64)> {
        self.mark(b':')?;
        self.mark(b'[')?;
        let begin = self.number()?;
        self.mark(b',')?;
        let end = self.number()?;
        self.mark(b']')?;
        Some((begin, end))
    }

    fn mark(&mut self, mark: u8) -> Option<()> {
        self.0 = self.0.trim_ascii_start().strip_prefix(&[mark])?;
        Some(())
    }

    fn number(&mut self) -> Option<u64> {
        self.0 = self.0.trim_ascii_start();
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let digits = self.0.iter().take_while(|byte| is_digit(byte)).count();
        let text = core::str::from_utf8(self.0.get(..digits)?).ok()?;
        let number = text.parse().ok()?;
        self.skip(digits);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LONG: u64 = SHORTEST;

    /// What the header of a file with three times `LONG` bytes of data says.
    fn tensors(header: &str, said_length: Option<u64>) -> Option<Tensors> {
        let name = format!("cutape-tensors-{}-{header:p}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let length = said_length.unwrap_or(header.len() as u64);
        let data = vec![0; 3 * LONG as usize];
        let content = [&length.to_le_bytes(), header.as_bytes(), &data].concat();
        fs::write(&path, &content).unwrap();
        let found = Tensors::of(&File::open(&path).unwrap(), content.len() as u64);
        fs::remove_file(&path).unwrap();
        found
    }

    #[test]
    fn tensors_of_headers() {
        let pair = |begin: u64, end: u64| format!(r#""data_offsets":[{begin},{end}]"#);
        let object = |pairs: &[String]| format!("{{\"a\":{{{}}}}}", pairs.join("},\"b\":{"));
        let max = u64::MAX;
        let long = LONG;
        for (header, expected) in [
            (object(&[pair(0, LONG)]), &[(0, LONG)][..]),
            (
                object(&[pair(LONG, 3 * LONG), pair(0, LONG)]),
                &[(0, LONG), (LONG, 2 * LONG)],
            ),
            (
                format!(
                    "{{\"a\":{{ \"data_offsets\" : [ 8 ,\n\t{} ] }} }}  ",
                    LONG + 8
                ),
                &[(8, LONG)],
            ),
            // A name like the key, a key within a name, and a key without numbers.
            (
                format!(r#"{{"data_offsets":{{{}}}}}"#, pair(0, LONG)),
                &[(0, LONG)],
            ),
            (format!(r#"{{"\"data_offsets\":[0,{long}]":1}}"#), &[]),
            (
                format!(r#"{{"data_offsets""data_offsets":[0,{long}]}}"#),
                &[(0, LONG)],
            ),
            // Too short, beyond the file, the end before the beginning, no number.
            (object(&[pair(0, LONG - 1)]), &[]),
            (object(&[pair(0, 3 * LONG + 1)]), &[]),
            (object(&[pair(1, max), pair(max, max), pair(max, 0)]), &[]),
            (object(&[pair(2 * LONG, LONG)]), &[]),
            (format!(r#"{{"data_offsets":[-1,{long}]"#), &[]),
            (
                format!(r#"{{"data_offsets":[0,{long}0000000000000000]"#),
                &[],
            ),
            (format!(r#"{{"data_offsets":[0,{long}"#), &[]),
            (format!(r#"{{"data_offsets":[0.5,{long}]"#), &[]),
            ("{\"data_offsets\"".to_owned(), &[]),
            ("{not JSON".to_owned(), &[]),
            ("{".to_owned(), &[]),
        ] {
            let found = tensors(&header, None).unwrap();
            let start = LENGTH as u64 + header.len() as u64;
            assert_eq!(found.start, start);
            let parts = found.all.iter().map(|t| (t.offset - start, t.length));
            assert_eq!(parts.collect::<Vec<_>>(), expected, "{header}");
        }
        for (header, length) in [
            ("[]", None),
            ("", None),
            ("{}", Some(0x8000_0000_0000_0000)),
            ("{}", Some(u64::MAX)),
            ("{}", Some(MOST_HEADER + 1)),
            ("{}", Some(4 * LONG)),
        ] {
            assert_eq!(tensors(header, length), None, "{header} {length:?}");
        }
    }
}
