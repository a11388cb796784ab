//! Is told by the replay of each call, and gathers what CUPTI or events say of their work.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cutape_analyzer::demangle::demangle;
use cutape_profile::{Device, HostCall, Method, Run, Work, WorkKind};
use cutape_replay::CallTracer;
use serde::{Deserialize, Serialize};

use crate::gpu::cupti::{Collected, Cupti};
use crate::gpu::record::{RawDevice, RawWork, kind};

/// What a child has measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) method: Method,
    pub(crate) run: Run,
    pub(crate) devices: Vec<MeasuredDevice>,
    pub(crate) notes: BTreeMap<String, u64>,
    /// When the run began on the system's clock, in nanoseconds since 1970.
    pub(crate) began_unix_ns: u64,
}

/// A device and how NVML names it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MeasuredDevice {
    pub(crate) device: Device,
    /// `GPU-...`
    pub(crate) uuid: String,
}

/// Relates CUPTI's clock to ours.
#[derive(Clone, Copy, Debug)]
struct Reading {
    here: Instant,
    there: u64,
}

/// Gathers the times of a replay.
pub(crate) struct GpuTracer {
    /// The library to load; `None`: events.
    path: Option<PathBuf>,
    cupti: OnceLock<Cupti>,
    epoch: Instant,
    /// The same moment on the system's clock, which the parent's has too.
    epoch_unix_ns: u64,
    first: OnceLock<Reading>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    host: Vec<HostCall>,
    events: Vec<(u64, Instant, Duration)>,
    not_timed: u64,
    measured: Option<Measured>,
}

thread_local! {
    static TAKEN: Cell<Option<Instant>> = const { Cell::new(None) };
    static ENTERED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The place of the call that the driver has returned from, among those of the run.
    static RETURNED: Cell<Option<usize>> = const { Cell::new(None) };
}

impl GpuTracer {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            cupti: OnceLock::new(),
            epoch: Instant::now(),
            epoch_unix_ns: unix_ns(),
            first: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    fn state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was measured; `None` before the end.
    pub(crate) fn take(&self) -> Option<Measured> {
        self.state(|state| state.measured.take())
    }

    fn since(&self, at: Instant) -> u64 {
        let passed = at.saturating_duration_since(self.epoch);
        u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The times of CUPTI on our axis.
    fn axis(&self, cupti: &Cupti) -> impl Fn(u64) -> u64 + use<> {
        let last = reading(cupti);
        let pair = self.first.get().copied().zip(last);
        let known = pair.map(|(first, last)| {
            let (from, to) = (self.since(first.here) as f64, self.since(last.here) as f64);
            let passed = last.there.saturating_sub(first.there) as f64;
            let slope = if passed > 0.0 {
                (to - from) / passed
            } else {
                1.0
            };
            (first.there, from, slope)
        });
        move |time| {
            let Some((there, from, slope)) = known else {
                return time;
            };
            // The difference of two large numbers is exact; its product with a slope near 1 is small.
            let passed = time as i128 - i128::from(there);
            (from + passed as f64 * slope).max(0.0) as u64
        }
    }

    fn of_cupti(&self, cupti: &Cupti, state: &mut State) -> Measured {
        let (collected, lost) = cupti.finish();
        let on_axis = self.axis(cupti);
        let mut notes = BTreeMap::new();
        for ((kind, length), count) in &collected.refused {
            let text = format!(
                "records of kind {kind} have {length} bytes, fewer than in known versions of CUPTI: \
                 left out"
            );
            notes.insert(text, *count);
        }
        let (work, not_timed) = work_of(&collected, on_axis);
        let mut run = Run {
            work,
            lost,
            not_timed,
            overhead_ns: collected.overhead_ns,
            host: std::mem::take(&mut state.host),
            ..Run::default()
        };
        let began = in_order(&mut run);
        let used = |device: &&(RawDevice, String)| {
            run.work.iter().any(|work| work.device == device.0.ordinal)
        };
        Measured {
            method: Method::Cupti {
                version: cupti.version,
                path: cupti.path.display().to_string(),
            },
            devices: collected
                .devices
                .iter()
                .filter(used)
                .map(device_of)
                .collect(),
            run,
            notes,
            began_unix_ns: self.epoch_unix_ns.saturating_add(began),
        }
    }

    fn of_events(&self, state: &mut State) -> Measured {
        let work = state.events.drain(..).map(|(call, begin, lasted)| {
            let begin_ns = self.since(begin);
            let lasted = u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX);
            Work {
                call: Some(call),
                begin_ns,
                end_ns: begin_ns.saturating_add(lasted),
                ..Work::of(WorkKind::Kernel)
            }
        });
        let mut run = Run {
            work: work.collect(),
            host: std::mem::take(&mut state.host),
            not_timed: state.not_timed,
            ..Run::default()
        };
        let began = in_order(&mut run);
        Measured {
            method: Method::Events,
            run,
            devices: Vec::new(),
            notes: BTreeMap::new(),
            began_unix_ns: self.epoch_unix_ns.saturating_add(began),
        }
    }
}

impl CallTracer for GpuTracer {
    fn begins(&self) -> Result<(), String> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let cupti = Cupti::open(path);
        let begun = cupti.and_then(|cupti| cupti.begin().map(|()| cupti));
        let cupti =
            begun.map_err(|why| format!("{why}; `--cupti none` measures with events instead"))?;
        if let Some(reading) = reading(&cupti) {
            let _ = self.first.set(reading);
        }
        self.cupti
            .set(cupti)
            .map_err(|_| "CUPTI is loaded already".to_owned())
    }

    fn takes_up(&self) {
        TAKEN.set(Some(Instant::now()));
    }

    fn is_done(&self) {
        let Some(place) = RETURNED.take() else { return };
        let done = self.since(Instant::now());
        self.state(|state| {
            if let Some(call) = state.host.get_mut(place) {
                call.done_ns = Some(done);
            }
        });
    }

    fn enters(&self, call: u64) {
        if let Some(cupti) = self.cupti.get() {
            cupti.enter(call);
        }
        ENTERED.set(Some(Instant::now()));
    }

    fn leaves(&self, call: u64) {
        let left = Instant::now();
        if let Some(cupti) = self.cupti.get() {
            cupti.leave();
        }
        let entered = ENTERED.take().unwrap_or(left);
        let (begin_ns, end_ns) = (self.since(entered), self.since(left));
        let taken_ns = TAKEN.take().map(|taken| self.since(taken));
        self.state(|state| {
            RETURNED.set(Some(state.host.len()));
            state.host.push(HostCall {
                call,
                begin_ns,
                end_ns,
                taken_ns,
                done_ns: None,
            });
        });
    }

    fn wants_events(&self) -> bool {
        self.path.is_none()
    }

    fn ran(&self, call: u64, begin: Instant, lasted: Duration) {
        self.state(|state| state.events.push((call, begin, lasted)));
    }

    fn is_not_timed(&self, _call: u64) {
        self.state(|state| state.not_timed += 1);
    }

    fn ends(&self) {
        self.state(|state| {
            state.measured = Some(match self.cupti.get() {
                Some(cupti) => self.of_cupti(cupti, state),
                None => self.of_events(state),
            });
        });
    }
}

/// Reads both clocks: the one of several readings that took the least time.
fn reading(cupti: &Cupti) -> Option<Reading> {
    let readings = (0..16).filter_map(|_| {
        let before = Instant::now();
        let there = cupti.now()?;
        let passed = before.elapsed();
        let here = before + passed / 2;
        Some((passed, Reading { here, there }))
    });
    readings
        .min_by_key(|reading| reading.0)
        .map(|reading| reading.1)
}

/// Nanoseconds since 1970 on the system's clock.
pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// In order of time, from 0 on. When it began.
fn in_order(run: &mut Run) -> u64 {
    run.work.sort_by_key(|work| (work.begin_ns, work.end_ns));
    run.host.sort_by_key(|call| (call.begin_ns, call.end_ns));
    let (begin, _) = run.span();
    for work in &mut run.work {
        work.begin_ns -= begin;
        work.end_ns = work.end_ns.saturating_sub(begin);
    }
    for call in &mut run.host {
        call.begin_ns -= begin;
        call.end_ns -= begin;
        call.taken_ns = call.taken_ns.map(|taken| taken.saturating_sub(begin));
        call.done_ns = call.done_ns.map(|done| done.saturating_sub(begin));
    }
    begin
}

/// The work of the records, and how much of it has no time.
fn work_of(collected: &Collected, on_axis: impl Fn(u64) -> u64) -> (Vec<Work>, u64) {
    let names: Vec<String> = collected.names.iter().map(|name| demangle(name)).collect();
    let mut streams: HashMap<(u32, u32), u32> = HashMap::new();
    let mut not_timed = 0;
    let mut all = Vec::with_capacity(collected.work.len());
    for (raw, &name) in collected.work.iter().zip(&collected.name_of) {
        // CUPTI has 0 for times that it could not take.
        if raw.begin == 0 || raw.end < raw.begin {
            not_timed += 1;
            continue;
        }
        let next = u32::try_from(streams.len()).unwrap_or(u32::MAX);
        let stream = *streams.entry((raw.context, raw.stream)).or_insert(next);
        let begin_ns = on_axis(raw.begin);
        let is_kernel = raw.kind == kind::CONCURRENT_KERNEL;
        let (kind, name) = match raw.kind {
            kind::CONCURRENT_KERNEL => (
                WorkKind::Kernel,
                names.get(name).cloned().unwrap_or_default(),
            ),
            kind::MEMSET => (WorkKind::Memset, "memset".to_owned()),
            kind::GRAPH => (WorkKind::Graph, "graph".to_owned()),
            _ => (WorkKind::Copy, copy_name(raw)),
        };
        all.push(Work {
            name,
            begin_ns,
            end_ns: begin_ns + (raw.end - raw.begin),
            device: raw.device,
            stream,
            call: collected.calls.get(&raw.correlation).copied(),
            node: Some(raw.node).filter(|&node| node != 0),
            bytes: matches!(kind, WorkKind::Copy | WorkKind::Memset).then_some(raw.bytes),
            grid: is_kernel.then_some(raw.grid),
            block: is_kernel.then_some(raw.block),
            registers: is_kernel.then_some(raw.registers),
            shared_bytes: is_kernel.then_some(raw.shared),
            ..Work::of(kind)
        });
    }
    (all, not_timed)
}

/// What a copy copies, by CUPTI's CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind.
fn copy_name(raw: &RawWork) -> String {
    const PAGEABLE: u8 = 1;
    let [copy, from, to] = raw.copy;
    if raw.kind == kind::MEMCPY_BETWEEN_DEVICES {
        return "device-to-device (two devices)".to_owned();
    }
    let name = match copy {
        1 | 3 => "host-to-device",
        2 | 4 => "device-to-host",
        5..=8 => "device-to-device",
        9 => "host-to-host",
        10 => "device-to-device (two devices)",
        _ => "unknown copy",
    };
    match from == PAGEABLE || to == PAGEABLE {
        true => format!("{name} (pageable)"),
        false => name.to_owned(),
    }
}

fn device_of((raw, name): &(RawDevice, String)) -> MeasuredDevice {
    let hex: String = raw.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    MeasuredDevice {
        uuid: format!(
            "GPU-{}-{}-{}-{}-{}",
            part(0, 8),
            part(8, 12),
            part(12, 16),
            part(16, 20),
            part(20, 32)
        ),
        device: Device {
            ordinal: raw.ordinal,
            name: name.clone(),
            capability: raw.capability,
            multiprocessors: raw.multiprocessors,
            warps: raw.warps,
            blocks: raw.blocks,
            registers: raw.registers,
            shared_bytes: raw.shared,
            bytes_per_second: raw.bandwidth.saturating_mul(1000),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_become_work() {
        let raw = |kind: u32, begin: u64, correlation: u32| RawWork {
            kind,
            begin,
            end: begin + 10,
            correlation,
            copy: [1, 1, 3],
            bytes: 64,
            stream: correlation,
            ..RawWork::default()
        };
        let collected = Collected {
            work: vec![
                raw(10, 100, 1),
                raw(1, 0, 2),
                raw(1, 120, 2),
                raw(2, 130, 3),
            ],
            name_of: vec![1, 0, 0, 0],
            names: vec![String::new(), "_Z3addPfi".into()],
            calls: [(1, 40), (2, 41)].into(),
            ..Collected::default()
        };
        let (work, not_timed) = work_of(&collected, |time| time - 100);
        let rows: Vec<_> = work
            .iter()
            .map(|work| {
                (
                    &*work.name,
                    work.begin_ns,
                    work.end_ns,
                    work.call,
                    work.stream,
                    work.bytes,
                )
            })
            .collect();
        let expected = [
            ("add(float*, int)", 0, 10, Some(40), 0, None),
            ("host-to-device (pageable)", 20, 30, Some(41), 1, Some(64)),
            ("memset", 30, 40, None, 2, Some(64)),
        ];
        assert_eq!(rows, expected);
        assert_eq!(not_timed, 1);
    }
}
