//! Versions of PTX and of CUDA.

/// CUDA as drivers name it (13010 is 13.1), and the newest PTX version that came with it (PTX ISA,
/// release history).
const VERSIONS: &[(i32, (u16, u16))] = &[
    (11_000, (7, 0)),
    (11_010, (7, 1)),
    (11_020, (7, 2)),
    (11_030, (7, 3)),
    (11_040, (7, 4)),
    (11_050, (7, 5)),
    (11_060, (7, 6)),
    (11_070, (7, 7)),
    (11_080, (7, 8)),
    (12_000, (8, 0)),
    (12_010, (8, 1)),
    (12_020, (8, 2)),
    (12_030, (8, 3)),
    (12_040, (8, 4)),
    (12_050, (8, 5)),
    (12_070, (8, 6)),
    (12_080, (8, 7)),
    (12_090, (8, 8)),
    (13_000, (9, 0)),
    (13_010, (9, 1)),
];

/// The newest PTX version that a driver of a CUDA version compiles.
pub fn newest_ptx(cuda: i32) -> (u16, u16) {
    let known = VERSIONS.iter().rev().find(|entry| entry.0 <= cuda);
    known.map_or((7, 0), |entry| entry.1)
}

/// The version of CUDA that a PTX version came with; `None` if it is not in this table.
pub fn first_cuda(ptx: (u16, u16)) -> Option<i32> {
    let known = VERSIONS.iter().find(|entry| entry.1 == ptx)?;
    Some(known.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_both_directions() {
        assert_eq!(newest_ptx(12_060), (8, 5));
        assert_eq!(newest_ptx(13_000), (9, 0));
        assert_eq!(newest_ptx(10_000), (7, 0));
        assert_eq!(first_cuda((8, 7)), Some(12_080));
        assert_eq!(first_cuda((9, 1)), Some(13_010));
        assert_eq!(first_cuda((6, 0)), None);
        assert_eq!(first_cuda((9, 9)), None);
    }
}
