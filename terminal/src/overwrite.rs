//! `--overwrite`: whether a verb may replace what is at the place of its output.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::failure::Failure;

/// The option of all verbs whose output must not exist.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Overwrite {
    /// Replace the output if it exists.
    #[arg(long)]
    pub overwrite: bool,
}

impl Overwrite {
    /// Whether a file is at the place of the output, to be replaced.
    ///
    /// # Errors
    /// If it may not be replaced.
    pub fn replaces(self, target: &Path) -> Result<bool, Failure> {
        let Ok(found) = target.symlink_metadata() else {
            return Ok(false);
        };
        if !self.overwrite {
            return Err(Failure::exists(target));
        }
        if !found.is_file() && !found.is_symlink() {
            let target = target.display();
            return Err(Failure::unusable(format!(
                "cannot replace {target}: it is not a file; choose another name"
            )));
        }
        Ok(true)
    }

    /// Writes the output with `write`, which gets a path that nothing has. What is replaced stays
    /// until that is complete, so it may be what is read.
    pub fn write<T>(
        self,
        target: &Path,
        write: impl FnOnce(&Path) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if !self.replaces(target)? {
            return write(target);
        }
        let mut hidden = OsString::from(".");
        hidden.push(target.file_name().unwrap_or_default());
        hidden.push(format!(".{}.new", std::process::id()));
        let new = target.with_file_name(hidden);
        let rename = |written| {
            let renamed = fs::rename(&new, target);
            renamed.map_err(|error| Failure::cannot_write(target, &error))?;
            Ok(written)
        };
        write(&new).and_then(rename).inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_when_the_new_one_is_whole() {
        let place = std::env::temp_dir().join(format!("cutape-overwrite-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        let (target, folder) = (place.join("out"), place.join("folder"));
        fs::create_dir(&folder).unwrap();
        let write = |text: &'static str| {
            move |path: &Path| match path.exists() {
                true => Err(Failure::unusable("the place is taken")),
                false => fs::write(path, text).map_err(Failure::from),
            }
        };
        let (replace, careful) = (Overwrite { overwrite: true }, Overwrite::default());
        for (overwrite, target, text, why) in [
            (careful, &target, "first", None),
            (careful, &target, "second", Some("--overwrite")),
            (replace, &target, "third", None),
            (replace, &folder, "fourth", Some("not a file")),
        ] {
            match (overwrite.write(target, write(text)), why) {
                (Ok(()), None) => assert_eq!(fs::read_to_string(target).unwrap(), text),
                (Err(failure), Some(why)) => assert!(failure.message.contains(why), "{text}"),
                (other, _) => panic!("{text}: {other:?}"),
            }
        }
        let failed = replace.write(&target, |path| {
            fs::write(path, "a part")?;
            Err::<(), _>(Failure::unusable("no"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "third");
        assert_eq!(fs::read_dir(&place).unwrap().count(), 2);
        fs::remove_dir_all(&place).unwrap();
    }
}
