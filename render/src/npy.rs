//! Files of numpy (`.npy`): a header with type and shape, then the elements.

use crate::element::{ELEMENTS, Element};

/// What the user says behind the name of a `.npy` file: `float32`, or `float32[128,64]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// The type; bytes if there is none.
    pub element: Option<&'static Element>,
    /// The sides; one, of all elements, if there are none.
    pub shape: Option<Vec<u64>>,
}

impl Format {
    /// Parses the text behind the colon.
    ///
    /// # Errors
    /// What is wrong, and the types that there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, shape) = match text.split_once('[') {
            None => (text, None),
            Some((name, rest)) => {
                let sides = rest.strip_suffix(']').ok_or("the shape has no ]")?;
                let sides = sides
                    .split(',')
                    .map(str::trim)
                    .filter(|side| !side.is_empty());
                let shape: Result<Vec<u64>, _> = sides.map(str::parse).collect();
                (
                    name,
                    Some(shape.map_err(|_| format!("[{rest} is no shape"))?),
                )
            }
        };
        let Some(element) = Element::named(name) else {
            let names = ELEMENTS.map(|element| element.numpy);
            return Err(format!(
                "no type {name:?}, as float32 or float32[128,64]; there are {}",
                unique(&names).join(", ")
            ));
        };
        Ok(Self {
            element: Some(element),
            shape,
        })
    }

    /// The header of a file with that many bytes of elements.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn header(&self, bytes: u64) -> Result<Vec<u8>, String> {
        let element = self.element.or_else(|| Element::named("u8"));
        let (name, descr, size) = element.map_or(("uint8", "|u1", 1), |element| {
            (element.numpy, element.descr, element.bytes)
        });
        let shape = match &self.shape {
            Some(shape) => shape.clone(),
            None => vec![bytes / size],
        };
        let product = shape
            .iter()
            .try_fold(size, |product, side| product.checked_mul(*side));
        if product != Some(bytes) {
            return Err(format!(
                "{name} of shape {shape:?} does not have {bytes} bytes"
            ));
        }
        // As in Python: (5,) and (2, 3).
        let sides: Vec<String> = shape.iter().map(u64::to_string).collect();
        let comma = if shape.len() == 1 { "," } else { "" };
        let mut text = format!(
            "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}",
            sides.join(", ")
        );
        // The elements begin at a multiple of 64 bytes.
        let length = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(64);
        while MAGIC.len() + 4 + text.len() + 1 < length {
            text.push(' ');
        }
        text.push('\n');
        let mut header = MAGIC.to_vec();
        header.extend([1, 0]);
        header.extend((text.len() as u16).to_le_bytes());
        header.extend(text.as_bytes());
        Ok(header)
    }
}

fn unique(names: &[&'static str]) -> Vec<&'static str> {
    let mut seen: Vec<&'static str> = Vec::new();
    for name in names {
        if !seen.contains(name) {
            seen.push(name);
        }
    }
    seen
}

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longer headers are refused; numpy refuses those above 10,000 bytes.
const LONGEST_HEADER: usize = 1 << 16;

/// The header of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    descr: String,
    /// The sides.
    pub shape: Vec<u64>,
    /// Where the elements begin.
    pub length: usize,
    /// Bytes of an element.
    size: u64,
}

impl Header {
    /// Parses the start of a file.
    ///
    /// # Errors
    /// Why its elements cannot be given to a copy.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let rest = bytes
            .strip_prefix(MAGIC)
            .ok_or("it is not a file of numpy")?;
        let cut = || "its header is cut".to_owned();
        let (&[version, _], rest) = rest.split_first_chunk().ok_or_else(cut)?;
        let count = if version == 1 { 2 } else { 4 };
        let (number, rest) = rest.split_at_checked(count).ok_or_else(cut)?;
        let number = number.iter().rev();
        let number = number.fold(0, |number, &byte| number << 8 | usize::from(byte));
        if number > LONGEST_HEADER {
            return Err(format!("its header has {number} bytes"));
        }
        let text = rest.get(..number).ok_or_else(cut)?;
        let text = std::str::from_utf8(text).map_err(|_| "its header is not text")?;
        let value = |key: &str| {
            let after = text.split_once(&format!("'{key}':"))?.1;
            Some(after.trim_start())
        };
        let missing = |key: &str| format!("its header has no {key}");
        let descr = value("descr").ok_or_else(|| missing("descr"))?;
        let descr = descr
            .strip_prefix('\'')
            .and_then(|rest| rest.split_once('\''));
        let descr = descr.ok_or("it has a structured type")?.0.to_owned();
        let shape = value("shape").ok_or_else(|| missing("shape"))?;
        let sides = shape
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(')'));
        let sides = sides
            .ok_or_else(|| missing("shape"))?
            .0
            .split(',')
            .map(str::trim);
        let sides = sides.filter(|side| !side.is_empty()).map(str::parse);
        let shape: Vec<u64> = sides
            .collect::<Result<_, _>>()
            .map_err(|_| missing("shape"))?;
        let is_fortran = value("fortran_order").is_some_and(|value| value.starts_with("True"));
        if is_fortran && shape.len() > 1 {
            return Err("it is in Fortran order; save numpy.ascontiguousarray of it".into());
        }
        let (order, kind) = (descr.get(..1).unwrap_or(""), descr.get(1..2).unwrap_or(""));
        if order == ">" {
            return Err(format!("its type {descr} is big-endian"));
        }
        let size = descr.get(2..).and_then(|size| size.parse().ok());
        let Some(size) = size.filter(|_| "biufcV".contains(kind) && !kind.is_empty()) else {
            return Err(format!("its type {descr} is not one of numbers"));
        };
        Ok(Self {
            descr,
            shape,
            length: bytes.len() - rest.len() + number,
            size,
        })
    }

    /// Bytes of the elements, if there are not too many.
    pub fn bytes(&self) -> Option<u64> {
        let mut sides = self.shape.iter();
        sides.try_fold(self.size, |product, side| product.checked_mul(*side))
    }

    /// Checks type and shape against what the user says.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self, format: &Format) -> Result<(), String> {
        if let Some(element) = format.element {
            // numpy stores types of other libraries, bfloat16 for one, as bytes.
            let is_raw = self.descr.contains('V') && self.size == element.bytes;
            let own = self.descr.replace('=', "<");
            let is_same = own == element.descr
                || own.get(1..) == element.descr.get(1..) && element.bytes == 1;
            if !is_same && !is_raw {
                return Err(format!(
                    "its type is {}, not {}",
                    self.name(),
                    element.numpy
                ));
            }
        }
        match &format.shape {
            Some(shape) if *shape != self.shape => {
                Err(format!("its shape is {:?}, not {shape:?}", self.shape))
            }
            _ => Ok(()),
        }
    }

    /// The type by numpy's name.
    pub fn name(&self) -> &str {
        let known = ELEMENTS.iter().find(|element| element.descr == self.descr);
        known.map_or(&self.descr, |element| element.numpy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Vec<u8> {
        let length = (text.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0], &length, text.as_bytes(), &[7; 24]].concat()
    }

    #[test]
    fn formats() {
        for (text, element, shape) in [
            ("float32", "f32", None),
            ("f32[128, 64]", "f32", Some(vec![128, 64])),
            ("uint8[5,]", "u8", Some(vec![5])),
            ("bf16[]", "bf16", Some(vec![])),
        ] {
            let format = Format::parse(text).unwrap();
            let name = format.element.map(|element| element.name);
            assert_eq!((name, format.shape), (Some(element), shape), "{text}");
        }
        for text in [
            "",
            "float",
            "float32[",
            "float32[1",
            "float32[x]",
            "float32[-1]",
        ] {
            assert!(Format::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for (text, bytes, shape) in [
            ("float32[3,2]", 24, vec![3, 2]),
            ("float64", 24, vec![3]),
            ("bool[1,1,2]", 2, vec![1, 1, 2]),
            ("int16[]", 2, vec![]),
        ] {
            let format = Format::parse(text).unwrap();
            let header = format.header(bytes).unwrap();
            assert_eq!(header.len() % 64, 0, "{text}");
            let read = Header::parse(&header).unwrap();
            assert_eq!((&read.shape, read.length), (&shape, header.len()), "{text}");
            assert_eq!(read.bytes(), Some(bytes), "{text}");
            read.check(&format).unwrap();
            assert!(format.header(bytes + 1).is_err(), "{text}");
        }
        let plain = Format::default().header(5).unwrap();
        assert_eq!(Header::parse(&plain).unwrap().name(), "uint8");
    }

    #[test]
    fn headers_of_numpy() {
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }   \n";
        let header = Header::parse(&file(text)).unwrap();
        assert_eq!((header.name(), header.bytes()), ("float32", Some(24)));
        assert_eq!(header.length, file(text).len() - 24);
        for (text, check) in [
            ("float32[3,2]", Ok(())),
            ("int32", Err("its type is float32, not int32".to_owned())),
            ("float32[6]", Err("its shape is [3, 2], not [6]".to_owned())),
        ] {
            assert_eq!(header.check(&Format::parse(text).unwrap()), check);
        }
        for (text, why) in [
            (
                "{'descr': '>f4', 'fortran_order': False, 'shape': (6,), }",
                "big-endian",
            ),
            (
                "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }",
                "Fortran order",
            ),
            (
                "{'descr': '|O', 'fortran_order': False, 'shape': (6,), }",
                "not one of numbers",
            ),
            (
                "{'descr': '<U5', 'fortran_order': False, 'shape': (6,), }",
                "not one of numbers",
            ),
            (
                "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }",
                "structured",
            ),
            ("{'descr': '<f4', 'fortran_order': False}", "no shape"),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (a,), }",
                "no shape",
            ),
            ("{}", "no descr"),
        ] {
            let error = Header::parse(&file(text)).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let whole = file(text);
        for length in 0..whole.len() - 24 {
            assert!(Header::parse(&whole[..length]).is_err(), "{length}");
        }
        let raw = "{'descr': '|V2', 'fortran_order': False, 'shape': (12,), }";
        let raw = Header::parse(&file(raw)).unwrap();
        assert!(raw.check(&Format::parse("bf16").unwrap()).is_ok());
    }
}
