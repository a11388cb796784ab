//! The statements at the top of a PTX text, without comments, blanks and lines for debuggers.

use std::hash::{Hash, Hasher};

use super::lexer::{Lexer, Token};
use crate::problem::Problem;

/// A statement at the top of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    /// The name of the function that it defines.
    pub(crate) function: Option<String>,
    /// Of what it says.
    pub(crate) hash: u64,
}

/// All of them, in the order of the text.
pub(crate) fn statements(text: &[u8]) -> Result<Vec<Statement>, Problem> {
    let mut lexer = Lexer::new(text)?;
    let mut found = Vec::new();
    while lexer.peek() != Token::End {
        found.extend(statement(&mut lexer)?);
    }
    Ok(found)
}

/// `.file`, `.loc` and `.section`: where the source of the code is.
fn is_for_debuggers(token: Token<'_>) -> bool {
    matches!(token, Token::Directive(b"file" | b"loc" | b"section"))
}

/// `.version`, `.target` and `.address_size`, which end with their line.
fn ends_with_its_line(token: Token<'_>) -> bool {
    matches!(
        token,
        Token::Directive(b"version" | b"target" | b"address_size")
    )
}

fn statement(lexer: &mut Lexer<'_>) -> Result<Option<Statement>, Problem> {
    let mut hasher = std::hash::DefaultHasher::new();
    let (mut braces, mut parentheses) = (0_usize, 0_usize);
    let (mut names_function, mut name, mut has_body) = (false, None, false);
    let mut is_empty = true;
    let is_line = ends_with_its_line(lexer.peek());
    let line = lexer.line();
    loop {
        let token = lexer.peek();
        if token == Token::End || is_line && lexer.line() != line {
            break;
        }
        if is_for_debuggers(token) {
            skip(lexer)?;
            if is_empty {
                return Ok(None);
            }
            continue;
        }
        lexer.next()?;
        is_empty = false;
        match token {
            Token::Directive(word) => (1, word).hash(&mut hasher),
            Token::Word(word) => (2, word).hash(&mut hasher),
            Token::Number(word) => (3, word).hash(&mut hasher),
            Token::Text => 4.hash(&mut hasher),
            Token::Mark(mark) => (5, mark).hash(&mut hasher),
            Token::End => break,
        }
        match token {
            Token::Directive(b"entry" | b"func") if braces == 0 => names_function = true,
            Token::Word(word) if names_function && parentheses == 0 && name.is_none() => {
                name = Some(String::from_utf8_lossy(word).into_owned());
            }
            Token::Mark(b'(') => parentheses += 1,
            Token::Mark(b')') => parentheses = parentheses.saturating_sub(1),
            Token::Mark(b'{') => {
                braces += 1;
                has_body |= names_function;
            }
            Token::Mark(b'}') => {
                braces = braces.saturating_sub(1);
                // The braces of a variable's values come before a semicolon.
                if braces == 0 && has_body {
                    break;
                }
            }
            Token::Mark(b';') if braces == 0 && parentheses == 0 => break,
            _ => {}
        }
    }
    Ok(Some(Statement {
        function: name.filter(|_| has_body),
        hash: hasher.finish(),
    }))
}

/// Skips a line, or a section with its braces.
fn skip(lexer: &mut Lexer<'_>) -> Result<(), Problem> {
    let is_section = lexer.peek() == Token::Directive(b"section");
    let line = lexer.line();
    let mut was_open = false;
    let mut braces = 0_usize;
    while lexer.peek() != Token::End {
        let is_done = match is_section {
            true => was_open && braces == 0,
            false => lexer.line() != line,
        };
        if is_done {
            break;
        }
        match lexer.next()? {
            Token::Mark(b'{') => (braces, was_open) = (braces + 1, true),
            Token::Mark(b'}') => braces = braces.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";
    const BODY: &str = ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<2>;\nret;\n}\n";

    #[test]
    fn comments_blanks_and_lines_for_debuggers_do_not_count() {
        let plain = statements(format!("{HEAD}{BODY}").as_bytes()).unwrap();
        assert_eq!(plain.len(), 4);
        assert_eq!(plain.last().unwrap().function.as_deref(), Some("k"));
        let loc = BODY.replace("ret;", "// return\n .loc 1 7 3\n  ret ;");
        let debug = ".section .debug_str\n{\n.b8 1,2\n}\n";
        for text in [
            format!("// made at noon\n{HEAD}/* a */ .file 1 \"/tmp/a.cu\"\n{loc}"),
            format!("{HEAD}\n\n{BODY}{debug}"),
        ] {
            assert_eq!(statements(text.as_bytes()).unwrap(), plain, "{text}");
        }
    }

    #[test]
    fn a_changed_body_is_its_functions() {
        let with = |body: &str, rest: &str| format!("{HEAD}{rest}{body}");
        let list = |text: String| statements(text.as_bytes()).unwrap();
        let variable =
            ".global .u32 v[2] = {1, 2};\n.extern .func (.param .u32 r) f(.param .u32 p);\n";
        let plain = list(with(BODY, variable));
        assert_eq!(plain.len(), 6);
        assert_eq!(plain.iter().filter(|s| s.function.is_some()).count(), 1);
        let changed = list(with(&BODY.replace("ret", "exit"), variable));
        let differ: Vec<_> = plain.iter().zip(&changed).filter(|(a, b)| a != b).collect();
        assert_eq!(differ.len(), 1);
        assert_eq!(differ[0].0.function.as_deref(), Some("k"));
        let other = list(with(BODY, &variable.replace("1, 2", "1, 3")));
        assert_eq!(plain.iter().zip(&other).filter(|(a, b)| a != b).count(), 1);
    }
}
