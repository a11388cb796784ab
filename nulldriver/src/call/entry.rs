//! Tables of implementations: Rust functions over typed arguments, by the names that they answer
//! to.

use std::ptr::NonNull;

use crate::call::answer::{Answer, CUresult, SUCCESS};
use crate::call::argument::{Argument, Call};

/// Answers one call.
pub(crate) type Handler = fn(&Call) -> CUresult;

/// One line of a section's table.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// `name` is an exported symbol; otherwise it is a documented name, which stands for every
    /// symbol with the parameters of the newest one. The per-thread variant of a symbol is
    /// included.
    pub(crate) is_symbol: bool,
    pub(crate) handler: Handler,
}

/// A section's table `ENTRIES`: `name: implementation;` for a documented name, and
/// `[symbol] name: implementation;` for exactly one symbol.
macro_rules! entries {
    ($($([$exact:ident])? $name:ident: $implementation:expr;)*) => {
        pub(crate) const ENTRIES: &[crate::call::entry::Entry] = &[$(
            crate::call::entry::Entry {
                name: stringify!($name),
                is_symbol: crate::call::entry::entries!(@is_symbol $($exact)?),
                handler: crate::call::entry::bind($implementation),
            },
        )*];
    };
    (@is_symbol) => { false };
    (@is_symbol symbol) => { true };
}
pub(crate) use entries;

/// A Rust function whose parameters are all `Argument`s; `M` is the tuple of their types.
pub(crate) trait Implementation<M>: Copy {
    fn invoke(self, call: &Call) -> Answer;
}

macro_rules! implementations {
    ($(($($letter:ident)*))*) => {
        $(impl<F: Fn($($letter),*) -> Answer + Copy, $($letter: Argument),*>
            Implementation<($($letter,)*)> for F
        {
            #[allow(non_snake_case, unused_assignments, unused_mut, unused_variables)]
            fn invoke(self, call: &Call) -> Answer {
                let mut at = 0;
                $(
                    let $letter = $letter::read(call, at)?;
                    at += $letter::WORDS;
                )*
                self($($letter),*)
            }
        })*
    };
}

implementations! {
    () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E G) (A B C D E G H) (A B C D E G H I)
    (A B C D E G H I J)
}

/// The handler that reads the arguments of `F` and calls it.
pub(crate) const fn bind<M, F: Implementation<M>>(_implementation: F) -> Handler {
    const {
        assert!(
            size_of::<F>() == 0,
            "only named functions and closures without captures"
        )
    };
    thunk::<M, F>
}

fn thunk<M, F: Implementation<M>>(call: &Call) -> CUresult {
    // SAFETY: `bind` was given a value of F, so F is inhabited; it is Copy and (asserted there) has
    // no bytes to read.
    let implementation: F = unsafe { *NonNull::dangling().as_ptr() };
    implementation.invoke(call).err().unwrap_or(SUCCESS)
}
