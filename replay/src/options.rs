//! How to replay.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cutape_format::Call;
use cutape_sandbox::Permissions;

use crate::measure::timing::Measuring;
use crate::measure::tracer::Tracer;
use crate::process::lesson::Lesson;
use crate::process::strategy::PlacementStrategy;
use crate::ranks::origins::Alone;
use crate::ranks::peers::Peers;

/// Which calls are compared; all that come before the last of them are re-issued, since later ones
/// depend on them.
pub type Selection = Arc<dyn Fn(&Call<'_>) -> bool + Send + Sync>;

/// The call that loads an image, and what it loads at replay: a cubin, a fatbin or PTX.
pub type ReplacedImage = (u64, Arc<[u8]>);

/// Behind which launches device memory is digested, for replays to be compared with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestedLaunches {
    /// None.
    #[default]
    None,
    /// All; where the recorder has kept digests at launches, these.
    All,
    /// All, and before them too, each memory by itself.
    BeforeAndAfter,
    /// One, in pieces, and it is the last call.
    One(u64),
}

/// The copy from host memory, and the bytes that it copies at replay.
pub type GivenInput = (u64, Arc<[u8]>);

/// Which copies to host memory the user wants the bytes of, and who takes them.
#[derive(Clone)]
pub struct Outputs {
    /// By index of the call.
    pub calls: BTreeSet<u64>,
    /// Called with the call and the bytes when the copy is complete; the error says why they could
    /// not be taken.
    pub take: TakeOutput,
}

/// See [`Outputs::take`].
pub type TakeOutput = Arc<dyn Fn(u64, &[u8]) -> Result<(), String> + Send + Sync>;

/// How to replay.
#[derive(Clone)]
pub struct Options {
    /// The libcuda to use.
    pub driver: PathBuf,
    /// Stop before the call of that index.
    pub until: Option<u64>,
    /// Compare only these calls, and stop behind the last of them.
    pub calls: Option<Selection>,
    /// Go on after a divergence.
    pub keep_going: bool,
    /// Measure instead of comparing bytes; the calls in `calls` if there are such.
    pub timing: Measuring,
    /// Who else takes the times of calls and of their work.
    pub tracer: Option<Tracer>,
    /// Let calls of different threads overlap as they did in the recording, instead of in lockstep.
    pub threads: bool,
    /// Wait for each launch, so that the one whose work fails is known.
    pub sync_each: bool,
    /// Fill new memory with this byte.
    pub fill: Option<u8>,
    /// Which launches are digested.
    pub launches: DigestedLaunches,
    /// Images to load instead of the recorded ones.
    pub images: Vec<ReplacedImage>,
    /// Bytes that copies read instead of the recorded ones.
    pub inputs: Vec<GivenInput>,
    /// Copies whose bytes the user takes.
    pub outputs: Option<Outputs>,
    /// Re-issue what may crash the driver as well: calls that never returned in the recording, and
    /// uses of destroyed objects.
    pub reissue_fatal: bool,
    /// Go on although the machine does not fit.
    pub force: bool,
    /// How long one call may take before the guard ends the process.
    pub watchdog: Duration,
    /// How to put memory at its recorded address.
    pub placement: PlacementStrategy,
    /// Devices by ordinal, recorded and here; the others are matched by what they are.
    pub devices: Vec<(u32, u32)>,
    /// Give up at once if an address range is taken, or if the driver places memory elsewhere, so
    /// that a fresh process can try.
    pub refuse_conflicts: bool,
    /// For [`PlacementStrategy::Natural`]: what earlier attempts taught.
    pub lessons: Vec<Lesson>,
    /// Launches whose kernels an earlier replay has seen waiting for bytes of host memory.
    pub waiting_launches: Vec<u64>,
    /// The other ranks, if several are replayed together.
    pub peers: Option<Arc<Peers>>,
    /// What the trace shared with other ranks, if it is replayed without them.
    pub alone: Option<Arc<Alone>>,
    /// What a child may write; `None`: it is not restricted.
    pub sandbox: Option<Permissions>,
}

impl Options {
    /// Everything as recorded, on that driver.
    pub fn new(driver: PathBuf) -> Self {
        Self {
            driver,
            until: None,
            calls: None,
            keep_going: false,
            timing: Measuring::Nothing,
            tracer: None,
            threads: false,
            sync_each: false,
            fill: None,
            launches: DigestedLaunches::None,
            images: Vec::new(),
            inputs: Vec::new(),
            outputs: None,
            reissue_fatal: false,
            force: false,
            watchdog: Duration::from_secs(60),
            placement: PlacementStrategy::Granules,
            devices: Vec::new(),
            refuse_conflicts: false,
            lessons: Vec::new(),
            waiting_launches: Vec::new(),
            peers: None,
            alone: None,
            sandbox: None,
        }
    }
}

impl Options {
    /// Whether a call is compared, or measured.
    pub(crate) fn selects(&self, call: &Call<'_>) -> bool {
        self.calls.as_ref().is_none_or(|selected| selected(call))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("driver", &self.driver)
            .field("until", &self.until)
            .field("calls", &self.calls.is_some())
            .field("keep_going", &self.keep_going)
            .field("timing", &self.timing)
            .field("tracer", &self.tracer)
            .field("threads", &self.threads)
            .field("sync_each", &self.sync_each)
            .field("fill", &self.fill)
            .field("launches", &self.launches)
            .field("reissue_fatal", &self.reissue_fatal)
            .field("force", &self.force)
            .field("watchdog", &self.watchdog)
            .field("placement", &self.placement)
            .field("devices", &self.devices)
            .field("alone", &self.alone.is_some())
            .field("sandbox", &self.sandbox)
            .finish_non_exhaustive()
    }
}
