//! Works out what people ask for from the metrics of `ncu`. Names and factors are those of the
//! sections that NVIDIA ships with it (`SpeedOfLight`, `SpeedOfLight_RooflineChart`,
//! `SpeedOfLight_HierarchicalHalfRooflineChart`, `SpeedOfLight_HierarchicalTensorRooflineChart`,
//! `MemoryWorkloadAnalysis`, `Occupancy`, `WarpStateStats`).

use std::collections::{BTreeMap, BTreeSet};

use crate::counters::record::{Bound, KernelCounters, Precision, Roofline, Stall};

/// The metrics of one kernel in base units.
type Metrics = BTreeMap<String, f64>;

const DRAM_PER_SECOND: &str = "dram__bytes.sum.per_second";
const TENSOR: &str = "sm__ops_path_tensor_";
const PER_CYCLE: &str = ".sum.per_cycle_elapsed";
const PEAK: &str = ".sum.peak_sustained";
const STALL: [&str; 2] = [
    "smsp__average_warps_issue_stalled_",
    "_per_issue_active.ratio",
];

/// Operations of a thread's instruction: `add` and `mul` have half as many as `fma`. Half precision
/// counts pairs.
const SCALAR: [(Precision, char, f64); 3] = [
    (Precision::Fp64, 'd', 2.0),
    (Precision::Fp32, 'f', 2.0),
    (Precision::Fp16, 'h', 4.0),
];

impl KernelCounters {
    /// What these metrics say; keeps them. Values that are not finite count as not measured.
    #[must_use]
    pub fn with_metrics(self, mut metrics: Metrics) -> Self {
        metrics.retain(|_, value| value.is_finite());
        let is_used = |tensor: &str| {
            let operation = tensor.split('.').next().unwrap_or_default();
            metrics.get(&format!("{TENSOR}{operation}{PER_CYCLE}")) != Some(&0.0)
        };
        let unused: Vec<String> = metrics
            .keys()
            .filter(|name| name.strip_prefix(TENSOR).is_some_and(|name| !is_used(name)))
            .cloned()
            .collect();
        for name in &unused {
            metrics.remove(name);
        }
        let passes = metrics.get("profiler__replayer_passes");
        let passes = passes.filter(|&&passes| passes > 0.0);
        let get = |name: &str| metrics.get(name).copied();
        let share = |names: &[&str]| {
            let value = names.iter().find_map(|name| get(name));
            value.map(|percent| percent / 100.0)
        };
        Self {
            passes: passes.map(|&passes| passes as u64),
            duration_ns: get("gpu__time_duration.sum"),
            sm_share: share(&["sm__throughput.avg.pct_of_peak_sustained_elapsed"]),
            memory_share: share(&[
                "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
            ]),
            dram_share: share(&[
                "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
                "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            ]),
            l1_hit_rate: share(&["l1tex__t_sector_hit_rate.pct"]),
            l2_hit_rate: share(&["lts__t_sector_hit_rate.pct"]),
            occupancy: share(&["sm__warps_active.avg.pct_of_peak_sustained_active"]),
            occupancy_limit: share(&["sm__maximum_warps_per_active_cycle_pct"]),
            roofline: roofline(&metrics),
            stalls: stalls(&metrics),
            metrics,
            ..self
        }
    }
}

fn roofline(metrics: &Metrics) -> Option<Roofline> {
    let get = |name: &str| metrics.get(name).copied();
    let seconds = get("gpu__time_duration.sum").filter(|&time| time > 0.0)? / 1e9;
    let bytes_per_second = get(DRAM_PER_SECOND)?;
    let clock = get("sm__cycles_elapsed.avg.per_second")
        .or_else(|| get("smsp__cycles_elapsed.avg.per_second"));
    let clock = clock.or_else(|| get("gpc__cycles_elapsed.avg.per_second"))?;
    let kinds = [scalar(metrics), vec![tensor(metrics)]].concat();
    let flops_per_second: f64 = kinds.iter().map(|kind| kind.1 * clock).sum();
    let most = kinds.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let most = most.filter(|kind| kind.1 > 0.0);
    let peak_flops = most.and_then(|kind| kind.2).map(|peak| peak * clock);
    let memory_clock = get("dram__cycles_elapsed.avg.per_second");
    let peak_bytes = get(&format!("dram__bytes{PEAK}"))
        .zip(memory_clock)
        .map(|(bytes, clock)| bytes * clock);
    let intensity = (bytes_per_second > 0.0).then(|| flops_per_second / bytes_per_second);
    // Without bytes, only operations can bound it; without operations, only bytes.
    let by_bytes = intensity
        .zip(peak_bytes)
        .map(|(intensity, peak)| intensity * peak);
    let (bound, roof_share) = match (most.is_some(), by_bytes, peak_flops) {
        (false, ..) => (
            Some(Bound::Memory),
            peak_bytes.map(|peak| bytes_per_second / peak),
        ),
        (true, Some(bytes), Some(flops)) if bytes < flops => {
            (Some(Bound::Memory), Some(flops_per_second / bytes))
        }
        (true, _, Some(flops)) => (Some(Bound::Compute), Some(flops_per_second / flops)),
        (true, _, None) => (None, None),
    };
    Some(Roofline {
        flops: flops_per_second * seconds,
        flops_per_second,
        bytes: bytes_per_second * seconds,
        bytes_per_second,
        intensity,
        precision: most.map(|kind| kind.0),
        peak_flops_per_second: peak_flops,
        peak_bytes_per_second: peak_bytes,
        bound,
        roof_share: roof_share.filter(|share| share.is_finite()),
    })
}

/// By kind: operations a cycle, and the most of them.
type Kind = (Precision, f64, Option<f64>);

fn scalar(metrics: &Metrics) -> Vec<Kind> {
    let kind = |(precision, letter, of_fma): (Precision, char, f64)| {
        let name = |unit: &str, operation: &str, what: &str| {
            format!("{unit}__sass_thread_inst_executed_op_{letter}{operation}_pred_on{what}")
        };
        let done = |operation: &str| {
            let known = metrics.get(&name("smsp", operation, PER_CYCLE));
            known.copied().unwrap_or(0.0)
        };
        let operations = (done("add") + done("mul")) * of_fma / 2.0 + done("fma") * of_fma;
        let peak = metrics.get(&name("sm", "fma", PEAK));
        (precision, operations, peak.map(|peak| peak * of_fma))
    };
    SCALAR.into_iter().map(kind).collect()
}

/// Operations of tensor cores: by instruction, operands and sparsity, and sums of those, which the
/// names tell apart. A sum lacks words that its parts have.
fn tensor(metrics: &Metrics) -> Kind {
    let all: Vec<(&str, BTreeSet<&str>, f64)> = metrics
        .iter()
        .filter_map(|(name, value)| {
            let name = name.strip_prefix(TENSOR)?.strip_suffix(PER_CYCLE)?;
            Some((name, name.split('_').collect(), *value))
        })
        .collect();
    let parts = all.iter().filter(|(name, words, _)| {
        let mut others = all.iter().filter(|other| other.0 != *name);
        !others.any(|other| other.1.is_superset(words))
    });
    let parts: Vec<_> = parts.collect();
    let most = parts.iter().max_by(|a, b| a.2.total_cmp(&b.2));
    let peak = most.and_then(|most| metrics.get(&format!("{TENSOR}{}{PEAK}", most.0)));
    let sum = parts.iter().map(|part| part.2).sum();
    (Precision::Tensor, sum, peak.copied())
}

fn stalls(metrics: &Metrics) -> Vec<Stall> {
    let states = metrics.iter().filter_map(|(name, &value)| {
        let name = name.strip_prefix(STALL[0])?.strip_suffix(STALL[1])?;
        // The names of this family that end so leave some warps out.
        (!name.ends_with("_not_issued")).then_some((name, value.max(0.0)))
    });
    let states: Vec<_> = states.collect();
    let total: f64 = states.iter().map(|state| state.1).sum();
    let stall = |&(name, value): &(&str, f64)| Stall {
        reason: name.replace('_', " "),
        share: value / total,
    };
    let mut stalls: Vec<_> = states
        .iter()
        .filter(|state| state.1 > 0.0)
        .map(stall)
        .collect();
    stalls.sort_by(|a, b| b.share.total_cmp(&a.share));
    stalls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(rows: &[(&str, f64)]) -> Metrics {
        let rows = rows.iter().map(|&(name, value)| (name.to_owned(), value));
        rows.collect()
    }

    /// A device with 1 GHz, 100 fp32 FMA a cycle, and 1 TB/s.
    fn device() -> Metrics {
        metrics(&[
            ("gpu__time_duration.sum", 2_000.0),
            ("sm__cycles_elapsed.avg.per_second", 1e9),
            ("dram__cycles_elapsed.avg.per_second", 2e9),
            ("dram__bytes.sum.peak_sustained", 500.0),
            (
                "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
                100.0,
            ),
        ])
    }

    fn roofline_of(rows: &[(&str, f64)]) -> Roofline {
        let all = [device(), metrics(rows)].into_iter().flatten().collect();
        KernelCounters::default()
            .with_metrics(all)
            .roofline
            .unwrap()
    }

    #[test]
    fn positions_in_the_roofline() {
        const FFMA: &str = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed";
        const FADD: &str = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed";
        const HFMA: &str = "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum.per_cycle_elapsed";
        let copy = roofline_of(&[(DRAM_PER_SECOND, 5e11)]);
        assert_eq!((copy.flops, copy.bytes), (0.0, 1e6));
        assert_eq!((copy.precision, copy.intensity), (None, Some(0.0)));
        assert_eq!(
            (copy.bound, copy.roof_share),
            (Some(Bound::Memory), Some(0.5))
        );
        // 50 FMA and 20 additions a cycle, and hardly any bytes.
        let busy = roofline_of(&[(FFMA, 50.0), (FADD, 20.0), (DRAM_PER_SECOND, 1e9)]);
        assert_eq!((busy.flops_per_second, busy.flops), (120e9, 240_000.0));
        assert_eq!(busy.precision, Some(Precision::Fp32));
        assert_eq!(busy.peak_flops_per_second, Some(200e9));
        assert_eq!(
            (busy.bound, busy.roof_share),
            (Some(Bound::Compute), Some(0.6))
        );
        // A tenth of an operation for each byte: 1 TB/s allows 100 GFLOP/s.
        let streaming = roofline_of(&[(FFMA, 25.0), (DRAM_PER_SECOND, 5e11)]);
        assert_eq!(streaming.intensity, Some(0.1));
        assert_eq!(
            (streaming.bound, streaming.roof_share),
            (Some(Bound::Memory), Some(0.5))
        );
        // Pairs of half precision; the peak is not known.
        let half = roofline_of(&[(HFMA, 10.0), (DRAM_PER_SECOND, 0.0)]);
        assert_eq!((half.flops_per_second, half.intensity), (40e9, None));
        assert_eq!((half.precision, half.bound), (Some(Precision::Fp16), None));
        let nothing = KernelCounters::default().with_metrics(Metrics::new());
        assert_eq!(nothing, KernelCounters::default());
    }

    #[test]
    fn operations_of_tensor_cores_are_counted_once() {
        let row = |name: &str, per_cycle: f64| (format!("{TENSOR}{name}{PER_CYCLE}"), per_cycle);
        let rows = [
            row("src_bf16_dst_fp32", 300.0),
            row("src_bf16_dst_fp32_sparsity_off", 300.0),
            row("op_hgmma_src_bf16_dst_fp32_sparsity_off", 200.0),
            row("op_hmma_src_bf16_dst_fp32_sparsity_off", 100.0),
            row("op_hmma_src_bf16_dst_fp32_sparsity_on", 0.0),
            (
                format!("{TENSOR}op_hgmma_src_bf16_dst_fp32_sparsity_off{PEAK}"),
                1_000.0,
            ),
        ];
        let rows: Vec<(&str, f64)> = rows.iter().map(|row| (&*row.0, row.1)).collect();
        let all = [&rows[..], &[(DRAM_PER_SECOND, 0.0)]].concat();
        let roofline = roofline_of(&all);
        assert_eq!(roofline.flops_per_second, 300e9);
        assert_eq!(roofline.precision, Some(Precision::Tensor));
        assert_eq!(roofline.peak_flops_per_second, Some(1e12));
        let kept = KernelCounters::default()
            .with_metrics(metrics(&rows))
            .metrics;
        assert_eq!(kept.len(), 5, "what did nothing is left out");
    }

    #[test]
    fn shares_and_stalls() {
        let state = |name: &str| format!("{}{name}{}", STALL[0], STALL[1]);
        let [long, wait, selected, none] =
            ["long_scoreboard", "wait", "selected", "membar"].map(state);
        let counters = KernelCounters::default().with_metrics(metrics(&[
            ("dram__throughput.avg.pct_of_peak_sustained_elapsed", 80.0),
            ("lts__t_sector_hit_rate.pct", 25.0),
            ("profiler__replayer_passes", 10.0),
            ("sm__throughput.avg.pct_of_peak_sustained_elapsed", f64::NAN),
            (&long, 6.0),
            (&wait, 3.0),
            (&selected, 1.0),
            (&none, 0.0),
        ]));
        assert_eq!(
            (counters.dram_share, counters.l2_hit_rate),
            (Some(0.8), Some(0.25))
        );
        assert_eq!(counters.passes, Some(10));
        assert_eq!((counters.sm_share, counters.l1_hit_rate), (None, None));
        let stalls: Vec<_> = counters
            .stalls
            .iter()
            .map(|stall| (&*stall.reason, stall.share))
            .collect();
        assert_eq!(
            stalls,
            [("long scoreboard", 0.6), ("wait", 0.3), ("selected", 0.1)]
        );
    }
}
