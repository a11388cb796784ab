//! Numbers in terms.

/// The index of a call; the one after it is a number, too.
pub(super) fn number(word: &str) -> Result<u64, String> {
    if !is_number(word) {
        return Err(format!("`{}` is not a call number", word.escape_debug()));
    }
    let number = word.parse().ok().filter(|number| *number < u64::MAX);
    number.ok_or_else(|| too_large(word))
}

/// Whether a word consists of digits; `parse` alone would accept a sign.
pub(super) fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The error of a number that no call or thread has.
pub(super) fn too_large(number: &str) -> String {
    format!("`{number}` is too large")
}
