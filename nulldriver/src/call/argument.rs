//! The arguments of one call, from raw registers and stack words to typed values.
//!
//! A pointer is checked for NULL only: a wild one faults here as it does in the real driver.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ops::Deref;

use cutape_registry::{Function, canonical_stream, is_default_stream};

use crate::call::answer::{Answer, INVALID_VALUE, reject_if};

/// Words of a call: six registers and ten stack words, as many as the longest prototype has.
pub(crate) const WORDS: usize = 16;

/// The address of the exported symbol with a registry id.
pub(crate) type AddressOf = fn(u16) -> Option<*const c_void>;

/// One call: which exported symbol, with which argument words.
pub(crate) struct Call<'a> {
    pub(crate) function: &'static Function,
    pub(crate) words: &'a [u64; WORDS],
    pub(crate) address_of: AddressOf,
}

thread_local! {
    /// Where the stack of the thread was when it entered the driver last.
    static ENTERED_AT: Cell<u64> = const { Cell::new(0) };
}

impl Call<'_> {
    /// Notes where the driver's own part of this thread's stack begins; see [`is_own_stack`].
    pub(crate) fn note_stack(&self) {
        ENTERED_AT.set(self.words.as_ptr() as u64);
    }
}

/// Whether an address of the program lies in stack that the driver itself uses now: then the frame
/// that held it has returned, and a write would destroy our return addresses, not the program's
/// memory.
pub(crate) fn is_own_stack(address: u64) -> bool {
    // The entry point's frame lies above its argument words; its size is assumed.
    const ENTRY_FRAME: u64 = 512;
    let here = 0_u8;
    (&raw const here as u64..ENTERED_AT.get() + ENTRY_FRAME).contains(&address)
}

/// A type that a parameter of an implementation may have.
pub(crate) trait Argument: Sized {
    /// Argument words that it takes.
    const WORDS: usize = 1;

    /// Reads it from the word at `index` on; the code that the call answers if it may not have that
    /// value.
    fn read(call: &Call, index: usize) -> Answer<Self>;
}

macro_rules! integers {
    ($($t:ty),*) => {
        $(impl Argument for $t {
            // The C ABI leaves the upper bits of a narrow argument undefined.
            fn read(call: &Call, index: usize) -> Answer<Self> {
                Ok(call.words[index] as $t)
            }
        })*
    };
}

integers!(u8, u16, u32, u64, usize, i32);

impl<T: Argument, const N: usize> Argument for [T; N] {
    const WORDS: usize = N * T::WORDS;

    fn read(call: &Call, index: usize) -> Answer<Self> {
        let element = |element: usize| T::read(call, index + element * T::WORDS);
        let elements = (0..N).map(element).collect::<Answer<Vec<T>>>()?;
        elements.try_into().map_err(|_| INVALID_VALUE)
    }
}

/// A struct of arguments that follow each other, for parameters that several functions have.
macro_rules! arguments {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* $member_vis:vis $member:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        $vis struct $name {
            $($(#[$doc])* $member_vis $member: $type,)*
        }

        impl crate::call::argument::Argument for $name {
            const WORDS: usize = 0 $(+ <$type as crate::call::argument::Argument>::WORDS)*;

            #[allow(unused_assignments)]
            fn read(call: &crate::call::argument::Call, mut index: usize)
            -> crate::call::answer::Answer<Self>
            {
                $(
                    let $member = <$type as crate::call::argument::Argument>::read(call, index)?;
                    index += <$type as crate::call::argument::Argument>::WORDS;
                )*
                Ok($name { $($member),* })
            }
        }
    };
}
pub(crate) use arguments;

/// A pointer to where the call writes a value.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Argument for Out<T> {
    fn read(call: &Call, index: usize) -> Answer<Self> {
        Ok(Out(call.words[index] as *mut T))
    }
}

impl<T> Out<T> {
    /// A pointer that is not an argument word itself.
    pub(crate) fn at(address: u64) -> Self {
        Out(address as *mut T)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The pointer as a number.
    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }

    /// `INVALID_VALUE` for NULL, before anything is done.
    pub(crate) fn check(self) -> Answer {
        reject_if(self.0.is_null(), INVALID_VALUE)
    }

    /// Writes the value; NULL is `INVALID_VALUE`.
    pub(crate) fn set(self, value: T) -> Answer {
        self.check()?;
        self.set_if(value);
        Ok(())
    }

    /// Writes the value unless the pointer is NULL.
    pub(crate) fn set_if(self, value: T) {
        self.set_at(0, value);
    }

    /// Writes an element of an array unless the pointer is NULL.
    pub(crate) fn set_at(self, index: usize, value: T) {
        if !self.0.is_null() {
            // SAFETY: by the C prototype the caller gives a pointer to (an array of) T; alignment
            // is not assumed.
            unsafe { self.0.wrapping_add(index).write_unaligned(value) };
        }
    }

    /// Reads the present value, for parameters that are read and written.
    pub(crate) fn get(self) -> Answer<T>
    where
        T: Copy,
    {
        self.check()?;
        // SAFETY: by the C prototype the caller gives a readable pointer to T; alignment is not
        // assumed.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

/// An `Out` that is not NULL: with NULL the call answers `INVALID_VALUE` and does nothing.
pub(crate) struct OutRef<T>(Out<T>);

impl<T> OutRef<T> {
    /// `INVALID_VALUE` for NULL.
    pub(crate) fn of(out: Out<T>) -> Answer<Self> {
        out.check().map(|()| OutRef(out))
    }
}

impl<T> Argument for OutRef<T> {
    fn read(call: &Call, index: usize) -> Answer<Self> {
        OutRef::of(Out::read(call, index)?)
    }
}

impl<T> Deref for OutRef<T> {
    type Target = Out<T>;

    fn deref(&self) -> &Out<T> {
        &self.0
    }
}

/// A pointer to what the call reads.
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl<T> Argument for In<T> {
    fn read(call: &Call, index: usize) -> Answer<Self> {
        Ok(In(call.words[index] as *const T))
    }
}

impl<T: Copy> In<T> {
    /// A pointer to a value of the driver.
    pub(crate) fn of(value: &T) -> Self {
        In(value)
    }

    /// A pointer that is not an argument word itself.
    pub(crate) fn at(address: u64) -> Self {
        In(address as *const T)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The pointer as a number.
    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }

    /// The value; NULL is `INVALID_VALUE`.
    pub(crate) fn get(self) -> Answer<T> {
        self.get_at(0)
    }

    /// An element of an array; NULL is `INVALID_VALUE`.
    pub(crate) fn get_at(self, index: usize) -> Answer<T> {
        reject_if(self.0.is_null(), INVALID_VALUE)?;
        // SAFETY: by the C prototype the caller gives a pointer to (an array of) T; alignment is
        // not assumed.
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    /// The first `count` elements; NULL is `INVALID_VALUE` unless there are none.
    pub(crate) fn list(self, count: usize) -> Answer<Vec<T>> {
        (0..count).map(|index| self.get_at(index)).collect()
    }
}

/// `Site<ASYNC>` is the last argument of an asynchronous function.
pub(crate) const ASYNC: bool = true;
pub(crate) const SYNC: bool = false;

/// Where a copy or memset runs: on the stream of an asynchronous function, or on the default stream
/// of a synchronous one, which has no such argument.
#[derive(Clone, Copy)]
pub(crate) struct Site<const IS_ASYNC: bool>(pub(crate) Stream);

impl<const IS_ASYNC: bool> Argument for Site<IS_ASYNC> {
    const WORDS: usize = if IS_ASYNC { Stream::WORDS } else { 0 };

    fn read(call: &Call, index: usize) -> Answer<Self> {
        let raw = if IS_ASYNC { call.words[index] } else { 0 };
        Ok(Site(Stream::from_raw(raw, call.function.per_thread)))
    }
}

/// An argument that only some variants of a function have.
#[derive(Clone, Copy)]
pub(crate) struct Extra<T, const IS_GIVEN: bool>(pub(crate) Option<T>);

impl<T: Argument, const IS_GIVEN: bool> Argument for Extra<T, IS_GIVEN> {
    const WORDS: usize = if IS_GIVEN { T::WORDS } else { 0 };

    fn read(call: &Call, index: usize) -> Answer<Self> {
        let argument = IS_GIVEN.then(|| T::read(call, index));
        argument.transpose().map(Extra)
    }
}

/// A NUL-terminated string.
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Argument for Text {
    fn read(call: &Call, index: usize) -> Answer<Self> {
        Ok(Text(call.words[index] as *const c_char))
    }
}

impl Text {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The bytes without the NUL, as text (invalid UTF-8 replaced); NULL is `INVALID_VALUE`.
    pub(crate) fn get(self) -> Answer<String> {
        reject_if(self.0.is_null(), INVALID_VALUE)?;
        // SAFETY: by the C prototype the caller gives a NUL-terminated string.
        Ok(unsafe { CStr::from_ptr(self.0) }
            .to_string_lossy()
            .into_owned())
    }
}

/// A stream handle; NULL is replaced by the default stream of this symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stream(pub(crate) u64);

impl Stream {
    /// From a handle given to a symbol that is, or is not, a per-thread variant.
    pub(crate) fn from_raw(raw: u64, per_thread: bool) -> Self {
        Stream(canonical_stream(raw, per_thread))
    }
}

impl Argument for Stream {
    fn read(call: &Call, index: usize) -> Answer<Self> {
        Ok(Stream::from_raw(
            call.words[index],
            call.function.per_thread,
        ))
    }
}

impl Stream {
    /// Whether it is one of the two default streams.
    pub(crate) fn is_default(self) -> bool {
        is_default_stream(self.0)
    }
}

/// Whether the symbol is a per-thread default stream variant.
#[derive(Clone, Copy)]
pub(crate) struct IsPerThread(pub(crate) bool);

impl Argument for IsPerThread {
    const WORDS: usize = 0;

    fn read(call: &Call, _index: usize) -> Answer<Self> {
        Ok(IsPerThread(call.function.per_thread))
    }
}

impl Argument for AddressOf {
    const WORDS: usize = 0;

    fn read(call: &Call, _index: usize) -> Answer<Self> {
        Ok(call.address_of)
    }
}

/// A number that must be greater than 0.
pub(crate) fn positive(number: i32) -> Answer<u32> {
    let number = u32::try_from(number).ok();
    number.filter(|&number| number > 0).ok_or(INVALID_VALUE)
}
