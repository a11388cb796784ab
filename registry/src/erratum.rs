//! Published defects of NVIDIA's driver: which versions have them.

/// A version of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverVersion {
    /// As cuDriverGetVersion has it: 13000 is CUDA 13.0.
    pub cuda: u32,
    /// The release, such as 580.159.04, if the name of the library tells it.
    pub release: Option<[u16; 3]>,
}

impl DriverVersion {
    /// Of a driver whose library has that path: `libcuda.so.580.159.04`.
    pub fn of(cuda: u32, library: &str) -> Self {
        Self {
            cuda,
            release: release_of(library),
        }
    }
}

/// The release in the name of a library.
fn release_of(library: &str) -> Option<[u16; 3]> {
    let (_, text) = library.rsplit_once("libcuda.so.")?;
    let mut parts = text.split('.');
    let mut release = [0; 3];
    // `libcuda.so.1` is a link, and has no release; 580.65 is 580.65.00.
    for (place, number) in release.iter_mut().enumerate() {
        match parts.next() {
            Some(part) => *number = part.parse().ok()?,
            None if place < 2 => return None,
            None => {}
        }
    }
    parts.next().is_none().then_some(release)
}

/// Up to which version a defect is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErratumEnd {
    /// This version does not have it any more.
    Fixed(u32),
    /// The last version of which it is known; of later ones nothing is.
    LastKnown(u32),
}

/// A published defect. Its texts are those of its rule.
#[derive(Debug)]
pub struct Erratum {
    /// The rule whose findings say that a program meets it.
    pub rule: &'static str,
    /// The defect in a few words.
    pub title: &'static str,
    /// The first version with it, as in [`DriverVersion::cuda`].
    pub first: u32,
    /// The end of these versions.
    pub end: ErratumEnd,
    /// The first release with it and the first without, if only these have it.
    pub releases: Option<[[u16; 3]; 2]>,
    /// The lowest and the highest compute capability of devices that have it, if not all do.
    pub capabilities: Option<[(u16, u16); 2]>,
    /// Where it was published.
    pub urls: &'static [&'static str],
}

impl Erratum {
    /// Whether a driver is known to have it.
    pub fn affects(&self, driver: DriverVersion) -> bool {
        let is_before_end = match self.end {
            ErratumEnd::Fixed(version) => driver.cuda < version,
            ErratumEnd::LastKnown(version) => driver.cuda <= version,
        };
        let is_of_releases = self.releases.is_none_or(|[first, fixed]| {
            let release = driver.release;
            release.is_some_and(|release| first <= release && release < fixed)
        });
        self.first <= driver.cuda && is_before_end && is_of_releases
    }

    /// Whether it concerns a device of that compute capability; `None` if it is not known.
    pub fn concerns(&self, capability: Option<(u16, u16)>) -> bool {
        self.capabilities.is_none_or(|[low, high]| {
            capability.is_some_and(|capability| low <= capability && capability <= high)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_library_has_the_release() {
        for (library, release) in [
            ("/usr/lib/libcuda.so.580.159.04", Some([580, 159, 4])),
            ("libcuda.so.580.65", Some([580, 65, 0])),
            ("/usr/lib/libcuda.so.1", None),
            ("/usr/lib/libcuda.so", None),
            ("libcuda.so.580.159.04.1", None),
            ("libcuda.so.580.x.1", None),
            ("libcuda.so.99999.1.1", None),
            ("", None),
        ] {
            assert_eq!(
                DriverVersion::of(13000, library).release,
                release,
                "{library}"
            );
        }
    }

    #[test]
    fn only_known_versions_and_devices_have_a_defect() {
        let mut erratum = Erratum {
            rule: "driver-x",
            title: "",
            first: 11020,
            end: ErratumEnd::Fixed(11050),
            releases: None,
            capabilities: None,
            urls: &[],
        };
        let affected =
            |erratum: &Erratum, cuda, library| erratum.affects(DriverVersion::of(cuda, library));
        let range = |erratum: &Erratum| {
            [11010, 11020, 11040, 11050, 11060].map(|cuda| affected(erratum, cuda, ""))
        };
        assert_eq!(range(&erratum), [false, true, true, false, false]);
        erratum.end = ErratumEnd::LastKnown(11050);
        assert_eq!(range(&erratum), [false, true, true, true, false]);
        erratum.releases = Some([[535, 0, 0], [535, 104, 5]]);
        for (library, has_it) in [
            ("libcuda.so.535.54.03", true),
            ("libcuda.so.535.104.05", false),
            ("libcuda.so.530.30.02", false),
            ("libcuda.so.1", false),
        ] {
            assert_eq!(affected(&erratum, 11040, library), has_it, "{library}");
        }
        assert!(erratum.concerns(None));
        erratum.capabilities = Some([(10, 0), (12, 1)]);
        for (capability, has_it) in [
            (Some((9, 0)), false),
            (Some((10, 0)), true),
            (Some((12, 1)), true),
            (Some((12, 2)), false),
            (None, false),
        ] {
            assert_eq!(erratum.concerns(capability), has_it, "{capability:?}");
        }
    }
}
