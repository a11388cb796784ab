//! Host memory that takes the place of the program's.

use std::fs;

use crate::process::allocator;
use crate::process::mapping::unmap;

/// Less is taken without a look at what there is.
const CHECKED: u64 = 64 << 20;

/// Available host memory in bytes; `None` if the kernel does not report it.
pub(crate) fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Why that much memory of the program cannot be had here: the system would end the replay for
/// taking it.
///
/// # Errors
/// In one phrase.
pub(crate) fn check_available(length: u64) -> Result<(), String> {
    match available_memory().filter(|_| length > CHECKED) {
        Some(available) if length > available => Err(format!(
            "needs {length} bytes of host memory, of which this machine has {available} available"
        )),
        _ => Ok(()),
    }
}

/// Fresh pages, zeroed, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) start: u64,
    length: u64,
}

impl Pages {
    /// `None` if the system refuses.
    pub(crate) fn map(length: u64) -> Option<Self> {
        let start = allocator::map_pages(length)?;
        Some(Self { start, length })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped by `map_pages`, and who owns them has ended what uses them.
        unsafe { unmap(self.start, self.start.saturating_add(self.length)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_checked_before_it_is_taken() {
        let available = available_memory().unwrap();
        assert!(available > 1 << 20);
        assert_eq!(check_available(CHECKED), Ok(()));
        assert_eq!(check_available(available / 2), Ok(()));
        let refused = check_available(1 << 50).unwrap_err();
        assert!(refused.starts_with("needs 1125899906842624 bytes of host memory"));
    }

    #[test]
    fn pages_are_unmapped() {
        let is_mapped = |start: u64| {
            let list = fs::read("/proc/self/maps").unwrap();
            let mut mappings = cutape_maps::mappings(&list);
            mappings.any(|mapping| (mapping.start..mapping.end).contains(&start))
        };
        // So long that nothing else comes there meanwhile.
        let pages = Pages::map(1 << 40).unwrap();
        let middle = pages.start + (1 << 39);
        assert!(is_mapped(middle));
        drop(pages);
        assert!(!is_mapped(middle));
    }
}
