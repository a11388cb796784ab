//! How much of a recording is kept.

use std::str::FromStr;
use std::time::Duration;

use cutape_cut::snapshots::start_at_snapshot;
use cutape_format::Trace;
use cutape_render::quantity::{parse_bytes, parse_time};

/// One of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Time(Duration),
    Bytes(u64),
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(time) = parse_time(text) {
            return Ok(Self::Time(time));
        }
        match parse_bytes(text) {
            Ok(bytes) if bytes > 0 => Ok(Self::Bytes(bytes)),
            _ => Err("not a time such as 60s or 5min, nor a size such as 1GiB".to_owned()),
        }
    }
}

/// All limits: what is reached first counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) bytes: u64,
    /// Of the processor's clock, as far as is known.
    pub(super) ticks_per_second: Option<u64>,
}

impl Limits {
    pub(super) fn new(limits: &[Limit]) -> Self {
        let mut all = Self {
            time: Duration::MAX,
            bytes: u64::MAX,
            ticks_per_second: None,
        };
        for limit in limits {
            match *limit {
                Limit::Time(time) => all.time = all.time.min(time),
                Limit::Bytes(bytes) => all.bytes = all.bytes.min(bytes),
            }
        }
        all
    }

    /// Where a window begins that has calls up to `latest`, in ticks: at a snapshot of memory, if there
    /// is one shortly before. Calls before `erased_to` may have been erased.
    pub(super) fn window_start(&self, trace: &Trace, latest: u64, erased_to: u64) -> u64 {
        let from = self.start_in(trace).min(latest);
        let last = trace.last_entered().unwrap_or(0);
        let start = start_at_snapshot(&trace.memory_snapshots(), from, last);
        start.max(erased_to)
    }

    /// How often memory is to be read, so that each half of what is kept has a snapshot: after which
    /// time, after how many bytes; 0 for never.
    pub(super) fn snapshot_interval(&self) -> (Duration, u64) {
        let bytes = match self.bytes {
            u64::MAX => 0,
            bytes => bytes / 2,
        };
        let time = match self.time {
            Duration::MAX => Duration::ZERO,
            time => time / 2,
        };
        (time, bytes)
    }

    /// Where what is kept begins, in ticks; 0 if all is. Time counts back from the last call.
    fn start_in(&self, trace: &Trace) -> u64 {
        let by_bytes = trace.ticks_of_last_bytes(self.bytes).unwrap_or(0);
        // A counter that is no clock tells no time.
        let rate = self.ticks_per_second.filter(|_| trace.head().clock == 0);
        let by_time = rate.map_or(0, |rate| {
            let ticks = self.time.as_nanos().saturating_mul(rate.into()) / 1_000_000_000;
            let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
            let last = trace.last_entered().unwrap_or(0);
            last.saturating_sub(ticks)
        });
        by_bytes.max(by_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_times_or_sizes() {
        let time = |milliseconds| Ok(Limit::Time(Duration::from_millis(milliseconds)));
        for (text, expected) in [
            ("60s", time(60_000)),
            ("500ms", time(500)),
            ("1.5min", time(90_000)),
            ("2h", time(7_200_000)),
            ("1GiB", Ok(Limit::Bytes(1 << 30))),
            ("10m", Ok(Limit::Bytes(10 << 20))),
            ("4096", Ok(Limit::Bytes(4096))),
        ] {
            assert_eq!(text.parse::<Limit>(), expected, "{text}");
        }
        for text in ["", "0s", "0", "-1s", "s", "1 day", "1e99h", "60 s"] {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_least_limit_counts() {
        let limits = ["60s", "1GiB", "5s", "2GiB"].map(|text| text.parse().unwrap());
        let limits = Limits::new(&limits);
        assert_eq!(
            (limits.time, limits.bytes),
            (Duration::from_secs(5), 1 << 30)
        );
    }
}
