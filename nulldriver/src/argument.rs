//! The arguments of one call, from raw registers and stack words to typed values.
//!
//! What the program points at is not validated beyond NULL: a wild pointer faults here as it does in the real driver.

use std::ffi::{CStr, c_char};

use cutape_registry::Function;

use crate::answer::{Answer, INVALID_VALUE};

/// Words that an entry point hands on: six registers and ten stack words, more than any prototype has.
pub(crate) const WORDS: usize = 16;

/// One call: which exported symbol, with which argument words.
pub(crate) struct Call<'a> {
    pub(crate) function: &'static Function,
    pub(crate) words: &'a [u64; WORDS],
}

/// A type that a parameter of an implementation may have.
pub(crate) trait Argument: Sized {
    fn read(call: &Call, index: usize) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => {
        $(impl Argument for $t {
            // Upper bits of a narrow argument are undefined in the C ABI and cut off here.
            fn read(call: &Call, index: usize) -> Self {
                call.words[index] as $t
            }
        })*
    };
}

integers!(u8, u16, u32, u64, usize, i32);

/// A pointer to where the call writes a value.
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Argument for Out<T> {
    fn read(call: &Call, index: usize) -> Self {
        Out(call.words[index] as *mut T)
    }
}

impl<T> Out<T> {
    /// A pointer that came from somewhere else than an argument word.
    pub(crate) fn at(address: u64) -> Self {
        Out(address as *mut T)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The pointer itself, for what is not one value of `T`.
    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }

    /// `INVALID_VALUE` for NULL, before anything is done.
    pub(crate) fn check(self) -> Answer {
        if self.0.is_null() {
            Err(INVALID_VALUE)
        } else {
            Ok(())
        }
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
            // SAFETY: by the C prototype the caller gives a pointer to (an array of) T; alignment is not assumed.
            unsafe { self.0.wrapping_add(index).write_unaligned(value) };
        }
    }

    /// Reads what stands there now, for parameters that go both ways.
    pub(crate) fn get(self) -> Answer<T>
    where
        T: Copy,
    {
        self.check()?;
        // SAFETY: by the C prototype the caller gives a readable pointer to T; alignment is not assumed.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

/// A pointer to what the call reads.
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl<T> Argument for In<T> {
    fn read(call: &Call, index: usize) -> Self {
        In(call.words[index] as *const T)
    }
}

impl<T: Copy> In<T> {
    /// A pointer that came from somewhere else than an argument word.
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
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: by the C prototype the caller gives a pointer to (an array of) T; alignment is not assumed.
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    /// The first `count` elements; NULL is `INVALID_VALUE` unless there are none.
    pub(crate) fn list(self, count: usize) -> Answer<Vec<T>> {
        (0..count).map(|index| self.get_at(index)).collect()
    }
}

/// A NUL-terminated string.
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Argument for Text {
    fn read(call: &Call, index: usize) -> Self {
        Text(call.words[index] as *const c_char)
    }
}

impl Text {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The bytes without the NUL, as text (invalid UTF-8 replaced); NULL is `INVALID_VALUE`.
    pub(crate) fn get(self) -> Answer<String> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: by the C prototype the caller gives a NUL-terminated string.
        Ok(unsafe { CStr::from_ptr(self.0) }
            .to_string_lossy()
            .into_owned())
    }
}

/// A stream handle whose NULL has been replaced by the default stream that this symbol means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stream(pub(crate) u64);

/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`.
pub(crate) const PER_THREAD: u64 = 2;

impl Stream {
    /// As given in a struct or an argument of a symbol that is, or is not, a per-thread variant.
    pub(crate) fn from_raw(raw: u64, per_thread: bool) -> Self {
        match raw {
            0 if per_thread => Stream(PER_THREAD),
            0 => Stream(LEGACY),
            handle => Stream(handle),
        }
    }
}

impl Argument for Stream {
    fn read(call: &Call, index: usize) -> Self {
        Stream::from_raw(call.words[index], call.function.per_thread)
    }
}

/// Whether the symbol is a per-thread default stream variant; takes no argument word.
#[derive(Clone, Copy)]
pub(crate) struct IsPerThread(pub(crate) bool);

impl Argument for IsPerThread {
    fn read(call: &Call, _index: usize) -> Self {
        IsPerThread(call.function.per_thread)
    }
}
