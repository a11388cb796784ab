//! The traces of a folder, by rank.

use std::path::{Path, PathBuf};

use cutape_format::Trace;

use crate::failure::Failure;

/// A trace of the folder.
pub struct Found {
    /// Its file.
    pub path: PathBuf,
    /// The rank of its process, if it had one.
    pub rank: Option<u64>,
    /// What messages call it, e.g. `rank 3`.
    pub label: String,
    /// The trace, opened.
    pub trace: Trace,
}

/// The traces with calls, by rank.
pub fn traces(folder: &Path) -> Result<Vec<Found>, Failure> {
    let mut found = Vec::new();
    for path in crate::input::traces_of(folder)? {
        let trace = crate::input::open(&path)?;
        // A launcher loads the driver, but does nothing with it.
        if trace.calls().next().is_none() {
            continue;
        }
        let known = ["rank", "rank.local"].into_iter();
        let mut known = known.filter_map(|key| trace.meta_value(key)?.parse::<u64>().ok());
        found.push(Found {
            rank: known.next(),
            label: String::new(),
            path,
            trace,
        });
    }
    if found.is_empty() {
        return Err(Failure::unusable(format!(
            "{}: none of its traces has a call",
            folder.display()
        )));
    }
    found.sort_by_key(|found| (found.rank.unwrap_or(u64::MAX), found.path.clone()));
    let ranks: Vec<Option<u64>> = found.iter().map(|found| found.rank).collect();
    for found in &mut found {
        let same = ranks.iter().filter(|rank| **rank == found.rank).count();
        found.label = match found.rank {
            Some(rank) if same == 1 => format!("rank {rank}"),
            _ => {
                let name = found.path.file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            }
        };
    }
    Ok(found)
}
