//! Signals that cutape gets while a program runs: they are sent to the program, but for those that the
//! user has given a meaning. No handler is in the program for them.

use core::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use cutape_terminal::clock;

/// The process of the program; 0 when it has ended, because its number may be another's soon.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// Signals that are for cutape: a bit for each.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// When each came last, in ticks of the processor's clock.
static LAST: [AtomicU64; 65] = [const { AtomicU64::new(0) }; 65];

/// Those that only cutape gets when a user sends them to it.
const FORWARDED: [i32; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// A signal that can be given a meaning: SIGUSR1, SIGUSR2, SIGHUP, or a real-time signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserSignal(i32);

impl UserSignal {
    /// SIGUSR2.
    pub const USR2: Self = Self(libc::SIGUSR2);

    /// From now on it is not sent to the program.
    pub fn take(self) {
        TAKEN.fetch_or(1 << (self.0 - 1), Ordering::SeqCst);
        handle(self.0);
    }

    /// When it came last, in ticks of the processor's clock; 0 if it has not come since `take`.
    pub fn last(self) -> u64 {
        let last = LAST.get(self.0 as usize);
        last.map_or(0, |last| last.load(Ordering::SeqCst))
    }
}

impl FromStr for UserSignal {
    type Err = String;

    /// `USR1`, `SIGUSR1` or `RTMIN+3`, as kill(1) takes them.
    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix("SIG").unwrap_or(text);
        let number = match name {
            "HUP" => Some(libc::SIGHUP),
            "USR1" => Some(libc::SIGUSR1),
            "USR2" => Some(libc::SIGUSR2),
            "RTMIN" => Some(libc::SIGRTMIN()),
            _ => name.strip_prefix("RTMIN+").and_then(|offset| {
                let offset = offset.parse::<u8>().ok()?;
                let number = libc::SIGRTMIN() + i32::from(offset);
                (number <= libc::SIGRTMAX()).then_some(number)
            }),
        };
        number.map(Self).ok_or_else(|| {
            let most = libc::SIGRTMAX() - libc::SIGRTMIN();
            format!("{text} is not USR1, USR2, HUP, or RTMIN+0 to RTMIN+{most}")
        })
    }
}

impl fmt::Display for UserSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            libc::SIGHUP => f.write_str("SIGHUP"),
            libc::SIGUSR1 => f.write_str("SIGUSR1"),
            libc::SIGUSR2 => f.write_str("SIGUSR2"),
            number => write!(f, "SIGRTMIN+{}", number - libc::SIGRTMIN()),
        }
    }
}

extern "C" fn on_signal(signal: libc::c_int) {
    if TAKEN.load(Ordering::SeqCst) >> (signal - 1) & 1 != 0 {
        if let Some(last) = LAST.get(signal as usize) {
            last.store(clock::ticks(), Ordering::SeqCst);
        }
        return;
    }
    let program = PROGRAM.load(Ordering::SeqCst);
    if program != 0 {
        // SAFETY: kill is async-signal-safe. Nothing has waited for the process, so that the
        // number is still its own.
        unsafe { libc::kill(program, signal) };
    }
}

fn handle(signal: i32) {
    let handler = on_signal as *const () as libc::sighandler_t;
    // SAFETY: the handler uses atomics, reads the processor's clock, and calls kill.
    unsafe { libc::signal(signal, handler) };
}

/// Ignores what the terminal sends to the program too, because cutape must outlive it to collect
/// the trace; forwards what only cutape receives.
pub(crate) fn forward_to(process: u32) {
    PROGRAM.store(process as i32, Ordering::SeqCst);
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: no handler is involved.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    for signal in FORWARDED {
        handle(signal);
    }
}

/// The program has ended.
pub(crate) fn forward_no_more() {
    PROGRAM.store(0, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names() {
        for (text, name) in [
            ("USR1", "SIGUSR1"),
            ("SIGUSR2", "SIGUSR2"),
            ("HUP", "SIGHUP"),
            ("RTMIN", "SIGRTMIN+0"),
            ("SIGRTMIN+3", "SIGRTMIN+3"),
        ] {
            let signal = text.parse::<UserSignal>();
            assert_eq!(signal.map(|signal| signal.to_string()), Ok(name.to_owned()));
        }
        for text in [
            "", "KILL", "SEGV", "TERM", "INT", "10", "usr1", "RTMIN+99", "RTMIN+-1",
        ] {
            assert!(text.parse::<UserSignal>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_taken_signal_is_noticed() {
        let signal: UserSignal = "RTMIN+5".parse().unwrap();
        signal.take();
        assert_eq!(signal.last(), 0);
        let before = clock::ticks();
        // SAFETY: there is a handler for it.
        unsafe { libc::raise(signal.0) };
        assert!(signal.last() >= before);
    }
}
