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
    /// The median of the samples, in nanoseconds; 0 in reports of earlier versions.
    #[serde(default)]
    pub median: Estimate,
    /// The median distance of samples from their median, in nanoseconds.
    #[serde(default)]
    pub mad: f64,
    /// Nanoseconds of one iteration, as each sample has them.
    #[serde(default)]
    pub samples: Vec<f64>,
    /// The change, if it was compared.
    pub change: Option<Change>,
}

/// A value with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// The nanoseconds of one iteration.
#[derive(Debug, PartialEq)]
pub(crate) struct Times {
    pub mean: Estimate,
    pub median: Estimate,
    pub mad: f64,
    pub samples: Vec<f64>,
}

/// The times in criterion's files in a benchmark's folder.
pub(crate) fn read_times(folder: &Path) -> Option<Times> {
    let json = read(&folder.join("new/estimates.json"))?;
    let samples: Samples = serde_json::from_value(read(&folder.join("new/sample.json"))?).ok()?;
    let samples = samples.times.iter().zip(&samples.iters);
    Some(Times {
        mean: estimate(&json, "mean")?,
        median: estimate(&json, "median")?,
        mad: estimate(&json, "median_abs_dev")?.point,
        samples: samples.map(|(time, count)| time / count).collect(),
    })
}

/// The file `sample.json`: iterations of each sample, and the nanoseconds of all of them.
#[derive(Deserialize)]
struct Samples {
    iters: Vec<f64>,
    times: Vec<f64>,
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
        assert_eq!(read_times(&folder), None);
        let new = ["mean", "median", "median_abs_dev"]
            .iter()
            .zip([9.0, 8.0, 2.0]);
        let new: Vec<_> = new
            .map(|(name, value)| format!(r#""{name}":{}"#, statistic(value)))
            .collect();
        for (file, text) in [
            ("new/estimates.json", format!("{{{}}}", new.join(","))),
            (
                "new/sample.json",
                r#"{"sampling_mode":"Flat","iters":[2.0,4.0],"times":[16.0,40.0]}"#.to_owned(),
            ),
            (
                "change/estimates.json",
                format!(
                    r#"{{"mean":{},"median":{}}}"#,
                    statistic(2.0),
                    statistic(3.0)
                ),
            ),
        ] {
            fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
            fs::write(folder.join(file), text).unwrap();
        }
        let times = Times {
            mean: around(9.0, 1.0),
            median: around(8.0, 1.0),
            mad: 2.0,
            samples: vec![8.0, 10.0],
        };
        assert_eq!(read_times(&folder), Some(times));
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
