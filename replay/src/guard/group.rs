//! Replays several ranks: a guarded child for each, started together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;

use cutape_format::{ClockStart, Trace};
use cutape_model::{Evidence, ExchangeSite, MappedFile, Sharing};

use crate::error::Error;
use crate::guard::attempt::{Attempt, Guard, Misfits};
use crate::guard::awaited::{self, FileNumber, Surroundings, tell_of_wait};
use crate::guard::crash_report::crash_report;
use crate::guard::died;
use crate::guard::environment::environment;
use crate::guard::kept_attempts::{KeptAttempts, TraceIdentity};
use crate::guard::message::{Measurements, Message, unexpected};
use crate::guard::watchdog::{Company, End, Watchers, failed, one_child};
use crate::machine::check::recorded_devices;
use crate::machine::ranks::{DeviceExchange, RankDevice, RankDevices};
use crate::plan::needs::Needs;
use crate::plan::{has_address_spaces, needs};
use crate::process::memory_file;
use crate::process::position::{ENDED, Page};
use crate::process::strategy::PlacementStrategy;
use crate::ranks::broker::{Broker, Place};
use crate::ranks::message;
use crate::ranks::order::{self, Times};
use crate::ranks::peers::{Assignment, Source, VARIABLE};
use crate::ranks::shared_files::{self, FileIdentity, RecordedFile};
use crate::ranks::shared_objects::SharedObjects;
use crate::report::Report;

/// One of the ranks that are replayed together.
pub struct Rank<'a> {
    /// What messages call it, e.g. `rank 3`.
    pub label: String,
    /// Its trace.
    pub trace: &'a Trace,
    /// Devices by ordinal, recorded and here, as in the options of its child; the others are
    /// matched by what they are.
    pub devices: Vec<(u32, u32)>,
    /// Makes the command of its child, which calls [`crate::run_as_child`] with that trace.
    pub command: &'a (dyn Fn() -> Command + Sync),
}

/// Replays ranks together, each in a child process: each exports again what it shares, and hands
/// the new handle to those that import it. If the ranks share a clock, a call comes after all calls
/// of other ranks that had returned when it was entered.
///
/// Returns the report of each rank. A rank that a signal kills, or that hangs, has a report with
/// `died`; those of the others say what they lack because of it.
///
/// # Errors
///
/// As [`crate::run_guarded`], with the rank's label.
pub fn run_ranks(
    ranks: &[Rank<'_>],
    guard: &Guard,
    progress: &(dyn Fn(usize, u64) + Sync),
) -> Result<Vec<Report>, Error> {
    let ended = replay_ranks(ranks, guard, progress)?;
    let reports = ended
        .into_iter()
        .zip(ranks)
        .map(|(message, rank)| match message {
            Message::Report(report) => Ok(*report),
            _ => Err(of_rank(rank, unexpected())),
        });
    reports.collect()
}

/// As [`run_ranks`], for children that call [`trace_as_child`](crate::trace_as_child).
///
/// # Errors
///
/// As there; and [`Error::Measure`] with the report's text for a rank that died or hung.
pub fn rerun_ranks(
    ranks: &[Rank<'_>],
    guard: &Guard,
    progress: &(dyn Fn(usize, u64) + Sync),
) -> Result<Vec<Measurements>, Error> {
    let ended = replay_ranks(ranks, guard, progress)?;
    let measured = ended.into_iter().zip(ranks).map(|(message, rank)| {
        let error = match message {
            Message::Measurements(measurements) => return Ok(*measurements),
            Message::Report(report) => died(*report, "measuring"),
            _ => unexpected(),
        };
        Err(of_rank(rank, error))
    });
    measured.collect()
}

fn of_rank(rank: &Rank<'_>, error: Error) -> Error {
    Error::Rank {
        label: rank.label.clone(),
        error: Box::new(error),
    }
}

/// What the last child of each rank wrote, or a report of the guard's if it died.
fn replay_ranks(
    ranks: &[Rank<'_>],
    guard: &Guard,
    progress: &(dyn Fn(usize, u64) + Sync),
) -> Result<Vec<Message>, Error> {
    let group = Group::of(ranks);
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut guards = Vec::new();
    let kept = KeptAttempts::read(guard)?;
    for (number, rank) in ranks.iter().enumerate() {
        // What lies in granules cannot be exported: the driver has to place memory itself.
        let strategy = match guard.placement {
            Some(PlacementStrategy::None) => PlacementStrategy::None,
            _ if !has_address_spaces(rank.trace) => PlacementStrategy::None,
            _ => PlacementStrategy::Natural,
        };
        let guard = Guard {
            placement: Some(strategy),
            ..guard.clone()
        };
        let number = Some((number, ranks.len()));
        let kept = kept.as_ref();
        let kept = kept.and_then(|kept| {
            let identity = TraceIdentity::of(rank.trace);
            kept.attempt(number, &identity, &guard)
        });
        attempts.push(kept.unwrap_or_else(|| Attempt::first(strategy, &guard)));
        guards.push(guard);
    }
    let mut misfits: Vec<Misfits> = ranks.iter().map(|_| Misfits::default()).collect();
    loop {
        let ends = group.run(&guards, &attempts, progress)?;
        let mut messages = Vec::new();
        let (mut again, mut is_complete) = (false, true);
        for (number, (end, page)) in ends.into_iter().enumerate() {
            let known = (ranks.get(number), guards.get(number));
            let (Some(rank), Some(guard)) = known else {
                continue;
            };
            let tried = (attempts.get_mut(number), misfits.get_mut(number));
            let (Some(attempt), Some(misfits)) = tried else {
                continue;
            };
            let of_rank = |error| of_rank(rank, error);
            let (end, awaited) = end;
            match end {
                End::Failed(error) => {
                    misfits.add(&error);
                    *attempt = attempt.clone().after(error, guard).map_err(of_rank)?;
                    again = true;
                }
                End::Reported(mut message) => {
                    if let Some(report) = message.report_mut() {
                        attempt.learn(report);
                    }
                    messages.push(message);
                }
                End::Died { status, hung } => {
                    is_complete = false;
                    let awaited = hung.then_some(awaited);
                    let report = crash_report(rank.trace, status, &page, awaited);
                    messages.push(Message::Report(Box::new(report)));
                }
                End::Silent(status) => {
                    return Err(of_rank(Error::NoReport {
                        how: status.to_string(),
                    }));
                }
            }
        }
        if !again {
            if is_complete && guard.keep_placement.is_some() {
                let identity = |rank: &Rank<'_>| TraceIdentity::of(rank.trace);
                let traces = ranks.iter().map(identity);
                KeptAttempts::of_ranks(traces.zip(&attempts)).write(guard)?;
            }
            for (rank, (message, misfits)) in messages.iter_mut().zip(misfits).enumerate() {
                if let Some(report) = message.report_mut() {
                    *report = misfits.report_in(std::mem::take(report));
                    group.note_assumptions(rank, report);
                }
            }
            return Ok(messages);
        }
    }
}

/// The ranks, and what they have to do with each other.
struct Group<'a> {
    ranks: &'a [Rank<'a>],
    labels: Vec<String>,
    assignments: Vec<Assignment>,
    functions: BTreeMap<Place, &'static str>,
    /// By rank: imports that were matched by order and size.
    assumed: Vec<usize>,
    /// By rank: the first rank on the same machine.
    machines: Vec<usize>,
    /// Files that ranks had mapped and registered.
    files: BTreeMap<FileIdentity, RecordedFile>,
    /// By rank: the parts of them.
    mapped: Vec<Vec<MappedFile>>,
}

/// How the child of a rank ended, and what it may have waited for.
type RankEnd = (End, Vec<String>);

impl<'a> Group<'a> {
    fn of(ranks: &'a [Rank<'a>]) -> Self {
        let traces: Vec<&Trace> = ranks.iter().map(|rank| rank.trace).collect();
        let SharedObjects {
            exchanges,
            sharing,
            have_counter,
            clocks,
        } = SharedObjects::of(&traces);
        let machines = machines(&clocks);
        let times: Vec<Times> = match have_counter {
            true => ranks.iter().map(|rank| Times::of(rank.trace)).collect(),
            false => Vec::new(),
        };
        let devices = devices_of(ranks, &sharing);
        let labels: Vec<String> = ranks.iter().map(|rank| rank.label.clone()).collect();
        let mut assignments: Vec<Assignment> = (0..ranks.len())
            .map(|rank| Assignment {
                rank,
                labels: labels.clone(),
                before: order::before_calls_of(rank, &times),
                devices: devices.clone(),
                ..Assignment::default()
            })
            .collect();
        let mut assumed = vec![0; ranks.len()];
        for link in &sharing.links {
            if let Some(exporter) = assignments.get_mut(link.from.process) {
                exporter.wanted.insert(link.from.call);
            }
            if let Some(importer) = assignments.get_mut(link.to.process) {
                let source = Source {
                    rank: link.from.process,
                    call: link.from.call,
                    size: link.size,
                };
                importer.sources.insert(link.to.call, source);
            }
            if let Some(assumed) = assumed.get_mut(link.to.process) {
                *assumed += usize::from(link.evidence == Evidence::Order);
            }
        }
        let functions = exchanges.iter().enumerate().flat_map(|(rank, exchanges)| {
            let exports = exchanges.exports.iter();
            exports.map(move |export| ((rank, export.call), export.function))
        });
        Self {
            ranks,
            labels,
            assignments,
            functions: functions.collect(),
            assumed,
            files: shared_files::recorded_files(&exchanges, &machines),
            machines,
            mapped: exchanges.into_iter().map(|of| of.mapped).collect(),
        }
    }

    fn note_assumptions(&self, rank: usize, report: &mut Report) {
        for _ in 0..self.assumed.get(rank).copied().unwrap_or(0) {
            report.note(
                "imports of file descriptors that cannot be told apart: the export was assumed \
                 from order and size",
            );
        }
    }

    /// Runs a child for each rank until all have ended. If one cannot replay as it is to, the
    /// others are ended.
    fn run(
        &self,
        guards: &[Guard],
        attempts: &[Attempt],
        progress: &(dyn Fn(usize, u64) + Sync),
    ) -> Result<Vec<(RankEnd, Page)>, Error> {
        let pages: Vec<Page> = (0..self.ranks.len())
            .map(|_| Page::create())
            .collect::<Result<_, _>>()
            .map_err(failed("sharing a page"))?;
        let files = shared_files::create(&self.files).map_err(failed("making a shared file"))?;
        let (mut parents, mut children) = (Vec::new(), Vec::new());
        for (assignment, &machine) in self.assignments.iter().zip(&self.machines) {
            let (parent, child) = message::pair().map_err(failed("making a socket"))?;
            parents.push(parent);
            let assignment = Assignment {
                files: shared_files::files_for(machine, &self.files, &files),
                ..assignment.clone()
            };
            let file = file_of(&assignment).map_err(failed("writing the assignment"))?;
            children.push((child, file));
        }
        let cancel = AtomicBool::new(false);
        let stop = AtomicBool::new(false);
        let ends: Vec<Result<RankEnd, Error>> = std::thread::scope(|scope| -> Result<_, Error> {
            let broker = Broker::new(parents, &self.labels, &self.functions);
            let serving = Builder::new().spawn_scoped(scope, || broker.serve(&stop));
            serving.map_err(|error| Error::no_thread(&error))?;
            let each = children.into_iter().zip(guards).zip(attempts).enumerate();
            let threads: Vec<_> = each
                .map(|(number, (((socket, file), guard), attempt))| {
                    let (pages, cancel, files) = (&pages, &cancel, &files);
                    let page = pages.get(number);
                    let thread = Builder::new().spawn_scoped(scope, move || {
                        let company = page.map(|page| Company {
                            page,
                            variables: vec![(VARIABLE, descriptors(&socket, &file, pages))],
                            given: vec![socket, file],
                            lent: pages
                                .iter()
                                .map(Page::descriptor)
                                .chain(files.values().map(AsRawFd::as_raw_fd))
                                .collect(),
                            cancel,
                        });
                        let end =
                            self.one(number, (guard, attempt), company, (pages, files), progress);
                        if let Some(page) = page {
                            page.counters().complete.fetch_or(ENDED, Ordering::Release);
                        }
                        // Whoever reports a failure has replayed nothing.
                        if matches!(end, Err(_) | Ok((End::Failed(_), _))) {
                            cancel.store(true, Ordering::Relaxed);
                        }
                        end
                    });
                    if thread.is_err() {
                        // The other ranks would wait for this one.
                        cancel.store(true, Ordering::Relaxed);
                    }
                    thread.map_err(|error| Error::no_thread(&error))
                })
                .collect();
            let ends = threads.into_iter().map(|thread| {
                let ended = thread?.join();
                ended.unwrap_or_else(|_| Err(Error::child("waiting for it", "a thread panicked")))
            });
            let ends = ends.collect();
            stop.store(true, Ordering::Relaxed);
            Ok(ends)
        })?;
        let ends: Vec<RankEnd> = ends.into_iter().collect::<Result<_, _>>()?;
        Ok(ends.into_iter().zip(pages).collect())
    }

    /// Runs the child of one rank.
    fn one(
        &self,
        number: usize,
        (guard, attempt): (&Guard, &Attempt),
        company: Option<Company<'_>>,
        (pages, files): (&[Page], &BTreeMap<FileIdentity, OwnedFd>),
        progress: &(dyn Fn(usize, u64) + Sync),
    ) -> Result<RankEnd, Error> {
        let (Some(rank), Some(company)) = (self.ranks.get(number), company) else {
            return Err(Error::child("starting it", "there is no such rank"));
        };
        let mut command = (rank.command)();
        command.envs(environment(rank.trace));
        let machine = self.machines.get(number).copied().unwrap_or(number);
        let page = company.page;
        let mut awaited = Vec::new();
        let mut watchers = Watchers {
            progress: &mut |done| progress(number, done),
            late: &mut |process, lasts| {
                let read = |device, inode, offset, length| {
                    let file = files.get(&(machine, device, inode))?;
                    memory_file::read(file, offset, length)
                };
                let sharers = |of: &[FileNumber]| self.sharers(number, of, pages);
                let surroundings = Surroundings {
                    read_file: &read,
                    sharers: &sharers,
                };
                awaited = awaited::explain(rank.trace, page, process, &surroundings);
                tell_of_wait(guard, &format!("{}: ", rank.label), page, lasts, &awaited);
            },
        };
        let end = one_child(command, guard, attempt, company, &mut watchers)?;
        Ok((end, awaited))
    }

    /// The other ranks of the machine that have registered any of these files, and what they do.
    fn sharers(&self, own: usize, files: &[FileNumber], pages: &[Page]) -> Vec<String> {
        let label = |rank: usize| self.labels.get(rank).map_or("a rank", String::as_str);
        let others =
            self.mapped.iter().enumerate().filter(|(rank, _)| {
                *rank != own && self.machines.get(*rank) == self.machines.get(own)
            });
        let described = others.filter_map(|(rank, mapped)| {
            let file = |part: &MappedFile| (part.mapping.device, part.mapping.inode);
            let first = mapped.iter().find(|part| files.contains(&file(part)))?;
            let own: BTreeSet<_> = mapped.iter().map(file).collect();
            let count = files.iter().filter(|file| own.contains(file)).count();
            let page = pages.get(rank)?;
            let (at, done) = page.read();
            let has_ended = page.counters().complete.load(Ordering::Acquire) & ENDED != 0;
            let does = match page.rank_wait() {
                _ if has_ended => format!(
                    "has ended after {done} calls, the last is {}",
                    self.name(rank, at)
                ),
                Some((wait, call)) => format!(
                    "waits in call {call} for call {} of {}",
                    wait.call,
                    label(wait.rank)
                ),
                None => format!("is in {}", self.name(rank, at)),
            };
            let name = first.name.escape_debug();
            let others = match count {
                1 => String::new(),
                count => format!(" and {} more of these files", count - 1),
            };
            Some(format!(
                "{}, whose call {} registers {name}{others}, may write there: it {does}",
                label(rank),
                first.call
            ))
        });
        described.collect()
    }

    /// `call 7 (cuLaunchKernel)`.
    fn name(&self, rank: usize, index: u64) -> String {
        let trace = self.ranks.get(rank).map(|rank| rank.trace);
        let mut calls = trace.into_iter().flat_map(Trace::calls);
        match calls.find(|call| call.index == index) {
            Some(call) => format!("call {index} ({})", call.signature.name),
            None => format!("call {index}"),
        }
    }
}

/// The devices on which ranks have contexts, and between which they exchange memory.
fn devices_of(ranks: &[Rank<'_>], sharing: &Sharing) -> RankDevices {
    let mut all = RankDevices::default();
    let needs: Vec<Needs> = ranks.iter().map(|rank| needs(rank.trace)).collect();
    for (number, (rank, needs)) in ranks.iter().zip(&needs).enumerate() {
        let recorded = recorded_devices(rank.trace, 0);
        for (device, ordinal) in recorded.into_iter().zip(0..) {
            let mut wanted = rank.devices.iter();
            let wanted = wanted.find(|pair| i32::try_from(pair.0) == Ok(ordinal));
            let is_used = needs.context_devices.contains(&ordinal);
            if is_used && device.uuid.is_some() {
                all.used.push(RankDevice {
                    rank: number,
                    label: rank.label.clone(),
                    ordinal,
                    device,
                    wanted: wanted.map(|pair| pair.1),
                });
            }
        }
    }
    let device_of = |site: ExchangeSite| {
        let devices = &needs.get(site.process)?.sharing_devices;
        Some((site.process, *devices.get(&site.call)?))
    };
    for link in &sharing.links {
        if let (Some(user), Some(owner)) = (device_of(link.to), device_of(link.from)) {
            let exchange = DeviceExchange {
                user,
                call: link.to.call,
                owner,
            };
            // The first one of a pair says enough.
            let is_known = |known: &DeviceExchange| (known.user, known.owner) == (user, owner);
            if !all.exchanges.iter().any(is_known) {
                all.exchanges.push(exchange);
            }
        }
    }
    all
}

/// By rank: the first one whose clock reads the same counter, so that both ran on one machine.
fn machines(clocks: &[Option<ClockStart>]) -> Vec<usize> {
    let clock = |rank: usize| clocks.get(rank).and_then(Option::as_ref);
    let is_same = |rank, other| {
        let (Some(rank), Some(other)) = (clock(rank), clock(other)) else {
            return false;
        };
        rank.has_counter_of(other)
    };
    let first = |rank| {
        (0..rank)
            .find(|&other| is_same(rank, other))
            .unwrap_or(rank)
    };
    (0..clocks.len()).map(first).collect()
}

/// As the child reads them.
fn descriptors(socket: &OwnedFd, file: &OwnedFd, pages: &[Page]) -> String {
    let own = [socket.as_raw_fd(), file.as_raw_fd()];
    let all = own.into_iter().chain(pages.iter().map(Page::descriptor));
    let all: Vec<String> = all.map(|number| number.to_string()).collect();
    all.join(",")
}

/// The assignment in a file that the child inherits.
fn file_of(assignment: &Assignment) -> std::io::Result<OwnedFd> {
    let mut file = File::from(memory_file::create(c"cutape-rank")?);
    file.write_all(&serde_json::to_vec(assignment)?)?;
    Ok(file.into())
}
