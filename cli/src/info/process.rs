//! What a trace says about its process.

use cutape_format::Trace;
use serde::Serialize;

use crate::signals;

/// The recorded process and its end.
#[derive(Debug, Serialize)]
pub(crate) struct ProcessFacts {
    pub(crate) process: u32,
    pub(crate) parent: Option<u32>,
    /// In a parallel program: the number among all processes, and among those of the machine.
    pub(crate) rank: Option<u64>,
    pub(crate) local_rank: Option<u64>,
    pub(crate) exit_status: Option<i64>,
    pub(crate) exit_signal: Option<i64>,
}

impl ProcessFacts {
    pub(crate) fn of(trace: &Trace) -> Self {
        Self {
            process: trace.head().process,
            parent: number(trace, "parent"),
            rank: number(trace, "rank"),
            local_rank: number(trace, "rank.local"),
            exit_status: number(trace, "exit.status"),
            exit_signal: number(trace, "exit.signal"),
        }
    }

    /// `status 3`, `signal 11 (SIGSEGV)`, `unknown`.
    pub(crate) fn end(&self) -> String {
        match (self.exit_signal, self.exit_status) {
            (Some(signal), _) => {
                let name = i32::try_from(signal).map_or("", signals::signal_name);
                format!("signal {signal}{name}")
            }
            (None, Some(status)) => format!("status {status}"),
            (None, None) => "unknown".to_owned(),
        }
    }
}

/// The value of a key.
pub(crate) fn text(trace: &Trace, key: &str) -> Option<String> {
    trace.meta_value(key).map(str::to_owned)
}

/// The value of a key, if it is a number.
pub(crate) fn number<N: std::str::FromStr>(trace: &Trace, key: &str) -> Option<N> {
    trace.meta_value(key)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_processes() {
        for (exit_signal, exit_status, expected) in [
            (Some(11), None, "signal 11 (SIGSEGV)"),
            (Some(1 << 40), None, "signal 1099511627776"),
            (None, Some(3), "status 3"),
            (None, None, "unknown"),
        ] {
            let facts = ProcessFacts {
                process: 1,
                parent: None,
                rank: None,
                local_rank: None,
                exit_status,
                exit_signal,
            };
            assert_eq!(facts.end(), expected);
        }
    }
}
