//! Calls functions by the registry's description alone, with the System V x86-64 convention.

use std::ffi::c_void;
use std::mem;
use std::ptr::NonNull;

use cutape_registry::{
    Function, INTEGER_REGISTERS, Location, Locations, Param, VECTOR_REGISTERS, Width,
};

const INTEGERS: usize = INTEGER_REGISTERS as usize;
const FLOATS: usize = VECTOR_REGISTERS as usize;
/// Words on the stack; no function of CUDA 13.0 needs more than 10 (`cuTensorMapEncodeIm2colWide`).
const STACK: usize = 16;

/// Why a call was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No function has that id.
    #[error("no function has the id {0}")]
    UnknownId(u16),
    /// The loaded driver is older than the function, or newer than its removal.
    #[error("the loaded driver does not export {0}")]
    Missing(&'static str),
    /// Another number of words than of parameters.
    #[error("{name} takes {wanted} arguments, not {given}")]
    Count {
        /// The function.
        name: &'static str,
        /// Its number of parameters.
        wanted: usize,
        /// The number of words given.
        given: usize,
    },
    /// A struct by value with a null address.
    #[error("{0}: the address of a struct by value is null")]
    NullStruct(&'static str),
    /// More on the stack than this code can push.
    #[error("{0} needs more than {STACK} words on the stack")]
    Stack(&'static str),
}

/// Any function with at most that many arguments of each class: the callee ignores unused ones, and
/// finds those beyond the registers on the stack in this order.
#[rustfmt::skip]
type Generic = unsafe extern "C" fn(
    u64, u64, u64, u64, u64, u64, f64, f64, f64, f64, f64, f64, f64, f64,
    u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64,
) -> i32;

/// Where each argument is passed.
#[derive(Debug, Default, PartialEq)]
struct Places {
    integers: [u64; INTEGERS],
    floats: [f64; FLOATS],
    stack: [u64; STACK],
}

/// Distributes arguments by the convention.
///
/// # Safety
///
/// The argument of a `Width::Memory` parameter is the address of that many readable bytes.
unsafe fn place(name: &'static str, params: &[Param], args: &[u64]) -> Result<Places, CallError> {
    if params.len() != args.len() {
        return Err(CallError::Count {
            name,
            wanted: params.len(),
            given: args.len(),
        });
    }
    let mut places = Places::default();
    let mut locations = Locations::new();
    for (param, &arg) in params.iter().zip(args) {
        match (locations.next(param.width), param.width) {
            (Location::Stack(at), Width::Memory(bytes)) => {
                let address = arg as *const u8;
                if address.is_null() {
                    return Err(CallError::NullStruct(name));
                }
                let words = usize::from(bytes).div_ceil(8);
                let at = usize::from(at);
                let slots = places
                    .stack
                    .get_mut(at..at + words)
                    .ok_or(CallError::Stack(name))?;
                // SAFETY: the caller guarantees that many readable bytes; `slots` holds at least as
                // many.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        address,
                        slots.as_mut_ptr().cast::<u8>(),
                        usize::from(bytes),
                    );
                }
            }
            (Location::Vector(at), width) => {
                let bits = match width {
                    Width::Float(4) => arg & 0xffff_ffff,
                    _ => arg,
                };
                places.floats[usize::from(at)] = f64::from_bits(bits);
            }
            (Location::Register(at), width) => {
                places.integers[usize::from(at)] = extended(width, arg);
            }
            (Location::Stack(at), width) => {
                let slot = places.stack.get_mut(usize::from(at));
                *slot.ok_or(CallError::Stack(name))? = extended(width, arg);
            }
        }
    }
    Ok(places)
}

/// The caller extends small integers; compilers of callees rely on it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn extended(width: Width, arg: u64) -> u64 {
    match width {
        Width::Unsigned(1) => u64::from(arg as u8),
        Width::Unsigned(2) => u64::from(arg as u16),
        Width::Unsigned(4) => u64::from(arg as u32),
        Width::Signed(1) => arg as i8 as u64,
        Width::Signed(2) => arg as i16 as u64,
        Width::Signed(4) => arg as i32 as u64,
        _ => arg,
    }
}

/// As [`Generic`], without floats, for at most six and at most twelve arguments.
type Few = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> i32;
type Several =
    unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;
/// Arguments of [`Several`].
const SEVERAL: usize = 12;

/// Whether [`invoke_simple`] can call the function: at most twelve arguments, all integers of 4 or
/// 8 bytes. The callee ignores the upper half of a register or word that holds one of 4 (System V
/// x86-64 ABI, Parameter Passing), so they need no extension.
pub(crate) fn is_simple(params: &[Param]) -> bool {
    let fits = |width| matches!(width, Width::Unsigned(4 | 8) | Width::Signed(4 | 8));
    params.len() <= SEVERAL && params.iter().all(|param| fits(param.width))
}

/// As [`invoke`], for a function that [`is_simple`].
///
/// # Safety
///
/// As for [`invoke`].
#[inline]
pub(crate) unsafe fn invoke_simple(
    address: NonNull<c_void>,
    name: &'static str,
    params: &[Param],
    args: &[u64],
) -> Result<i32, CallError> {
    let mut w = [0; SEVERAL];
    let words = w.get_mut(..args.len());
    let Some(words) = words.filter(|_| params.len() == args.len()) else {
        return Err(CallError::Count {
            name,
            wanted: params.len(),
            given: args.len(),
        });
    };
    words.copy_from_slice(args);
    // SAFETY: the same condition.
    Ok(unsafe { invoke_words(address, params.len(), &w) })
}

/// Calls a function that [`is_simple`] with its `count` arguments.
///
/// # Safety
///
/// As for [`invoke`].
#[inline]
unsafe fn invoke_words(address: NonNull<c_void>, count: usize, w: &[u64; SEVERAL]) -> i32 {
    if count <= INTEGERS {
        // SAFETY: as in `invoke`.
        let function: Few = unsafe { mem::transmute(address.as_ptr()) };
        // SAFETY: as in `invoke`; all arguments are passed in registers.
        return unsafe { function(w[0], w[1], w[2], w[3], w[4], w[5]) };
    }
    // SAFETY: as in `invoke`.
    let function: Several = unsafe { mem::transmute(address.as_ptr()) };
    // SAFETY: as in `invoke`; those after the sixth are passed on the stack in this order.
    unsafe {
        function(
            w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11],
        )
    }
}

/// A call that is made many times: its function is looked up, its arguments are in place.
#[derive(Clone, Debug)]
pub struct PreparedCall {
    address: NonNull<c_void>,
    arguments: Arguments,
}

#[derive(Clone, Debug)]
enum Arguments {
    /// Of a function that [`is_simple`]: how many, and the words.
    Simple(usize, [u64; SEVERAL]),
    Other(&'static Function, Box<[u64]>),
}

impl PreparedCall {
    /// The call of the function at an address.
    pub(crate) fn new(
        address: NonNull<c_void>,
        function: &'static Function,
        args: &[u64],
    ) -> Result<Self, CallError> {
        let wanted = function.params.len();
        if wanted != args.len() {
            return Err(CallError::Count {
                name: function.name,
                wanted,
                given: args.len(),
            });
        }
        let mut words = [0; SEVERAL];
        let arguments = match words
            .get_mut(..wanted)
            .filter(|_| is_simple(function.params))
        {
            Some(place) => {
                place.copy_from_slice(args);
                Arguments::Simple(wanted, words)
            }
            None => Arguments::Other(function, args.into()),
        };
        Ok(Self { address, arguments })
    }

    /// Makes the call.
    ///
    /// # Errors
    ///
    /// [`CallError`]: the call was not made.
    ///
    /// # Safety
    ///
    /// As for [`Driver::call`](crate::Driver::call).
    #[inline]
    pub unsafe fn call(&self) -> Result<i32, CallError> {
        match &self.arguments {
            Arguments::Simple(count, words) => {
                // SAFETY: the same condition.
                Ok(unsafe { invoke_words(self.address, *count, words) })
            }
            Arguments::Other(function, args) => {
                // SAFETY: the same condition.
                unsafe { invoke(self.address, function.name, function.params, args) }
            }
        }
    }
}

/// Calls the function at an address with one word a parameter.
///
/// # Safety
///
/// The address is that of a function with these parameters that returns a 32-bit number, the words
/// are valid arguments for it, and that of a `Width::Memory` parameter is the address of that many
/// readable bytes.
pub(crate) unsafe fn invoke(
    address: NonNull<c_void>,
    name: &'static str,
    params: &[Param],
    args: &[u64],
) -> Result<i32, CallError> {
    // SAFETY: the same condition.
    let Places {
        integers: i,
        floats: f,
        stack: s,
    } = unsafe { place(name, params, args) }?;
    // SAFETY: a function pointer and a data pointer have the same size here; the caller guarantees
    // a function.
    let function: Generic = unsafe { mem::transmute(address.as_ptr()) };
    // SAFETY: in the System V convention each class of argument is placed by itself, so a callee
    // that takes fewer finds them at their places; the caller cleans up the rest.
    Ok(unsafe {
        function(
            i[0], i[1], i[2], i[3], i[4], i[5], f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7],
            s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11], s[12], s[13],
            s[14], s[15],
        )
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use cutape_registry::{FUNCTIONS, id};

    use super::*;

    thread_local! {
        static SEEN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    fn seen(words: &[u64]) -> i32 {
        SEEN.with_borrow_mut(|seen| words.clone_into(seen));
        7
    }

    #[repr(C)]
    struct Handle([u8; 64]);

    extern "C" fn sixteen(
        a: u64,
        b: u32,
        c: u32,
        d: u64,
        e: u64,
        f: u64,
        g: u32,
        h: u32,
        i: u32,
        j: u32,
        k: u64,
        l: u32,
        m: u32,
        n: u32,
        o: u32,
        p: u32,
    ) -> i32 {
        let small = [g, h, i, j].map(u64::from);
        let rest = [l, m, n, o, p].map(u64::from);
        seen(
            &[
                &[a, b.into(), c.into(), d, e, f],
                &small[..],
                &[k],
                &rest[..],
            ]
            .concat(),
        )
    }

    extern "C" fn launch(
        a: u64,
        b: u32,
        c: u32,
        d: u32,
        e: u32,
        f: u32,
        g: u32,
        h: u32,
        i: u64,
        j: u64,
        k: u64,
    ) -> i32 {
        let small = [b, c, d, e, f, g, h].map(u64::from);
        seen(&[&[a], &small[..], &[i, j, k]].concat())
    }

    extern "C" fn set_attribute(function: u64, attribute: u32, value: i32) -> i32 {
        seen(&[function, attribute.into(), value.unsigned_abs().into()])
    }

    extern "C" fn open_handle(out: u64, handle: Handle, flags: u32) -> i32 {
        let sum = handle.0.iter().map(|byte| u64::from(*byte)).sum();
        seen(&[out, sum, flags.into()])
    }

    extern "C" fn set_float(function: u64, offset: i32, value: f32) -> i32 {
        seen(&[
            function,
            offset.unsigned_abs().into(),
            value.to_bits().into(),
        ])
    }

    extern "C" fn clamp(reference: u64, low: f32, high: f32) -> i32 {
        seen(&[reference, low.to_bits().into(), high.to_bits().into()])
    }

    extern "C" fn nothing() -> i32 {
        seen(&[])
    }

    fn call(function: *const (), id: u16, args: &[u64]) -> (Result<i32, CallError>, Vec<u64>) {
        let described = &FUNCTIONS[usize::from(id)];
        let address = NonNull::new(function.cast_mut().cast()).unwrap();
        // SAFETY: each test function has the shape of the described one, and addresses point at
        // locals that live.
        let result = unsafe { invoke(address, described.name, described.params, args) };
        let seen = SEEN.take();
        let prepared = PreparedCall::new(address, described, args);
        // SAFETY: as above.
        let again = prepared.and_then(|prepared| unsafe { prepared.call() });
        assert_eq!((again, SEEN.take()), (result.clone(), seen.clone()));
        if is_simple(described.params) {
            // SAFETY: as above.
            let simple = unsafe { invoke_simple(address, described.name, described.params, args) };
            assert_eq!((simple, SEEN.take()), (result.clone(), seen.clone()));
        }
        (result, seen)
    }

    #[test]
    fn every_class_of_argument_is_passed() {
        let bytes = [3_u8; 64];
        let numbers: Vec<u64> = (1..=16).collect();
        let cases: [(*const (), u16, Vec<u64>, Vec<u64>); 7] = [
            (
                launch as *const (),
                id::cuLaunchKernel,
                (1..=11).collect(),
                (1..=11).collect(),
            ),
            (
                set_attribute as *const (),
                id::cuFuncSetAttribute,
                vec![1 << 40, 7, -9_i64 as u64],
                vec![1 << 40, 7, 9],
            ),
            (
                sixteen as *const (),
                id::cuTensorMapEncodeIm2colWide,
                numbers.clone(),
                numbers,
            ),
            (
                open_handle as *const (),
                id::cuIpcOpenMemHandle_v2,
                vec![9, bytes.as_ptr() as u64, 1],
                vec![9, 192, 1],
            ),
            (
                set_float as *const (),
                id::cuParamSetf,
                vec![5, -4_i64 as u64, u64::from(1.5_f32.to_bits())],
                vec![5, 4, u64::from(1.5_f32.to_bits())],
            ),
            (
                clamp as *const (),
                id::cuTexRefSetMipmapLevelClamp,
                vec![
                    5,
                    u64::from(0.25_f32.to_bits()),
                    u64::from(8.0_f32.to_bits()),
                ],
                vec![
                    5,
                    u64::from(0.25_f32.to_bits()),
                    u64::from(8.0_f32.to_bits()),
                ],
            ),
            (nothing as *const (), id::cuCtxSynchronize, vec![], vec![]),
        ];
        for (function, id, args, expected) in cases {
            assert_eq!(
                call(function, id, &args),
                (Ok(7), expected),
                "{}",
                FUNCTIONS[usize::from(id)].name
            );
        }
    }

    #[test]
    fn most_functions_are_simple() {
        let simple = |id: u16| is_simple(FUNCTIONS[usize::from(id)].params);
        assert!(simple(id::cuLaunchKernel) && simple(id::cuCtxSynchronize));
        assert!(
            !simple(id::cuMemsetD8_v2)
                && !simple(id::cuTexRefSetMipmapLevelClamp)
                && !simple(id::cuIpcOpenMemHandle_v2)
        );
        assert!(!simple(id::cuTensorMapEncodeIm2colWide));
    }

    #[test]
    fn every_function_of_the_registry_can_be_placed() {
        let bytes = [0_u8; 256];
        for function in &FUNCTIONS {
            let args = vec![bytes.as_ptr() as u64; function.params.len()];
            // SAFETY: every word is the address of 256 readable bytes, more than any
            // `Width::Memory`.
            let places = unsafe { place(function.name, function.params, &args) };
            assert!(places.is_ok(), "{}", function.name);
        }
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let name = "cuIpcOpenMemHandle_v2";
        assert_eq!(
            call(open_handle as *const (), id::cuIpcOpenMemHandle_v2, &[1]).0,
            Err(CallError::Count {
                name,
                wanted: 3,
                given: 1
            })
        );
        assert!(matches!(
            call(nothing as *const (), id::cuCtxSynchronize, &[1]).0,
            Err(CallError::Count { .. })
        ));
        assert_eq!(
            call(
                open_handle as *const (),
                id::cuIpcOpenMemHandle_v2,
                &[1, 0, 0]
            )
            .0,
            Err(CallError::NullStruct(name))
        );
    }

    #[test]
    fn small_integers_are_extended() {
        for (width, arg, word) in [
            (Width::Unsigned(1), 0x1ff, 0xff),
            (Width::Unsigned(2), 0x1_ffff, 0xffff),
            (Width::Unsigned(4), u64::MAX, 0xffff_ffff),
            (Width::Unsigned(8), u64::MAX, u64::MAX),
            (Width::Signed(1), 0x80, 0xffff_ffff_ffff_ff80),
            (Width::Signed(2), 0x8000, 0xffff_ffff_ffff_8000),
            (Width::Signed(4), 0x7fff_ffff, 0x7fff_ffff),
        ] {
            assert_eq!(extended(width, arg), word, "{width:?}");
        }
    }
}
