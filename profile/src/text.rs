//! A summary in words, for people.

use std::fmt::Write;

use cutape_render::quantity;
use cutape_render::text::without_middle;

use crate::record::{Method, Profile};
use crate::statistics::Spread;
use crate::summary::Summary;
use crate::timeline::Timeline;
use crate::work::WorkRow;

/// Rows of a table; JSON has all.
const ROWS: usize = 20;
const SHORT: usize = 8;
/// Columns of a name.
const NAME: usize = 60;

impl Summary {
    /// The tables, without the profile's rows.
    pub fn text(&self, profile: &Profile) -> String {
        let mut out = String::new();
        self.head(profile, &mut out);
        self.wall_table(&mut out);
        self.work_table(&mut out);
        for timeline in &self.timelines {
            timeline_text(timeline, &mut out);
        }
        self.stall_table(&mut out);
        self.path_table(&mut out);
        if let Some(counters) = &profile.counters {
            counters.text(&mut out);
        }
        self.advice_list(&mut out);
        for (note, &count) in &profile.notes {
            let times = if count > 1 {
                format!(" ({count} times)")
            } else {
                String::new()
            };
            line(&mut out, format_args!("note: {note}{times}"));
        }
        out
    }

    fn head(&self, profile: &Profile, out: &mut String) {
        let by = match &profile.method {
            Method::Cupti { version, path } => format!("CUPTI {version} ({path})"),
            Method::Events => {
                "events around each call's work: no kernels of graphs, and short work \
                               appears longer"
                    .to_owned()
            }
        };
        let replays = match profile.runs.len() {
            1 => "1 replay".to_owned(),
            count => format!("{count} replays"),
        };
        line(
            out,
            format_args!("{}: GPU times of {replays}, by {by}", profile.trace),
        );
        for device in &profile.devices {
            line(
                out,
                format_args!("device {}: {}", device.ordinal, device.name),
            );
        }
        line(
            out,
            format_args!(
                "time: {}; the GPU had work for {}, {} of it",
                spread(self.wall_ns),
                spread(self.busy_ns),
                share(self.busy_ns.median, self.wall_ns.median)
            ),
        );
        if let Some(recorded) = self.recorded_wall_ns {
            line(
                out,
                format_args!(
                    "recorded: {}, of which the same work is {}",
                    quantity::time(recorded),
                    share(self.busy_ns.median, recorded as f64)
                ),
            );
        }
        let Some(run) = profile.runs.get(self.run) else {
            return;
        };
        if let Some(clocks) = &run.clocks {
            let [low, median, high] = clocks.sm_mhz;
            let lowered: Vec<&str> = clocks.lowered.keys().map(String::as_str).collect();
            let lowered = match lowered.as_slice() {
                [] => "not lowered".to_owned(),
                reasons => format!("lowered for: {}", reasons.join(", ")),
            };
            line(
                out,
                format_args!(
                    "clocks: {median} MHz ({low} to {high}), {lowered}; {} °C, {:.0} W",
                    clocks.temperature,
                    f64::from(clocks.milliwatts) / 1e3
                ),
            );
        }
        if run.overhead_ns > 0 {
            let time = quantity::time(run.overhead_ns);
            line(
                out,
                format_args!("CUPTI itself took {time} of the host's time"),
            );
        }
        for (count, what) in [
            (run.lost, "records were lost"),
            (run.not_timed, "calls have work without a time"),
            (
                self.without_call,
                "of the kernels, copies and memsets are the replay's own: no recorded call enqueued \
                 them",
            ),
        ] {
            if count > 0 {
                line(out, format_args!("{count} {what}"));
            }
        }
    }

    /// Not for a profile that knows nothing but the time between its calls: the devices' tables say
    /// that.
    fn wall_table(&self, out: &mut String) {
        let wall = &self.wall;
        if wall.start_ns == 0 && wall.finish_ns == 0 {
            return;
        }
        let total = quantity::time(wall.total_ns);
        line(
            out,
            format_args!("\nthe replay, from the start of its process to the end, {total}:"),
        );
        for (time, what) in wall.parts() {
            let part = share(time as f64, wall.total_ns as f64);
            let time = quantity::time(time);
            line(out, format_args!("{part:>6} {time:>10}  {what}"));
        }
    }

    fn work_table(&self, out: &mut String) {
        if self.work.is_empty() {
            line(out, format_args!("\nno work ran on the GPU"));
            return;
        }
        line(
            out,
            format_args!(
                "\n{:>6} {:>10} {:>7} {:>10} {:>10} {:>10}  {:<10} what",
                "share", "total", "count", "median", "longest", "at call", ""
            ),
        );
        for row in self.work.iter().take(ROWS) {
            let time = |value: f64| quantity::time(value as u64);
            let call = row
                .longest_call
                .map_or_else(String::new, |call| call.to_string());
            let [_, median, longest] = row.each_ns;
            line(
                out,
                format_args!(
                    "{:>6} {:>10} {:>7} {:>10} {:>10} {call:>10}  {:<10} {}",
                    share(row.share, 1.0),
                    time(row.total_ns.median),
                    row.count,
                    time(median),
                    time(longest),
                    detail(row),
                    without_middle(&row.name, NAME)
                ),
            );
        }
        rest(self.work.len(), ROWS, out);
    }

    fn stall_table(&self, out: &mut String) {
        if self.stalls.is_empty() {
            return;
        }
        line(out, format_args!("\nthe host waited in:"));
        for stall in self.stalls.iter().take(SHORT) {
            let recorded = match stall.recorded_ns {
                Some(time) => format!(", recorded {}", quantity::time(time)),
                None => String::new(),
            };
            line(
                out,
                format_args!(
                    "  {} x {}: {} ({} with work on the GPU{recorded}); the longest: call {}, {}",
                    stall.calls,
                    stall.function,
                    quantity::time(stall.total_ns),
                    share(stall.busy_ns as f64, stall.total_ns as f64),
                    stall.longest_call,
                    quantity::time(stall.longest_ns)
                ),
            );
        }
        rest(self.stalls.len(), SHORT, out);
    }

    fn path_table(&self, out: &mut String) {
        let path = &self.critical_path;
        if path.shares.is_empty() {
            return;
        }
        let work = share(path.work_ns as f64, path.wall_ns as f64);
        line(
            out,
            format_args!("\ncritical path ({work} of it is work of the GPU):"),
        );
        for part in path.shares.iter().take(SHORT) {
            let call = part
                .longest_call
                .map_or_else(String::new, |call| format!(" at call {call}"));
            line(
                out,
                format_args!(
                    "{:>6} {:>10} {:>7}  {:<8} {}{call}",
                    share(part.total_ns as f64, path.wall_ns as f64),
                    quantity::time(part.total_ns),
                    part.count,
                    part.link.word(),
                    without_middle(&part.name, NAME)
                ),
            );
        }
        rest(path.shares.len(), SHORT, out);
        // Without ranges there is one row, of all calls.
        if path.ranges.iter().all(|share| share.range.is_none()) {
            return;
        }
        line(out, format_args!("\ncritical path by range:"));
        for part in path.ranges.iter().take(SHORT) {
            let range = part.range.as_deref().unwrap_or("(in no range)");
            line(
                out,
                format_args!(
                    "{:>6} {:>10}  {}, {} of it work of the GPU",
                    share(part.total_ns as f64, path.wall_ns as f64),
                    quantity::time(part.total_ns),
                    without_middle(range, NAME),
                    share(part.work_ns as f64, part.total_ns as f64),
                ),
            );
        }
        rest(path.ranges.len(), SHORT, out);
    }

    fn advice_list(&self, out: &mut String) {
        if self.advice.is_empty() {
            return;
        }
        line(
            out,
            format_args!("what would be faster, by prediction; each command measures it:"),
        );
        for advice in &self.advice {
            let at_most = if advice.is_bound { "at most " } else { "" };
            line(
                out,
                format_args!(
                    "  {at_most}{} ({:.1} %): {}",
                    quantity::time(advice.gain_ns),
                    advice.share * 100.0,
                    advice.what
                ),
            );
            line(out, format_args!("    {}", advice.command));
        }
    }
}

fn timeline_text(timeline: &Timeline, out: &mut String) {
    let of_wall = |time: u64| share(time as f64, timeline.wall_ns as f64);
    line(
        out,
        format_args!(
            "\ndevice {}, of {}:",
            timeline.device,
            quantity::time(timeline.wall_ns)
        ),
    );
    for (time, what) in [
        (timeline.busy_ns, "work ran"),
        (
            timeline.idle_host_ns,
            "no work: the host had not enqueued it yet",
        ),
        (
            timeline.idle_launch_ns,
            "no work: the host was enqueueing it",
        ),
        (
            timeline.idle_device_ns,
            "no work, although it was enqueued: latency of the GPU",
        ),
    ] {
        let (part, time) = (of_wall(time), quantity::time(time));
        line(out, format_args!("{part:>6} {time:>10}  {what}"));
    }
    let mut host: Vec<_> = timeline.idle_host_in.iter().collect();
    host.sort_by_key(|(_, time)| std::cmp::Reverse(**time));
    for (function, time) in host.into_iter().take(SHORT) {
        let (part, time) = (of_wall(*time), quantity::time(*time));
        line(
            out,
            format_args!("  {part:>6} {time:>10}  the host was: {function}"),
        );
    }
    if timeline.overlap_ns > 0 {
        let part = share(timeline.overlap_ns as f64, timeline.busy_ns as f64);
        line(
            out,
            format_args!("  {part} of the time with work, two or more pieces of work ran at once"),
        );
    }
    for stream in timeline.streams.iter().take(SHORT) {
        let before = stream.longest_gap_before;
        let before = before.map_or_else(String::new, |call| format!(", before call {call}"));
        line(
            out,
            format_args!(
                "  {}: {} pieces of work in {}, gaps {} (the longest {}{before})",
                stream.name,
                stream.work,
                quantity::time(stream.busy_ns),
                quantity::time(stream.gaps_ns),
                quantity::time(stream.longest_gap_ns)
            ),
        );
    }
    rest(timeline.streams.len(), SHORT, out);
    for stretch in timeline.stretches.iter().take(3) {
        line(
            out,
            format_args!(
                "  launch-bound: calls {}..{}, {} pieces of work in {}, {} of it without work",
                stretch.first,
                stretch.last,
                stretch.work,
                quantity::time(stretch.wall_ns),
                share(stretch.idle_ns as f64, stretch.wall_ns as f64)
            ),
        );
    }
}

/// Bytes a second of a copy, waves of a kernel.
fn detail(row: &WorkRow) -> String {
    if let Some(speed) = row.bytes_per_second {
        return match speed {
            speed if speed >= 1e12 => format!("{:.2} TB/s", speed / 1e12),
            speed if speed >= 1e8 => format!("{:.1} GB/s", speed / 1e9),
            speed => format!("{:.1} MB/s", speed / 1e6),
        };
    }
    match row.occupancy {
        Some(known) if known.waves < 9.95 => format!("{:.1} waves", known.waves),
        Some(known) => format!("{:.0} waves", known.waves),
        None => String::new(),
    }
}

pub(crate) fn share(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1} %", part / whole * 100.0),
        false => "0.0 %".to_owned(),
    }
}

fn spread(value: Spread) -> String {
    let time = |value: f64| quantity::time(value as u64);
    match value.count {
        0 | 1 => time(value.median),
        _ => format!(
            "{} ({} to {} with {:.0} %)",
            time(value.median),
            time(value.low),
            time(value.high),
            value.confidence * 100.0
        ),
    }
}

pub(crate) fn rest(count: usize, shown: usize, out: &mut String) {
    if count > shown {
        let more = count - shown;
        line(out, format_args!("  {more} more: --format json has them"));
    }
}

pub(crate) fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Clocks;
    use crate::test_profile::{host, kernel, profile};

    #[test]
    fn what_people_read() {
        let work = vec![kernel("a", 1, 100, 2_100), kernel("b", 2, 4_000, 5_000)];
        let calls = vec![host(1, 0, 50), host(2, 3_000, 3_100), host(9, 3_200, 5_100)];
        let mut profile = profile(work, calls, &[9]);
        profile.runs[0].clocks = Some(Clocks {
            samples: 3,
            sm_mhz: [345, 1980, 1980],
            temperature: 40,
            milliwatts: 120_400,
            lowered: [("power cap".to_owned(), 1)].into(),
            ..Clocks::default()
        });
        profile.notes.insert("a note".into(), 2);
        let text = Summary::of(&profile).text(&profile);
        for expected in [
            "app.cutape: GPU times of 1 replay, by CUPTI 130001 (libcupti.so.13)\n",
            "time: 5.1 us; the GPU had work for 3.0 us, 58.8 % of it\n",
            "clocks: 1980 MHz (345 to 1980), lowered for: power cap; 40 °C, 120 W\n",
            "66.7 %     2.0 us       1     2.0 us     2.0 us          1             a\n",
            "device 0, of 5.1 us:\n",
            "the host was: between calls\n",
            "  1 x cuCtxSynchronize: 1.9 us (52.6 % with work on the GPU); the longest: call 9, 1.9 us\n",
            "critical path (",
            "note: a note (2 times)\n",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
        }
        profile.runs.clear();
        assert!(Summary::of(&profile).text(&profile).contains("no work ran"));
    }
}
