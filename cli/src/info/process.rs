//! How a process ended, for people.

use cutape_report::summary::ProcessFacts;

use cutape_terminal::signals;

/// `status 3`, `signal 11 (SIGSEGV)`, `unknown`.
pub(crate) fn end(process: &ProcessFacts) -> String {
    match (process.exit_signal, process.exit_status) {
        (Some(signal), _) => {
            let name = i32::try_from(signal).map_or("", signals::signal_name);
            format!("signal {signal}{name}")
        }
        (None, Some(status)) => format!("status {status}"),
        (None, None) => "unknown".to_owned(),
    }
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
            assert_eq!(end(&facts), expected);
        }
    }
}
