//! The environment variables that configure the null driver.

/// Declares [`NullSetting`] from the variables and what each is about.
macro_rules! settings {
    ($($(#[$doc:meta])* $setting:ident $name:literal $about:ident;)*) => {
        /// A variable of the null driver. `nulldriver/src/settings.rs` has the grammar of its value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum NullSetting {
            $($(#[$doc])* $setting,)*
        }

        impl NullSetting {
            /// Every variable.
            pub const ALL: &[Self] = &[$(Self::$setting),*];

            /// The name of the variable.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$setting => concat!("CUTAPE_NULL_", $name),)*
                }
            }

            const fn about(self) -> About {
                match self {
                    $(Self::$setting => About::$about,)*
                }
            }
        }
    };
}

/// What a variable is about.
#[derive(PartialEq, Eq)]
enum About {
    /// The machine that is simulated.
    Machine,
    /// One run on it.
    Run,
}

settings! {
    /// Compute capability of each device.
    Capability "CAPABILITY" Machine;
    /// Calls that fault.
    Crash "CRASH" Run;
    /// Calls that take longer.
    Delay "DELAY" Run;
    /// The number of devices.
    Devices "DEVICES" Machine;
    /// Calls that fail.
    Fail "FAIL" Run;
    /// Whether the driver's error log goes to stderr.
    Log "LOG" Run;
    /// Bytes of each device.
    Memory "MEMORY" Machine;
    /// Kernels whose launches differ each time.
    Nondeterministic "NONDETERMINISTIC" Run;
    /// The pairs of devices that can access each other's memory.
    Peers "PEERS" Machine;
    /// The trace whose recorded answers the process gets.
    Play "PLAY" Run;
    /// Calls that may be others than the recorded ones, a line each.
    PlayAllow "PLAY_ALLOW" Run;
    /// What follows a call that is not the recorded one.
    PlayMismatch "PLAY_MISMATCH" Run;
    /// The file that says how far the process has come.
    PlayOutcome "PLAY_OUTCOME" Run;
    /// The process that started the program that is played.
    PlayParent "PLAY_PARENT" Run;
    /// A file with bytes of kernel parameters that are not compared.
    PlayUnset "PLAY_UNSET" Run;
    /// Whether such bytes are learned.
    PlayLearn "PLAY_LEARN" Run;
    /// When enqueued work runs.
    Schedule "SCHEDULE" Run;
    /// The version of the driver.
    Version "VERSION" Machine;
}

impl NullSetting {
    /// True if it says which machine the null driver simulates: then a replay needs it as well.
    pub fn describes_machine(self) -> bool {
        self.about() == About::Machine
    }
}
