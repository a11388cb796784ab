//! Patterns for names: `*` matches any characters, `?` one byte.

/// Whether a pattern matches the whole text.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.as_bytes(), text.as_bytes());
    // What to try when the last `*` has to take one more byte.
    let mut retry: Option<(&[u8], &[u8])> = None;
    while let Some((byte, rest)) = text.split_first() {
        match pattern.split_first() {
            Some((b'*', behind)) => {
                pattern = behind;
                retry = Some((behind, text));
            }
            Some((expected, behind)) if *expected == b'?' || expected == byte => {
                (pattern, text) = (behind, rest);
            }
            _ => {
                let Some((behind, [_, taken @ ..])) = retry else {
                    return false;
                };
                (pattern, text) = (behind, taken);
                retry = Some((behind, taken));
            }
        }
    }
    pattern.iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_text() {
        for (pattern, text, expected) in [
            ("cuMemAlloc", "cuMemAlloc", true),
            ("cuMemAlloc", "cuMemAlloc_v2", false),
            ("cuMem*", "cuMemcpy", true),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("*Alloc*", "cuMemAlloc_v2", true),
            ("cu?emAlloc", "cuMemAlloc", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("a*a", "a", false),
            ("a?", "a", false),
            ("a**", "a", true),
            ("l*k-*-leak", "link-state-leak", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
