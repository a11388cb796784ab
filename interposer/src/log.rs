//! Messages to stderr, by `write(2)`: one line each, rare.

/// Writes `cutape: ` and the pieces as one line.
pub(crate) fn line(pieces: &[&[u8]]) {
    let mut buffer = [0u8; 512];
    let mut filled = 0;
    for piece in [&b"cutape: "[..]].iter().chain(pieces) {
        let room = buffer.len() - 1 - filled;
        let take = piece.len().min(room);
        buffer[filled..filled + take].copy_from_slice(&piece[..take]);
        filled += take;
    }
    buffer[filled] = b'\n';
    let _errno = crate::errno::Errno::keep();
    // SAFETY: the buffer is valid for that many bytes. A failed write of a message is nothing we could report.
    unsafe { libc::write(2, buffer.as_ptr().cast(), filled + 1) };
}

/// A number in decimal digits, for [`line`].
pub(crate) fn decimal(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 || at == 0 {
            return &buffer[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn decimal() {
        for (number, expected) in [
            (0, "0"),
            (7, "7"),
            (4711, "4711"),
            (u64::MAX, "18446744073709551615"),
        ] {
            assert_eq!(super::decimal(number, &mut [0; 20]), expected.as_bytes());
        }
    }
}
