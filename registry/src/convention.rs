//! Where a function's arguments are when it is called, by the System V x86-64 calling convention.

use crate::model::Width;

/// Integer registers that pass arguments: rdi, rsi, rdx, rcx, r8, r9.
pub const INTEGER_REGISTERS: u8 = 6;
/// Vector registers that pass arguments: xmm0 to xmm7.
pub const VECTOR_REGISTERS: u8 = 8;

/// Where an argument is when a function is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In that integer register.
    Register(u8),
    /// In that vector register.
    Vector(u8),
    /// On the stack, from that word on.
    Stack(u8),
}

/// Locates the arguments of a function one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Locations {
    registers: u8,
    vectors: u8,
    words: u8,
}

impl Locations {
    /// Before the first argument.
    pub const fn new() -> Self {
        Self {
            registers: 0,
            vectors: 0,
            words: 0,
        }
    }

    /// Where the next argument is, which has that width.
    pub const fn next(&mut self, width: Width) -> Location {
        match width {
            Width::Unsigned(_) | Width::Signed(_) if self.registers < INTEGER_REGISTERS => {
                self.registers += 1;
                Location::Register(self.registers - 1)
            }
            Width::Float(_) if self.vectors < VECTOR_REGISTERS => {
                self.vectors += 1;
                Location::Vector(self.vectors - 1)
            }
            width => {
                let first = self.words;
                self.words += (width.bytes() as u8).div_ceil(8);
                Location::Stack(first)
            }
        }
    }

    /// How many words of the stack the arguments so far take.
    pub const fn stack_words(&self) -> u8 {
        self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_places() {
        let mut locations = Locations::new();
        let mut next = |width| locations.next(width);
        for at in 0..4 {
            assert_eq!(next(Width::Unsigned(8)), Location::Register(at));
        }
        // A struct by value does not take registers.
        assert_eq!(next(Width::Memory(64)), Location::Stack(0));
        assert_eq!(next(Width::Signed(4)), Location::Register(4));
        for at in 0..VECTOR_REGISTERS {
            assert_eq!(next(Width::Float(4)), Location::Vector(at));
        }
        assert_eq!(next(Width::Unsigned(4)), Location::Register(5));
        assert_eq!(next(Width::Unsigned(1)), Location::Stack(8));
        assert_eq!(next(Width::Float(8)), Location::Stack(9));
        assert_eq!(next(Width::Memory(20)), Location::Stack(10));
        assert_eq!(next(Width::Signed(8)), Location::Stack(13));
        assert_eq!(locations.stack_words(), 14);
    }
}
