//! The lines of markers, between those of calls.

use std::io::{self, Write};

use anstyle::Style;
use cutape_format::{Marker, MarkerAction, MarkerSource, Payload, Trace};
use serde::Serialize;
use serde_json::{Value as Json, json};

use cutape_calls::Markers;
use cutape_format::TraceClock;
use cutape_render::quantity;
use cutape_terminal::output::{self, Format};

/// The markers of a trace, printed one after the other.
pub(super) struct MarkerLines {
    markers: Markers,
    /// For each marker the range that it ends.
    ended: Vec<Option<usize>>,
    /// How many have been passed.
    passed: usize,
    clock: TraceClock,
    format: Format,
    side: Style,
}

/// A line of JSON; keys are only ever added.
#[derive(Debug, Serialize)]
struct MarkerLine<'m> {
    /// `mark`, `push`, `pop`, `start` or `end`.
    marker: &'static str,
    /// What it says; of an end what its begin said, `null` if there was none.
    name: Option<&'m str>,
    /// `null` for the default domain.
    domain: Option<&'m str>,
    /// `null` if the thread never called the driver, or for another process.
    thread: Option<u32>,
    /// `nvtx`, `recorder` or `outside`.
    source: &'static str,
    time_ns: Option<u64>,
    /// Of an end: since the begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<u32>,
    /// Alpha, red, green and blue.
    #[serde(skip_serializing_if = "Option::is_none")]
    color: Option<String>,
}

impl MarkerLines {
    /// `side` is the style of what is not the marker itself.
    pub(super) fn new(trace: &Trace, clock: TraceClock, format: Format, side: Style) -> Self {
        let markers = Markers::of(trace);
        let mut ended = vec![None; markers.list.len()];
        for (number, range) in markers.ranges.iter().enumerate() {
            if let Some(place) = range.ended_by.and_then(|marker| ended.get_mut(marker)) {
                *place = Some(number);
            }
        }
        Self {
            markers,
            ended,
            passed: 0,
            clock,
            format,
            side,
        }
    }

    /// Prints the markers before a moment that were not printed yet, of those that are to be shown.
    pub(super) fn write_before(
        &mut self,
        ticks: u64,
        shows: &dyn Fn(&Marker) -> bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        while let Some(marker) = self.markers.list.get(self.passed)
            && marker.ticks <= ticks
        {
            if shows(marker) {
                let line = self.line(self.passed, marker);
                match self.format {
                    Format::Text => self.write_text(marker, &line, out)?,
                    Format::Json => output::json_line(out, &line)?,
                }
            }
            self.passed += 1;
        }
        Ok(())
    }

    fn line<'m>(&'m self, number: usize, marker: &'m Marker) -> MarkerLine<'m> {
        let is_end = matches!(marker.action, MarkerAction::Pop | MarkerAction::End(_));
        let range = self.ended.get(number).copied().flatten();
        let range = range.and_then(|at| self.markers.ranges.get(at));
        MarkerLine {
            marker: match marker.action {
                MarkerAction::Mark => "mark",
                MarkerAction::Push => "push",
                MarkerAction::Pop => "pop",
                MarkerAction::Start(_) => "start",
                MarkerAction::End(_) => "end",
            },
            name: match is_end {
                true => range.map(|range| &*range.name),
                false => Some(&marker.text),
            },
            domain: Some(&*marker.domain).filter(|domain| !domain.is_empty()),
            thread: marker.thread,
            source: match marker.source {
                MarkerSource::Nvtx => "nvtx",
                MarkerSource::Recorder => "recorder",
                MarkerSource::Outside => "outside",
            },
            time_ns: self.clock.since_start(marker.ticks),
            duration_ns: range.and_then(|range| self.clock.between(range.begin, marker.ticks)),
            payload: marker.payload.map(|payload| match payload {
                Payload::Unsigned(number) => json!(number),
                Payload::Signed(number) => json!(number),
                Payload::Float(number) => json!(number),
            }),
            category: Some(marker.category).filter(|category| *category != 0),
            color: (marker.color != 0).then(|| format!("#{:08x}", marker.color)),
        }
    }

    fn write_text(
        &self,
        marker: &Marker,
        line: &MarkerLine<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let side = self.side;
        write!(out, "{side}-")?;
        match (line.thread, marker.number) {
            (Some(thread), _) => write!(out, " @{thread}")?,
            (None, 0) => write!(out, " from outside")?,
            (None, number) => write!(out, " thread {number}")?,
        }
        if let Some(time) = line.time_ns {
            write!(out, " +{}ms", quantity::milliseconds(time))?;
        }
        write!(out, "{side:#} {}", line.marker)?;
        match line.name {
            Some(name) => write!(out, " \"{}\"", name.escape_debug())?,
            None => write!(out, " of nothing")?,
        }
        let mut parts = Vec::new();
        parts.extend(line.duration_ns.map(quantity::time));
        let domain = line.domain.map(|name| name.escape_debug());
        parts.extend(domain.map(|name| format!("domain {name}")));
        parts.extend(
            line.payload
                .as_ref()
                .map(|number| format!("payload {number}")),
        );
        parts.extend(line.category.map(|number| format!("category {number}")));
        if !parts.is_empty() {
            write!(out, "  {side}[{}]{side:#}", parts.join(", "))?;
        }
        writeln!(out)
    }
}
