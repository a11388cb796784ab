//! Types of numbers in memory, with their names here and in numpy.

use half::{bf16, f16};

/// A type of numbers.
#[derive(Debug, PartialEq, Eq)]
pub struct Element {
    /// The name in options.
    pub name: &'static str,
    /// numpy's name; that of bytes of the same size for types that numpy does not have.
    pub numpy: &'static str,
    /// The type in the header of a numpy file.
    pub descr: &'static str,
    /// Bytes of a number.
    pub bytes: u64,
}

const fn row(name: &'static str, numpy: &'static str, descr: &'static str, bytes: u64) -> Element {
    Element {
        name,
        numpy,
        descr,
        bytes,
    }
}

/// All types.
pub const ELEMENTS: [Element; 16] = [
    row("bool", "bool", "|b1", 1),
    row("u8", "uint8", "|u1", 1),
    row("i8", "int8", "|i1", 1),
    row("f8", "uint8", "|u1", 1),
    row("u16", "uint16", "<u2", 2),
    row("i16", "int16", "<i2", 2),
    row("f16", "float16", "<f2", 2),
    row("bf16", "uint16", "<u2", 2),
    row("u32", "uint32", "<u4", 4),
    row("i32", "int32", "<i4", 4),
    row("f32", "float32", "<f4", 4),
    row("u64", "uint64", "<u8", 8),
    row("i64", "int64", "<i8", 8),
    row("f64", "float64", "<f8", 8),
    row("c64", "complex64", "<c8", 8),
    row("c128", "complex128", "<c16", 16),
];

/// Numbers of one text that are shown.
const MOST: usize = 8;

impl Element {
    /// A type by its name here or in numpy.
    pub fn named(name: &str) -> Option<&'static Self> {
        let own = ELEMENTS.iter().find(|element| element.name == name);
        own.or_else(|| ELEMENTS.iter().find(|element| element.numpy == name))
    }

    /// The type of an option's value.
    ///
    /// # Errors
    /// A line with the names that there are.
    pub fn parse(name: &str) -> Result<&'static Self, String> {
        Self::named(name).ok_or_else(|| {
            let names = ELEMENTS.each_ref().map(|element| element.name);
            format!("not a type of numbers; one of {}", names.join(", "))
        })
    }

    /// The bits of a number of a floating-point type, rounded towards zero; `None` for other types.
    pub fn bits(&self, number: f64) -> Option<u64> {
        let rounded = match self.name {
            "f16" => u64::from(f16::from_f64(number).to_bits()),
            "bf16" => u64::from(bf16::from_f64(number).to_bits()),
            "f32" => u64::from((number as f32).to_bits()),
            "f64" => number.to_bits(),
            _ => return None,
        };
        let value = match self.name {
            "f16" => f16::from_bits(rounded as u16).to_f64(),
            "bf16" => bf16::from_bits(rounded as u16).to_f64(),
            "f32" => f32::from_bits(rounded as u32).into(),
            _ => number,
        };
        Some(rounded - u64::from(value.abs() > number.abs()))
    }

    /// The numbers of some little-endian bytes, as text; the first few of many.
    pub fn text(&self, bytes: &[u8]) -> String {
        let numbers = bytes.chunks_exact(self.bytes as usize);
        let count = numbers.len();
        let mut texts: Vec<String> = numbers.take(MOST).map(|bytes| self.number(bytes)).collect();
        if count > MOST {
            texts.push("…".to_owned());
        }
        texts.join(" ")
    }

    fn number(&self, bytes: &[u8]) -> String {
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(bytes) {
                *to = *from;
            }
            u64::from_le_bytes(word)
        };
        let complex = |name: &str| {
            let (real, imaginary) = bytes.split_at(bytes.len() / 2);
            let part = |bytes| Self::named(name).map_or_else(String::new, |t| t.number(bytes));
            format!("{}+{}i", part(real), part(imaginary))
        };
        let value = word(bytes);
        match self.name {
            "bool" => (value != 0).to_string(),
            "f16" => f16::from_bits(value as u16).to_string(),
            "bf16" => bf16::from_bits(value as u16).to_string(),
            "f32" => f32::from_bits(value as u32).to_string(),
            "f64" => f64::from_bits(value).to_string(),
            "c64" => complex("f32"),
            "c128" => complex("f64"),
            // Two formats have this size.
            "f8" => format!("{value:#04x}"),
            name if name.starts_with('i') => {
                let unused = 64 - 8 * self.bytes as u32;
                ((value << unused).cast_signed() >> unused).to_string()
            }
            _ => value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_rounded_towards_zero() {
        for (name, number, expected) in [
            ("f32", 1.0, 0x3f80_0000),
            ("f32", 0.1, 0x3dcc_cccc),
            ("f32", 1e60, 0x7f7f_ffff),
            ("f16", 65504.0, 0x7bff),
            ("f16", 1e9, 0x7bff),
            ("bf16", 1.0, 0x3f80),
            ("f64", 0.5, 0x3fe0_0000_0000_0000),
        ] {
            let element = Element::named(name).unwrap();
            assert_eq!(element.bits(number), Some(expected), "{name} {number}");
        }
        assert_eq!(Element::named("i32").unwrap().bits(1.0), None);
    }

    #[test]
    fn numbers_of_each_type() {
        let complex = [1.5f32.to_le_bytes(), (-2f32).to_le_bytes()].concat();
        for (name, bytes, expected) in [
            ("bool", &[0, 1][..], "false true"),
            ("f8", &[0, 0xff], "0x00 0xff"),
            ("f16", &[0x00, 0x3c, 0x00, 0x7e], "1 NaN"),
            ("bf16", &[0x80, 0x3f], "1"),
            ("f32", &[0, 0, 0x80, 0x7f, 0, 0, 0xc0, 0x3f], "inf 1.5"),
            ("f64", &1e-3f64.to_le_bytes(), "0.001"),
            ("c64", &complex, "1.5+-2i"),
            ("i8", &[0xff, 0x7f], "-1 127"),
            ("i16", &[0xfe, 0xff], "-2"),
            ("i32", &(-70000i32).to_le_bytes(), "-70000"),
            ("i64", &i64::MIN.to_le_bytes(), "-9223372036854775808"),
            ("u8", &[200], "200"),
            ("u16", &[0, 1], "256"),
            ("u32", &[0xff; 4], "4294967295"),
            ("u64", &[0xff; 8], "18446744073709551615"),
            ("float32", &[0, 0, 0], ""),
        ] {
            let element = Element::parse(name).unwrap();
            assert_eq!(element.text(bytes), expected, "{name}");
        }
        let element = Element::parse("u8").unwrap();
        assert_eq!(element.text(&[1; 9]), "1 1 1 1 1 1 1 1 …");
        assert!(Element::parse("f9").unwrap_err().contains("bf16"));
    }
}
