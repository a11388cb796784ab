//! `--replace-image CALL=FILE`: an image that a replay loads instead of the recorded one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use cutape_format::Trace;
use cutape_model::function_of;
use cutape_registry::{Family, ImageSource};

use crate::error::Error;
use crate::options::ReplacedImage;

/// The file with the image that a call loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallImage {
    /// The call, by its index.
    pub call: u64,
    /// The file.
    pub file: PathBuf,
}

impl FromStr for CallImage {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('=').and_then(|(call, file)| {
            let call = call.parse().ok()?;
            let file = PathBuf::from(file);
            (!file.as_os_str().is_empty()).then_some(Self { call, file })
        });
        parsed.ok_or("not a call and a file, e.g. 12=kernels.ptx")
    }
}

impl CallImage {
    /// As it is given on a command line.
    pub fn to_argument(&self) -> OsString {
        let mut text = OsString::from(format!("{}=", self.call));
        text.push(&self.file);
        text
    }

    /// Reads the files for a trace.
    ///
    /// # Errors
    /// [`Error::Image`] if a call does not load an image from memory, or a file cannot be read.
    pub fn read_all(trace: &Trace, images: &[Self]) -> Result<Vec<ReplacedImage>, Error> {
        images.iter().map(|image| image.read(trace)).collect()
    }

    fn read(&self, trace: &Trace) -> Result<ReplacedImage, Error> {
        let Self { call, file } = self;
        let found = trace.calls().find(|found| found.index == *call);
        let family = found
            .as_ref()
            .and_then(|found| function_of(found.signature))
            .map(|known| known.family);
        if !matches!(
            family,
            Some(Family::ModuleLoad(load) | Family::LibraryLoad(load))
                if !matches!(load.source, ImageSource::File(_))
        ) {
            return Err(Error::Image {
                why: format!(
                    "--replace-image: call {call} does not load an image from memory; \
                     cutape dump lists the calls that do, for example with --calls 'cu*LoadData*'"
                ),
            });
        }
        let bytes = std::fs::read(file).map_err(|error| Error::Image {
            why: format!("{}: {error}", file.display()),
        })?;
        Ok((*call, bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_and_a_file() {
        for (text, expected) in [
            ("12=a.ptx", Some((12, "a.ptx"))),
            ("0=a=b", Some((0, "a=b"))),
            ("12", None),
            ("12=", None),
            ("=a.ptx", None),
            ("x=a.ptx", None),
            ("-1=a.ptx", None),
        ] {
            let parsed: Option<CallImage> = text.parse().ok();
            let expected = expected.map(|(call, file)| CallImage {
                call,
                file: file.into(),
            });
            assert_eq!(parsed, expected, "{text}");
            if let Some(parsed) = parsed {
                assert_eq!(parsed.to_argument(), text);
            }
        }
    }
}
