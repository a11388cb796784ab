//! Trace names of a parallel program: each contains the process's rank.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cutape_format::rank;

/// Adds the rank of this process, if it has one, so that traces do not collide:
/// `run.cutape` → `run.rank3.cutape`.
pub fn trace_name(trace: &Path) -> PathBuf {
    let rank = rank::in_name(|name| env::var(name.to_str().ok()?).ok());
    rank.map_or_else(|| trace.to_owned(), |rank| with_rank(trace, &rank))
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
