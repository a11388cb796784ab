//! The exported C functions, one for each name of the registry.

use std::ffi::c_void;

use crate::call::argument::WORDS;
use crate::dispatch;

macro_rules! export {
    ($(($id:literal, $name:ident))*) => {
        #[allow(non_snake_case, missing_docs, clippy::too_many_arguments)]
        mod symbols {
            use super::{WORDS, address_of, dispatch};

            // Each takes as many words as the longest prototype: the callee ignores what the caller
            // did not pass.
            $(
                // SAFETY: the name is one of the CUDA driver API's, whose place this library takes.
                #[unsafe(no_mangle)]
                pub(super) extern "C" fn $name(
                    a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64,
                    i: u64, j: u64, k: u64, l: u64, m: u64, n: u64, o: u64, p: u64,
                ) -> u32 {
                    let words: [u64; WORDS] = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p];
                    dispatch::enter($id, &words, address_of).0
                }
            )*
        }

        const ADDRESSES: &[(u16, EntryPoint)] = &[$(($id, symbols::$name)),*];
    };
}

#[rustfmt::skip]
type EntryPoint = extern "C" fn(
    u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64,
) -> u32;

cutape_registry::for_each_function!(export);

/// The address of the exported symbol with that registry id; `None` for an unknown id.
pub fn address_of(id: u16) -> Option<*const c_void> {
    let (known, entry) = ADDRESSES.get(usize::from(id))?;
    (*known == id).then_some(*entry as *const c_void)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_an_address_of_its_own() {
        let mut addresses: Vec<_> = cutape_registry::FUNCTIONS
            .iter()
            .map(|function| address_of(function.id).unwrap_or_else(|| panic!("{}", function.name)))
            .collect();
        assert_eq!(addresses.len(), ADDRESSES.len());
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(
            addresses.len(),
            ADDRESSES.len(),
            "two symbols share an address"
        );
    }
}
