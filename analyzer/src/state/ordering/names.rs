//! What the mangled name of a kernel tells of its parameters.

/// How many pointers and qualifiers may precede a type.
const DEEPEST: usize = 32;

/// For each parameter of a function whether it is a pointer to constants, as its mangled name has
/// it (Itanium C++ ABI, Mangling); `None` for a name that is not mangled, and for what this parser
/// does not read: templates and nested names.
pub(super) fn constant_pointers(name: &str) -> Option<Box<[bool]>> {
    let mut parser = Parser {
        rest: name.strip_prefix("_Z")?.as_bytes(),
        known: Vec::new(),
    };
    parser.source_name()?;
    let mut parameters = Vec::new();
    while !parser.rest.is_empty() {
        parameters.push(parser.parse_type(DEEPEST)?.is_constant_pointer);
    }
    Some(parameters.into())
}

#[derive(Clone, Copy, Debug)]
struct Type {
    is_constant: bool,
    is_constant_pointer: bool,
}

struct Parser<'a> {
    rest: &'a [u8],
    /// What a substitution can name.
    known: Vec<Type>,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// A length and that many characters.
    fn source_name(&mut self) -> Option<()> {
        let digits = self.rest.iter().take_while(|c| c.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at_checked(digits)?;
        let length: usize = std::str::from_utf8(number).ok()?.parse().ok()?;
        self.rest = rest.get(length..)?;
        // A template.
        (self.rest.first() != Some(&b'I')).then_some(())
    }

    fn parse_type(&mut self, depth: usize) -> Option<Type> {
        let depth = depth.checked_sub(1)?;
        const PLAIN: Type = Type {
            is_constant: false,
            is_constant_pointer: false,
        };
        if self.rest.first().is_some_and(u8::is_ascii_digit) {
            self.source_name()?;
            self.known.push(PLAIN);
            return Some(PLAIN);
        }
        let found = match self.next()? {
            b'P' => {
                let target = self.parse_type(depth)?;
                Type {
                    is_constant: false,
                    is_constant_pointer: target.is_constant,
                }
            }
            b'K' => {
                let target = self.parse_type(depth)?;
                Type {
                    is_constant: true,
                    ..target
                }
            }
            // `__restrict__` and `volatile`.
            b'r' | b'V' => self.parse_type(depth)?,
            b'S' => return self.substitution(),
            b'a'..=b'z' => return Some(PLAIN),
            _ => return None,
        };
        self.known.push(found);
        Some(found)
    }

    fn substitution(&mut self) -> Option<Type> {
        let mut index: Option<usize> = None;
        loop {
            match self.next()? {
                b'_' => break,
                c => {
                    let digit = char::from(c)
                        .to_digit(36)
                        .filter(|_| !c.is_ascii_lowercase())?;
                    let upper = index.unwrap_or(0).checked_mul(36)?;
                    index = Some(upper.checked_add(digit as usize)?);
                }
            }
        }
        let index = index.map_or(Some(0), |index| index.checked_add(1))?;
        self.known.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::constant_pointers;

    #[test]
    fn names_tell_constants() {
        for (name, expected) in [
            ("vectorAdd", None),
            (
                "_Z9vectorAddPKfS0_Pfi",
                Some(&[true, true, false, false][..]),
            ),
            ("_Z5scalePf", Some(&[false])),
            ("_Z4copyPKcPcS0_", Some(&[true, false, true])),
            ("_Z4copyPKcPcS1_m", Some(&[true, false, false, false])),
            ("_Z1kPVjPKPKf", Some(&[false, true])),
            ("_Z1kIfEvPKT_", None),
            ("_ZN1a1bEPf", None),
            ("_Z1kPK4Size4Size", Some(&[true, false])),
            ("_Z99k", None),
            ("_Z1kS_", None),
            ("_Z1kP", None),
            ("_Z1kSZZZZZZZZZZZZZZZZ_", None),
            (&format!("_Z1k{}f", "P".repeat(1 << 20)), None),
        ] {
            let found = constant_pointers(name);
            assert_eq!(found.as_deref(), expected, "{name}");
        }
    }
}
