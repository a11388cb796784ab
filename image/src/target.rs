//! The GPU architecture that code was compiled for, and which devices take it.

/// What kind of code an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeKind {
    /// Machine code in an ELF file (a cubin).
    Elf,
    /// PTX text, compiled by the driver when it is loaded.
    Ptx,
    /// Intermediate code for link-time optimisation.
    LtoIr,
    /// A fatbin entry of an unnamed kind, with its number.
    Other(u16),
}

/// What follows the number of an architecture: `sm_90a`, `sm_100f`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Suffix {
    /// Plain: `sm_90`.
    #[default]
    None,
    /// Architecture-specific (`a`): this architecture only.
    Arch,
    /// Family-specific (`f`): this and later members of its family.
    Family,
}

/// A compute capability with its suffix; `sm_103a` is 10, 3, [`Suffix::Arch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// First part of the compute capability.
    pub major: u16,
    /// Second part, 0 to 9.
    pub minor: u16,
    /// What follows the number.
    pub suffix: Suffix,
}

impl Target {
    /// From the number in `sm_NN`: the last digit is the minor part.
    pub const fn from_number(number: u16, suffix: Suffix) -> Self {
        Target {
            major: number / 10,
            minor: number % 10,
            suffix,
        }
    }

    /// The number in `sm_NN`; saturates on values that no architecture has.
    pub const fn number(self) -> u16 {
        self.major.saturating_mul(10).saturating_add(self.minor)
    }

    /// Reads `sm_90a` or `compute_90a`.
    pub fn from_name(name: &str) -> Option<Self> {
        let digits = name
            .strip_prefix("sm_")
            .or_else(|| name.strip_prefix("compute_"))?;
        let (digits, suffix) = match digits.as_bytes().last()? {
            b'a' => (&digits[..digits.len() - 1], Suffix::Arch),
            b'f' => (&digits[..digits.len() - 1], Suffix::Family),
            _ => (digits, Suffix::None),
        };
        // `parse` alone would take a sign.
        if digits.is_empty() || digits.len() > 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        Some(Target::from_number(digits.parse().ok()?, suffix))
    }
}

impl core::fmt::Display for Target {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let suffix = match self.suffix {
            Suffix::None => "",
            Suffix::Arch => "a",
            Suffix::Family => "f",
        };
        write!(f, "sm_{}{suffix}", self.number())
    }
}

/// Integrated (Tegra) parts: the CUDA programming guide, "Binary Compatibility", defines none
/// with desktop parts.
const TEGRA: [(u16, u16); 5] = [(3, 2), (5, 3), (6, 2), (7, 2), (8, 7)];

/// Whether a device of compute capability `device` (major, minor) takes code of this kind and
/// target.
///
/// Machine code: same major part and a minor part that is not lower, never across the Tegra border
/// (CUDA programming guide, "Binary Compatibility"). PTX and LTO code: any device that is not older
/// ("PTX Compatibility"). With the suffix `a`, exactly that architecture; with `f`, the same major
/// part and a minor part that is not lower (as `ptxas --help` describes families; that every member
/// of one major part from 10.0 on is one family is assumed). Code of an unknown kind runs nowhere.
pub fn runs_on(target: Target, code: CodeKind, device: (u16, u16)) -> bool {
    let own = (target.major, target.minor);
    let same_major = target.major == device.0 && target.minor <= device.1;
    match (code, target.suffix) {
        (CodeKind::Other(_), _) => false,
        (_, Suffix::Arch) => own == device,
        (_, Suffix::Family) => same_major,
        (CodeKind::Elf, Suffix::None) => {
            same_major && (own == device || !(TEGRA.contains(&own) || TEGRA.contains(&device)))
        }
        (CodeKind::Ptx | CodeKind::LtoIr, Suffix::None) => own <= device,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_and_print() {
        for (name, major, minor, suffix) in [
            ("sm_50", 5, 0, Suffix::None),
            ("sm_90a", 9, 0, Suffix::Arch),
            ("sm_103f", 10, 3, Suffix::Family),
            ("sm_121", 12, 1, Suffix::None),
        ] {
            let target = Target {
                major,
                minor,
                suffix,
            };
            assert_eq!(Target::from_name(name), Some(target));
            assert_eq!(target.to_string(), name);
        }
        for bad in ["", "sm_", "sm_a", "sm_+9", "sm_99999", "gfx90", "sm_9é"] {
            assert_eq!(Target::from_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn who_takes_what() {
        use CodeKind::{Elf, Ptx};
        for (name, code, device, takes) in [
            ("sm_90", Elf, (9, 0), true),
            ("sm_80", Elf, (8, 6), true),
            ("sm_86", Elf, (8, 0), false),
            ("sm_80", Elf, (9, 0), false),
            ("sm_86", Elf, (8, 7), false),
            ("sm_87", Elf, (8, 7), true),
            ("sm_90a", Elf, (9, 0), true),
            ("sm_100a", Elf, (10, 3), false),
            ("sm_100f", Elf, (10, 3), true),
            ("sm_103f", Elf, (10, 0), false),
            ("sm_100f", Elf, (12, 0), false),
            ("sm_75", Ptx, (9, 0), true),
            ("sm_90", Ptx, (8, 9), false),
            ("sm_90a", Ptx, (10, 0), false),
            ("sm_100f", Ptx, (10, 3), true),
            ("sm_100f", Ptx, (12, 0), false),
        ] {
            let target = Target::from_name(name).unwrap();
            assert_eq!(
                runs_on(target, code, device),
                takes,
                "{name} {code:?} on {device:?}"
            );
        }
        assert!(!runs_on(
            Target::from_number(90, Suffix::None),
            CodeKind::Other(4),
            (9, 0)
        ));
    }
}
