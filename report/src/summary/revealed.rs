//! What a trace reveals to whoever gets it: contents, environment, paths, sources.

use std::collections::BTreeSet;

use cutape_export::rows::CallRow;
use cutape_format::layout::field;
use cutape_format::{
    Bytes, Call, CallPart, Note, REDACT, REDACTED, Snapshot, StackFrame, Trace, is_payload,
};
use cutape_image::ImageKind;
use serde::Serialize;

use super::facts::text;

/// What a trace reveals.
#[derive(Debug, Default, Serialize)]
pub struct Revealed {
    /// Payloads whose bytes the trace has: what was copied to devices and back, and changes of host
    /// memory.
    pub payloads: u64,
    /// Bytes of these; equal payloads count as often as they were copied.
    pub payload_bytes: u64,
    /// Payloads of which it has a hash.
    pub hashed_payloads: u64,
    /// Launches and nodes of graphs whose parameters it has.
    pub kernel_parameters: u64,
    /// Names of variables of the environment.
    pub environment: Vec<String>,
    /// Words of the command line.
    pub arguments: u64,
    /// Distinct paths: of the program, libraries and source files.
    pub paths: u64,
    /// Names of users in these.
    pub users: Vec<String>,
    /// Images whose bytes it has.
    pub images: u64,
    /// Images that are, or hold, PTX: the code as text.
    pub images_with_ptx: u64,
    /// Images that name source files, as far as they are not compressed.
    pub images_with_sources: u64,
    /// What was removed by `redact` or `record --redact`.
    pub redacted: Option<String>,
    /// What is to be removed when the trace is packed.
    pub to_be_redacted: Option<String>,
}

/// Where users' folders are.
const HOMES: [&str; 3] = ["/home/", "/Users/", "/var/home/"];

/// Sections of debug information, and the directive of PTX that names a source file.
const SOURCE_MARKS: [&[u8]; 3] = [b".debug_line", b".nv_debug", b".file\t"];

impl Revealed {
    /// What is outside of the calls.
    pub(super) fn of(trace: &Trace) -> Self {
        let mut revealed = Self {
            redacted: text(trace, REDACTED),
            to_be_redacted: text(trace, REDACT),
            ..Self::default()
        };
        let mut paths: BTreeSet<String> = BTreeSet::new();
        for (key, value) in trace.meta() {
            match key.as_str() {
                "program" | "directory" | "driver.path" => _ = paths.insert(value.clone()),
                key if key.starts_with("argument.") => revealed.arguments += 1,
                key => {
                    let name = key.strip_prefix("environment.").map(str::to_owned);
                    revealed.environment.extend(name);
                }
            }
        }
        paths.extend(trace.mappings().iter().map(|mapping| mapping.path.clone()));
        for id in trace.stack_ids() {
            for frame in trace.stack(id).unwrap_or_default().frames {
                match frame {
                    StackFrame::Native(address) => {
                        let frames = trace.source_of(address).map(|source| &source.frames);
                        paths.extend(frames.into_iter().flatten().map(|it| it.file.clone()));
                    }
                    StackFrame::Python { code, .. } => {
                        paths.extend(trace.python_code(code).map(|code| code.file));
                    }
                }
            }
        }
        paths.retain(|path| path.contains('/'));
        let user = |path: &String| {
            let mut rest = HOMES.iter().filter_map(|home| path.strip_prefix(home));
            let name = rest.next()?.split('/').next()?;
            (!name.is_empty()).then(|| name.to_owned())
        };
        let users: BTreeSet<String> = paths.iter().filter_map(user).collect();
        revealed.users = users.into_iter().collect();
        revealed.paths = paths.len() as u64;
        revealed
    }

    /// Whether calls of a function may have payloads or parameters of kernels: others need not be
    /// looked at.
    pub(super) fn concerns(row: &CallRow<'_>) -> bool {
        let signature = row.record.signature;
        let mut parameters = signature.parameters.iter();
        signature.class == "override"
            || parameters.any(|parameter| parameter.role.starts_with("host "))
    }

    pub(super) fn add(&mut self, call: &Call<'_>) {
        let leave = call.leave.iter().flat_map(|leave| leave.snapshots());
        let after = leave.map(|snapshot| (CallPart::Leave, snapshot));
        let before = call.snapshots().map(|snapshot| (CallPart::Enter, snapshot));
        for (part, snapshot) in before.chain(after) {
            let (parameter, number) = (snapshot.parameter, snapshot.field);
            if number == field::KERNEL_PARAMETERS {
                let bytes = snapshot.bytes.inline().unwrap_or(&[]);
                self.kernel_parameters += u64::from(bytes.iter().any(|&byte| byte != 0));
            } else if is_payload(Some(call.signature), part, parameter, number) {
                self.add_payload(&snapshot);
            }
        }
    }

    pub(super) fn add_note(&mut self, note: &Note<'_>) {
        match note {
            Note::Readback(_, snapshot)
            | Note::HostChanged(_, snapshot)
            | Note::HostSeen(_, snapshot)
            | Note::ExchangeOutput(_, snapshot)
            | Note::Memory(_, _, Some(snapshot)) => self.add_payload(snapshot),
            _ => {}
        }
    }

    fn add_payload(&mut self, snapshot: &Snapshot<'_>) {
        match snapshot.bytes {
            Bytes::Inline(&[]) | Bytes::Omitted(_) | Bytes::Unreadable => {}
            Bytes::Hashed(..) => self.hashed_payloads += 1,
            bytes => {
                self.payloads += 1;
                self.payload_bytes += bytes.length().unwrap_or(0);
            }
        }
    }

    /// An image that the trace has.
    pub(super) fn add_image(&mut self, kind: ImageKind, targets: &[String], content: &[u8]) {
        self.images += 1;
        let has_ptx = targets.iter().any(|target| target.starts_with("PTX"));
        self.images_with_ptx += u64::from(kind == ImageKind::Ptx || has_ptx);
        let names_sources = SOURCE_MARKS
            .iter()
            .any(|mark| content.windows(mark.len()).any(|bytes| bytes == *mark));
        self.images_with_sources += u64::from(names_sources);
    }
}
