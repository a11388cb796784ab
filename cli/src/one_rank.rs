//! `--rank N FOLDER`: one rank of a folder is replayed, without the others. The same in all verbs
//! that replay.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutape_format::Trace;
use cutape_replay::Alone;

use crate::guarded::GuardedOptions;
use cutape_terminal::failure::Failure;
use cutape_terminal::input::FrozenTrace;
use cutape_terminal::rank_folder::{Found, traces};

/// The option.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RankOption {
    /// Replay rank N of a folder alone, on the devices that are here.
    ///
    /// What other ranks exported to it is replaced by objects of the same kind and
    /// size. Work that exchanges data with them is left out, and what it changed is
    /// put back, if the trace has it: record with --outputs-of-exchanges.
    #[arg(long, value_name = "N", verbatim_doc_comment)]
    rank: Option<u64>,
}

impl RankOption {
    pub(crate) fn is_given(&self) -> bool {
        self.rank.is_some()
    }

    /// The trace to replay: the one that is given, or that of the rank in the folder that is given.
    pub(crate) fn source(&self, given: &Path, guarded: &GuardedOptions) -> Result<Source, Failure> {
        guarded.expect_ranks(self.rank.as_slice())?;
        match self.rank {
            Some(rank) => one_of(given, rank),
            None if given.is_dir() => Err(Failure::unusable(format!(
                "{}: not a regular file but a folder; --rank N takes the trace of rank N in it",
                given.display()
            ))),
            None => {
                let frozen = FrozenTrace::of(given)?;
                let path = frozen.as_ref().map_or(given, |frozen| &frozen.path);
                let source = Source::of(path);
                Ok(Source { frozen, ..source })
            }
        }
    }
}

/// A trace that is replayed, of a rank or by itself.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    rank: Option<u64>,
    /// What the rank shared with the others, for the child.
    alone: Option<OwnedFd>,
    /// What is replayed of a trace that is still being recorded.
    frozen: Option<FrozenTrace>,
}

impl Source {
    /// A trace by itself.
    pub(crate) fn of(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            rank: None,
            alone: None,
            frozen: None,
        }
    }

    /// Whether it is a rank, which is replayed with what it shared with others.
    pub(crate) fn is_of_rank(&self) -> bool {
        self.alone.is_some()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a program is still recording to the trace that was given.
    pub(crate) fn is_still_recording(&self) -> bool {
        self.frozen.is_some()
    }

    /// The hidden arguments of the child, which opens this process's file.
    pub(crate) fn for_child(&self) -> Vec<OsString> {
        let Some(alone) = &self.alone else {
            return match &self.frozen {
                Some(frozen) => ChildSource::of_trace(&frozen.path, None),
                None => Vec::new(),
            };
        };
        let file = format!("/proc/{}/fd/{}", std::process::id(), alone.as_raw_fd());
        let mut hidden = ChildSource::of_trace(&self.path, self.rank);
        hidden.extend(["--child-alone".into(), file.into()]);
        hidden
    }
}

/// What a guarded child is given of it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ChildSource {
    /// The trace of this rank, in a folder.
    #[arg(long)]
    child_trace: Option<PathBuf>,
    /// The rank.
    #[arg(long)]
    child_rank: Option<u64>,
    /// What this rank shared with others, without which it is replayed.
    #[arg(long)]
    child_alone: Option<PathBuf>,
}

impl ChildSource {
    /// The hidden arguments for one trace of the folder that the verb was given.
    pub(crate) fn of_trace(path: &Path, rank: Option<u64>) -> Vec<OsString> {
        let mut hidden = vec!["--child-trace".into(), path.as_os_str().to_owned()];
        if let Some(rank) = rank {
            hidden.extend(["--child-rank".into(), rank.to_string().into()]);
        }
        hidden
    }

    pub(crate) fn rank(&self) -> Option<u64> {
        self.child_rank
    }

    /// The trace, where the verb was given that path.
    pub(crate) fn path<'a>(&'a self, given: &'a Path) -> &'a Path {
        self.child_trace.as_deref().unwrap_or(given)
    }

    pub(crate) fn alone(&self) -> Result<Option<Arc<Alone>>, Failure> {
        let Some(file) = &self.child_alone else {
            return Ok(None);
        };
        let alone = Alone::from_file(file);
        let alone =
            alone.map_err(|error| Failure::unusable(format!("{}: {error}", file.display())));
        Ok(Some(Arc::new(alone?)))
    }
}

/// Finds a rank in a folder. Of several processes of one rank, it is the one with the most calls.
fn one_of(folder: &Path, rank: u64) -> Result<Source, Failure> {
    if !folder.is_dir() {
        return Err(Failure::unusable(format!(
            "--rank chooses a trace of a folder, and {} is none; leave it out, or give the folder \
             with the traces of all ranks",
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
    Ok(Source {
        path: chosen.path.clone(),
        rank: Some(rank),
        alone: Some(alone),
        frozen: None,
    })
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
