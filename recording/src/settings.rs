//! What the interposer is told, in environment variables.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cutape_format::Secrets;
use cutape_registry::{MemoryContents, RecorderSetting, Stacks, Switch};

use crate::backend::SelectedBackend;
use crate::library_folder::LibraryFolder;
use crate::options::Recording;

/// What a recording consists of.
pub(crate) struct Settings<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) backend: &'a SelectedBackend,
    pub(crate) folder: &'a LibraryFolder,
    pub(crate) trace: &'a Path,
    pub(crate) driver: &'a Path,
}

impl Settings<'_> {
    /// The value of a variable; `None` if it stays as it is.
    pub(crate) fn value(&self, setting: RecorderSetting) -> Option<OsString> {
        let recording = self.recording;
        let switch = |is_given: bool, value: Switch| is_given.then(|| value.word().into());
        match setting {
            RecorderSetting::Trace => Some(self.trace.into()),
            RecorderSetting::Driver => Some(self.driver.into()),
            RecorderSetting::Backend => Some(self.backend.backend.word().into()),
            RecorderSetting::AuditLeadsTo => {
                let path = self.backend.audit_leads_to(self.folder);
                path.map(PathBuf::into_os_string)
            }
            RecorderSetting::NotRecorded => Some(self.folder.not_recorded().into()),
            RecorderSetting::Payloads => Some(recording.payloads.word().into()),
            RecorderSetting::Outputs => Some(recording.outputs.word().into()),
            RecorderSetting::CheckSources => switch(recording.check_sources, Switch::On),
            RecorderSetting::HostMemory => Some(recording.host_memory.word().into()),
            RecorderSetting::Cassette => switch(recording.cassette, Switch::On),
            RecorderSetting::Stacks => {
                let stacks = recording.stacks.unwrap_or(Stacks::Off);
                Some(stacks.word().into())
            }
            RecorderSetting::Digests => recording.digests.map(|when| when.word().into()),
            RecorderSetting::OutputsOfExchanges => {
                let bytes = recording.outputs_of_exchanges;
                bytes.map(|bytes| bytes.to_string().into())
            }
            RecorderSetting::Breadcrumbs => {
                let every = recording.breadcrumbs;
                every.map(|every| every.to_string().into())
            }
            RecorderSetting::Memory => {
                let memory = recording.memory;
                (memory != MemoryContents::None).then(|| memory.word().into())
            }
            RecorderSetting::MemoryInterval => recording.memory_interval.map(|interval| {
                let (time, bytes) = interval;
                format!("{},{bytes}", time.as_millis()).into()
            }),
            RecorderSetting::Deep => recording.deep.map(|every| every.to_string().into()),
            RecorderSetting::MaxSize => recording.max_size.map(|bytes| bytes.to_string().into()),
            RecorderSetting::WhenFull => Some(recording.when_full.word().into()),
            RecorderSetting::DriverLog => switch(recording.no_driver_log, Switch::Off),
            RecorderSetting::Redact => {
                let secrets: Secrets = recording.redact.iter().copied().collect();
                (!secrets.is_empty()).then(|| secrets.words().into())
            }
            RecorderSetting::Cost => switch(recording.measures_cost, Switch::On),
            RecorderSetting::StartAt => recording.start_at.clone().map(OsString::from),
            RecorderSetting::RecordFor => recording.length.clone().map(OsString::from),
            RecorderSetting::StartPaused => {
                let is_paused = recording.start_paused || recording.start_signal.is_some();
                switch(is_paused, Switch::On)
            }
        }
    }
}
