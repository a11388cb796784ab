//! What `cutape inspect` shows: numbers at one or two moments, what they are like, and what differs.

use std::io::{self, Write};

use serde::Serialize;

use crate::comparison::{Comparison, compare};
use crate::lifetimes::When;
use crate::number_format::NumberFormat;
use crate::snapshot::Snapshot;
use crate::statistics::{Statistics, statistics};
use crate::values::{Layout, Shown, Values};

/// Numbers of a line of text; of differences there is one in a line.
pub(crate) const COLUMNS: usize = 8;

/// What is shown.
#[derive(Debug, Serialize)]
pub struct Inspection {
    /// The recorded address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The type of the numbers; `None`: bytes.
    #[serde(rename = "type")]
    pub type_name: Option<&'static str>,
    /// The sides of the array.
    pub shape: Vec<u64>,
    /// In numbers.
    pub strides: Vec<u64>,
    /// The moments.
    pub moments: Vec<Look>,
    /// What differs between the first two of them.
    pub comparison: Option<Comparison>,
    #[serde(skip)]
    pub(crate) layout: Layout,
}

/// The numbers at a moment.
#[derive(Debug, Serialize)]
pub struct Look {
    /// When.
    pub when: When,
    /// The first byte's address as `dump` shows it, e.g. `memory#3+0x40`.
    pub label: Option<String>,
    /// The call that made the memory.
    pub made: u64,
    /// The first numbers.
    pub values: Vec<Shown>,
    /// What all of them are like; `None` for bytes, and for types that one cannot compute with.
    pub statistics: Option<Statistics>,
    /// The first bytes that are shown of an array without type.
    #[serde(skip)]
    pub(crate) bytes: Vec<u8>,
}

impl Inspection {
    /// Reads the numbers of one or two snapshots of the same bytes; shows the first `most`, and
    /// differences on as many lines as these take.
    ///
    /// # Errors
    /// If the numbers do not fit into the bytes.
    pub fn new(snapshots: &[Snapshot], format: &NumberFormat, most: usize) -> Result<Self, String> {
        let first = snapshots.first().ok_or("nothing was read")?;
        let length = first.bytes.len() as u64;
        let layout = format.layout_of(length)?;
        let look = |snapshot: &Snapshot| {
            let values = values(snapshot, format, &layout);
            Look {
                when: snapshot.when,
                label: snapshot.label.clone(),
                made: snapshot.made,
                values: values
                    .raw()
                    .take(most)
                    .map(|raw| values.shown(raw))
                    .collect(),
                statistics: statistics(values),
                bytes: snapshot.bytes.iter().take(most).copied().collect(),
            }
        };
        let comparison = match snapshots {
            [one, other, ..] => {
                let [one, other] = [one, other].map(|one| values(one, format, &layout));
                Some(compare(one, other, most.div_ceil(COLUMNS)))
            }
            _ => None,
        };
        Ok(Self {
            address: first.address,
            length,
            type_name: format.element.map(|element| element.name),
            shape: layout.shape.clone(),
            strides: layout.strides.clone(),
            moments: snapshots.iter().map(look).collect(),
            comparison,
            layout,
        })
    }
}

fn values<'a>(snapshot: &'a Snapshot, format: &NumberFormat, layout: &'a Layout) -> Values<'a> {
    Values {
        bytes: &snapshot.bytes,
        element: format.element,
        layout,
    }
}

/// Writes the numbers of a snapshot as a file of numpy.
///
/// # Errors
/// Those of writing; if the numbers do not fit into the bytes.
pub fn write_npy(
    snapshot: &Snapshot,
    format: &NumberFormat,
    out: &mut dyn Write,
) -> io::Result<()> {
    let layout = format.layout_of(snapshot.bytes.len() as u64);
    let layout = layout.map_err(io::Error::other)?;
    values(snapshot, format, &layout).write_npy(out)
}
