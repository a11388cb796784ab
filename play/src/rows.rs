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

/// Rows of layers: their number and distance in bytes.
fn layers(
    address: u64,
    (count, apart): (u64, u64),
    rows: (u64, u64, u64),
) -> Option<Vec<(u64, u64)>> {
    let (_, _, rows_of_each) = rows;
    let all = rows_of_each.checked_mul(count);
    let count = all.filter(|&all| all <= MOST_ROWS).map(|_| count)?;
    let layers =
        (0..count).map(|layer| lines(address.checked_add(layer.checked_mul(apart)?)?, rows));
    let layers: Option<Vec<_>> = layers.collect();
    Some(layers?.concat())
}

/// The rows of one side of a copy; `None` if there are too many.
pub(crate) fn rows_of(access: &DescribedAccess) -> Option<Vec<(u64, u64)>> {
    let extent = access.extent;
    let rows = (extent.row, extent.pitch, extent.rows);
    layers(access.start, access.layers, rows)
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
            let rows = layers(address, (slices, slice_pitch), (row, pitch, rows))?;
            Some((address, rows))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_layers() {
        let two_of_two = vec![(10, 4), (26, 4), (110, 4), (126, 4)];
        for (count, apart, rows, expected) in [
            (1, 0, (4, 16, 2), Some(vec![(10, 4), (26, 4)])),
            (2, 100, (4, 16, 2), Some(two_of_two)),
            (0, 100, (4, 16, 2), Some(Vec::new())),
            (2, u64::MAX, (4, 16, 2), None),
            (1 << 20, 1, (4, 1, 1 << 20), None),
            (u64::MAX, 1, (4, 1, 2), None),
        ] {
            assert_eq!(
                layers(10, (count, apart), rows),
                expected,
                "{count} {apart}"
            );
        }
    }
}
