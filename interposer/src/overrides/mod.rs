//! What the registry's roles cannot say: one file a family, of the same name as its replaying half.

mod batch;
pub(crate) mod copy;
mod entry_point;
mod graph;
mod image;
mod jit_options;
pub(crate) mod launch;
mod lifetime;
mod link;
mod origin;
mod scatter;

use cutape_format::write::Record;

use crate::call::Frame;
use crate::plan::Plan;
use crate::thread::Thread;
use crate::{host_memory, pending};

/// Which family a function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handling {
    Generic,
    Initialize,
    /// An image in memory; where the image is, where the options are.
    ImageData {
        image: u8,
        options: Option<jit_options::Places>,
        library_options: Option<(u8, u8)>,
    },
    /// An image in a file.
    ImageFile {
        name: u8,
        options: Option<jit_options::Places>,
        library_options: Option<(u8, u8)>,
    },
    LinkCreate,
    LinkAddData,
    LinkAddFile,
    LinkComplete,
    LinkDestroy,
    Launch {
        has_extra: bool,
    },
    LaunchEx,
    LaunchMultiDevice,
    FindFunction {
        output: u8,
        owner: u8,
        is_kernel: bool,
    },
    FindFunctions {
        output: u8,
        count: u8,
        owner: u8,
        is_kernel: bool,
    },
    EndOwner,
    EndContext,
    EndPrimary,
    EventRecord,
    StructCopy(copy::Shape),
    UnifiedCopy,
    BatchCopy(batch::Shape),
    /// Questions about a launch configuration.
    Clusters,
    Scatter(scatter::Query),
    ProcAddress,
    /// Host memory that the device can read.
    HostMemory(host_memory::Step),
    Graph(graph::Step),
}

impl Handling {
    /// The family of a documented function.
    pub(crate) fn of(base: &str) -> Self {
        use jit_options::Places;
        let options = |count, numbers, values| {
            Some(Places {
                count,
                numbers,
                values,
            })
        };
        match base {
            "cuInit" => Self::Initialize,
            "cuModuleLoadData" | "cuModuleLoadFatBinary" => Self::ImageData {
                image: 1,
                options: None,
                library_options: None,
            },
            "cuModuleLoadDataEx" => Self::ImageData {
                image: 1,
                options: options(2, 3, 4),
                library_options: None,
            },
            "cuModuleLoad" => Self::ImageFile {
                name: 1,
                options: None,
                library_options: None,
            },
            "cuLibraryLoadData" => Self::ImageData {
                image: 1,
                options: options(4, 2, 3),
                library_options: Some((7, 5)),
            },
            "cuLibraryLoadFromFile" => Self::ImageFile {
                name: 1,
                options: options(4, 2, 3),
                library_options: Some((7, 5)),
            },
            "cuLinkCreate" => Self::LinkCreate,
            "cuLinkAddData" => Self::LinkAddData,
            "cuLinkAddFile" => Self::LinkAddFile,
            "cuLinkComplete" => Self::LinkComplete,
            "cuLinkDestroy" => Self::LinkDestroy,
            "cuLaunchKernel" => Self::Launch { has_extra: true },
            "cuLaunchCooperativeKernel" => Self::Launch { has_extra: false },
            "cuLaunchKernelEx" => Self::LaunchEx,
            "cuLaunchCooperativeKernelMultiDevice" => Self::LaunchMultiDevice,
            "cuModuleGetFunction" => Self::FindFunction {
                output: 0,
                owner: 1,
                is_kernel: false,
            },
            "cuLibraryGetKernel" => Self::FindFunction {
                output: 0,
                owner: 1,
                is_kernel: true,
            },
            "cuKernelGetFunction" => Self::FindFunction {
                output: 0,
                owner: 1,
                is_kernel: false,
            },
            "cuModuleEnumerateFunctions" => Self::FindFunctions {
                output: 0,
                count: 1,
                owner: 2,
                is_kernel: false,
            },
            "cuLibraryEnumerateKernels" => Self::FindFunctions {
                output: 0,
                count: 1,
                owner: 2,
                is_kernel: true,
            },
            "cuModuleUnload" | "cuLibraryUnload" => Self::EndOwner,
            "cuCtxDestroy" => Self::EndContext,
            "cuDevicePrimaryCtxReset" | "cuDevicePrimaryCtxRelease" => Self::EndPrimary,
            "cuEventRecord" | "cuEventRecordWithFlags" => Self::EventRecord,
            "cuMemcpy2D" | "cuMemcpy2DUnaligned" | "cuMemcpy2DAsync" => {
                Self::StructCopy(copy::Shape::Plane)
            }
            "cuMemcpy3D" | "cuMemcpy3DAsync" => Self::StructCopy(copy::Shape::Volume),
            "cuMemcpy3DPeer" | "cuMemcpy3DPeerAsync" => Self::StructCopy(copy::Shape::PeerVolume),
            "cuMemcpy" | "cuMemcpyAsync" => Self::UnifiedCopy,
            "cuMemcpyBatchAsync" => Self::BatchCopy(batch::Shape::Lines),
            "cuMemcpy3DBatchAsync" => Self::BatchCopy(batch::Shape::Boxes),
            "cuPointerGetAttributes" => Self::Scatter(scatter::Query::Pointer),
            "cuMemRangeGetAttributes" => Self::Scatter(scatter::Query::Range),
            "cuOccupancyMaxActiveClusters" | "cuOccupancyMaxPotentialClusterSize" => Self::Clusters,
            "cuGetProcAddress" => Self::ProcAddress,
            _ => host_memory::Step::of(base)
                .map(Self::HostMemory)
                .or_else(|| graph::Step::of(base).map(Self::Graph))
                .unwrap_or(Self::Generic),
        }
    }
}

impl Handling {
    /// Whether `before` puts nothing into the enter record of the family.
    pub(crate) fn puts_nothing_before(self) -> bool {
        matches!(
            self,
            Self::Generic | Self::EventRecord | Self::Launch { .. } | Self::LaunchEx
        )
    }

    /// Whether `entered` does nothing for the family, unless operands are to be looked at.
    pub(crate) fn does_nothing_when_entered(self) -> bool {
        matches!(self, Self::Generic | Self::EventRecord)
    }

    /// Whether `leaving`, `after` and `left` do nothing for the family, unless roles say so.
    pub(crate) fn does_nothing_after(self) -> bool {
        matches!(
            self,
            Self::Generic | Self::Launch { .. } | Self::LaunchEx | Self::LaunchMultiDevice
        )
    }

    /// Whether recording a call of the family makes system calls or allocates; what launches do in their first call, and
    /// events where copies are waited for, keeps itself apart.
    pub(crate) fn disturbs(self) -> bool {
        !matches!(
            self,
            Self::Generic | Self::Launch { .. } | Self::LaunchEx | Self::EventRecord
        )
    }
}

/// In a forked child: what other threads were holding is not held here.
pub(crate) fn forget() {
    link::forget();
    crate::graph_copies::forget();
}

/// Whether a family looks behind a parameter itself, so that the registry's roles must not.
pub(crate) fn owns(frame: &Frame, parameter: usize) -> bool {
    let handling = crate::plan::of(frame.function.into()).handling;
    let parameter = parameter as u8;
    let in_options = |options: Option<jit_options::Places>| {
        options.is_some_and(|places| parameter == places.numbers || parameter == places.values)
    };
    match handling {
        Handling::ImageData {
            image,
            options,
            library_options,
        } => {
            parameter == image
                || in_options(options)
                || library_options.is_some_and(|(_, at)| parameter == at || parameter == at + 1)
        }
        Handling::ImageFile {
            options,
            library_options,
            ..
        } => {
            in_options(options)
                || library_options.is_some_and(|(_, at)| parameter == at || parameter == at + 1)
        }
        Handling::LinkCreate => in_options(Some(link::CREATE)),
        Handling::LinkAddData => parameter == link::DATA || in_options(Some(link::ADD_DATA)),
        Handling::LinkAddFile => in_options(Some(link::ADD_FILE)),
        Handling::LaunchEx => usize::from(parameter) == launch::CONFIG,
        Handling::ProcAddress => parameter == 1,
        Handling::Graph(step) => graph::owns(step, parameter),
        _ => false,
    }
}

/// Puts what the family looks at before the call.
pub(crate) fn before(record: &mut Record<'_>, frame: &Frame, plan: &Plan) -> Option<()> {
    match plan.handling {
        Handling::ImageData {
            image,
            options,
            library_options,
        } => {
            image::data(record, frame, image)?;
            image::options(record, frame, options, library_options)
        }
        Handling::ImageFile {
            name,
            options,
            library_options,
        } => {
            image::file(record, frame, name)?;
            image::options(record, frame, options, library_options)
        }
        Handling::LinkCreate => jit_options::before(record, frame, link::CREATE),
        Handling::LinkAddData => link::before_add_data(record, frame),
        Handling::LinkAddFile => link::before_add_file(record, frame),
        Handling::LinkComplete | Handling::LinkDestroy => link::before_end(record, frame),
        Handling::StructCopy(shape) => copy::before(record, frame, shape),
        Handling::UnifiedCopy => copy::before_unified(record, frame),
        Handling::Graph(graph::Step::Launch) => graph::launching(record, frame),
        Handling::BatchCopy(shape) => batch::before(record, frame, shape),
        Handling::Clusters => launch::before_clusters(record, frame),
        _ => Some(()),
    }
}

/// Runs between the enter record and the driver.
pub(crate) fn entered(state: &Thread, frame: &mut Frame, plan: &Plan) {
    match plan.handling {
        // Unless it was captured directly.
        Handling::Launch { has_extra } => {
            origin::about_to_use(state, frame.words[0]);
            launch::note_layout(state, frame.words[0]);
            let mut reaches = false;
            launch::note(state, |record| {
                launch::snapshots(record, frame, has_extra, &mut reaches)
            });
            if reaches && host_memory::any() {
                launch::look_at_host_memory(state, frame, has_extra);
            }
        }
        Handling::LaunchEx => {
            origin::about_to_use(state, frame.words[1]);
            launch::note_layout(state, frame.words[1]);
            let mut reaches = false;
            launch::note(state, |record| {
                launch::captures_ex(record, frame, &mut reaches)
            });
            if reaches && host_memory::any() {
                launch::look_at_host_memory_ex(state, frame);
            }
        }
        Handling::LaunchMultiDevice => {
            launch::note_layouts(state, frame);
            launch::note(state, |record| launch::captures_multi_device(record, frame));
            if host_memory::any() {
                launch::look_at_host_memory_multi_device(state, frame);
            }
        }
        Handling::EndOwner => lifetime::ending(frame),
        // What its kernels reach is not followed: a node's parameters may be changed in many ways.
        Handling::Graph(graph::Step::Launch) if host_memory::any() => {
            host_memory::before_launch(state, frame, frame.words[1], None);
        }
        Handling::Graph(step) => graph::entered(state, frame, step),
        Handling::HostMemory(step) => host_memory::entered(frame, step),
        Handling::EndContext => host_memory::context_ending(frame.words[0]),
        Handling::ImageData {
            options: Some(places),
            ..
        }
        | Handling::ImageFile {
            options: Some(places),
            ..
        } => jit_options::keep(frame, places),
        Handling::LinkCreate => jit_options::keep(frame, link::CREATE),
        Handling::LinkAddData => jit_options::keep(frame, link::ADD_DATA),
        Handling::LinkAddFile => jit_options::keep(frame, link::ADD_FILE),
        _ => {}
    }
    if plan.operands != 0 && host_memory::any() {
        host_memory::before_operands(state, frame);
    }
}

/// Runs after the driver and before the leave record.
pub(crate) fn leaving(state: &Thread, frame: &mut Frame, plan: &Plan) {
    if frame.result as i32 != 0 {
        return;
    }
    match plan.handling {
        Handling::Initialize => crate::identity::write_devices(),
        Handling::EventRecord => pending::event_recorded(state, frame),
        Handling::Graph(step) => graph::leaving(state, frame, step),
        Handling::StructCopy(shape) => copy::enqueued(state, frame, shape),
        Handling::UnifiedCopy => copy::enqueued_unified(state, frame),
        Handling::BatchCopy(shape) => batch::enqueued(state, frame, shape),
        Handling::ImageData { .. } | Handling::ImageFile { .. } => crate::maps::write_if_changed(),
        Handling::ProcAddress => entry_point::note_unknown(state, frame),
        _ if plan.writes_later => pending::enqueued_by_roles(state, frame),
        Handling::Generic | Handling::Clusters => {
            if let Some(at) = plan.function {
                origin::used(state, frame.words[usize::from(at)]);
            }
        }
        _ => {}
    }
}

/// Puts what the family looks at after the call, whatever its result.
pub(crate) fn after(record: &mut Record<'_>, frame: &Frame, plan: &Plan) -> Option<()> {
    match plan.handling {
        Handling::ImageData {
            options: Some(places),
            ..
        }
        | Handling::ImageFile {
            options: Some(places),
            ..
        } => jit_options::after(record, frame, places),
        Handling::LinkCreate => jit_options::after(record, frame, link::CREATE),
        Handling::LinkAddData => link::after_add(record, frame, link::ADD_DATA),
        Handling::LinkAddFile => link::after_add(record, frame, link::ADD_FILE),
        Handling::LinkComplete => link::after_complete(record, frame),
        Handling::StructCopy(shape) => copy::after(record, frame, shape),
        Handling::UnifiedCopy => copy::after_unified(record, frame),
        Handling::Scatter(query) => scatter::after(record, frame, query),
        Handling::ProcAddress => entry_point::after(record, frame),
        Handling::Graph(step) => graph::after(record, frame, step),
        _ => Some(()),
    }
}

/// Runs when the leave record is written, just before the program goes on.
pub(crate) fn left(frame: &mut Frame, plan: &Plan) {
    match plan.handling {
        Handling::FindFunction {
            output,
            owner,
            is_kernel,
        } => {
            lifetime::found(frame, output, owner, is_kernel);
        }
        Handling::FindFunctions {
            output,
            count,
            owner,
            is_kernel,
        } => {
            lifetime::found_many(frame, output, count, owner, is_kernel);
        }
        Handling::HostMemory(step) => host_memory::left(frame, plan, step),
        Handling::EndContext => lifetime::context_ended(frame),
        Handling::EndPrimary => lifetime::primary_ended(frame),
        Handling::EndOwner => lifetime::not_ended(frame),
        Handling::LinkCreate => link::created(frame),
        Handling::LinkDestroy => link::destroyed(frame),
        Handling::ProcAddress => entry_point::replace(frame),
        _ => {}
    }
}
