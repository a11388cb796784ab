//! Measurements, and the files in which criterion writes them.

use std::fs;
use std::path::Path;

use cutape_replay::{Clock, Outcome};
use serde::{Deserialize, Serialize};

/// The results of a child.
#[derive(Debug)]
pub struct Results {
    pub(crate) outcome: Outcome,
    pub(crate) benchmarks: Vec<Benchmark>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Benchmark {
    /// The clock that measured.
    pub clock: Clock,
    /// The subject's name.
    pub name: String,
    /// Index of the launch or of the first call.
    pub call: u64,
    /// Another kernel replaced the recorded one.
    pub is_replaced: bool,
    /// Nanoseconds of one iteration.
    pub time: Estimate,
    /// The change, if it was compared.
    pub change: Option<Change>,
}

/// A value with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The lower end of the interval.
    pub lower: f64,
    /// The value.
    pub point: f64,
    /// The upper end.
    pub upper: f64,
}

/// How much slower than before, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Of the mean.
    pub mean: Estimate,
    /// Of the median, which few slow samples do not move.
    pub median: Estimate,
}

/// The nanoseconds of one iteration, from criterion's files in a benchmark's folder.
pub(crate) fn read_time(folder: &Path) -> Option<Estimate> {
    estimate(&read(&folder.join("new/estimates.json"))?, "mean")
}

/// The change, from the same folder.
pub(crate) fn read_change(folder: &Path) -> Option<Change> {
    let json = read(&folder.join("change/estimates.json"))?;
    Some(Change {
        mean: estimate(&json, "mean")?,
        median: estimate(&json, "median")?,
    })
}

fn read(path: &Path) -> Option<serde_json::Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

fn estimate(json: &serde_json::Value, statistic: &str) -> Option<Estimate> {
    let json = json.get(statistic)?;
    let interval = json.get("confidence_interval")?;
    Some(Estimate {
        lower: interval.get("lower_bound")?.as_f64()?,
        point: json.get("point_estimate")?.as_f64()?,
        upper: interval.get("upper_bound")?.as_f64()?,
    })
}

/// An estimate for tests.
#[cfg(test)]
pub(crate) fn around(point: f64, width: f64) -> Estimate {
    Estimate {
        lower: point - width,
        point,
        upper: point + width,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_criterion() {
        let folder = std::env::temp_dir().join(format!("cutape-verdict-{}", std::process::id()));
        let statistic = |value: f64| {
            format!(
                r#"{{"confidence_interval":{{"confidence_level":0.95,"lower_bound":{},"upper_bound":{}}},"point_estimate":{value},"standard_error":0.1}}"#,
                value - 1.0,
                value + 1.0
            )
        };
        assert_eq!(read_time(&folder), None);
        for (part, text) in [
            ("new", format!(r#"{{"mean":{}}}"#, statistic(9.0))),
            (
                "change",
                format!(
                    r#"{{"mean":{},"median":{}}}"#,
                    statistic(2.0),
                    statistic(3.0)
                ),
            ),
        ] {
            fs::create_dir_all(folder.join(part)).unwrap();
            fs::write(folder.join(part).join("estimates.json"), text).unwrap();
        }
        assert_eq!(read_time(&folder), Some(around(9.0, 1.0)));
        let change = Change {
            mean: around(2.0, 1.0),
            median: around(3.0, 1.0),
        };
        assert_eq!(read_change(&folder), Some(change));
        fs::write(folder.join("change/estimates.json"), "{").unwrap();
        assert_eq!(
            read_change(&folder),
            None,
            "a damaged file counts as missing"
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
