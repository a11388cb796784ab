//! Terms joined by "and", "or" and "not": what `--calls` and `--rules` have in common, and the
//! filter of the report page (`report/page/script/expression.js`).

/// How deep parentheses and negations may nest.
const DEEPEST: usize = 64;

/// Terms and how they are joined.
#[derive(Debug, PartialEq)]
pub enum Expression<T> {
    /// A condition on a call.
    Term(T),
    /// Those that are not in it.
    Not(Box<Self>),
    /// Those in all of them.
    All(Vec<Self>),
    /// Those in one of them.
    Any(Vec<Self>),
}

/// A term as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Without its quotes.
    pub text: String,
    /// It begins with a quote.
    pub is_quoted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(Word),
    And,
    Or,
    Not,
    Open,
    Close,
}

impl<T> Expression<T> {
    /// Parses a text; `term` parses a word. An error says what is wrong.
    pub fn parse(
        text: &str,
        term: &mut dyn FnMut(&Word) -> Result<T, String>,
    ) -> Result<Self, String> {
        let mut tokens = tokens(text)?;
        tokens.reverse();
        let mut parser = Parser {
            tokens,
            depth: 0,
            term,
        };
        let expression = parser.any()?;
        match parser.tokens.is_empty() {
            true => Ok(expression),
            false => Err("a `)` without its `(`".into()),
        }
    }

    /// Whether it holds if `test` says which terms do.
    pub fn holds(&self, test: &mut dyn FnMut(&T) -> bool) -> bool {
        match self {
            Self::Term(term) => test(term),
            Self::Not(inner) => !inner.holds(test),
            Self::All(parts) => parts.iter().all(|part| part.holds(test)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(test)),
        }
    }

    /// All terms; with each, whether it is negated.
    pub fn terms(&self) -> Vec<(&T, bool)> {
        let mut found = Vec::new();
        self.collect(false, &mut found);
        found
    }

    fn collect<'e>(&'e self, is_negated: bool, found: &mut Vec<(&'e T, bool)>) {
        match self {
            Self::Term(term) => found.push((term, is_negated)),
            Self::Not(inner) => inner.collect(!is_negated, found),
            Self::All(parts) | Self::Any(parts) => {
                parts
                    .iter()
                    .for_each(|part| part.collect(is_negated, found));
            }
        }
    }

    /// Changes each term.
    pub fn for_each_mut<E>(
        &mut self,
        change: &mut dyn FnMut(&mut T) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Term(term) => change(term),
            Self::Not(inner) => inner.for_each_mut(change),
            Self::All(parts) | Self::Any(parts) => parts
                .iter_mut()
                .try_for_each(|part| part.for_each_mut(change)),
        }
    }
}

struct Parser<'p, T> {
    /// The next one last.
    tokens: Vec<Token>,
    depth: usize,
    term: &'p mut dyn FnMut(&Word) -> Result<T, String>,
}

impl<T> Parser<'_, T> {
    fn any(&mut self) -> Result<Expression<T>, String> {
        let mut parts = vec![self.all()?];
        while self.tokens.pop_if(|next| *next == Token::Or).is_some() {
            parts.push(self.all()?);
        }
        Ok(joined(parts, Expression::Any))
    }

    fn all(&mut self) -> Result<Expression<T>, String> {
        let mut parts = vec![self.one()?];
        loop {
            match self.tokens.last() {
                None | Some(Token::Or | Token::Close) => break,
                Some(Token::And) => _ = self.tokens.pop(),
                Some(_) => {}
            }
            parts.push(self.one()?);
        }
        Ok(joined(parts, Expression::All))
    }

    fn one(&mut self) -> Result<Expression<T>, String> {
        let place = match self.tokens.pop() {
            Some(Token::Word(word)) => return (self.term)(&word).map(Expression::Term),
            Some(Token::Not) => {
                let inner = self.nested(Self::one)?;
                return Ok(Expression::Not(Box::new(inner)));
            }
            Some(Token::Open) => {
                let inner = self.nested(Self::any)?;
                return match self.tokens.pop() {
                    Some(_) => Ok(inner),
                    None => Err("a `(` without its `)`".into()),
                };
            }
            None => "at the end",
            Some(Token::And) => "before `and`",
            Some(Token::Or) => "before a comma or `or`",
            Some(Token::Close) => "before `)`",
        };
        Err(format!("an empty term {place}"))
    }

    fn nested(
        &mut self,
        parse: fn(&mut Self) -> Result<Expression<T>, String>,
    ) -> Result<Expression<T>, String> {
        if self.depth == DEEPEST {
            return Err(format!(
                "more than {DEEPEST} parentheses and negations inside each other"
            ));
        }
        self.depth += 1;
        let inner = parse(self)?;
        self.depth -= 1;
        Ok(inner)
    }
}

fn joined<T>(
    mut parts: Vec<Expression<T>>,
    join: fn(Vec<Expression<T>>) -> Expression<T>,
) -> Expression<T> {
    match (parts.pop(), parts.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            parts.extend(last);
            join(parts)
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let single = match first {
            ',' => Some(Token::Or),
            '(' => Some(Token::Open),
            ')' => Some(Token::Close),
            '-' | '!' => Some(Token::Not),
            _ => None,
        };
        rest = match single {
            Some(token) => {
                tokens.push(token);
                &rest[1..]
            }
            None => {
                let (token, behind) = word(rest)?;
                tokens.push(token);
                behind
            }
        };
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// The word at the begin of a text, and what follows it. Quotes keep what would end it; parentheses
/// inside belong to it, as those of a kernel's parameters do, but not to `not`, `and` and `or`.
fn word(text: &str) -> Result<(Token, &str), String> {
    let mut word = Word {
        is_quoted: text.starts_with('"'),
        ..Word::default()
    };
    let (mut is_inside, mut has_quotes, mut depth) = (false, false, 0_usize);
    let mut end = text.len();
    for (at, character) in text.char_indices() {
        match character {
            '"' => {
                (is_inside, has_quotes) = (!is_inside, true);
                continue;
            }
            _ if is_inside => {}
            ')' if depth == 0 => {
                end = at;
                break;
            }
            _ if character == ',' || character.is_whitespace() => {
                end = at;
                break;
            }
            '(' if !has_quotes && keyword(&word.text).is_some() => {
                end = at;
                break;
            }
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        word.text.push(character);
    }
    if is_inside {
        return Err("a quote without its end".into());
    }
    let keyword = keyword(&word.text).filter(|_| !has_quotes);
    Ok((keyword.unwrap_or(Token::Word(word)), &text[end..]))
}

fn keyword(text: &str) -> Option<Token> {
    match text {
        "and" => Some(Token::And),
        "or" => Some(Token::Or),
        "not" => Some(Token::Not),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With all parentheses.
    fn shape(expression: &Expression<String>) -> String {
        let all = |parts: &[Expression<String>], between: &str| {
            let parts: Vec<String> = parts.iter().map(shape).collect();
            format!("({})", parts.join(between))
        };
        match expression {
            Expression::Term(word) => word.clone(),
            Expression::Not(inner) => format!("!{}", shape(inner)),
            Expression::All(parts) => all(parts, " & "),
            Expression::Any(parts) => all(parts, " | "),
        }
    }

    fn parse(text: &str) -> Result<String, String> {
        let mut term = |word: &Word| Ok(word.text.clone());
        Expression::parse(text, &mut term).map(|parsed| shape(&parsed))
    }

    #[test]
    fn terms_are_joined() {
        let at_most = format!("{}a{}", "(".repeat(DEEPEST), ")".repeat(DEEPEST));
        for (text, expected) in [
            ("a", "a"),
            (" a , b", "(a | b)"),
            ("a b,c and d", "((a & b) | (c & d))"),
            ("a or b c", "(a | (b & c))"),
            ("not a -b !c", "(!a & !b & !c)"),
            ("not (a, b) c", "(!(a | b) & c)"),
            ("- -a", "!!a"),
            ("f(int", "f(int"),
            ("(f(int))", "f(int)"),
            ("not(a or(b)and(c))", "!(a | (b & c))"),
            ("\"not\"(a)", "not(a)"),
            ("nota(b)", "nota(b)"),
            (&at_most, "a"),
            ("f(g(x)) y", "(f(g(x)) & y)"),
            ("range:\"step 0, 1\"[2] b-c", "(range:step 0, 1[2] & b-c)"),
            ("\"not\" and \"and\"", "(not & and)"),
            ("\"(\"", "("),
            ("a\nb", "(a & b)"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn errors() {
        let deep = "(".repeat(100_000);
        let negated = format!("{}a", "-".repeat(DEEPEST + 1));
        let too_deep = "more than 64 parentheses and negations inside each other";
        for (text, expected) in [
            ("", "an empty term at the end"),
            ("a,", "an empty term at the end"),
            (",a", "an empty term before a comma or `or`"),
            ("a,,b", "an empty term before a comma or `or`"),
            ("a and", "an empty term at the end"),
            ("a and and b", "an empty term before `and`"),
            ("not", "an empty term at the end"),
            ("()", "an empty term before `)`"),
            ("(a", "a `(` without its `)`"),
            ("a)", "a `)` without its `(`"),
            ("x \"a b", "a quote without its end"),
            (&deep, too_deep),
            (&negated, too_deep),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }
}
