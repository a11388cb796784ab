//! Changes of bytes.

use cutape_random::dice::Dice;

/// Values at which sizes, counts and offsets go wrong.
const EDGES: &[u64] = &[
    0,
    1,
    2,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0xfff,
    0x1000,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 40,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 8,
    u64::MAX,
];

/// The bytes with a few changes, which the numbers decide.
pub(crate) fn mutated(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=dice.below(4) {
        change(&mut bytes, dice);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, dice: &mut Dice) {
    if bytes.is_empty() {
        bytes.push(dice.next_number() as u8);
        return;
    }
    let at = dice.below(bytes.len());
    let most = (bytes.len() - at).min(1 << dice.below(12));
    let length = 1 + dice.below(most);
    match dice.below(8) {
        0 => bytes[at] ^= 1 << dice.below(8),
        1 => bytes[at] = dice.next_number() as u8,
        // Numbers are aligned more often than not.
        2 => put(bytes, at & !7, dice.pick(EDGES), 8),
        3 => put(bytes, at & !3, dice.pick(EDGES), 4),
        4 => {
            let width = dice.pick(&[1, 2, 4, 8]);
            let near = (bytes.len() as u64)
                .wrapping_add(dice.next_number() % 33)
                .wrapping_sub(16);
            put(bytes, at, near, width);
        }
        5 => drop(bytes.drain(at..at + length)),
        6 => {
            let piece = bytes[at..at + length].to_vec();
            let to = dice.below(bytes.len());
            bytes.splice(to..to, piece);
        }
        _ => {
            let piece = bytes[at..at + length].to_vec();
            let to = dice.below(bytes.len() - length + 1);
            bytes[to..to + length].copy_from_slice(&piece);
        }
    }
}

/// Writes the lower bytes of a number, as far as they fit.
fn put(bytes: &mut [u8], at: usize, number: u64, width: usize) {
    let number = number.to_le_bytes();
    for (byte, new) in bytes[at..].iter_mut().zip(&number[..width]) {
        *byte = *new;
    }
}
