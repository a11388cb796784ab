//! What ran, summed up by kernel, kind of copy, and memset.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::occupancy::Occupancy;
use crate::record::{Profile, Work, WorkKind};
use crate::statistics::{Spread, median};

/// All work of one name. Times are of all runs, unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkRow {
    /// What it is.
    pub kind: WorkKind,
    /// The kernel, or what is copied.
    pub name: String,
    /// How often it ran in a run.
    pub count: u64,
    /// The time of all that, over the runs.
    pub total_ns: Spread,
    /// Of one of them: the shortest, the median and the longest time.
    pub each_ns: [f64; 3],
    /// Of the time of all work, which is more than that of the device where work overlaps: 0 to 1.
    pub share: f64,
    /// Bytes that were copied or set in a run.
    pub bytes: Option<u64>,
    /// Those in the time of all.
    pub bytes_per_second: Option<f64>,
    /// That in relation to what the device's memory can move; a copy on the device reads and writes.
    pub share_of_peak: Option<f64>,
    /// How it fills the device: of the shape with the most time.
    pub occupancy: Option<Occupancy>,
    /// The call with the longest time.
    pub longest_call: Option<u64>,
}

/// One name's work in all runs.
#[derive(Default)]
struct Sum<'a> {
    /// By run: time and bytes.
    runs: BTreeMap<usize, (u64, u64)>,
    times: Vec<f64>,
    has_bytes: bool,
    longest: Option<&'a Work>,
    /// Time by shape.
    shapes: HashMap<Shape, (u64, Option<&'a Work>)>,
}

/// What occupancy depends on.
type Shape = (Option<[u32; 3]>, Option<[u32; 3]>, Option<u32>, Option<u64>);

/// The rows, those with the most time first.
pub(crate) fn rows(profile: &Profile) -> Vec<WorkRow> {
    let mut sums: HashMap<(WorkKind, &str), Sum<'_>> = HashMap::new();
    for (number, run) in profile.runs.iter().enumerate() {
        for work in &run.work {
            let sum = sums.entry((work.kind, &work.name)).or_default();
            let in_run = sum.runs.entry(number).or_default();
            in_run.0 += work.lasted();
            in_run.1 += work.bytes.unwrap_or(0);
            sum.has_bytes |= work.bytes.is_some();
            sum.times.push(work.lasted() as f64);
            if sum
                .longest
                .is_none_or(|longest| longest.lasted() < work.lasted())
            {
                sum.longest = Some(work);
            }
            let shape = (work.grid, work.block, work.registers, work.shared_bytes);
            let of_shape = sum.shapes.entry(shape).or_default();
            *of_shape = (of_shape.0 + work.lasted(), Some(work));
        }
    }
    let runs = profile.runs.len().max(1);
    let mut rows: Vec<WorkRow> = sums
        .into_iter()
        .map(|((kind, name), sum)| row(profile, runs, (kind, name), sum))
        .collect();
    let total: f64 = rows.iter().map(|row| row.total_ns.median).sum();
    for row in &mut rows {
        row.share = row.total_ns.median / total.max(1.0);
    }
    rows.sort_by(|a, b| {
        let by_time = b.total_ns.median.total_cmp(&a.total_ns.median);
        by_time.then_with(|| (a.kind, &a.name).cmp(&(b.kind, &b.name)))
    });
    rows
}

fn row(
    profile: &Profile,
    runs: usize,
    (kind, name): (WorkKind, &str),
    mut sum: Sum<'_>,
) -> WorkRow {
    sum.times.sort_by(f64::total_cmp);
    let of_run = |number: usize| sum.runs.get(&number).copied().unwrap_or_default();
    let total_ns = Spread::of((0..runs).map(|number| of_run(number).0 as f64));
    let bytes = sum.has_bytes.then(|| of_run(0).1);
    let device = |work: &Work| {
        profile
            .devices
            .iter()
            .find(|device| device.ordinal == work.device)
    };
    let bytes_per_second = bytes
        .filter(|_| total_ns.median > 0.0)
        .map(|bytes| bytes as f64 / total_ns.median * 1e9);
    let moves = match name {
        "device-to-device" => 2.0,
        _ => 1.0,
    };
    let peak = sum
        .longest
        .and_then(device)
        .map(|device| device.bytes_per_second as f64);
    // Copies to and from the host are bounded by the link to it.
    let is_of_device = kind == WorkKind::Memset || name == "device-to-device";
    let share_of_peak = bytes_per_second
        .zip(peak.filter(|&peak| peak > 0.0))
        .filter(|_| is_of_device)
        .map(|(speed, peak)| moves * speed / peak);
    let most = sum.shapes.values().max_by_key(|shape| shape.0);
    let most = most.and_then(|shape| shape.1);
    WorkRow {
        kind,
        name: name.to_owned(),
        count: (sum.times.len() / runs) as u64,
        each_ns: [
            sum.times.first().copied().unwrap_or(0.0),
            median(&sum.times),
            sum.times.last().copied().unwrap_or(0.0),
        ],
        total_ns,
        share: 0.0,
        bytes,
        bytes_per_second,
        share_of_peak,
        occupancy: most.and_then(|work| Occupancy::of(work, device(work)?)),
        longest_call: sum.longest.and_then(|work| work.call),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_profile::{kernel, profile};

    #[test]
    fn slowest_first() {
        let copy = |call, begin, end| Work {
            kind: WorkKind::Copy,
            name: "device-to-device".into(),
            bytes: Some(1_200),
            ..kernel("", call, begin, end)
        };
        let work = vec![
            kernel("a", 1, 0, 10),
            copy(2, 10, 11),
            kernel("b", 3, 11, 51),
            kernel("a", 4, 60, 90),
            kernel("a", 5, 90, 95),
        ];
        let mut profile = profile(work, Vec::new(), &[]);
        let slower = profile.runs[0].work.iter().cloned().map(|mut work| {
            work.end_ns += 2;
            work
        });
        let slower = slower.collect();
        profile.runs.push(crate::record::Run {
            work: slower,
            ..Default::default()
        });
        let rows = rows(&profile);
        let names: Vec<_> = rows.iter().map(|row| (&*row.name, row.count)).collect();
        assert_eq!(names, [("a", 3), ("b", 1), ("device-to-device", 1)]);
        let [a, b, copy] = &rows[..] else {
            unreachable!()
        };
        assert_eq!(
            (a.total_ns.low, a.total_ns.median, a.total_ns.high),
            (45.0, 48.0, 51.0)
        );
        assert_eq!(a.each_ns, [5.0, 11.0, 32.0]);
        assert_eq!((a.longest_call, b.longest_call), (Some(4), Some(3)));
        assert!((rows.iter().map(|row| row.share).sum::<f64>() - 1.0).abs() < 1e-9);
        // 1200 bytes in 2 ns, read and written, of 4.8 TB/s.
        assert_eq!(
            (copy.bytes, copy.bytes_per_second),
            (Some(1_200), Some(6e11))
        );
        assert_eq!(copy.share_of_peak, Some(0.25));
        assert_eq!((a.bytes, a.share_of_peak), (None, None));
    }
}
