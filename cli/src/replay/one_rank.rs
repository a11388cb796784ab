//! `cutape replay --rank N FOLDER`: one rank of a folder, alone.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutape_format::Trace;
use cutape_replay::Alone;

use super::folder::{Found, traces};
use crate::failure::Failure;

/// The rank.
pub(super) struct OneRank {
    path: PathBuf,
    /// What it shared with the others, for the child.
    alone: OwnedFd,
}

impl OneRank {
    /// Finds it in a folder. Of several processes of one rank, it is the one with the most calls.
    pub(super) fn find(folder: &Path, rank: u64) -> Result<Self, Failure> {
        if !folder.is_dir() {
            return Err(Failure::unusable(format!(
                "--rank chooses a trace of a folder, and {} is none; leave it out, or give the \
                 folder with the traces of all ranks",
                folder.display()
            )));
        }
        let found = traces(folder)?;
        let of_rank = found.iter().enumerate();
        let of_rank = of_rank.filter(|(_, found)| found.rank == Some(rank));
        let chosen = of_rank.max_by_key(|(_, found)| found.trace.calls().count());
        let Some((position, chosen)) = chosen else {
            return Err(Failure::unusable(format!(
                "{}: no trace of rank {rank}; {}",
                folder.display(),
                ranks_of(&found)
            )));
        };
        let all: Vec<(&str, &Trace)> = found
            .iter()
            .map(|found| (found.label.as_str(), &found.trace))
            .collect();
        let alone = Alone::of(&all, position)
            .to_file()
            .map_err(|error| Failure::unusable(format!("{}: {error}", chosen.path.display())))?;
        Ok(Self {
            path: chosen.path.clone(),
            alone,
        })
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The hidden arguments of the child, which opens this process's file.
    pub(super) fn for_child(&self) -> [OsString; 4] {
        let file = format!("/proc/{}/fd/{}", std::process::id(), self.alone.as_raw_fd());
        [
            "--child-trace".into(),
            self.path.clone().into_os_string(),
            "--child-alone".into(),
            file.into(),
        ]
    }
}

/// What a child was given.
pub(super) fn given(file: Option<&Path>) -> Result<Option<Arc<Alone>>, Failure> {
    let Some(file) = file else {
        return Ok(None);
    };
    let alone = Alone::from_file(file);
    let alone = alone.map_err(|error| Failure::unusable(format!("{}: {error}", file.display())));
    Ok(Some(Arc::new(alone?)))
}

/// `the folder has ranks 0, 1, 3`.
fn ranks_of(found: &[Found]) -> String {
    let mut ranks: Vec<u64> = found.iter().filter_map(|found| found.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let ranks: Vec<String> = ranks.iter().map(u64::to_string).collect();
    match ranks.as_slice() {
        [] => "none of the traces in the folder has a rank".to_owned(),
        [one] => format!("the folder has rank {one}"),
        all => format!("the folder has ranks {}", all.join(", ")),
    }
}
