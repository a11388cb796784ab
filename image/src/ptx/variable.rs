//! Variable and parameter declarations: types, alignment, dimensions, initial values
//! (PTX ISA, "State Spaces, Types, and Variables").

use std::collections::HashSet;

use super::lexer::{Lexer, Token};
use crate::problem::Problem;

/// The most bytes of initial value that are kept of one text.
const MAX_INITIAL: usize = 64 << 20;
/// How deep braces of an initial value may nest.
const MAX_DEPTH: usize = 32;

/// What initial values share over a whole text.
pub(super) struct Values<'a> {
    /// Bytes that may still be kept, of [`MAX_INITIAL`].
    left: usize,
    /// Names in them: uses of other variables and functions.
    pub(super) words: HashSet<&'a [u8]>,
}

impl Values<'_> {
    pub(super) fn new() -> Self {
        Values {
            left: MAX_INITIAL,
            words: HashSet::new(),
        }
    }
}

/// Elements of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Integer,
    Float,
    Opaque,
}

/// One declared variable or parameter.
#[derive(Clone, Debug, Default)]
pub(super) struct Variable<'a> {
    pub(super) name: &'a [u8],
    /// Bytes in all; 0 for an array of unknown length.
    pub(super) size: u64,
    /// Bytes; a power of two in a valid text.
    pub(super) align: u64,
    pub(super) managed: bool,
    /// `.texref` or `.samplerref`.
    pub(super) texture: bool,
    /// `.surfref`.
    pub(super) surface: bool,
    pub(super) initial: Option<Vec<u8>>,
}

/// Size in bytes of a fundamental or opaque type.
fn type_size(name: &[u8]) -> Option<(u64, Element)> {
    Some(match name {
        b"b8" | b"u8" | b"s8" | b"e4m3" | b"e5m2" => (1, Element::Integer),
        b"b16" | b"u16" | b"s16" | b"e4m3x2" | b"e5m2x2" => (2, Element::Integer),
        b"f16" | b"bf16" => (2, Element::Float),
        b"b32" | b"u32" | b"s32" | b"f16x2" | b"bf16x2" | b"tf32" => (4, Element::Integer),
        b"f32" => (4, Element::Float),
        b"b64" | b"u64" | b"s64" => (8, Element::Integer),
        b"f64" => (8, Element::Float),
        b"b128" => (16, Element::Integer),
        b"pred" => (1, Element::Integer),
        // Handles, as kernel parameters 64 bits wide.
        b"texref" | b"samplerref" | b"surfref" => (8, Element::Opaque),
        _ => return None,
    })
}

/// The declarations after a state space, up to but without the `;`, `,` (for parameters) or `)`
/// that ends them. `list` allows several names after one type, each with its own dimensions and
/// value.
pub(super) fn declaration<'a>(
    lexer: &mut Lexer<'a>,
    list: bool,
    values: &mut Values<'a>,
) -> Result<Vec<Variable<'a>>, Problem> {
    let mut align = 0;
    let mut vector = 1;
    let mut element = None;
    let mut seen = Variable::default();
    let mut pointer = false;
    while let Token::Directive(word) = lexer.peek() {
        lexer.next()?;
        match word {
            // After `.ptr` the alignment is that of what it points to.
            b"align" => {
                let value = number(lexer)?;
                if !pointer {
                    align = value;
                }
            }
            b"ptr" => pointer = true,
            b"v2" => vector = 2,
            b"v4" => vector = 4,
            b"v8" => vector = 8,
            b"attribute" => seen.managed |= attribute(lexer)?,
            _ => {
                if let Some(found) = type_size(word) {
                    seen.texture |= matches!(word, b"texref" | b"samplerref");
                    seen.surface |= word == b"surfref";
                    element = Some(found);
                }
            }
        }
    }
    let Some((size, element)) = element else {
        return lexer.fault("a declaration without a type");
    };
    let unit = size * vector;
    let mut found = Vec::new();
    loop {
        let Token::Word(name) = lexer.peek() else {
            return lexer.fault("a declaration without a name");
        };
        lexer.next()?;
        let mut variable = Variable {
            name,
            align: align.max(unit),
            ..seen.clone()
        };
        // `name<n>` declares n of them; memory spaces do not have it.
        let mut dimensions = Vec::new();
        while lexer.take(b'[')? {
            dimensions.push(if lexer.peek() == Token::Mark(b']') {
                None
            } else {
                Some(number(lexer)?)
            });
            if !lexer.take(b']')? {
                return lexer.fault("a dimension without its `]`");
            }
        }
        if lexer.take(b'=')? {
            let shape = Shape {
                size,
                element,
                vector,
                dimensions: &dimensions,
            };
            let (bytes, outer) = shape.value(lexer, values)?;
            if let Some(first @ None) = dimensions.first_mut() {
                *first = Some(outer);
            }
            variable.initial = bytes;
        }
        variable.size = dimensions
            .iter()
            .fold(unit, |all, d| all.saturating_mul(d.unwrap_or(0)));
        if let Some(initial) = &mut variable.initial {
            initial.truncate(usize::try_from(variable.size).unwrap_or(usize::MAX));
        }
        found.push(variable);
        if !(list && lexer.take(b',')?) {
            return Ok(found);
        }
    }
}

/// `.attribute(...)`; whether it names `.managed`.
fn attribute(lexer: &mut Lexer<'_>) -> Result<bool, Problem> {
    let mut managed = false;
    let mut depth = 0_usize;
    loop {
        match lexer.peek() {
            Token::Mark(b'(') => depth += 1,
            Token::Mark(b')') if depth <= 1 => {
                lexer.next()?;
                return Ok(managed);
            }
            Token::Mark(b')') => depth -= 1,
            Token::Directive(b"managed") => managed = true,
            Token::End | Token::Mark(b';') => {
                return lexer.fault("an attribute without its `)`");
            }
            _ => {}
        }
        lexer.next()?;
    }
}

/// An unsigned integer literal.
pub(super) fn number(lexer: &mut Lexer<'_>) -> Result<u64, Problem> {
    let line = lexer.line();
    if let Token::Number(text) = lexer.next()?
        && let Some(value) = integer(text)
    {
        return Ok(value);
    }
    Err(Problem::syntax(line, "a number is missing here"))
}

/// PTX ISA, "Integer Constants": hexadecimal, binary, octal, decimal, each with an optional `U`.
pub(super) fn integer(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let text = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    // `from_str_radix` alone would take a sign.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// One value, as bits of an integer and as a number.
#[derive(Clone, Copy)]
enum Value {
    Integer(u64),
    Float(f64),
    Single(u32),
}

impl Value {
    /// A literal of any kind.
    fn literal(text: &[u8], negative: bool) -> Option<Value> {
        let word = std::str::from_utf8(text).ok()?;
        let value = match text {
            [b'0', b'f' | b'F', ..] => Value::Single(u32::from_str_radix(&word[2..], 16).ok()?),
            [b'0', b'd' | b'D', ..] => {
                Value::Float(f64::from_bits(u64::from_str_radix(&word[2..], 16).ok()?))
            }
            _ if integer(text).is_some() => Value::Integer(integer(text)?),
            _ => Value::Float(word.parse().ok()?),
        };
        Some(match (value, negative) {
            (value, false) => value,
            (Value::Integer(v), true) => Value::Integer(v.wrapping_neg()),
            (Value::Float(v), true) => Value::Float(-v),
            (Value::Single(v), true) => Value::Single(v ^ 0x8000_0000),
        })
    }

    /// Its `size` bytes as an element of that kind.
    fn bytes(self, size: u64, element: Element) -> Option<[u8; 16]> {
        let bits = match (element, size) {
            (Element::Float, 4) => match self {
                Value::Single(bits) => bits.into(),
                Value::Float(v) => (v as f32).to_bits().into(),
                Value::Integer(v) => (v as i64 as f32).to_bits().into(),
            },
            (Element::Float, 8) => match self {
                Value::Single(bits) => f64::from(f32::from_bits(bits)).to_bits(),
                Value::Float(v) => v.to_bits(),
                Value::Integer(v) => (v as i64 as f64).to_bits(),
            },
            (Element::Integer, _) => match self {
                Value::Integer(v) => v,
                // A bit pattern for an untyped element.
                Value::Single(bits) => bits.into(),
                Value::Float(v) => v.to_bits(),
            },
            _ => return None,
        };
        let mut out = [0; 16];
        out[..8].copy_from_slice(&bits.to_le_bytes());
        Some(out)
    }
}

struct Shape<'s> {
    size: u64,
    element: Element,
    vector: u64,
    dimensions: &'s [Option<u64>],
}

/// An initial value while it is read.
struct Filling<'l, 'a> {
    bytes: Vec<u8>,
    /// False if it depends on addresses, is a constant expression, or exceeds the limit.
    known: bool,
    values: &'l mut Values<'a>,
}

impl Shape<'_> {
    /// The value after `=`: its bytes if they are known, and the length of its outermost list.
    fn value<'a>(
        &self,
        lexer: &mut Lexer<'a>,
        values: &mut Values<'a>,
    ) -> Result<(Option<Vec<u8>>, u64), Problem> {
        let mut filling = Filling {
            bytes: Vec::new(),
            known: true,
            values,
        };
        let outer = self.level(lexer, 0, 0, &mut filling)?;
        let known = filling.known;
        let bytes = filling.bytes;
        let all_zero = bytes.iter().all(|&b| b == 0);
        Ok(((known && !all_zero).then_some(bytes), outer))
    }

    /// Bytes of one element of a list `depth` braces deep.
    fn stride(&self, depth: usize) -> u64 {
        let inner = self.dimensions.get(depth..).unwrap_or_default();
        let unit = if depth > self.dimensions.len() {
            self.size
        } else {
            self.size * self.vector
        };
        inner
            .iter()
            .fold(unit, |all, d| all.saturating_mul(d.unwrap_or(0)))
    }

    /// One value or braced list that begins at byte `at`; how many members the list has.
    fn level<'a>(
        &self,
        lexer: &mut Lexer<'a>,
        depth: usize,
        at: u64,
        filling: &mut Filling<'_, 'a>,
    ) -> Result<u64, Problem> {
        if !lexer.take(b'{')? {
            self.scalar(lexer, at, filling)?;
            return Ok(1);
        }
        if depth >= MAX_DEPTH {
            return lexer.fault("braces nest too deep");
        }
        let mut members = 0;
        while lexer.peek() != Token::Mark(b'}') {
            let place = self
                .stride(depth + 1)
                .saturating_mul(members)
                .saturating_add(at);
            self.level(lexer, depth + 1, place, filling)?;
            members += 1;
            if !lexer.take(b',')? {
                break;
            }
        }
        if !lexer.take(b'}')? {
            return lexer.fault("an initial value without its `}`");
        }
        Ok(members)
    }

    /// One constant; anything but a literal makes the whole value unknown.
    fn scalar<'a>(
        &self,
        lexer: &mut Lexer<'a>,
        at: u64,
        filling: &mut Filling<'_, 'a>,
    ) -> Result<(), Problem> {
        let negative = lexer.take(b'-')?;
        let value = match lexer.peek() {
            Token::Number(text) => {
                lexer.next()?;
                Value::literal(text, negative)
            }
            _ => None,
        };
        let mut depth = 0_usize;
        let mut plain = value.is_some();
        loop {
            match lexer.peek() {
                Token::Mark(b',' | b'}' | b';') if depth == 0 => break,
                Token::Mark(b'(') => depth += 1,
                Token::Mark(b')') => depth = depth.saturating_sub(1),
                Token::Word(word) => {
                    filling.values.words.insert(word);
                }
                Token::Mark(b';' | b'{' | b'}') | Token::End => {
                    return lexer.fault("an initial value that does not end");
                }
                _ => {}
            }
            plain = false;
            lexer.next()?;
        }
        let bytes = value
            .filter(|_| plain)
            .and_then(|v| v.bytes(self.size, self.element));
        match bytes {
            Some(bytes) => filling.put(at, bytes.get(..self.size as usize).unwrap_or(&bytes)),
            None => filling.known = false,
        }
        Ok(())
    }
}

impl Filling<'_, '_> {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let end = start.saturating_add(bytes.len());
        let more = end.saturating_sub(self.bytes.len());
        if !self.known || more > self.values.left {
            self.known = false;
            return;
        }
        self.values.left -= more;
        if more > 0 {
            self.bytes.resize(end, 0);
        }
        if let Some(target) = self.bytes.get_mut(start..end) {
            target.copy_from_slice(bytes);
        }
    }
}
