//! How each kernel takes its parameters, asked of the driver once per function and looked up without a lock.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use cutape_format::fixed::SnapshotForm;
use cutape_format::layout::field;
use cutape_registry::id;

use crate::driver;
use crate::errno::Errno;

/// More functions than any program was seen to use; beyond, parameters are not kept, and the trace says so.
const SLOTS: usize = 1 << 16;
/// The driver allows 4 KiB of parameters, 32,764 bytes from CUDA 12.1 on (execution control, cuLaunchKernel).
const LONGEST: u32 = 32 << 10;

const CUDA_ERROR_INVALID_VALUE: i32 = 1;

/// The parameters of a kernel. What a launch of most kernels needs is first, in two lines of the cache.
#[repr(C, align(64))]
pub(crate) struct Layout {
    /// Of the whole buffer in the trace.
    form: SnapshotForm,
    /// How many `words` there are.
    word_count: u8,
    /// All parameters are among `words`.
    is_of_words: bool,
    words: [Word; MOST_WORDS],
    /// (offset, size) of each, which ends within `length()`.
    parameters: Vec<(u32, u32)>,
    /// Offsets from which eight bytes are to be zero before the parameters are put, so that what belongs to none is.
    gaps: Vec<u32>,
    /// Those that are left where parameters of four to eight bytes are put as eight.
    gaps_of_words: Vec<u32>,
    /// Each parameter begins where the one before ends, or behind that.
    is_ascending: bool,
}

/// A parameter of four to eight bytes. Its first four and its last four, these put above the others, are all of it.
#[derive(Clone, Copy)]
struct Word {
    offset: u16,
    /// Where its last four bytes begin.
    above: u8,
    /// The same in bits.
    shift: u8,
}

/// Few kernels have more parameters.
const MOST_WORDS: usize = 24;

impl Word {
    fn new(offset: u32, size: u32) -> Option<Self> {
        let above = size.checked_sub(4).filter(|&above| above <= 4)? as u8;
        Some(Self {
            offset: offset.try_into().ok()?,
            above,
            shift: 8 * above,
        })
    }

    /// # Safety
    /// As many bytes as the parameter has can be read, and eight bytes written where the parameter belongs.
    #[inline(always)]
    unsafe fn put(&self, source: *const u8, target: *mut u8) {
        // SAFETY: as the caller says.
        unsafe {
            let low = source.cast::<u32>().read_unaligned();
            let high = source.add(self.above.into()).cast::<u32>().read_unaligned();
            let word = u64::from(low) | u64::from(high) << (self.shift & 63);
            let place = target.add(self.offset.into()).cast::<u64>();
            place.write_unaligned(word.to_le());
        }
    }
}

/// Addresses below are no memory on any Linux.
pub(crate) const LOWEST_ADDRESS: u64 = 4096;

impl Layout {
    /// `None` if they take more bytes together than a kernel may have.
    fn new(parameters: Vec<(u32, u32)>) -> Option<Self> {
        let ends = parameters.iter().map(|&(offset, size)| offset + size);
        let length = ends.clone().max().unwrap_or(0);
        let words: Vec<(u32, u32)> = parameters
            .iter()
            .map(|&(offset, size)| match size {
                4..8 => (offset, 8),
                _ => (offset, size),
            })
            .collect();
        let gaps_of_words = gaps(&words, length);
        let is_ascending = parameters
            .iter()
            .skip(1)
            .zip(ends)
            .all(|(next, end)| end <= next.0);
        let (mut words, mut word_count) = ([Word::new(0, 4)?; MOST_WORDS], 0);
        for (place, word) in words.iter_mut().zip(
            parameters
                .iter()
                .map_while(|&(offset, size)| Word::new(offset, size)),
        ) {
            *place = word;
            word_count += 1;
        }
        Some(Self {
            is_of_words: usize::from(word_count) == parameters.len()
                && gaps_of_words.is_empty()
                && is_ascending,
            words,
            word_count,
            gaps: gaps(&parameters, length),
            gaps_of_words,
            is_ascending,
            form: SnapshotForm::new(field::KERNEL_PARAMETERS, length)?,
            parameters,
        })
    }

    /// (offset, size) of each parameter.
    pub(crate) fn parameters(&self) -> &[(u32, u32)] {
        &self.parameters
    }

    /// Bytes of the whole buffer.
    pub(crate) fn length(&self) -> usize {
        self.form.length()
    }

    /// Whether `pack_few` is enough.
    #[inline(always)]
    pub(crate) fn is_of_words(&self) -> bool {
        self.is_of_words
    }

    /// How the whole buffer is put into the trace.
    pub(crate) fn form(&self) -> &SnapshotForm {
        &self.form
    }

    /// Puts the parameters that an array of pointers leads to where the kernel takes them. `None` if a pointer leads nowhere, or
    /// the target is shorter than `length`.
    ///
    /// # Safety
    /// The array has a pointer for each parameter, behind which that can be read, unless it is below `LOWEST_ADDRESS`.
    pub(crate) unsafe fn pack(&self, array: u64, target: &mut [u8]) -> Option<()> {
        clear(&self.gaps, target)?;
        for (index, &(offset, size)) in self.parameters.iter().enumerate() {
            // SAFETY: as the caller says.
            let source = unsafe { (array as *const *const u8).add(index).read_unaligned() };
            if (source as u64) < LOWEST_ADDRESS {
                return None;
            }
            let place = target
                .get_mut(offset as usize..)?
                .get_mut(..size as usize)?;
            // SAFETY: as the caller says; `place` has `size` bytes.
            unsafe { core::ptr::copy_nonoverlapping(source, place.as_mut_ptr(), place.len()) };
        }
        Some(())
    }

    /// As `pack_words`, for a layout of nothing else; for any other `None`.
    ///
    /// # Safety
    /// As of `pack`.
    #[inline(always)]
    pub(crate) unsafe fn pack_few(&self, array: u64, target: &mut [u8]) -> Option<()> {
        if target.len() < self.length() + 8 || !self.is_of_words {
            return None;
        }
        let target = target.as_mut_ptr();
        let mut pointer = array as *const *const u8;
        for word in self.words.get(..self.word_count.into())? {
            // SAFETY: as the caller says.
            let source = unsafe { pointer.read_unaligned() };
            // SAFETY: as above.
            pointer = unsafe { pointer.add(1) };
            if (source as u64) < LOWEST_ADDRESS {
                return None;
            }
            // SAFETY: as above; the parameter ends within `length`, behind which the target has eight bytes (checked above). The
            // zero bytes above it are gaps, or the next parameter's, which is put later.
            unsafe { word.put(source, target) };
        }
        Some(())
    }

    /// As `pack`, in less time, into a target that is eight bytes longer, of which what is behind `length` is overwritten. `None`
    /// also if it is not, or if parameters do not follow each other.
    ///
    /// # Safety
    /// As of `pack`.
    #[inline(always)]
    pub(crate) unsafe fn pack_words(&self, array: u64, target: &mut [u8]) -> Option<()> {
        if target.len() < self.length() + 8 || !self.is_ascending {
            return None;
        }
        if !self.gaps_of_words.is_empty() {
            clear(&self.gaps_of_words, target.get_mut(..self.length())?)?;
        }
        let target = target.as_mut_ptr();
        let mut pointer = array as *const *const u8;
        for &(offset, size) in &self.parameters {
            // SAFETY: as the caller says.
            let source = unsafe { pointer.read_unaligned() };
            // SAFETY: as above.
            pointer = unsafe { pointer.add(1) };
            if (source as u64) < LOWEST_ADDRESS {
                return None;
            }
            // SAFETY: a parameter ends within `length`, behind which the target has eight bytes (checked above).
            let place = unsafe { target.add(offset as usize) };
            if let Some(word) = Word::new(0, size) {
                // The zero bytes above it are gaps, or the next parameter's, which is put later.
                // SAFETY: as above.
                unsafe { word.put(source, place) };
            } else if (1..4).contains(&size) {
                // Up to three bytes: the first, the one in the middle, and the last.
                for at in [0, size / 2, size - 1] {
                    // SAFETY: as above.
                    unsafe { *place.add(at as usize) = *source.add(at as usize) };
                }
            } else if size > 8 {
                // SAFETY: as above.
                unsafe { copy_struct(source, place, size as usize) };
            }
        }
        Some(())
    }
}

/// Copies at least eight bytes, here and not by a call of the C library, whose way is long for a few hundred bytes, as the structs
/// of most kernels have.
///
/// # Safety
/// So many bytes can be read and written; they do not overlap.
#[inline(always)]
unsafe fn copy_struct(source: *const u8, target: *mut u8, length: usize) {
    const PIECE: usize = 16;
    let Some(last) = length.checked_sub(PIECE) else {
        for at in [0, length - 8] {
            // SAFETY: as the caller says.
            unsafe {
                let word = source.add(at).cast::<u64>().read_unaligned();
                target.add(at).cast::<u64>().write_unaligned(word);
            }
        }
        return;
    };
    let whole = length / PIECE * PIECE;
    // SAFETY: as the caller says; the last piece may overlap the one before. In instructions that the compiler cannot take for the
    // copying that the C library does.
    unsafe {
        asm!(
            "2:",
            "movups {piece}, [{source} + {at}]",
            "movups [{target} + {at}], {piece}",
            "add {at}, {length}",
            "jnz 2b",
            piece = out(xmm_reg) _,
            source = in(reg) source.add(whole),
            target = in(reg) target.add(whole),
            at = inout(reg) (whole as isize).wrapping_neg() => _,
            length = const PIECE,
            options(nostack)
        );
        let piece = source.add(last).cast::<[u64; 2]>().read_unaligned();
        target.add(last).cast::<[u64; 2]>().write_unaligned(piece);
    }
}

/// Puts eight zero bytes at each of these offsets, or as many as there are.
fn clear(gaps: &[u32], target: &mut [u8]) -> Option<()> {
    for &gap in gaps {
        let rest = target.get_mut(gap as usize..)?;
        match rest.first_chunk_mut::<8>() {
            Some(word) => *word = [0; 8],
            None => rest.fill(0),
        }
    }
    Some(())
}

/// One line of the cache.
#[repr(align(64))]
struct Slot {
    handle: AtomicU64,
    /// Module or library that the function goes with.
    owner: AtomicU64,
    /// Context of a `CUfunction`; kernels belong to none.
    context: AtomicU64,
    /// 0 `CUfunction`, 1 `CUkernel`; plus `DEAD` when its owner is gone.
    state: AtomicU64,
    layout: AtomicPtr<Layout>,
    /// The layout stands in the trace.
    noted: AtomicBool,
}

const DEAD: u64 = 2;

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        handle: AtomicU64::new(0),
        owner: AtomicU64::new(0),
        context: AtomicU64::new(0),
        state: AtomicU64::new(0),
        layout: AtomicPtr::new(core::ptr::null_mut()),
        noted: AtomicBool::new(false),
    }
}; SLOTS];

/// Something stands in the table.
static LEARNED: AtomicBool = AtomicBool::new(false);

/// The slot of a handle: the one that has it, or, if `add`, a free one taken for it.
fn slot(handle: u64, add: bool) -> Option<&'static Slot> {
    if handle == 0 {
        return None;
    }
    // Handles are addresses: their low bits say little.
    let start = (handle >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> (usize::BITS - 16);
    for probe in 0..64 {
        let slot = &TABLE[(start + probe) % SLOTS];
        let mut there = slot.handle.load(Ordering::Acquire);
        if there == 0 && add {
            match slot
                .handle
                .compare_exchange(0, handle, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => there = handle,
                Err(other) => there = other,
            }
        }
        if there == handle {
            return Some(slot);
        }
        if there == 0 {
            return None;
        }
    }
    None
}

/// Notes a handle that the driver has just given: of which kind, and with which module or library it goes.
pub(crate) fn learn(handle: u64, is_kernel: bool, owner: u64) {
    let Some(slot) = slot(handle, true) else {
        return;
    };
    LEARNED.store(true, Ordering::Relaxed);
    let state = u64::from(is_kernel);
    if !is_kernel {
        slot.context
            .store(crate::pending::current_context(), Ordering::Release);
    }
    if slot.state.load(Ordering::Acquire) != state || slot.owner.load(Ordering::Acquire) != owner {
        // Another function behind the same number. A layout that a launch on another thread may still be reading is
        // left where it is, not freed.
        slot.layout.store(core::ptr::null_mut(), Ordering::Release);
        slot.noted.store(false, Ordering::Release);
        slot.owner.store(owner, Ordering::Release);
        slot.state.store(state, Ordering::Release);
    }
}

/// What is known of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No call gave it.
    Unknown,
    Alive,
    /// Its owner is gone.
    Dead,
}

/// What is known of a handle.
#[inline]
pub(crate) fn standing(handle: u64) -> Standing {
    match slot(handle, false).map(|slot| slot.state.load(Ordering::Acquire) & DEAD) {
        None => Standing::Unknown,
        Some(DEAD) => Standing::Dead,
        Some(_) => Standing::Alive,
    }
}

/// The owner of a kernel, for the function that is made from it; the kernel itself if it is unknown.
pub(crate) fn owner_of(kernel: u64) -> u64 {
    slot(kernel, false).map_or(kernel, |slot| slot.owner.load(Ordering::Acquire))
}

/// Whose functions end.
#[derive(Clone, Copy)]
pub(crate) enum Owner {
    /// That module's or library's.
    Module(u64),
    /// Those in that context.
    Context(u64),
    /// Those in any context, but no kernels.
    AnyContext,
}

/// Notes that functions are gone: they must not be asked about any more.
pub(crate) fn forget(owner: Owner) {
    for slot in TABLE
        .iter()
        .filter(|slot| slot.handle.load(Ordering::Relaxed) != 0)
    {
        let ends = match owner {
            Owner::Module(module) => slot.owner.load(Ordering::Relaxed) == module,
            Owner::Context(context) => slot.context.load(Ordering::Relaxed) == context,
            Owner::AnyContext => slot.context.load(Ordering::Relaxed) != 0,
        };
        if ends {
            slot.state.fetch_or(DEAD, Ordering::AcqRel);
        }
    }
}

/// Notes that a module or library is still there.
pub(crate) fn revive(module: u64) {
    for slot in &TABLE {
        if slot.handle.load(Ordering::Relaxed) != 0 && slot.owner.load(Ordering::Relaxed) == module
        {
            slot.state.fetch_and(!DEAD, Ordering::AcqRel);
        }
    }
}

/// The layout of a function that is alive and whose layout stands in the trace.
#[inline]
pub(crate) fn noted(handle: u64) -> Option<&'static Layout> {
    let slot = slot(handle, false)?;
    if !slot.noted.load(Ordering::Relaxed) || slot.state.load(Ordering::Acquire) & DEAD != 0 {
        return None;
    }
    // SAFETY: NULL, or leaked by `of`.
    unsafe { slot.layout.load(Ordering::Acquire).as_ref() }
}

/// The layout of a function if the trace does not have it yet; it is taken to have it from now on.
#[inline]
pub(crate) fn to_be_noted(handle: u64) -> Option<&'static Layout> {
    let slot = slot(handle, false)?;
    if slot.noted.load(Ordering::Relaxed) || slot.noted.swap(true, Ordering::AcqRel) {
        return None;
    }
    let layout = of(handle);
    if layout.is_none() {
        // The driver may say it another time.
        slot.noted.store(false, Ordering::Release);
    }
    layout.map(|(layout, _)| layout)
}

/// For a new trace: no layout stands in it.
pub(crate) fn forget_notes() {
    if !LEARNED.load(Ordering::Relaxed) {
        return;
    }
    for slot in &TABLE {
        slot.noted.store(false, Ordering::Relaxed);
    }
}

/// The layout of a function or kernel, and whether that is still alive.
/// `None` for a handle that no call gave us, or that went before its layout was known.
#[inline]
pub(crate) fn of(handle: u64) -> Option<(&'static Layout, bool)> {
    let slot = slot(handle, false)?;
    let known = slot.layout.load(Ordering::Acquire);
    let state = slot.state.load(Ordering::Acquire);
    // SAFETY: NULL, or leaked by `ask`.
    if let Some(layout) = unsafe { known.as_ref() } {
        return Some((layout, state & DEAD == 0));
    }
    if state & DEAD != 0 {
        return None;
    }
    let layout = Box::into_raw(Box::new(ask(handle, state == 1)?));
    slot.layout.store(layout, Ordering::Release);
    // SAFETY: just leaked.
    Some((unsafe { &*layout }, true))
}

/// Asks the driver for parameter after parameter until it says that there is none.
#[cold]
fn ask(handle: u64, is_kernel: bool) -> Option<Layout> {
    let function = if is_kernel {
        id::cuKernelGetParamInfo
    } else {
        id::cuFuncGetParamInfo
    };
    let _errno = Errno::keep();
    let mut parameters = Vec::new();
    for index in 0..u64::from(LONGEST) {
        let (mut offset, mut size) = (0u64, 0u64);
        let arguments = [
            handle,
            index,
            (&raw mut offset) as u64,
            (&raw mut size) as u64,
        ];
        // SAFETY: both outputs are valid for writing a size_t; the handle is alive.
        match unsafe { driver::call(function, arguments) } {
            Some(0) => {}
            // A driver before 12.4 does not have the function.
            None => return None,
            Some(CUDA_ERROR_INVALID_VALUE) => break,
            // It has not answered the question, for example because there is no context.
            Some(_) => return None,
        }
        offset
            .checked_add(size)
            .filter(|&end| end <= u64::from(LONGEST))?;
        parameters.push((offset as u32, size as u32));
    }
    Layout::new(parameters)
}

/// Where eight zero bytes are to be put so that all bytes between parameters are zero. They may reach into parameters, which are
/// put afterwards, but not behind the end.
fn gaps(parameters: &[(u32, u32)], length: u32) -> Vec<u32> {
    let mut gaps = Vec::new();
    let mut at = 0;
    while at < length {
        let covering = parameters
            .iter()
            .find(|&&(offset, size)| offset <= at && at < offset + size);
        match covering {
            Some(&(offset, size)) => at = offset + size,
            None => {
                gaps.push(at.min(length.saturating_sub(8)));
                at += 8;
            }
        }
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zeros_cover_what_belongs_to_no_parameter() {
        let check = |parameters: &[(u32, u32)], length, expected: &[u32]| {
            assert_eq!(gaps(parameters, length), expected, "{parameters:?}");
        };
        check(&[], 0, &[]);
        check(&[(0, 8), (8, 4)], 12, &[]);
        check(&[(0, 4), (8, 8)], 16, &[4]);
        check(&[(0, 1), (4, 4), (32, 8)], 40, &[1, 9, 17, 25]);
        // Shorter than what is put: all of it is zero.
        check(&[(4, 1)], 5, &[0]);
        check(&[(0, 8), (12, 1)], 13, &[5]);
    }

    /// The ways to put the parameters where `rest` stands already.
    fn packed(layout: &Layout, values: &[Vec<u8>], rest: u8) -> [Option<Vec<u8>>; 3] {
        let pointers: Vec<*const u8> = values.iter().map(|value| value.as_ptr()).collect();
        let array = pointers.as_ptr() as u64;
        let mut bytes = vec![rest; layout.length()];
        let (mut words, mut few) = (
            vec![rest; layout.length() + 8],
            vec![rest; layout.length() + 8],
        );
        // SAFETY: there is a pointer for each parameter, to as many bytes as that has.
        let packed = unsafe {
            [
                layout.pack(array, &mut bytes),
                layout.pack_words(array, &mut words),
                layout.pack_few(array, &mut few),
            ]
        };
        words.truncate(layout.length());
        few.truncate(layout.length());
        let mut targets = [bytes, words, few].into_iter();
        packed.map(|done| targets.next().filter(|_| done.is_some()))
    }

    proptest! {
        #[test]
        fn words_are_packed_as_bytes_are(
            sizes in prop_oneof![
                prop::collection::vec((0_u32..12, prop_oneof![Just(4_u32), Just(8), 0_u32..4, 0_u32..100]), 0..20),
                prop::collection::vec((Just(0), 4_u32..9), 0..30),
            ],
            value in any::<u8>(),
        ) {
            let mut end = 0;
            let parameters: Vec<(u32, u32)> = sizes.iter().map(|&(gap, size)| {
                end += gap + size;
                (end - size, size)
            }).collect();
            let values: Vec<Vec<u8>> = (0_u8..).zip(&parameters).map(|(index, parameter)| {
                let byte = |at: u32| value.wrapping_add(index).wrapping_mul(17).wrapping_add(at as u8);
                // An empty one stands somewhere, too.
                let mut bytes = Vec::with_capacity(1);
                bytes.extend((0..parameter.1).map(byte));
                bytes
            }).collect();
            let mut expected = vec![0; end as usize];
            for (&(offset, size), value) in parameters.iter().zip(&values) {
                expected[offset as usize..(offset + size) as usize].copy_from_slice(value);
            }
            let layout = Layout::new(parameters).unwrap();
            let [bytes, words, few] = packed(&layout, &values, 0xee);
            prop_assert_eq!(&bytes, &Some(expected));
            prop_assert_eq!(&words, &bytes);
            let are_words = sizes.len() <= MOST_WORDS && sizes.iter().all(|&(_, size)| (4..=8).contains(&size));
            prop_assert!(few.is_none() || few == bytes);
            // Gaps may be too wide for words to cover them.
            prop_assert!(few.is_some() || !are_words || sizes.iter().any(|&(gap, _)| gap > 0));
        }
    }

    #[test]
    fn parameters_out_of_order_are_packed_one_by_one() {
        let layout = Layout::new(vec![(8, 4), (0, 8)]).unwrap();
        let expected = [[2; 8].as_slice(), &[1; 4]].concat();
        let values = [vec![1; 4], vec![2; 8]];
        assert_eq!(packed(&layout, &values, 0), [Some(expected), None, None]);
        let nowhere = [core::ptr::null::<u8>(); 1];
        let layout = Layout::new(vec![(0, 8)]).unwrap();
        let array = nowhere.as_ptr() as u64;
        // SAFETY: there is a pointer for the only parameter, and it is one that is not followed.
        unsafe {
            assert_eq!(layout.pack(array, &mut [0; 8]), None);
            assert_eq!(layout.pack_words(array, &mut [0; 16]), None);
            assert_eq!(layout.pack_few(array, &mut [0; 16]), None);
        }
    }
}
