//! Finds where memory differs from a shadow copy.

/// Ranges are compared in pieces of this length. Of a piece that differs, the first to the last
/// changed byte is recorded.
const CHUNK: usize = 64 << 10;
const PAGE: u64 = 4096;

/// Finds where memory differs from its shadow, and copies what does to the shadow: (offset, length)
/// of each run. False if some of it could not be read; that part is left out.
pub(crate) fn changes(
    live: u64,
    shadow: &mut [u8],
    is_readable: impl Fn(u64) -> bool,
    runs: &mut Vec<(usize, usize)>,
) -> bool {
    let mut is_whole = true;
    let mut copy = Vec::new();
    for (index, shadow) in shadow.chunks_mut(CHUNK).enumerate() {
        let offset = index * CHUNK;
        let from = live.wrapping_add(offset as u64);
        let end = from.wrapping_add(shadow.len() as u64);
        let pages = (from / PAGE * PAGE..end).step_by(PAGE as usize);
        if !pages.map(|page| page.max(from)).all(&is_readable) {
            is_whole = false;
            continue;
        }
        // SAFETY: all pages could be read a moment ago, and no call frees them while the caller
        // holds the table's lock. A program that unmaps memory while a call uses it would make the
        // device fault as well.
        let differs =
            unsafe { libc::memcmp(from as *const _, shadow.as_ptr().cast(), shadow.len()) } != 0;
        if !differs {
            continue;
        }
        copy.resize(shadow.len(), 0u8);
        // SAFETY: as above; `copy` has that many bytes. The program may write there meanwhile, so
        // only the copy is compared.
        unsafe {
            core::ptr::copy_nonoverlapping(from as *const u8, copy.as_mut_ptr(), copy.len());
        }
        let is_changed = |(new, old): (&u8, &u8)| new != old;
        let Some(first) = copy.iter().zip(&*shadow).position(is_changed) else {
            continue;
        };
        let last = copy.iter().zip(&*shadow).rposition(is_changed);
        let last = last.unwrap_or(first);
        if let (Some(old), Some(new)) = (shadow.get_mut(first..=last), copy.get(first..=last)) {
            old.copy_from_slice(new);
        }
        let (at, length) = (offset + first, last - first + 1);
        match runs.last_mut() {
            Some(run) if run.0 + run.1 == at => run.1 += length,
            _ => runs.push((at, length)),
        }
    }
    is_whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::memory;

    #[test]
    fn runs_are_what_has_changed() {
        const LENGTH: usize = 3 * CHUNK + 100;
        type Case = (&'static [usize], &'static [(usize, usize)]);
        let table: [Case; 6] = [
            (&[], &[]),
            (&[0], &[(0, 1)]),
            (&[3, 4095, 4096], &[(3, 4094)]),
            // The last byte of one piece and the first of the next.
            (&[CHUNK - 1, CHUNK], &[(CHUNK - 1, 2)]),
            (&[5, CHUNK + 5], &[(5, 1), (CHUNK + 5, 1)]),
            (&[LENGTH - 1], &[(LENGTH - 1, 1)]),
        ];
        for (changed, expected) in table {
            // Not at the start of a page.
            let mut live = vec![7u8; LENGTH + 33];
            let mut shadow = vec![7u8; LENGTH];
            for &at in changed {
                live[33 + at] = 9;
            }
            let from = live[33..].as_ptr() as u64;
            let mut runs = Vec::new();
            assert!(changes(from, &mut shadow, memory::is_readable, &mut runs));
            assert_eq!(runs, expected, "{changed:?}");
            assert!(shadow == live[33..], "it is taken over");
            runs.clear();
            assert!(changes(from, &mut shadow, memory::is_readable, &mut runs));
            assert!(runs.is_empty(), "nothing has changed since");
        }
    }

    #[test]
    fn pages_that_cannot_be_read_are_left_out() {
        let live = vec![9u8; 4 * CHUNK];
        let start = (live.as_ptr() as u64).next_multiple_of(PAGE);
        let mut shadow = vec![0u8; 3 * CHUNK - 1];
        let hole = start + CHUNK as u64 + 3 * PAGE;
        let mut runs = Vec::new();
        let count = core::cell::Cell::new(0);
        let is_readable = |page: u64| {
            count.set(count.get() + 1);
            !(hole..hole + PAGE).contains(&page)
        };
        assert!(!changes(start, &mut shadow, is_readable, &mut runs));
        assert_eq!(runs, [(0, CHUNK), (2 * CHUNK, CHUNK - 1)]);
        assert!(shadow[CHUNK..2 * CHUNK].iter().all(|&byte| byte == 0));
        assert_eq!(
            count.get(),
            16 + 4 + 16,
            "each page once, and none behind the hole"
        );
    }
}
