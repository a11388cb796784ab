//! The statistics of comparisons: whether measurements in several processes differ.
//!
//! The unit is the process. Samples within one share its memory layout, clocks and caches, so many
//! samples of one process say nothing about the next. A process counts with the logarithm of its
//! median; two groups of processes are compared by Welch's t-test, which allows for different
//! variances and for few processes.
//!
//! Of many comparisons some are significant by chance. [`holm`] adjusts for that: at level
//! [`ALPHA`], the probability that even one of a comparison's accusations is false is at most
//! [`ALPHA`], however the benchmarks depend on each other (kernels of a process do). A gate needs
//! that. Procedures that bound the share of false findings (Benjamini-Hochberg) find more, and
//! would let a build fail for a false one.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The probability of a false accusation that is accepted, over all benchmarks of a comparison. A
/// gate that runs each day may be wrong once in three years.
pub(super) const ALPHA: f64 = 0.001;

/// The least relative deviation between processes that is assumed (0.05 %): clocks are coarse, so
/// that processes with equal medians differ by more than nothing.
pub(super) const LEAST_SPREAD: f64 = 0.0005;
/// The same where the host has a part in a time. Few processes do not show that these have modes:
/// on an H200 (580.159.04), a trace of JAX took in each of six processes one of two times that are
/// 20 % apart.
pub(super) const LEAST_HOST_SPREAD: f64 = 0.1;

/// The most changes of a benchmark that are looked for along files.
const MOST_STEPS: usize = 12;

/// From a median absolute deviation to a standard deviation, for normal samples.
const MAD_TO_DEVIATION: f64 = 1.4826;
/// The standard error of a median, as a multiple of that of a mean, for normal samples.
const MEDIAN_ERROR: f64 = 1.2533;

/// The distance of two modes in deviations of one, from which samples count as bimodal. The halves
/// of normal samples are 2.6 apart by this measure, those of uniform ones 3.5.
const MODES_APART: f64 = 5.0;
/// The least share of the samples of a mode.
const LEAST_OF_MODE: f64 = 0.2;
/// The least relative distance of two modes.
const LEAST_GAP: f64 = 0.02;

/// What several processes measured, on a logarithmic scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level {
    /// The logarithm of the nanoseconds: the mean over the processes.
    pub log: f64,
    /// The variance of that mean.
    pub variance: f64,
    /// Its degrees of freedom: one less than there are processes.
    pub freedom: f64,
}

/// A difference of two levels as a fraction: 0.05 is 5 % slower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Difference {
    /// The lower end of the 95 % confidence interval.
    pub lower: f64,
    /// The difference.
    pub point: f64,
    /// The upper end.
    pub upper: f64,
    /// The probability of such a difference, or a larger one, if it were the threshold.
    pub slower: f64,
    /// The same of a difference in the other direction.
    pub faster: f64,
}

/// The level of the samples of several processes, which are assumed to deviate from each other by
/// the fraction `least` at least; `None` if one of them has no samples.
pub(super) fn level(processes: &[&[f64]], least: f64) -> Option<Level> {
    let each: Option<Vec<_>> = processes.iter().map(|samples| process(samples)).collect();
    let each = each.filter(|each| !each.is_empty())?;
    let count = each.len() as f64;
    let log = each.iter().map(|one| one.log).sum::<f64>() / count;
    let between = variance(each.iter().map(|one| one.log), log);
    let within = each.iter().map(|one| one.variance).sum::<f64>() / count;
    Some(Level {
        log,
        variance: between.max(within).max(least * least) / count,
        freedom: count - 1.0,
    })
}

/// Compares two levels; `threshold` is the fraction from which a difference matters. `None` if one
/// of them is of a single process, which does not say how much processes differ.
pub(super) fn difference(before: &Level, after: &Level, threshold: f64) -> Option<Difference> {
    if before.freedom < 1.0 || after.freedom < 1.0 {
        return None;
    }
    let variance = before.variance + after.variance;
    // Welch and Satterthwaite.
    let freedom = variance * variance
        / (before.variance * before.variance / before.freedom
            + after.variance * after.variance / after.freedom);
    Some(tested(after.log - before.log, variance, freedom, threshold))
}

/// Where levels, measured one after the other, change: numbers of the first level after each
/// change, with the change from the levels before it, up to the change before that.
///
/// For each number of changes, the places are those that leave the least squares. The largest
/// number counts of which all changes are significant at `alpha`. If levels differ between changes
/// by more than their processes do, levels are the units of the tests and not processes, so that
/// noise from file to file is no change. A quarter of the levels can be changes, and at least one.
pub(super) fn steps(levels: &[Level], threshold: f64, alpha: f64) -> Vec<(usize, Difference)> {
    if levels.len() < 2 || levels.iter().any(|level| level.freedom < 1.0) {
        return Vec::new();
    }
    let most = (levels.len() / 4).clamp(1, MOST_STEPS);
    let partitions = partitions(levels, most);
    let tested = partitions
        .iter()
        .rev()
        .map(|starts| tested_steps(levels, starts, threshold));
    let is_significant = |step: &(usize, Difference)| step.1.slower.min(step.1.faster) < alpha;
    let mut tested = tested.filter(|steps| steps.iter().all(is_significant));
    tested.next().unwrap_or_default()
}

/// The changes at these places.
fn tested_steps(levels: &[Level], starts: &[usize], threshold: f64) -> Vec<(usize, Difference)> {
    let bounds: Vec<usize> = [0]
        .into_iter()
        .chain(starts.iter().copied())
        .chain([levels.len()])
        .collect();
    let parts = bounds.windows(2).filter_map(|bounds| match bounds {
        &[start, end] => levels.get(start..end),
        _ => None,
    });
    let parts: Vec<&[Level]> = parts.collect();
    let squares: f64 = parts.iter().map(|part| squares_of_logs(part)).sum();
    let spare = levels.len().saturating_sub(parts.len()) as f64;
    let between = if spare > 0.0 { squares / spare } else { 0.0 };
    let within = levels.iter().map(|level| level.variance).sum::<f64>() / levels.len() as f64;
    let (unit, freedom) = match between > within {
        true => (between, spare),
        false => (within, levels.iter().map(|level| level.freedom).sum()),
    };
    let steps = parts.windows(2).zip(starts).filter_map(|(pair, &at)| {
        let &[before, after] = pair else {
            return None;
        };
        let variance = unit / before.len() as f64 + unit / after.len() as f64;
        let log = mean_log(after) - mean_log(before);
        Some((at, tested(log, variance, freedom, threshold)))
    });
    steps.collect()
}

/// For 0 to `most` changes, the places that leave the least squares (by dynamic programming).
fn partitions(levels: &[Level], most: usize) -> Vec<Vec<usize>> {
    let count = levels.len();
    let mut sums = vec![(0.0, 0.0)];
    let middle = mean_log(levels);
    for level in levels {
        let log = level.log - middle;
        let (sum, squares) = sums.last().copied().unwrap_or_default();
        sums.push((sum + log, squares + log * log));
    }
    let cost = |start: usize, end: usize| -> f64 {
        let (Some(from), Some(to)) = (sums.get(start), sums.get(end)) else {
            return f64::INFINITY;
        };
        let sum = to.0 - from.0;
        (to.1 - from.1 - sum * sum / (end - start) as f64).max(0.0)
    };
    // By end of the part: the least squares, and the places.
    let mut best: Vec<(f64, Vec<usize>)> =
        (1..=count).map(|end| (cost(0, end), Vec::new())).collect();
    let last = |best: &[(f64, Vec<usize>)]| best.last().map(|one| one.1.clone());
    let mut found: Vec<Vec<usize>> = last(&best).into_iter().collect();
    for changes in 1..=most {
        best = (1..=count)
            .map(|end| {
                let each = (changes..end).filter_map(|at| {
                    let (before, places) = best.get(at - 1)?;
                    Some((before + cost(at, end), at, places))
                });
                let least = each.min_by(|one, other| one.0.total_cmp(&other.0));
                least.map_or((f64::INFINITY, Vec::new()), |(cost, at, places)| {
                    (cost, [places.as_slice(), &[at]].concat())
                })
            })
            .collect();
        found.extend(last(&best).filter(|places| places.len() == changes));
    }
    found
}

fn mean_log(levels: &[Level]) -> f64 {
    levels.iter().map(|one| one.log).sum::<f64>() / levels.len() as f64
}

fn squares_of_logs(levels: &[Level]) -> f64 {
    let mean = mean_log(levels);
    let squares = levels.iter().map(|one| (one.log - mean) * (one.log - mean));
    squares.sum()
}

/// A difference of logarithms with its variance, tested against the threshold on both sides.
fn tested(log: f64, variance: f64, freedom: f64, threshold: f64) -> Difference {
    let error = variance.sqrt();
    let margin = t_quantile(freedom) * error;
    let least = threshold.ln_1p();
    Difference {
        lower: (log - margin).exp_m1(),
        point: log.exp_m1(),
        upper: (log + margin).exp_m1(),
        slower: t_above((log - least) / error, freedom),
        faster: t_above((-log - least) / error, freedom),
    }
}

/// Half of a level's 95 % confidence interval; `None` for a single process.
pub(super) fn margin(level: &Level) -> Option<f64> {
    (level.freedom >= 1.0).then(|| t_quantile(level.freedom) * level.variance.sqrt())
}

/// Adjusts the probabilities of several tests for their number (Holm 1979).
pub(super) fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = probabilities.iter().copied().enumerate().collect();
    order.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut adjusted = vec![1.0; probabilities.len()];
    let mut largest = 0.0f64;
    for (rank, (place, probability)) in order.into_iter().enumerate() {
        largest = largest.max(probability * (probabilities.len() - rank) as f64);
        if let Some(adjusted) = adjusted.get_mut(place) {
            *adjusted = largest.min(1.0);
        }
    }
    adjusted
}

/// Cliff's delta, an effect size that assumes no distribution: the share of pairs of samples in
/// which the later one is slower, less the share in which it is faster. From -1 to 1.
pub(super) fn effect(before: &[f64], after: &[f64]) -> f64 {
    let mut sorted = before.to_vec();
    sorted.sort_by(f64::total_cmp);
    let pairs = (before.len() * after.len()) as f64;
    let balance: f64 = after
        .iter()
        .map(|sample| {
            let below = sorted.partition_point(|other| other < sample);
            let above = sorted.len() - sorted.partition_point(|other| other <= sample);
            below as f64 - above as f64
        })
        .sum();
    if pairs > 0.0 { balance / pairs } else { 0.0 }
}

/// The relative distance of two modes, if samples have two instead of one.
pub(super) fn two_modes(samples: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let least = ((samples.len() as f64 * LEAST_OF_MODE).ceil() as usize).max(3);
    // Where the squares of the distances to the means of both parts are least.
    let split = (least..=sorted.len().checked_sub(least)?)
        .min_by(|&one, &other| squares(&sorted, one).total_cmp(&squares(&sorted, other)))?;
    let (low, high) = sorted.split_at(split);
    let (low_mean, high_mean) = (mean(low), mean(high));
    let within = squares(&sorted, split) / sorted.len() as f64;
    let gap = (high_mean - low_mean) / low_mean;
    let apart = high_mean - low_mean > MODES_APART * within.sqrt();
    (apart && gap > LEAST_GAP).then_some(gap)
}

/// The relative distance of the slowest process from the fastest, if it is more than the threshold
/// and more than their samples explain.
pub(super) fn disagreement(processes: &[&[f64]], threshold: f64) -> Option<f64> {
    let each: Option<Vec<Level>> = processes.iter().map(|samples| process(samples)).collect();
    let each = each?;
    let by_log = |one: &&Level, other: &&Level| one.log.total_cmp(&other.log);
    let (fastest, slowest) = (each.iter().min_by(by_log)?, each.iter().max_by(by_log)?);
    let distance = slowest.log - fastest.log;
    let error = (slowest.variance + fastest.variance).sqrt();
    (distance > threshold.ln_1p() && distance > 4.0 * error).then(|| distance.exp_m1())
}

/// How much the samples of a process deviate from their median, as a fraction: the median over the
/// processes.
pub(super) fn deviation(processes: &[&[f64]]) -> Option<f64> {
    let each = processes.iter().map(|samples| deviation_of(samples));
    median(&each.collect::<Option<Vec<_>>>()?)
}

fn deviation_of(samples: &[f64]) -> Option<f64> {
    let middle = median(samples).filter(|middle| *middle > 0.0)?;
    let distances: Vec<f64> = samples.iter().map(|one| (one - middle).abs()).collect();
    Some(median(&distances)? * MAD_TO_DEVIATION / middle)
}

/// The median of samples; `None` without any.
pub(super) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| cutape_profile::median(&sorted))
}

/// One process: the logarithm of its median, and how exactly its samples give that.
fn process(samples: &[f64]) -> Option<Level> {
    let error = deviation_of(samples)? * MEDIAN_ERROR;
    Some(Level {
        log: median(samples)?.ln(),
        variance: error * error / samples.len() as f64,
        freedom: samples.len() as f64 - 1.0,
    })
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

fn variance(values: impl ExactSizeIterator<Item = f64>, mean: f64) -> f64 {
    let freedom = values.len().saturating_sub(1).max(1) as f64;
    let squares = values.map(|value| (value - mean) * (value - mean));
    squares.sum::<f64>() / freedom
}

/// The squares of distances to the means of two parts.
fn squares(sorted: &[f64], split: usize) -> f64 {
    let of = |part: &[f64]| {
        let mean = mean(part);
        let squares = part.iter().map(|value| (value - mean) * (value - mean));
        squares.sum::<f64>()
    };
    let (low, high) = sorted.split_at(split);
    of(low) + of(high)
}

/// The probability that Student's t exceeds a value; one if there is no such value or distribution,
/// as for times that no clock measures.
fn t_above(value: f64, freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(t) if value.is_finite() => t.sf(value),
        _ => 1.0,
    }
}

/// The value that Student's t exceeds with a probability of 2.5 %.
fn t_quantile(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, the same in each run (splitmix64).
    struct Dice(u64);

    impl Dice {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
            radius * (std::f64::consts::TAU * self.uniform()).cos()
        }
    }

    /// How times vary: between processes, within one, whether few samples are much slower, and how
    /// far two modes are apart of which each process has one.
    #[derive(Clone, Copy, Debug)]
    struct Noise {
        between: f64,
        within: f64,
        tail: bool,
        modes: f64,
    }

    const fn noise(between: f64, within: f64, tail: bool, modes: f64) -> Noise {
        Noise {
            between,
            within,
            tail,
            modes,
        }
    }

    const NOISES: [Noise; 5] = [
        // A kernel on an H200 varies this little, and more.
        noise(0.0001, 0.001, false, 0.0),
        noise(0.003, 0.005, false, 0.0),
        // Time on the host.
        noise(0.03, 0.05, true, 0.0),
        noise(0.0, 0.02, true, 0.0),
        noise(0.01, 0.01, false, 0.2),
    ];

    fn measured(dice: &mut Dice, noise: Noise, time: f64, rounds: usize) -> Vec<Vec<f64>> {
        let round = |dice: &mut Dice| {
            let mode = if dice.uniform() < 0.5 {
                noise.modes
            } else {
                0.0
            };
            let process = time * (1.0 + mode) * (noise.between * dice.normal()).exp();
            let sample = |dice: &mut Dice| {
                let slow = noise.tail && dice.uniform() < 0.05;
                process * (noise.within * dice.normal()).exp() * if slow { 1.5 } else { 1.0 }
            };
            (0..20).map(|_| sample(dice)).collect()
        };
        (0..rounds).map(|_| round(dice)).collect()
    }

    fn slices(rounds: &[Vec<f64>]) -> Vec<&[f64]> {
        rounds.iter().map(Vec::as_slice).collect()
    }

    /// The least adjusted probability that a benchmark is slower, in each of some comparisons of
    /// five.
    fn comparisons(noise: Noise, change: f64, threshold: f64, rounds: usize) -> Vec<f64> {
        let mut dice = Dice(7);
        let least = match noise.modes {
            0.0 => LEAST_SPREAD,
            _ => LEAST_HOST_SPREAD,
        };
        let compared = (0..COMPARISONS).map(|_| {
            let each = (0..5).map(|_| {
                let before = measured(&mut dice, noise, 1000.0, rounds);
                let after = measured(&mut dice, noise, 1000.0 * (1.0 + change), rounds);
                let level = |rounds: &[Vec<f64>]| level(&slices(rounds), least).unwrap();
                let difference = difference(&level(&before), &level(&after), threshold);
                difference.unwrap().slower
            });
            let adjusted = holm(&each.collect::<Vec<_>>());
            adjusted.into_iter().fold(1.0, f64::min)
        });
        compared.collect()
    }

    fn accused(comparisons: &[f64], alpha: f64) -> usize {
        comparisons.iter().filter(|least| **least < alpha).count()
    }

    const COMPARISONS: usize = 200;

    #[test]
    fn false_alarms_are_as_rare_as_they_should_be() {
        for noise in NOISES {
            for rounds in [3, 5] {
                // The hardest cases: a threshold of nothing, and a change of just the threshold.
                for change in [0.0, 0.02] {
                    let compared = comparisons(noise, change, change, rounds);
                    // At most the level, and three deviations of such a count more.
                    for (alpha, most) in [(0.05, 19), (ALPHA, 1)] {
                        let alarms = accused(&compared, alpha);
                        assert!(
                            alarms <= most,
                            "{noise:?} {rounds} {change} {alpha}: {alarms}"
                        );
                    }
                }
            }
        }
        for noise in &NOISES[..2] {
            let compared = comparisons(*noise, 0.0, 0.02, 3);
            assert_eq!(accused(&compared, 0.05), 0, "{noise:?}");
        }
    }

    #[test]
    fn slower_ones_are_found() {
        for (noise, change, rounds, least) in [
            (NOISES[0], 0.05, 3, COMPARISONS),
            (NOISES[1], 0.05, 5, COMPARISONS * 99 / 100),
            (NOISES[0], 0.03, 3, COMPARISONS),
            (NOISES[2], 0.30, 5, COMPARISONS * 9 / 10),
            (NOISES[4], 1.00, 5, COMPARISONS),
        ] {
            let found = accused(&comparisons(noise, change, 0.02, rounds), ALPHA);
            assert!(found >= least, "{noise:?} {change}: {found}");
        }
    }

    #[test]
    fn one_process_decides_nothing() {
        let one = level(&[&[1.0, 1.1, 1.0]], 0.0).unwrap();
        let more = level(&[&[9.0, 9.1, 9.0], &[9.0, 9.0, 9.1]], 0.0).unwrap();
        assert_eq!(difference(&one, &more, 0.02), None);
        assert!(difference(&more, &more, 0.02).is_some());
        assert_eq!((level(&[], 0.0), level(&[&[]], 0.0)), (None, None));
        assert_eq!(level(&[&[0.0]], 0.0), None, "no logarithm");
        let absurd = level(&[&[1e-300, 1e300], &[f64::MAX, f64::MIN_POSITIVE]], 0.0).unwrap();
        assert!(difference(&absurd, &more, 0.02).unwrap().slower > ALPHA);
    }

    #[test]
    fn equal_medians_are_not_exact() {
        let rounds: [&[f64]; 3] = [&[4096.0; 20]; 3];
        let level = level(&rounds, LEAST_SPREAD).unwrap();
        let same = difference(&level, &level, 0.0).unwrap();
        assert!(
            same.lower < 0.0 && same.upper > 0.0 && same.slower > 0.4,
            "{same:?}"
        );
    }

    #[test]
    fn steps_along_levels() {
        let level = |log: &f64| Level {
            log: *log,
            variance: 1e-6,
            freedom: 4.0,
        };
        for (logs, expected) in [
            (&[][..], &[][..]),
            (&[0.0], &[]),
            (&[0.0, 0.05], &[1]),
            (&[0.0, 0.001, 0.0, 0.05], &[3]),
            (&[0.0, 0.001, 0.0, 0.015], &[]),
            (&[0.0, 0.001, 0.0, 0.0], &[]),
            // They differ as much without a change.
            (&[0.0, 0.05, 0.0, 0.05], &[]),
            (&[0.0, 0.05, 0.0, 0.05, 0.01, 0.04, 0.0, 0.06], &[]),
            (&[0.0, 0.001, 0.05, 0.051, 0.05, 0.001, 0.0, 0.0], &[2, 5]),
        ] {
            let levels: Vec<Level> = logs.iter().map(level).collect();
            let found: Vec<usize> = steps(&levels, 0.02, 0.005)
                .iter()
                .map(|one| one.0)
                .collect();
            assert_eq!(found, expected, "{logs:?}");
        }
        let one = Level {
            freedom: 0.0,
            ..level(&0.0)
        };
        assert_eq!(steps(&[one, level(&1.0)], 0.02, 0.05), []);
    }

    #[test]
    fn false_steps_are_as_rare_as_they_should_be() {
        let mut dice = Dice(5);
        // Files differ by more than processes do; nothing changes.
        for between_files in [0.0, 0.01, 0.1] {
            let accused = (0..COMPARISONS).filter(|_| {
                let levels: Vec<Level> = (0..12)
                    .map(|_| {
                        let log = between_files * dice.normal() + 0.001 * dice.normal();
                        Level {
                            log,
                            variance: 1e-6,
                            freedom: 4.0,
                        }
                    })
                    .collect();
                !steps(&levels, 0.02, ALPHA / 11.0).is_empty()
            });
            let accused = accused.count();
            assert!(accused <= 19, "{between_files}: {accused} of {COMPARISONS}");
        }
    }

    #[test]
    fn holms_adjustment() {
        for (probabilities, adjusted) in [
            (&[][..], &[][..]),
            (&[0.01], &[0.01]),
            (&[0.01, 0.04, 0.03], &[0.03, 0.06, 0.06]),
            (&[0.5, 0.6], &[1.0, 1.0]),
        ] {
            let found = holm(probabilities);
            let near = |(one, other): (&f64, &f64)| (one - other).abs() < 1e-12;
            assert!(found.iter().zip(adjusted).all(near), "{found:?}");
            assert_eq!(found.len(), adjusted.len());
        }
    }

    #[test]
    fn effects() {
        for (before, after, expected) in [
            (&[1.0, 2.0][..], &[3.0, 4.0][..], 1.0),
            (&[3.0, 4.0], &[1.0, 2.0], -1.0),
            (&[1.0, 2.0], &[1.0, 2.0], 0.0),
            (&[1.0, 2.0, 3.0], &[2.5], 1.0 / 3.0),
            (&[], &[1.0], 0.0),
        ] {
            assert!(
                (effect(before, after) - expected).abs() < 1e-12,
                "{before:?} {after:?}"
            );
        }
    }

    #[test]
    fn only_two_modes_are_two() {
        let mut dice = Dice(3);
        let count = |dice: &mut Dice, sample: fn(&mut Dice) -> f64, size: usize| {
            let runs = (0..1000).filter(|_| {
                let samples: Vec<f64> = (0..size).map(|_| sample(dice)).collect();
                two_modes(&samples).is_some()
            });
            runs.count()
        };
        for (what, sample, size, range) in [
            (
                "normal",
                (|dice| 100.0 + 5.0 * dice.normal()) as fn(&mut Dice) -> f64,
                60,
                0..=1,
            ),
            ("uniform", |dice| 100.0 + 20.0 * dice.uniform(), 60, 0..=1),
            (
                "skewed",
                |dice| 100.0 * (0.1 * dice.normal()).exp(),
                60,
                0..=1,
            ),
            (
                "few slow ones",
                |dice| {
                    if dice.uniform() < 0.04 {
                        150.0
                    } else {
                        100.0 + dice.normal()
                    }
                },
                60,
                0..=5,
            ),
            (
                "two",
                |dice| if dice.uniform() < 0.4 { 112.0 } else { 100.0 } + dice.normal(),
                60,
                990..=1000,
            ),
            (
                "two, too close to matter",
                |dice| if dice.uniform() < 0.4 { 101.0 } else { 100.0 } + 0.05 * dice.normal(),
                60,
                0..=0,
            ),
        ] {
            let found = count(&mut dice, sample, size);
            assert!(range.contains(&found), "{what}: {found}");
        }
        assert_eq!(two_modes(&[]), None);
        assert_eq!(two_modes(&[1.0, 9.0]), None);
    }

    #[test]
    fn processes_that_disagree() {
        let near = |middle: f64| vec![middle * 0.999, middle, middle * 1.001];
        for (middles, expected) in [
            (&[100.0, 100.1, 100.2][..], None),
            (&[100.0, 110.0, 100.2], Some(0.1)),
        ] {
            let rounds: Vec<_> = middles.iter().map(|middle| near(*middle)).collect();
            let found = disagreement(&slices(&rounds), 0.02);
            assert_eq!(found.map(|far| (far * 100.0).round() / 100.0), expected);
        }
        let noisy = [vec![50.0, 100.0, 150.0], vec![60.0, 110.0, 160.0]];
        assert_eq!(
            disagreement(&slices(&noisy), 0.02),
            None,
            "their samples explain it"
        );
    }
}
