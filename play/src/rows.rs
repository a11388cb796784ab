//! Which host memory a recorded call reads and writes, as rows: address, length.

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_model::{CallArguments, DescribedAccess, described_accesses};
use cutape_registry::{CopyOp, Family, Function, GraphOp, Length, Role};

/// More rows than this are not written one by one.
const MOST_ROWS: u64 = 1 << 26;

/// Rows of one copy, and the address that the recording names it by.
pub(crate) type Copied = (u64, Vec<(u64, u64)>);

fn lines(address: u64, (length, pitch, count): (u64, u64, u64)) -> Option<Vec<(u64, u64)>> {
    let count = Some(count).filter(|&count| count <= MOST_ROWS)?;
    let rows = (0..count).map(|row| Some((address.checked_add(row.checked_mul(pitch)?)?, length)));
    rows.collect()
}

/// The rows of one side of a copy; `None` if its layers do not follow each other.
pub(crate) fn rows_of(access: &DescribedAccess) -> Option<Vec<(u64, u64)>> {
    let extent = access.extent;
    let is_all = access.start.checked_add(extent.span()) == Some(access.end);
    is_all.then(|| lines(access.start, (extent.row, extent.pitch, extent.rows)))?
}

/// The host memory that copies of a graph launch read (1) or write (2).
pub(crate) fn rows_of_ranges(call: &Call<'_>, direction: u64) -> Vec<Copied> {
    let mut snapshots = call.snapshots();
    let found = snapshots.find(|snapshot| snapshot.field == field::HOST_RANGES);
    let bytes = found.and_then(|snapshot| snapshot.bytes.inline());
    let words: Vec<u64> = bytes
        .unwrap_or_default()
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .collect();
    let ranges = words.as_chunks::<8>().0.iter();
    let ranges = ranges.filter(|[kind, ..]| *kind == direction);
    ranges
        .filter_map(|&[_, address, row, pitch, rows, slice_pitch, slices, _]| {
            let slices = lines(address, (row, slice_pitch, slices))?.into_iter();
            let rows = slices.map(|(start, _)| lines(start, (row, pitch, rows)));
            let rows: Option<Vec<_>> = rows.collect();
            Some((address, rows?.concat()))
        })
        .collect()
}

/// The host memory that a call reads, as far as roles and structs say.
pub(crate) fn read_by(function: &Function, call: &Call<'_>) -> Vec<Copied> {
    match function.family {
        Family::Graph(GraphOp::Launch) => return rows_of_ranges(call, 1),
        Family::Copy(CopyOp::Unified(at)) => {
            let [source, bytes] = [at.source, at.bytes].map(|at| call.argument(at.into()));
            return vec![(source, vec![(source, bytes)])];
        }
        _ => {}
    }
    let by_role = by_role(function, call, |role| match role {
        Role::HostRead(length) => Some(length),
        _ => None,
    });
    by_role.chain(described_by(function, call, false)).collect()
}

/// The host memory that a call writes, as far as roles and structs say.
pub(crate) fn written_by(function: &Function, call: &Call<'_>) -> Vec<Copied> {
    match function.family {
        Family::Graph(GraphOp::Launch) => return rows_of_ranges(call, 2),
        Family::Copy(CopyOp::Unified(at)) => {
            let [target, bytes] = [at.target, at.bytes].map(|at| call.argument(at.into()));
            return vec![(target, vec![(target, bytes)])];
        }
        _ => {}
    }
    let by_role = by_role(function, call, |role| match role {
        Role::HostWrite(length) => Some(length),
        _ => None,
    });
    by_role.chain(described_by(function, call, true)).collect()
}

/// The memory of parameters with a length.
fn by_role(
    function: &Function,
    call: &Call<'_>,
    length: impl Fn(Role) -> Option<Length>,
) -> impl Iterator<Item = Copied> {
    let params = function.params.iter().enumerate();
    params.filter_map(move |(position, param)| {
        let extent = length(param.role)?.evaluate(function, &CallArguments(call))?;
        let address = call.argument(position);
        let rows = lines(address, (extent.row, extent.pitch, extent.rows))?;
        Some((address, rows))
    })
}

/// The memory of one side of copies that structs describe.
fn described_by(
    function: &Function,
    call: &Call<'_>,
    is_write: bool,
) -> impl Iterator<Item = Copied> {
    let described = described_accesses(function, call).unwrap_or_default();
    let described = described.into_iter();
    let side = described.filter(move |access| access.is_write == is_write);
    side.filter_map(|access| Some((access.start, rows_of(&access)?)))
}
