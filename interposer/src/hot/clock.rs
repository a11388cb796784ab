//! The clock of the trace: the time stamp counter, or a shared counter if that is not invariant.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static COUNTED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(1);

/// The file head's number for the time stamp counter.
pub(crate) const PROCESSOR: u32 = 0;
/// The file head's number for a shared counter.
const SHARED: u32 = 1;

/// Chooses the clock: `PROCESSOR` or `SHARED`.
pub(crate) fn choose() -> u32 {
    let counted = !invariant() || refused_by_kernel() || traps();
    COUNTED.store(counted, Ordering::Relaxed);
    if counted { SHARED } else { PROCESSOR }
}

/// Whether the counter runs at one rate on all cores (CPUID 0x8000_0007, bit 8 of EDX).
fn invariant() -> bool {
    use core::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

/// Whether the program has had the kernel answer reads of the counter by this thread with SIGSEGV.
/// A program that does so after its first driver call ends at its next one.
fn traps() -> bool {
    let mut mode: libc::c_int = 0;
    // SAFETY: the request writes an int.
    let answer = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) };
    answer == 0 && mode == libc::PR_TSC_SIGSEGV
}

/// Whether Linux has found that the counters of the processors disagree: then it uses one of the
/// clocks below.
fn refused_by_kernel() -> bool {
    std::fs::read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .is_ok_and(|name| is_last_resort(name.trim_ascii()))
}

fn is_last_resort(clock_source: &[u8]) -> bool {
    // The clocks of virtual machines (kvm-clock, hyperv_clocksource_tsc_page, xen) are the counter,
    // scaled.
    matches!(
        clock_source,
        b"hpet" | b"acpi_pm" | b"jiffies" | b"refined-jiffies"
    )
}

/// Now, in ticks.
#[inline]
pub(crate) fn ticks() -> u64 {
    if COUNTED.load(Ordering::Relaxed) {
        return COUNT.fetch_add(1, Ordering::Relaxed);
    }
    counter()
}

/// Now, if the clock is the time stamp counter.
#[inline]
pub(crate) fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds of one of the system's clocks.
pub(crate) fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing.
    unsafe {
        // The C library reads the counter, which may not be allowed.
        if COUNTED.load(Ordering::Relaxed) {
            libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time);
        } else {
            libc::clock_gettime(clock, &raw mut time);
        }
    }
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn clock_sources() {
        for (name, expected) in [
            (&b"tsc"[..], false),
            (b"kvm-clock", false),
            (b"hpet", true),
            (b"acpi_pm", true),
            (b"", false),
        ] {
            assert_eq!(super::is_last_resort(name), expected, "{name:?}");
        }
    }
}
