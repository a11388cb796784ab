//! How a function takes its arguments, as far as the assembly of the entries must know.

use cutape_registry::{Function, Locations};

/// Bit of a shape: arguments in vector registers, or structs by value. Then all argument registers
/// are saved, and `gather` puts the arguments in order.
pub(crate) const SCATTERED: u16 = 0x80;
/// `pre_call` returns it instead of a shape if the call is not recorded.
pub(crate) const NOT_RECORDED: u16 = 0x100;

/// How many pairs of words a function takes from the stack, plus `SCATTERED`.
#[allow(
    clippy::indexing_slicing,
    reason = "evaluated when the entries are compiled"
)]
pub(crate) const fn shape(function: &Function) -> u16 {
    let (mut locations, mut is_scattered) = (Locations::new(), false);
    let mut index = 0;
    while index < function.params.len() {
        let width = function.params[index].width;
        locations.next(width);
        is_scattered |= !width.is_integer();
        index += 1;
    }
    let pairs = locations.stack_words().div_ceil(2) as u16;
    pairs | if is_scattered { SCATTERED } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_registry::FUNCTIONS;

    #[test]
    fn shapes_count_the_words_on_the_stack() {
        // 11 parameters less six in registers; a struct of 64 bytes; 16 less six.
        for (name, expected) in [
            ("cuInit", 0),
            ("cuLaunchKernel", 3),
            ("cuIpcOpenMemHandle", 4 | SCATTERED),
            ("cuTensorMapEncodeIm2colWide", 5),
            ("cuParamSetf", SCATTERED),
        ] {
            let function = cutape_registry::function(name).expect(name);
            assert_eq!(shape(function), expected, "{name}");
        }
        for function in &FUNCTIONS {
            assert!(shape(function) & (SCATTERED - 1) <= 8, "{}", function.name);
        }
    }
}
