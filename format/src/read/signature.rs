//! The signature table that a trace carries, so that reading it needs no other knowledge of the
//! API.

use std::collections::HashMap;

/// How an argument is represented in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Unsigned integer, enum, handle or pointer of that many bytes.
    Unsigned(u8),
    /// Signed integer of that many bytes.
    Signed(u8),
    /// Floating point of 4 or 8 bytes.
    Float(u8),
    /// A struct by value of that many bytes.
    Memory(u8),
}

impl ValueType {
    fn parse(word: &str) -> Option<Self> {
        let bytes: u8 = word.get(1..)?.parse().ok()?;
        Some(match (word.get(..1)?, bytes) {
            ("u", 1 | 2 | 4 | 8) => Self::Unsigned(bytes),
            ("i", 1 | 2 | 4 | 8) => Self::Signed(bytes),
            ("f", 4 | 8) => Self::Float(bytes),
            ("m", 1..) => Self::Memory(bytes),
            _ => return None,
        })
    }

    /// Bytes in a record.
    pub fn bytes(self) -> usize {
        match self {
            Self::Unsigned(n) | Self::Signed(n) | Self::Float(n) | Self::Memory(n) => n.into(),
        }
    }

    /// An argument of this type as a word: sign-extended if it is signed.
    #[inline]
    pub(crate) fn extended(self, value: u64) -> u64 {
        match self {
            Self::Signed(n) if n < 8 => {
                let shift = 64 - 8 * u32::from(n);
                (((value << shift) as i64) >> shift) as u64
            }
            _ => value,
        }
    }
}

/// A parameter of a function.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name in cuda.h.
    pub name: String,
    /// Its C type.
    pub c_type: String,
    /// How its argument is represented.
    pub value_type: ValueType,
    /// What it means, in the words of the registry.
    pub role: String,
    /// Where its bytes begin among the arguments.
    pub offset: usize,
}

impl Parameter {
    fn parse(word: &str, offset: usize) -> Option<Self> {
        let mut parts = word.splitn(4, '|');
        Some(Self {
            name: parts.next()?.to_owned(),
            c_type: parts.next()?.to_owned(),
            value_type: ValueType::parse(parts.next()?)?,
            role: parts.next()?.to_owned(),
            offset,
        })
    }

    /// The bytes of its argument among packed arguments.
    #[inline]
    pub(crate) fn of<'a>(&self, packed: &'a [u8]) -> Option<&'a [u8]> {
        packed.get(self.offset..)?.get(..self.value_type.bytes())
    }

    fn introduces(&self) -> bool {
        ["make ", "find ", "out string"]
            .iter()
            .any(|word| self.role.starts_with(word))
    }
}

/// An exported function of the driver.
#[derive(Clone, Debug, Default)]
pub struct Signature {
    /// Its number in this trace's records.
    pub id: u16,
    /// The exported name.
    pub name: String,
    /// The documented name that it is a version of.
    pub base: String,
    /// The manual's section.
    pub section: String,
    /// The C return type.
    pub returns: String,
    /// `plain`, `override`, `opaque` or `unreplayable`.
    pub class: String,
    /// In the order of the prototype.
    pub parameters: Vec<Parameter>,
    /// Length of all arguments in a record.
    pub arguments_length: usize,
    /// A bit for each of the first parameters that is signed.
    pub(crate) signed: u16,
    /// Calls of it introduce handles: create an object, look one up, or give its name.
    pub(crate) introduces: bool,
}

impl Signature {
    fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut signature = Self {
            id: words.next()?.parse().ok()?,
            name: words.next()?.to_owned(),
            base: words.next()?.to_owned(),
            section: words.next()?.to_owned(),
            returns: words.next()?.to_owned(),
            class: words.next()?.to_owned(),
            ..Self::default()
        };
        for (position, word) in (0..).zip(words) {
            let parameter = Parameter::parse(word, signature.arguments_length)?;
            signature.arguments_length += parameter.value_type.bytes();
            if matches!(parameter.value_type, ValueType::Signed(_)) {
                signature.signed |= 1_u16.checked_shl(position).unwrap_or(0);
            }
            signature.introduces |= parameter.introduces();
            signature.parameters.push(parameter);
        }
        Some(signature)
    }

    /// Position of a parameter by name.
    pub fn parameter(&self, name: &str) -> Option<usize> {
        self.parameters
            .iter()
            .position(|parameter| parameter.name == name)
    }
}

/// An enum's names and values.
#[derive(Clone, Debug, Default)]
pub struct Enumeration {
    /// In the order of cuda.h.
    pub values: Vec<(String, i64)>,
}

impl Enumeration {
    /// The first name of a value.
    pub fn name_of(&self, value: i64) -> Option<&str> {
        self.values
            .iter()
            .find(|entry| entry.1 == value)
            .map(|entry| entry.0.as_str())
    }
}

/// A member of a struct.
#[derive(Clone, Debug)]
pub struct FieldLayout {
    /// Its name; nested members are dotted.
    pub name: String,
    /// Bytes from the start of the struct.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Its C type.
    pub c_type: String,
}

impl FieldLayout {
    fn parse(word: &str) -> Option<Self> {
        let mut parts = word.splitn(4, ':');
        Some(Self {
            name: parts.next()?.to_owned(),
            offset: parts.next()?.parse().ok()?,
            size: parts.next()?.parse().ok()?,
            c_type: parts.next()?.to_owned(),
        })
    }
}

/// A struct's layout.
#[derive(Clone, Debug, Default)]
pub struct StructLayout {
    /// Bytes.
    pub size: usize,
    /// In order of offset.
    pub fields: Vec<FieldLayout>,
}

impl StructLayout {
    /// A member of at most eight bytes in the bytes of such a struct, zero-extended; `None` if
    /// there is no such member or the bytes end before it.
    pub fn number(&self, bytes: &[u8], member: &str) -> Option<u64> {
        let field = self.fields.iter().find(|field| field.name == member)?;
        let slice = bytes.get(field.offset..field.offset.checked_add(field.size)?)?;
        let mut word = [0; 8];
        word.get_mut(..slice.len())?.copy_from_slice(slice);
        Some(u64::from_le_bytes(word))
    }
}

/// The whole table.
#[derive(Clone, Debug, Default)]
pub struct Signatures {
    functions: Vec<Option<Signature>>,
    enums: HashMap<String, Enumeration>,
    structs: HashMap<String, StructLayout>,
}

impl Signatures {
    /// Reads the text form; the error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut table = Self::default();
        let mut lines = text.lines().zip(1..);
        if lines
            .next()
            .is_none_or(|line| line.0 != "cutape-signatures\t1")
        {
            return Err("signature table, line 1: not a signature table".into());
        }
        for (line, number) in lines {
            table
                .parse_line(line)
                .ok_or_else(|| format!("signature table, line {number}: cannot be read"))?;
        }
        Ok(table)
    }

    fn parse_line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split('\t');
        match words.next()? {
            "enum" => {
                let name = words.next()?.to_owned();
                let parse_value = |word: &str| {
                    let (name, value) = word.split_once('=')?;
                    Some((name.to_owned(), value.parse().ok()?))
                };
                let values = words.map(parse_value).collect::<Option<_>>()?;
                self.enums.insert(name, Enumeration { values });
            }
            "struct" => {
                let name = words.next()?.to_owned();
                let size = words.next()?.parse().ok()?;
                let fields = words.map(FieldLayout::parse).collect::<Option<_>>()?;
                self.structs.insert(name, StructLayout { size, fields });
            }
            "function" => {
                let signature = Signature::parse(words)?;
                let id = usize::from(signature.id);
                if self.functions.len() <= id {
                    self.functions.resize_with(id + 1, || None);
                }
                *self.functions.get_mut(id)? = Some(signature);
            }
            // Later versions may add lines.
            _ => {}
        }
        Some(())
    }

    /// The function of that number.
    pub fn function(&self, id: u16) -> Option<&Signature> {
        self.functions.get(usize::from(id))?.as_ref()
    }

    /// The function of that exported name.
    pub fn by_name(&self, name: &str) -> Option<&Signature> {
        self.functions().find(|function| function.name == name)
    }

    /// All functions, by number.
    pub fn functions(&self) -> impl Iterator<Item = &Signature> {
        self.functions.iter().flatten()
    }

    /// The enum of that C name.
    pub fn enumeration(&self, name: &str) -> Option<&Enumeration> {
        self.enums.get(name)
    }

    /// The struct of that C name.
    pub fn structure(&self, name: &str) -> Option<&StructLayout> {
        self.structs.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_or_missing() {
        let field = |name: &str, offset, size| FieldLayout {
            name: name.to_owned(),
            offset,
            size,
            c_type: "int".to_owned(),
        };
        let fields = vec![
            field("x", 0, 4),
            field("wide", 4, 16),
            field("last", 6, 2),
            field("far", usize::MAX, 4),
        ];
        let layout = StructLayout { size: 8, fields };
        let bytes = [1, 2, 0, 0, 5, 6, 7, 8];
        for (member, length, expected) in [
            ("x", 8, Some(0x201)),
            ("last", 8, Some(0x807)),
            ("last", 7, None),
            ("wide", 8, None),
            ("far", 8, None),
            ("none", 8, None),
        ] {
            assert_eq!(
                layout.number(&bytes[..length], member),
                expected,
                "{member}"
            );
        }
    }
}
