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

const NAMELESS: &str = "(anonymous namespace)";

/// A function's name without its result and its parameters.
pub fn bare(name: &str) -> &str {
    // Template arguments and lambdas have parentheses and blanks of their own.
    let (mut depth, mut end, mut begin) = (0_usize, name.len(), 0);
    for (at, character) in name.char_indices() {
        let rest = &name[at..];
        match character {
            '(' if depth == 0 && at > 0 && !rest.starts_with(NAMELESS) => {
                // Unless parentheses are what is called.
                if !name[begin..at].ends_with("operator") {
                    end = at;
                    break;
                }
                depth += 1;
            }
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth = depth.saturating_sub(1),
            // Not the blank before the parameters.
            ' ' if depth == 0 && (!rest.starts_with(" (") || rest[1..].starts_with(NAMELESS)) => {
                begin = at + 1;
            }
            _ => {}
        }
    }
    name[begin..end].trim_end()
}

/// A function's name without namespaces and classes, template arguments, result and parameters.
pub fn last_name(name: &str) -> String {
    let (mut depth, mut last) = (0_usize, String::new());
    for character in bare(name).replace(NAMELESS, "").chars() {
        match character {
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => last.clear(),
            _ if depth == 0 => last.push(character),
            _ => {}
        }
    }
    last
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
            ("A::operator()(int) const", "A::operator()"),
            (
                "void (anonymous namespace)::k<int>(int)",
                "(anonymous namespace)::k<int>",
            ),
            (
                "std::enable_if<!(false), void>::type a::f<float> (float)",
                "a::f<float>",
            ),
            ("", ""),
        ] {
            assert_eq!(bare(name), expected);
        }
        for (name, expected) in [
            ("saxpy", "saxpy"),
            ("void a::(anonymous namespace)::f<b::c>(int)", "f"),
            ("A<int>::operator()(int)", "operator"),
            ("a/b", "a/b"),
        ] {
            assert_eq!(last_name(name), expected);
        }
    }
}
