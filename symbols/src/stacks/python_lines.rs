//! Lines of Python's bytecode, from the tables of each version.

use cutape_format::PythonCode;

/// The line of the instruction at a byte offset; `None` if it has none.
pub(crate) fn line(code: &PythonCode, offset: u32) -> Option<u32> {
    let first = i64::from(code.first_line);
    let table = code.line_table.as_slice();
    let line = match code.version {
        ..0x030a => by_increments(table, first, offset),
        0x030a => by_ranges(table, first, offset)?,
        _ => by_locations(table, first, offset)?,
    };
    u32::try_from(line).ok().filter(|&line| line > 0)
}

/// Until 3.9 (Objects/lnotab_notes.txt): pairs of increments of offset and line.
fn by_increments(table: &[u8], first: i64, offset: u32) -> i64 {
    let (mut line, mut start) = (first, 0_u64);
    for [bytes, lines] in table.as_chunks().0 {
        start += u64::from(*bytes);
        if start > offset.into() {
            break;
        }
        line += i64::from(*lines as i8);
    }
    line
}

/// 3.10 (PEP 626): pairs of the length of a range and its line's distance from the last; -128 if it
/// has none.
fn by_ranges(table: &[u8], first: i64, offset: u32) -> Option<i64> {
    let (mut line, mut end) = (first, 0_u64);
    for [bytes, lines] in table.as_chunks().0 {
        end += u64::from(*bytes);
        let distance = *lines as i8;
        if distance != i8::MIN {
            line += i64::from(distance);
        }
        if u64::from(offset) < end {
            return (distance != i8::MIN).then_some(line);
        }
    }
    None
}

/// Since 3.11 (InternalDocs/code_objects.md): entries of a kind, a length in instructions of two
/// bytes, and numbers.
fn by_locations(table: &[u8], first: i64, offset: u32) -> Option<i64> {
    let mut bytes = table.iter().copied().peekable();
    let (mut line, mut end) = (first, 0_u64);
    while let Some(head) = bytes.next() {
        let kind = head >> 3 & 15;
        end += 2 * u64::from(head & 7) + 2;
        let distance = match kind {
            // One line: with its distance, or without columns, or with all of them.
            10..=12 => i64::from(kind - 10),
            13 | 14 => signed(&mut bytes)?,
            _ => 0,
        };
        line += distance;
        if u64::from(offset) < end {
            return (kind != 15).then_some(line);
        }
        // Every entry begins with a byte that has bit 7, and no other byte has it.
        while bytes.next_if(|byte| byte & 0x80 == 0).is_some() {}
    }
    None
}

/// A number in pieces of six bits, with its sign in the lowest.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let (mut value, mut bits) = (0_u64, 0_u32);
    loop {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x3f).checked_shl(bits)?;
        bits += 6;
        if byte & 0x40 == 0 {
            break;
        }
    }
    let size = i64::try_from(value >> 1).ok()?;
    Some(if value & 1 != 0 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(version: u32, first_line: u32, line_table: &[u8], offsets: &[u32]) -> Vec<u32> {
        let code = PythonCode {
            version,
            first_line,
            line_table: line_table.to_vec(),
            ..PythonCode::default()
        };
        let offsets = offsets.iter();
        offsets
            .map(|&offset| line(&code, offset).unwrap_or(0))
            .collect()
    }

    #[test]
    fn tables_of_each_version() {
        // As CPython 3.9.2 compiles
        //   def f(g):
        //       return (
        //           g(1) +
        //           g(2))
        let expected = [3, 3, 4, 3, 2];
        let table = [0, 2, 8, 1, 8, 255, 2, 255];
        assert_eq!(lines(0x0309, 1, &table, &[0, 6, 8, 16, 18]), expected);
        // No instruction of the range from 2 to 4 has a line.
        assert_eq!(
            lines(
                0x030a,
                10,
                &[2, 1, 2, 0x80, 4, 2, 2, 0xff],
                &[0, 2, 4, 6, 8, 10]
            ),
            [11, 0, 13, 13, 12, 0]
        );
        // A short form; one line on; a long form back by two lines; none; no columns, on by 70.
        let table = [
            0x80, 0x00, 0xd9, 0x00, 0x05, 0xf0, 0x05, 0x00, 0x01, 0x02, 0xf8, 0xe8, 0x4c, 0x02,
        ];
        assert_eq!(
            lines(0x030b, 10, &table, &[0, 2, 4, 5, 6, 8, 10]),
            [10, 11, 11, 11, 9, 0, 79]
        );
    }

    #[test]
    fn any_bytes_are_a_table() {
        let mut state = 1_u32;
        for _ in 0..2000 {
            let table: Vec<u8> = (0..state % 40)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            state = state.wrapping_add(1);
            for version in [0x0309, 0x030a, 0x030b, 0x030e] {
                lines(version, state, &table, &[0, 7, 100, u32::MAX]);
            }
        }
    }
}
