//! The parameters of a kernel in the buffer that a launch passes.

use super::names::Names;
use super::types::{block, word};
use super::value::Value;

/// Offset, size and value of each parameter in a buffer, by a layout of offsets and sizes; `None` if
/// that does not fit the buffer.
pub fn kernel_parameters(
    bytes: &[u8],
    layout: &[(u32, u32)],
    names: &dyn Names,
) -> Option<Vec<(u32, u32, Value)>> {
    layout
        .iter()
        .map(|&(offset, size)| {
            let start = usize::try_from(offset).ok()?;
            let raw = bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?)?;
            Some((offset, size, parameter(raw, names)))
        })
        .collect()
}

/// A kernel parameter; its type is a guess from its size and value. An address if it lies in known
/// memory, a float if that is the more plausible number, else an integer; other sizes are bytes.
fn parameter(raw: &[u8], names: &dyn Names) -> Value {
    let bits = word(raw);
    match raw.len() {
        8 => match names.place(bits) {
            Some(place) => Value::Address(bits, Some(place)),
            // A large integer and a double look alike: hexadecimal suits both.
            None if bits > u64::from(u32::MAX) => match f64::from_bits(bits) {
                float if is_plausible(float) => Value::Float(float),
                _ => Value::Address(bits, None),
            },
            None => Value::Unsigned(bits),
        },
        4 => {
            let float = f32::from_bits(bits as u32);
            // Small magnitudes are integers, not tiny floats.
            let small = (bits as u32 as i32).unsigned_abs() < 1 << 24;
            match !small && is_plausible(f64::from(float)) {
                true => Value::Float(f64::from(float)),
                false => Value::Signed(i64::from(bits as u32 as i32)),
            }
        }
        1 | 2 => Value::Unsigned(bits),
        _ => block(raw, 64),
    }
}

/// Whether a float is in the range that programs use; arbitrary bits rarely are.
fn is_plausible(float: f64) -> bool {
    (1e-9..1e12).contains(&float.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Nameless;

    #[test]
    fn parameters_by_size() {
        for (raw, text) in [
            (1024_i32.to_le_bytes().to_vec(), "1024"),
            ((-7_i32).to_le_bytes().to_vec(), "-7"),
            (2.5_f32.to_le_bytes().to_vec(), "2.5"),
            (i32::MAX.to_le_bytes().to_vec(), "2147483647"),
            (5_u64.to_le_bytes().to_vec(), "5"),
            (
                0x7f12_3456_7800_u64.to_le_bytes().to_vec(),
                "0x7f1234567800",
            ),
            (0.125_f64.to_le_bytes().to_vec(), "0.125"),
            (vec![7], "7"),
            (vec![1, 2, 3], "<3 bytes: 010203>"),
        ] {
            let mut out = String::new();
            parameter(&raw, &Nameless).write(&mut out);
            assert_eq!(out, text, "{raw:?}");
        }
    }

    #[test]
    fn layouts_must_fit_the_buffer() {
        for (length, layout, fits) in [
            (8, &[(0, 4), (4, 4)][..], true),
            (8, &[(0, 4), (8, 4)], false),
            (8, &[(u32::MAX, u32::MAX)], false),
            (0, &[], true),
        ] {
            assert_eq!(
                kernel_parameters(&vec![0; length], layout, &Nameless).is_some(),
                fits,
                "{layout:?}"
            );
        }
    }
}
