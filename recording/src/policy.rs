//! The policy of a machine: what every recording is redacted of, whatever the options say.
//!
//! `/etc/cutape/policy.toml` is the administrator's. `CUTAPE_POLICY` names another one, which adds to
//! it and takes nothing from it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cutape_format::{Secret, Secrets};
use cutape_terminal::failure::Failure;
use serde::Deserialize;

const FILE: &str = "/etc/cutape/policy.toml";
const VARIABLE: &str = "CUTAPE_POLICY";

/// What the policies ask for.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    /// What every trace is redacted of.
    pub(crate) redact: Secrets,
    /// Each file, and what it asks for.
    files: Vec<(PathBuf, Secrets)>,
}

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    redact: Vec<String>,
}

impl Policy {
    /// Those of this machine and of the environment.
    ///
    /// # Errors
    /// If one cannot be read: nothing is recorded without it.
    pub(crate) fn find() -> Result<Self, Failure> {
        let mut policy = Self::of_machine(Path::new(FILE))?;
        if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            policy.add(Path::new(&path), "; CUTAPE_POLICY names it")?;
        }
        Ok(policy)
    }

    /// That of a file, if there is one. A file that may not be looked at, or a link that leads nowhere,
    /// is one that cannot be read.
    fn of_machine(path: &Path) -> Result<Self, Failure> {
        let mut policy = Self::default();
        let found = path.symlink_metadata();
        if found.map_or_else(|error| error.kind() != ErrorKind::NotFound, |_| true) {
            policy.add(path, "")?;
        }
        Ok(policy)
    }

    fn add(&mut self, path: &Path, where_from: &str) -> Result<(), Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::unusable(format!(
                "cannot read the policy {}: {error}{where_from}; nothing is recorded without it",
                path.display()
            ))
        })?;
        let secrets = parsed(&text)
            .map_err(|why| Failure::unusable(format!("the policy {}: {why}", path.display())))?;
        self.redact = self.redact.and(secrets);
        self.files.push((path.to_owned(), secrets));
        Ok(())
    }

    /// Who asks for that: a file, else the option.
    pub(crate) fn asks_for(&self, secret: Secret, option: &str) -> String {
        let file = self.files.iter().find(|file| file.1.has(secret));
        file.map_or_else(
            || option.to_owned(),
            |file| format!("the policy {}", file.0.display()),
        )
    }
}

/// What a policy asks for; the error says the line and what is wrong.
fn parsed(text: &str) -> Result<Secrets, String> {
    let keys: Keys = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = 1 + text.get(..at).unwrap_or("").matches('\n').count();
        format!("line {line}: {}", error.message().replace('\n', " "))
    })?;
    let secrets = keys.redact.iter().map(|word| {
        Secret::from_word(word).ok_or_else(|| {
            let known = Secret::EVERY.map(Secret::word).join(", ");
            format!("redact: `{}` is none of {known}", word.escape_debug())
        })
    });
    secrets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read() {
        for (text, expected) in [
            ("", Ok("")),
            ("redact = []", Ok("")),
            ("redact = [\"paths\", \"payloads\"]", Ok("payloads,paths")),
            ("redact = [\"names\"]", Ok("names,images")),
            (
                "redact = [\"payload\"]",
                Err("redact: `payload` is none of payloads, parameters"),
            ),
            ("\nredact = true", Err("line 2: invalid type")),
            ("most = 1", Err("line 1: unknown field `most`")),
            ("redact = [", Err("line 1: ")),
        ] {
            match (parsed(text), expected) {
                (Ok(secrets), Ok(words)) => assert_eq!(secrets.words(), words, "{text}"),
                (Err(error), Err(start)) => assert!(error.starts_with(start), "{text}: {error}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }

    #[test]
    fn a_policy_that_cannot_be_read_is_no_absent_one() {
        let folder = std::env::temp_dir().join(format!("cutape-policy-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (policy, link) = (folder.join("policy.toml"), folder.join("link.toml"));
        fs::write(&policy, "redact = [\"paths\"]").unwrap();
        std::os::unix::fs::symlink(folder.join("gone"), &link).unwrap();
        for (path, expected) in [
            (policy.clone(), Some("paths")),
            (folder.join("none"), Some("")),
            (link, None),
            // A file in the place of the folder.
            (policy.join("policy.toml"), None),
        ] {
            let found = Policy::of_machine(&path);
            let found = found.map(|policy| policy.redact.words()).ok();
            assert_eq!(found.as_deref(), expected, "{}", path.display());
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
