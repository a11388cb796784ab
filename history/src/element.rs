//! Types of numbers in memory.

use half::{bf16, f16};

/// The type of the numbers in some memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Element {
    /// Bytes in hexadecimal.
    #[default]
    Bytes,
    /// A signed integer of so many bytes.
    Signed(usize),
    /// An unsigned integer of so many bytes.
    Unsigned(usize),
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

/// The names, for options and errors.
pub(crate) const NAMES: [(&str, Element); 13] = [
    ("bytes", Element::Bytes),
    ("f16", Element::F16),
    ("bf16", Element::Bf16),
    ("f32", Element::F32),
    ("f64", Element::F64),
    ("i8", Element::Signed(1)),
    ("i16", Element::Signed(2)),
    ("i32", Element::Signed(4)),
    ("i64", Element::Signed(8)),
    ("u8", Element::Unsigned(1)),
    ("u16", Element::Unsigned(2)),
    ("u32", Element::Unsigned(4)),
    ("u64", Element::Unsigned(8)),
];

/// Numbers of one memory that are shown.
const MOST: usize = 8;

impl Element {
    /// The type of that name.
    ///
    /// # Errors
    /// A line with the names that there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = NAMES.iter().find(|(name, _)| *name == text);
        known.map(|&(_, element)| element).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|&(name, _)| name).collect();
            format!("not a type of numbers; one of {}", names.join(", "))
        })
    }

    /// Bytes of a number.
    pub fn size(self) -> usize {
        match self {
            Self::Bytes => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
            Self::Signed(size) | Self::Unsigned(size) => size,
        }
    }

    /// The numbers of some little-endian bytes, as text; the first few of many.
    pub fn text(self, bytes: &[u8]) -> String {
        let numbers = bytes.chunks_exact(self.size());
        let count = numbers.len();
        let mut texts: Vec<String> = numbers.take(MOST).map(|bytes| self.number(bytes)).collect();
        if count > MOST {
            texts.push("…".to_owned());
        }
        texts.join(" ")
    }

    fn number(self, bytes: &[u8]) -> String {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(bytes) {
            *to = *from;
        }
        let word = u64::from_le_bytes(word);
        match self {
            Self::Bytes => format!("{word:02x}"),
            Self::Unsigned(_) => word.to_string(),
            Self::Signed(size) => {
                let unused = 64 - 8 * size as u32;
                ((word << unused).cast_signed() >> unused).to_string()
            }
            Self::F16 => f16::from_bits(word as u16).to_string(),
            Self::Bf16 => bf16::from_bits(word as u16).to_string(),
            Self::F32 => f32::from_bits(word as u32).to_string(),
            Self::F64 => f64::from_bits(word).to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_each_type() {
        for (name, bytes, expected) in [
            ("bytes", &[0, 0xff, 0x10][..], "00 ff 10"),
            ("f16", &[0x00, 0x3c, 0x00, 0x7e], "1 NaN"),
            ("bf16", &[0x80, 0x3f], "1"),
            ("f32", &[0, 0, 0x80, 0x7f, 0, 0, 0xc0, 0x3f], "inf 1.5"),
            ("f64", &1e-3f64.to_le_bytes(), "0.001"),
            ("i8", &[0xff, 0x7f], "-1 127"),
            ("i16", &[0xfe, 0xff], "-2"),
            ("i32", &(-70000i32).to_le_bytes(), "-70000"),
            ("i64", &i64::MIN.to_le_bytes(), "-9223372036854775808"),
            ("u8", &[200], "200"),
            ("u16", &[0, 1], "256"),
            ("u32", &[0xff; 4], "4294967295"),
            ("u64", &[0xff; 8], "18446744073709551615"),
            ("f32", &[0, 0, 0], ""),
        ] {
            let element = Element::parse(name).unwrap();
            assert_eq!(element.text(bytes), expected, "{name}");
        }
        assert_eq!(Element::Bytes.text(&[1; 9]), "01 01 01 01 01 01 01 01 …");
        assert!(Element::parse("f8").unwrap_err().contains("bf16"));
    }
}
