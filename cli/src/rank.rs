//! Traces of the processes of a parallel program: each has its rank in its name.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The variables by which launchers of parallel programs tell a process its rank; the recorder knows the same.
const RANKS: [&str; 6] = [
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "SLURM_PROCID",
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
];

/// The name for a trace if we ourselves are a process of a parallel program, so that its processes do not meet:
/// `run.cutape` → `run.rank3.cutape`.
pub(crate) fn trace_name(trace: &Path) -> PathBuf {
    let rank = RANKS.into_iter().find_map(|name| {
        let value = env::var(name).ok()?;
        is_rank(value.as_bytes()).then_some(value)
    });
    rank.map_or_else(|| trace.to_owned(), |rank| with_rank(trace, &rank))
}

/// Whether that is a rank: a number of at most nine digits.
pub(crate) fn is_rank(digits: &[u8]) -> bool {
    (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
}

fn with_rank(trace: &Path, rank: &str) -> PathBuf {
    let Some(name) = trace.file_name().map(OsStr::as_bytes) else {
        return trace.to_owned();
    };
    let (stem, ending) = match name.strip_suffix(b".cutape") {
        Some(stem) => (stem, ".cutape"),
        None => (name, ""),
    };
    let infix = format!(".rank{rank}");
    if stem.ends_with(infix.as_bytes()) {
        return trace.to_owned();
    }
    let mut ranked = OsStr::from_bytes(stem).to_owned();
    ranked.push(infix);
    ranked.push(ending);
    trace.with_file_name(ranked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ranks() {
        for (name, rank, expected) in [
            ("/t/run.cutape", "3", "/t/run.rank3.cutape"),
            ("run", "12", "run.rank12"),
            ("run.rank12.cutape", "12", "run.rank12.cutape"),
            ("/", "1", "/"),
        ] {
            assert_eq!(
                with_rank(Path::new(name), rank),
                Path::new(expected),
                "{name}"
            );
        }
    }
}
