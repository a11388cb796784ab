//! The launcher's settings, from the environment. A program with raised privileges is not
//! recorded.

use core::str::FromStr;
use std::ffi::{CStr, CString};

use cutape_device_memory::SnapshotInterval;
use cutape_format::PayloadPolicy;
use cutape_registry::{
    Backend, Digests, HostMemory, MemoryContents, RecordedLength, RecorderSetting, Stacks, Switch,
    WhenFull,
};

use super::env;

/// The older name of `CUTAPE_BACKEND`.
const VIA: &CStr = c"CUTAPE_VIA";

/// How calls reach us: see `hook`.
pub(crate) fn backend() -> Backend {
    let chosen = env::variable(RecorderSetting::Backend.c_name()).or_else(|| env::variable(VIA));
    let chosen = chosen.and_then(|word| Backend::from_word(word.to_bytes()));
    chosen.unwrap_or(Backend::Preload)
}

/// The settings; `RecorderSetting` describes the variables.
pub(crate) struct Settings {
    pub(crate) trace: Option<CString>,
    pub(crate) driver: Option<CString>,
    pub(crate) not_recorded: Option<CString>,
    pub(crate) payloads: PayloadPolicy,
    pub(crate) outputs: PayloadPolicy,
    pub(crate) host_memory: HostMemory,
    pub(crate) cassette: bool,
    pub(crate) stacks: Stacks,
    /// `None`: never.
    pub(crate) digests: Option<Digests>,
    /// Bytes of memory for copies of what exchanges change; 0: these are not kept.
    pub(crate) outputs_of_exchanges: u64,
    /// Launches of a stream up to a breadcrumb; 0: there are none.
    pub(crate) breadcrumbs: u32,
    pub(crate) memory: MemoryContents,
    pub(crate) memory_interval: SnapshotInterval,
    /// One launch in so many; 0: none.
    pub(crate) deep: u64,
    pub(crate) checks_sources: bool,
    /// The most bytes of the trace; 0: no limit.
    pub(crate) max_size: u64,
    pub(crate) when_full: WhenFull,
    pub(crate) driver_log: bool,
    pub(crate) measures_cost: bool,
    pub(crate) starts_paused: bool,
    pub(crate) start_at: Option<CString>,
    pub(crate) record_for: Option<RecordedLength>,
    /// What the trace is redacted of when it is packed.
    pub(crate) redact: Option<CString>,
}

/// Whether a word is in a list with commas.
pub(crate) fn lists(list: Option<&CStr>, word: &str) -> bool {
    let list = list.map_or(&[][..], CStr::to_bytes);
    let mut words = list.split(|&byte| byte == b',');
    words.any(|other| other == word.as_bytes())
}

impl Default for Settings {
    /// Without any variable.
    fn default() -> Self {
        Self {
            trace: None,
            driver: None,
            not_recorded: None,
            payloads: PayloadPolicy::All,
            outputs: PayloadPolicy::All,
            host_memory: HostMemory::Reachable,
            cassette: false,
            stacks: Stacks::Off,
            digests: None,
            outputs_of_exchanges: 0,
            breadcrumbs: 0,
            memory: MemoryContents::None,
            deep: 0,
            memory_interval: SnapshotInterval::default(),
            checks_sources: false,
            max_size: 0,
            when_full: WhenFull::Stop,
            driver_log: true,
            measures_cost: false,
            starts_paused: false,
            start_at: None,
            record_for: None,
            redact: None,
        }
    }
}

impl Settings {
    /// Reads the environment.
    pub(crate) fn read() -> Self {
        let mut settings = Self::default();
        if !env::is_privileged() {
            for &setting in RecorderSetting::ALL {
                if let Some(value) = env::variable(setting.c_name()) {
                    settings.set(setting, value);
                }
            }
        }
        settings
    }

    /// An unknown word keeps the least, but for `stacks`.
    fn set(&mut self, setting: RecorderSetting, value: CString) {
        let word = value.to_bytes();
        match setting {
            RecorderSetting::Trace => self.trace = Some(value),
            RecorderSetting::Driver => self.driver = Some(value),
            RecorderSetting::NotRecorded => self.not_recorded = Some(value),
            RecorderSetting::Payloads => self.payloads = policy(word),
            RecorderSetting::Outputs => self.outputs = policy(word),
            RecorderSetting::CheckSources => {
                self.checks_sources = Switch::from_word(word) == Some(Switch::On);
            }
            RecorderSetting::HostMemory => {
                self.host_memory = HostMemory::from_word(word).unwrap_or(HostMemory::Off);
            }
            RecorderSetting::Cassette => {
                self.cassette = Switch::from_word(word) == Some(Switch::On);
            }
            RecorderSetting::Stacks => {
                self.stacks = Stacks::from_word(word).unwrap_or(Stacks::Some);
            }
            RecorderSetting::Digests => self.digests = Digests::from_word(word),
            RecorderSetting::OutputsOfExchanges => self.outputs_of_exchanges = bytes(word),
            RecorderSetting::Breadcrumbs => self.breadcrumbs = number(word).unwrap_or(0),
            RecorderSetting::Memory => {
                self.memory = MemoryContents::from_word(word).unwrap_or(MemoryContents::None);
            }
            RecorderSetting::MemoryInterval => self.memory_interval = interval(word),
            RecorderSetting::Deep => self.deep = number(word).unwrap_or(0),
            RecorderSetting::MaxSize => self.max_size = bytes(word),
            RecorderSetting::WhenFull => {
                self.when_full = WhenFull::from_word(word).unwrap_or(WhenFull::Stop);
            }
            RecorderSetting::DriverLog => {
                self.driver_log = Switch::from_word(word) != Some(Switch::Off);
            }
            RecorderSetting::Cost => self.measures_cost = true,
            RecorderSetting::StartPaused => {
                self.starts_paused = Switch::from_word(word) == Some(Switch::On);
            }
            RecorderSetting::StartAt => self.start_at = Some(value),
            RecorderSetting::RecordFor => {
                self.record_for = core::str::from_utf8(word)
                    .ok()
                    .and_then(RecordedLength::parse);
            }
            RecorderSetting::Redact => self.redact = Some(value),
            // Read where they are needed: here, and in the auditing library.
            RecorderSetting::Backend | RecorderSetting::AuditLeadsTo => {}
        }
    }
}

/// A number of bytes, in whole pages.
fn bytes(word: &[u8]) -> u64 {
    const PAGE: u64 = 4096;
    number(word)
        .and_then(|number: u64| number.checked_next_multiple_of(PAGE))
        .unwrap_or(0)
}

/// Milliseconds and bytes, with a comma between them.
fn interval(word: &[u8]) -> SnapshotInterval {
    let mut numbers = word.split(|&byte| byte == b',').map(number::<u64>);
    let mut next = || numbers.next().flatten().unwrap_or(0);
    SnapshotInterval {
        nanoseconds: next().saturating_mul(1_000_000),
        bytes: next(),
    }
}

fn number<N: FromStr>(word: &[u8]) -> Option<N> {
    core::str::from_utf8(word).ok()?.parse().ok()
}

fn policy(word: &[u8]) -> PayloadPolicy {
    PayloadPolicy::from_word(word).unwrap_or(PayloadPolicy::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_variables() {
        let read = |setting, word: &CStr| {
            let mut settings = Settings::default();
            settings.set(setting, word.to_owned());
            settings
        };
        for (word, stacks) in [
            (c"off", Stacks::Off),
            (c"all", Stacks::All),
            (c"1", Stacks::Some),
        ] {
            let settings = read(RecorderSetting::Stacks, word);
            assert_eq!(settings.stacks, stacks, "{word:?}");
        }
        for (word, digests) in [(c"sync", Some(Digests::Sync)), (c"off", None), (c"1", None)] {
            let settings = read(RecorderSetting::Digests, word);
            assert_eq!(settings.digests, digests, "{word:?}");
        }
        for (word, bytes) in [(c"4097", 8192), (c"1M", 0), (c"18446744073709551615", 0)] {
            let settings = read(RecorderSetting::OutputsOfExchanges, word);
            assert_eq!(settings.outputs_of_exchanges, bytes, "{word:?}");
        }
        for (word, every) in [(c"16", 16), (c"", 0), (c"-1", 0)] {
            let settings = read(RecorderSetting::Breadcrumbs, word);
            assert_eq!(settings.breadcrumbs, every, "{word:?}");
        }
        for (word, nanoseconds, bytes) in [
            (c"1500,4096", 1_500_000_000, 4096),
            (c"0,1", 0, 1),
            (c"2", 2_000_000, 0),
            (c"-1,x", 0, 0),
        ] {
            let settings = read(RecorderSetting::MemoryInterval, word);
            let expected = SnapshotInterval { nanoseconds, bytes };
            assert_eq!(settings.memory_interval, expected, "{word:?}");
        }
        assert_eq!(
            read(RecorderSetting::Memory, c"all").memory,
            MemoryContents::All
        );
        let unknown = c"other";
        assert_eq!(
            read(RecorderSetting::Memory, unknown).memory,
            MemoryContents::None
        );
        let settings = read(RecorderSetting::HostMemory, unknown);
        assert_eq!(settings.host_memory, HostMemory::Off);
        let settings = read(RecorderSetting::Payloads, unknown);
        assert_eq!(settings.payloads, PayloadPolicy::None);
        assert!(!read(RecorderSetting::CheckSources, unknown).checks_sources);
        assert!(read(RecorderSetting::DriverLog, unknown).driver_log);
    }
}
