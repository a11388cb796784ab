//! Numbers in bytes: their types, where they lie, and files of them.

use std::io::{self, Write};

use cutape_render::Element;
use cutape_render::npy::Format;
use half::{bf16, f16};
use serde::{Serialize, Serializer};

/// The most numbers that a shape has.
const MOST: u64 = 1 << 30;

/// A number that can be computed with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Integer(i128),
    Real { value: f64, is_subnormal: bool },
}

impl Number {
    pub(crate) fn value(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Real { value, .. } => value,
        }
    }
}

type Decode = fn(&[u8]) -> Number;

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

/// How numbers of a type are decoded; `None` for complex ones, and for `f8`, which may be either of
/// two formats.
fn decoder(element: &Element) -> Option<Decode> {
    macro_rules! integer {
        ($type:ty) => {
            |bytes| Number::Integer(<$type>::from_le_bytes(array(bytes)).into())
        };
    }
    macro_rules! real {
        ($type:ty, $is_subnormal:expr) => {
            |bytes| {
                let value = <$type>::from_le_bytes(array(bytes));
                Number::Real {
                    value: value.into(),
                    is_subnormal: $is_subnormal(value),
                }
            }
        };
    }
    use std::num::FpCategory::Subnormal;
    Some(match element.name {
        "bool" => |bytes| Number::Integer((array(bytes) != [0u8]).into()),
        "u8" => integer!(u8),
        "i8" => integer!(i8),
        "u16" => integer!(u16),
        "i16" => integer!(i16),
        "u32" => integer!(u32),
        "i32" => integer!(i32),
        "u64" => integer!(u64),
        "i64" => integer!(i64),
        "f16" => real!(f16, |value: f16| value.classify() == Subnormal),
        "bf16" => real!(bf16, |value: bf16| value.classify() == Subnormal),
        "f32" => real!(f32, f32::is_subnormal),
        "f64" => real!(f64, f64::is_subnormal),
        _ => return None,
    })
}

/// Where the numbers of an array lie, in units of one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The sides.
    pub shape: Vec<u64>,
    /// How far neighbours along each side are apart.
    pub strides: Vec<u64>,
    /// How many numbers the array has.
    pub count: u64,
    /// How many numbers lie from its first to its last one.
    pub extent: u64,
}

impl Layout {
    /// An array of that shape; in C order without strides.
    ///
    /// # Errors
    /// A line that says what is wrong.
    pub fn new(shape: Vec<u64>, strides: Option<Vec<u64>>) -> Result<Self, String> {
        let too_many = || format!("shape {shape:?} has more than {MOST} numbers");
        let mut sides = shape.iter();
        let count = sides.try_fold(1u64, |count, side| count.checked_mul(*side));
        let count = count.filter(|&count| count <= MOST).ok_or_else(too_many)?;
        if count == 0 {
            return Err(format!("shape {shape:?} has no numbers"));
        }
        let strides = strides.unwrap_or_else(|| {
            let mut strides: Vec<u64> = shape
                .iter()
                .rev()
                .scan(1, |next, side| Some(std::mem::replace(next, *next * side)))
                .collect();
            strides.reverse();
            strides
        });
        if strides.len() != shape.len() {
            let (sides, given) = (shape.len(), strides.len());
            return Err(format!(
                "the shape has {sides} sides, and there are {given} strides"
            ));
        }
        let mut sides = shape.iter().zip(&strides);
        let extent = sides.try_fold(1u64, |extent, (side, stride)| {
            extent.checked_add((side - 1).checked_mul(*stride)?)
        });
        let extent = extent.ok_or_else(too_many)?;
        Ok(Self {
            shape,
            strides,
            count,
            extent,
        })
    }

    /// Where each number lies, in C order.
    fn offsets(&self) -> impl Iterator<Item = u64> {
        let mut index = vec![0u64; self.shape.len()];
        let mut next = 0u64;
        (0..self.count).map(move |_| {
            let here = next;
            let sides = self.shape.iter().zip(&self.strides);
            for (at, (side, stride)) in index.iter_mut().zip(sides).rev() {
                *at += 1;
                next += stride;
                if *at < *side {
                    break;
                }
                next -= side * stride;
                *at = 0;
            }
            here
        })
    }

    /// The index of a number, counted in C order.
    pub fn index(&self, number: u64) -> Vec<u64> {
        let mut left = number;
        let sides = self.shape.iter().rev();
        let mut index: Vec<u64> = sides
            .map(|side| {
                let at = left % side;
                left /= side;
                at
            })
            .collect();
        index.reverse();
        index
    }
}

/// A number as text, which is a number in JSON if it can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown(pub String);

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(text) = self;
        if let Ok(value) = text.parse::<u64>() {
            return serializer.serialize_u64(value);
        }
        if let Ok(value) = text.parse::<i64>() {
            return serializer.serialize_i64(value);
        }
        if let Ok(value) = text.parse::<bool>() {
            return serializer.serialize_bool(value);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => serializer.serialize_f64(value),
            _ => serializer.serialize_str(text),
        }
    }
}

/// An array of numbers in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values<'a> {
    /// At least as many as the layout extends over.
    pub(crate) bytes: &'a [u8],
    /// `None`: the numbers are bytes, shown in hexadecimal.
    pub(crate) element: Option<&'static Element>,
    pub(crate) layout: &'a Layout,
}

impl<'a> Values<'a> {
    /// The bytes of each number, in C order.
    pub(crate) fn raw(self) -> impl Iterator<Item = &'a [u8]> {
        let size = size_of(self.element) as usize;
        let offsets = self.layout.offsets();
        offsets.map(move |offset| {
            let start = offset as usize * size;
            self.bytes.get(start..start + size).unwrap_or_default()
        })
    }

    /// How they are decoded, if one can compute with them.
    pub(crate) fn decoder(self) -> Option<Decode> {
        self.element.and_then(decoder)
    }

    /// One of them as text.
    pub(crate) fn shown(self, raw: &[u8]) -> Shown {
        Shown(match self.element {
            Some(element) => element.number(raw),
            None => format!("{:#04x}", u8::from_le_bytes(array(raw))),
        })
    }

    /// Writes a file of numpy, in C order.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn write_npy(self, out: &mut dyn Write) -> io::Result<()> {
        let format = Format {
            element: self.element,
            shape: Some(self.layout.shape.clone()),
        };
        let header = format.header(self.layout.count * size_of(self.element));
        out.write_all(&header.map_err(io::Error::other)?)?;
        self.raw().try_for_each(|raw| out.write_all(raw))
    }
}

/// Bytes of a number.
pub(crate) fn size_of(element: Option<&Element>) -> u64 {
    element.map_or(1, |element| element.bytes)
}

#[cfg(test)]
mod tests {
    use cutape_render::npy::Header;

    use super::*;

    fn layout(shape: &[u64], strides: Option<&[u64]>) -> Result<Layout, String> {
        Layout::new(shape.to_vec(), strides.map(<[u64]>::to_vec))
    }

    #[test]
    fn numbers_of_each_type() {
        let integer = |value| Some(Number::Integer(value));
        let real = |value, is_subnormal| {
            Some(Number::Real {
                value,
                is_subnormal,
            })
        };
        let tiny = f64::from(f32::from_bits(1));
        for (name, bytes, expected) in [
            ("bool", &[2u8][..], integer(1)),
            ("u8", &[200], integer(200)),
            ("i8", &[200], integer(-56)),
            ("u16", &[0xff, 0xff], integer(65535)),
            ("i16", &[0xff, 0xff], integer(-1)),
            ("u32", &[0xff; 4], integer(0xffff_ffff)),
            ("i32", &[0xff; 4], integer(-1)),
            ("u64", &[0xff; 8], integer(u64::MAX.into())),
            ("i64", &[0xff; 8], integer(-1)),
            ("f16", &[0x00, 0x3c], real(1.0, false)),
            ("f16", &[0x01, 0x00], real(2f64.powi(-24), true)),
            ("bf16", &[0xc0, 0x3f], real(1.5, false)),
            ("bf16", &[0x01, 0x80], real(-(2f64.powi(-133)), true)),
            ("f32", &[0, 0, 0x80, 0xff], real(f64::NEG_INFINITY, false)),
            ("f32", &[1, 0, 0, 0], real(tiny, true)),
            ("f64", &1e300f64.to_le_bytes(), real(1e300, false)),
            ("f64", &1u64.to_le_bytes(), real(5e-324, true)),
            ("f8", &[0], None),
            ("c64", &[0; 8], None),
            ("c128", &[0; 16], None),
        ] {
            let decode = decoder(Element::named(name).unwrap());
            assert_eq!(decode.map(|decode| decode(bytes)), expected, "{name}");
        }
    }

    #[test]
    fn shapes_and_strides() {
        for (shape, strides, offsets) in [
            (&[3][..], None, Ok((3, vec![0, 1, 2]))),
            (&[], None, Ok((1, vec![0]))),
            (&[2, 3], None, Ok((6, vec![0, 1, 2, 3, 4, 5]))),
            (&[2, 3], Some(&[1, 2][..]), Ok((6, vec![0, 2, 4, 1, 3, 5]))),
            (&[2, 2], Some(&[10, 3]), Ok((14, vec![0, 3, 10, 13]))),
            (&[2, 2], Some(&[0, 1]), Ok((2, vec![0, 1, 0, 1]))),
            (&[2, 0], None, Err("no numbers")),
            (&[2, 2], Some(&[1]), Err("2 sides, and there are 1 strides")),
            (&[1 << 40, 1 << 40], None, Err("more than")),
            (&[2], Some(&[u64::MAX]), Err("more than")),
        ] {
            match (layout(shape, strides), offsets) {
                (Ok(layout), Ok((extent, offsets))) => {
                    assert_eq!(layout.offsets().collect::<Vec<_>>(), offsets, "{shape:?}");
                    assert_eq!(layout.extent, extent, "{shape:?}");
                }
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (other, _) => panic!("{shape:?}: {other:?}"),
            }
        }
        let layout = layout(&[2, 3, 4], None).unwrap();
        assert_eq!(layout.index(23), [1, 2, 3]);
        assert_eq!(layout.index(4), [0, 1, 0]);
    }

    #[test]
    fn files_of_numpy() {
        let bytes: Vec<u8> = (0..24).collect();
        for (name, shape, strides, elements) in [
            (None, &[24][..], None, (0..24).collect::<Vec<u8>>()),
            (
                Some("u16"),
                &[2, 2],
                Some(&[1, 4][..]),
                vec![0, 1, 8, 9, 2, 3, 10, 11],
            ),
            (Some("bf16"), &[2, 1], None, vec![0, 1, 2, 3]),
            (Some("f64"), &[3], None, (0..24).collect()),
        ] {
            let element = name.and_then(Element::named);
            let layout = layout(shape, strides).unwrap();
            let values = Values {
                bytes: &bytes,
                element,
                layout: &layout,
            };
            let mut file = Vec::new();
            values.write_npy(&mut file).unwrap();
            let header = Header::parse(&file).unwrap();
            assert_eq!(header.shape, shape);
            assert_eq!(
                header.name(),
                element.map_or("uint8", |element| element.numpy)
            );
            assert_eq!(file[header.length..], elements, "{name:?}");
        }
    }

    #[test]
    fn numbers_in_json() {
        for (text, expected) in [
            ("7", "7"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("18446744073709551615", "18446744073709551615"),
            ("0.1", "0.1"),
            ("1e-30", "1e-30"),
            ("NaN", "\"NaN\""),
            ("-inf", "\"-inf\""),
            ("0x3c", "\"0x3c\""),
            ("true", "true"),
        ] {
            let shown = Shown(text.to_owned());
            assert_eq!(serde_json::to_string(&shown).unwrap(), expected);
        }
    }
}
