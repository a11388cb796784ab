//! Reads a profile that was written as JSON. Anyone may have written it: what would overflow a sum,
//! or cannot be a profile, is refused.

use std::io::Read;

use crate::record::{CallFacts, Profile, Run};

/// The most bytes of a file.
const LARGEST: u64 = 4 << 30;
/// The most calls that one call's work is known to come after; the first ones are kept.
const MOST_NEEDED: usize = 1024;

/// Why a file is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is too large.
    #[error("it has more than {LARGEST} bytes")]
    TooLarge,
    /// It is something else.
    #[error("it is no profile: {0}")]
    Json(#[from] serde_json::Error),
    /// Its times or sizes cannot be right.
    #[error("it is no profile: {0}")]
    Values(String),
}

impl Profile {
    /// Reads what `cutape profile --format json` wrote. Rows are in order of time, ends are not
    /// before begins, and times and sizes add up to less than 2^63.
    ///
    /// # Errors
    /// If it is something else, or cannot be read.
    pub fn read(from: impl Read) -> Result<Self, ReadError> {
        let mut bytes = Vec::new();
        from.take(LARGEST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LARGEST {
            return Err(ReadError::TooLarge);
        }
        let mut profile: Self = serde_json::from_slice(&bytes)?;
        profile.admit().map_err(ReadError::Values)?;
        Ok(profile)
    }

    fn admit(&mut self) -> Result<(), String> {
        if self.runs.is_empty() {
            return Err("it has no replay".to_owned());
        }
        let mut sums = Sums::default();
        for (number, run) in self.runs.iter_mut().enumerate() {
            admit_run(run, &mut sums).map_err(|why| format!("replay {}: {why}", number + 1))?;
        }
        for (call, facts) in &mut self.calls {
            admit_facts(facts, &mut sums).map_err(|why| format!("call {call}: {why}"))?;
        }
        Ok(())
    }
}

/// What readers add up.
#[derive(Default)]
struct Sums {
    times: u64,
    bytes: u64,
}

/// Adds to a sum that fits into 63 bits.
fn add(sum: &mut u64, value: u64, what: &str) -> Result<(), String> {
    let added = sum.checked_add(value).filter(|sum| *sum <= i64::MAX as u64);
    *sum = added.ok_or_else(|| format!("its {what} add up to 2^63 or more"))?;
    Ok(())
}

impl Sums {
    fn interval(&mut self, begin: u64, end: u64) -> Result<(), String> {
        let lasted = end.checked_sub(begin);
        let lasted = lasted.ok_or_else(|| format!("something ends at {end}, begins at {begin}"))?;
        if end > i64::MAX as u64 {
            return Err(format!("a time of {end} ns"));
        }
        add(&mut self.times, lasted, "times")
    }
}

fn admit_run(run: &mut Run, sums: &mut Sums) -> Result<(), String> {
    for work in &run.work {
        sums.interval(work.begin_ns, work.end_ns)?;
        add(&mut sums.bytes, work.bytes.unwrap_or(0), "sizes")?;
    }
    for call in &run.host {
        sums.interval(call.begin_ns, call.end_ns)?;
        sums.interval(call.taken_ns.unwrap_or(call.begin_ns), call.begin_ns)?;
        sums.interval(call.end_ns, call.done_ns.unwrap_or(call.end_ns))?;
    }
    for time in [run.start_ns, run.finish_ns].into_iter().flatten() {
        sums.interval(0, time)?;
    }
    run.work.sort_by_key(|work| (work.begin_ns, work.end_ns));
    run.host.sort_by_key(|call| (call.begin_ns, call.end_ns));
    Ok(())
}

fn admit_facts(facts: &mut CallFacts, sums: &mut Sums) -> Result<(), String> {
    facts.needs.truncate(MOST_NEEDED);
    facts.awaits.truncate(MOST_NEEDED);
    facts.areas.truncate(MOST_NEEDED);
    sums.interval(0, facts.program_ns)?;
    let recorded = facts.recorded_begin_ns.zip(facts.recorded_end_ns);
    recorded.map_or(Ok(()), |(begin, end)| sums.interval(begin, end))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Summary;
    use crate::test_profile::{host, kernel, profile};

    fn valid() -> Value {
        let work = vec![kernel("b", 2, 50, 60), kernel("a", 1, 10, 40)];
        let calls = vec![host(1, 0, 5), host(2, 5, 8), host(3, 8, 70)];
        let mut value = serde_json::to_value(profile(work, calls, &[3])).unwrap();
        value["summary"] = json!({"of": "another version"});
        value
    }

    #[test]
    fn what_was_written_is_read() {
        let profile = Profile::read(&*serde_json::to_vec(&valid()).unwrap()).unwrap();
        let names: Vec<&str> = profile.runs[0]
            .work
            .iter()
            .map(|work| &*work.name)
            .collect();
        assert_eq!(names, ["a", "b"], "in order of time");
        assert_eq!(Summary::of(&profile).wall_ns.median, 70.0);
    }

    /// A change of a profile.
    type Change = fn(&mut Value);

    #[test]
    fn what_cannot_be_right_is_refused() {
        let changes: &[(&str, Change)] = &[
            ("it has no replay", |it| it["runs"] = json!([])),
            ("missing field", |it| it["runs"][0] = json!({})),
            ("something ends at 3, begins at 50", |it| {
                it["runs"][0]["work"][0]["end_ns"] = json!(3);
            }),
            ("call 3: something ends at 1", |it| {
                it["calls"]["3"]["recorded_begin_ns"] = json!(2);
                it["calls"]["3"]["recorded_end_ns"] = json!(1);
            }),
            ("a time of 18446744073709551615 ns", |it| {
                it["runs"][0]["host"][0]["end_ns"] = json!(u64::MAX);
            }),
            ("its times add up to 2^63", |it| {
                it["runs"][0]["start_ns"] = json!(i64::MAX);
            }),
            ("its sizes add up to 2^63", |it| {
                it["runs"][0]["work"][0]["bytes"] = json!(u64::MAX);
            }),
            ("invalid type", |it| *it = json!([1])),
        ];
        for (expected, change) in changes {
            let mut value = valid();
            change(&mut value);
            let read = Profile::read(&*serde_json::to_vec(&value).unwrap());
            let why = read.expect_err(expected).to_string();
            assert!(why.contains(expected), "{expected}: {why}");
        }
        assert!(matches!(
            Profile::read(&b"\x80"[..]),
            Err(ReadError::Json(_))
        ));
    }

    /// The largest numbers that are admitted overflow nothing.
    #[test]
    fn extreme_values_are_summed_up() {
        let mut value = valid();
        let most = u64::from(u32::MAX);
        for work in value["runs"][0]["work"].as_array_mut().unwrap() {
            work["grid"] = json!([most, most, most]);
            work["block"] = json!([most, most, most]);
            work["registers"] = json!(most);
            work["shared_bytes"] = json!(u64::MAX);
            work["device"] = json!(0);
            work["stream"] = json!(most);
        }
        value["runs"][0]["work"][0]["end_ns"] = json!(i64::MAX - 1000);
        value["calls"]["2"]["needs"] = json!(vec![2; 5000]);
        let huge = json!({"flops": 1e300, "flops_per_second": 1e300, "bytes": 1e300,
            "bytes_per_second": 1e300, "bound": "memory", "roof_share": -1e300});
        let kernel = json!({"call": u64::MAX, "name": "k", "duration_ns": 1e300, "sm_share": -1e300,
            "roofline": huge, "stalls": [{"reason": "wait", "share": 1e300}]});
        value["counters"] = json!({"version": "", "path": "", "passes": u64::MAX,
            "wall_ns": u64::MAX, "plain_ns": u64::MAX, "kernels": [kernel]});
        let profile = Profile::read(&*serde_json::to_vec(&value).unwrap()).unwrap();
        assert_eq!(profile.calls[&2].needs.len(), MOST_NEEDED);
        let summary = Summary::of(&profile);
        assert!(!summary.text(&profile).is_empty());
        assert_eq!(summary.wall.total_ns, i64::MAX as u64 - 1000);
    }
}
