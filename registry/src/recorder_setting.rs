//! The environment variables through which `record` tells the interposer what to do, and the words
//! that they can have.

use core::ffi::CStr;

/// Declares [`RecorderSetting`] from the variables.
macro_rules! settings {
    ($($(#[$doc:meta])* $setting:ident $name:literal;)*) => {
        /// A variable of the interposer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RecorderSetting {
            $($(#[$doc])* $setting,)*
        }

        impl RecorderSetting {
            /// Every variable.
            pub const ALL: &[Self] = &[$(Self::$setting),*];

            /// The name of the variable.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$setting => concat!("CUTAPE_", $name),)*
                }
            }

            /// Its name, as `getenv` takes it.
            pub const fn c_name(self) -> &'static CStr {
                let name = match self {
                    $(Self::$setting => concat!("CUTAPE_", $name, "\0"),)*
                };
                match CStr::from_bytes_with_nul(name.as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            }
        }
    };
}

settings! {
    /// The file to write. Without it, nothing is recorded.
    Trace "TRACE";
    /// The real library.
    Driver "DRIVER";
    /// How calls reach the interposer: a [`Backend`].
    Backend "BACKEND";
    /// The interposer's path, for the auditing library.
    AuditLeadsTo "AUDIT_LEADS_TO";
    /// The name of a link that the interposer makes if it cannot create a trace. It leads to the
    /// reason.
    NotRecorded "NOT_RECORDED";
    /// What is kept of the bytes that go to devices: a `PayloadPolicy` of the format.
    Payloads "PAYLOADS";
    /// The same of the bytes that come back.
    Outputs "OUTPUTS";
    /// Whether the sources of asynchronous copies are read again when the copies are complete: a
    /// [`Switch`]; without it, no.
    CheckSources "CHECK_SOURCES";
    /// What is recorded of host memory that the device reads: a [`HostMemory`].
    HostMemory "HOST_MEMORY";
    /// Whether what a program sees in host memory is recorded for `play`: a [`Switch`]; without it, no.
    Cassette "CASSETTE";
    /// Which calls have call stacks: a [`Stacks`].
    Stacks "STACKS";
    /// When device memory is digested: a [`Digests`]; without it, never.
    Digests "DIGESTS";
    /// Bytes of memory for copies of what exchanges with other processes change. Without it, none
    /// are made.
    OutputsOfExchanges "OUTPUTS_OF_EXCHANGES";
    /// After how many launches a stream writes a breadcrumb. Without it, there are none.
    Breadcrumbs "BREADCRUMBS";
    /// Which device memory is recorded where a part of a recording begins: a [`MemoryContents`];
    /// without it, none.
    Memory "MEMORY";
    /// After how many milliseconds, and after how many bytes of the trace, memory is recorded again:
    /// two numbers with a comma between them, 0 for never. Without it, never.
    MemoryInterval "MEMORY_INTERVAL";
    /// Of one launch in so many, its inputs and digests of its outputs are recorded. Without it, of
    /// none.
    Deep "DEEP";
    /// The most bytes of the trace; without it, as many as there is room for.
    MaxSize "MAX_SIZE";
    /// What is left out when the trace is nearly as long: a [`WhenFull`].
    WhenFull "WHEN_FULL";
    /// Whether the driver's error log is recorded: a [`Switch`]; without it, yes.
    DriverLog "DRIVER_LOG";
    /// What the trace is redacted of when it is packed, as words of the format's `Secret` with commas
    /// between them. The environment and paths are not written in the first place.
    Redact "REDACT";
    /// Whether the cost of recording is measured: set if it is.
    Cost "COST";
    /// Whether recording begins with a pause: a [`Switch`]; without it, no.
    StartPaused "START_PAUSED";
    /// When recording starts: a [`StartCondition`](crate::StartCondition); without it, at once.
    StartAt "START_AT";
    /// How much is recorded from there on: a [`RecordedLength`](crate::RecordedLength); without it,
    /// all.
    RecordFor "RECORD_FOR";
}

impl RecorderSetting {
    /// Whether an entry `NAME=VALUE` of an environment sets this variable.
    pub fn is_set_by(self, entry: &[u8]) -> bool {
        let rest = entry.strip_prefix(self.name().as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"="))
    }
}

/// Declares an enum whose values have words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$value_doc])* $value,)*
        }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$value),*];

            /// Its word in options, in the environment and in the trace.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }

            /// The value of a word.
            pub fn from_word(word: &[u8]) -> Option<Self> {
                let mut all = Self::ALL.iter().copied();
                all.find(|value| value.word().as_bytes() == word)
            }
        }
    };
}

words! {
    /// Whether something is done.
    Switch {
        /// It is.
        On "on",
        /// It is not.
        Off "off",
    }
}

words! {
    /// How calls reach the interposer.
    Backend {
        /// An auditing library redirects searches for libcuda to it.
        Audit "audit",
        /// By name: the loader finds it in the place of libcuda.
        Preload "preload",
        /// The functions of the driver are patched to jump to it.
        Gum "gum",
    }
}

words! {
    /// Which host memory that the device reads without a copy is recorded.
    HostMemory {
        /// None.
        Off "off",
        /// What arguments and kernel parameters point into.
        Reachable "reachable",
        /// All of it, at every launch.
        All "all",
    }
}

words! {
    /// Which calls have a call stack.
    Stacks {
        /// None.
        Off "off",
        /// Those that create or end something, wait, or fail.
        Some "some",
        /// All.
        All "all",
    }
}

words! {
    /// What is left out when a trace has a limit and is nearly as long.
    WhenFull {
        /// Payloads, later those that come back as well, then calls.
        DropPayloads "drop-payloads",
        /// The longest payloads, then shorter ones, then calls.
        DropLargest "drop-largest",
        /// Everything, at the limit.
        Stop "stop",
    }
}

words! {
    /// Which device memory is recorded where a part of a recording begins.
    MemoryContents {
        /// None.
        None "none",
        /// All that the process has allocated.
        All "all",
    }
}

words! {
    /// When device memory is digested.
    Digests {
        /// All memory, when a context or the process ends.
        End "end",
        /// Also when the program has waited for work.
        Sync "sync",
        /// What a launch can reach, after each launch; all memory at the end.
        Launch "launch",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_entries() {
        for &setting in RecorderSetting::ALL {
            assert_eq!(setting.c_name().to_str(), Ok(setting.name()));
        }
        for (entry, sets) in [
            ("CUTAPE_OUTPUTS=all", true),
            ("CUTAPE_OUTPUTS=", true),
            ("CUTAPE_OUTPUTS", false),
            ("CUTAPE_OUTPUTS_OF_EXCHANGES=4096", false),
            ("", false),
        ] {
            let found = RecorderSetting::Outputs.is_set_by(entry.as_bytes());
            assert_eq!(found, sets, "{entry}");
        }
    }

    #[test]
    fn values_have_words() {
        for &value in Stacks::ALL {
            assert_eq!(Stacks::from_word(value.word().as_bytes()), Some(value));
        }
        assert_eq!(Stacks::from_word(b"SOME"), None);
    }
}
