//! Names of functions as in their source.

/// Longer names are cut and not demangled.
pub const LONGEST_NAME: usize = 4096;

/// The name as in the source.
pub fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    // Long names may be hostile.
    if name.len() < LONGEST_NAME
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(text) = symbol.demangle()
    {
        return text;
    }
    name.to_owned()
}

/// A function's name without its result and its parameters.
pub fn bare(name: &str) -> &str {
    // Template arguments and lambdas have parentheses and blanks of their own.
    let (mut depth, mut end, mut begin) = (0_usize, name.len(), 0);
    for (at, character) in name.char_indices() {
        match character {
            '(' if depth == 0 && at > 0 && !name[at..].starts_with("(anonymous") => {
                end = at;
                break;
            }
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => begin = at + 1,
            _ => {}
        }
    }
    &name[begin..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_parameters() {
        for (name, expected) in [
            ("saxpy", "saxpy"),
            ("saxpy(int, float*)", "saxpy"),
            ("void add<int, 4>(A<int, 2>)", "add<int, 4>"),
            (
                "void f<g(int)::{lambda(int)#1}>(int)",
                "f<g(int)::{lambda(int)#1}>",
            ),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            (
                "void a::(anonymous namespace)::f<b c>()",
                "a::(anonymous namespace)::f<b c>",
            ),
            ("", ""),
        ] {
            assert_eq!(bare(name), expected);
        }
    }
}
