//! `cutape.toml`, the file of a project: options of the verbs.
//!
//! A table is a verb, a key is the long name of one of its options. Its options are put into the
//! command line, after the verb, so that children get them too. The command line wins: over an option
//! that it gives, and over those that conflict with what it gives.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use cutape_analyzer::suggestion::did_you_mean;
use toml::{Spanned, Value};

use cutape_terminal::failure::Failure;

const NAME: &str = "cutape.toml";

type Options = BTreeMap<Spanned<String>, Spanned<Value>>;

/// The project's file.
pub(crate) struct Config {
    path: PathBuf,
    text: String,
    verbs: BTreeMap<Spanned<String>, Options>,
}

/// What the file says about an option.
struct Setting {
    /// Where in the text.
    at: usize,
    option: String,
    /// Empty for an option without a value.
    values: Vec<String>,
}

impl Setting {
    /// As on the command line.
    fn words(&self) -> Vec<String> {
        let option = &self.option;
        match self.values.is_empty() {
            true => vec![format!("--{option}")],
            false => {
                let values = self.values.iter();
                values.map(|value| format!("--{option}={value}")).collect()
            }
        }
    }
}

impl Config {
    /// The file of that name, else the nearest in the current folder and those around it.
    pub(crate) fn find(given: Option<&Path>) -> Result<Option<Self>, Failure> {
        if let Some(path) = given {
            return Self::read(path).map(Some);
        }
        let Ok(folder) = std::env::current_dir() else {
            return Ok(None);
        };
        let mut paths = folder.ancestors().map(|folder| folder.join(NAME));
        paths
            .find(|path| path.is_file())
            .map(|path| Self::read(&path))
            .transpose()
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::unusable(format!("cannot read {}: {error}", path.display()))
        })?;
        let mut config = Self {
            path: path.to_owned(),
            text,
            verbs: BTreeMap::new(),
        };
        config.verbs = toml::from_str(&config.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            config.wrong(at, &error.message().replace('\n', " "))
        })?;
        Ok(config)
    }

    /// The file's options for a verb, as words of a command line; `given` is what the command line
    /// says already.
    pub(crate) fn options(
        &self,
        command: &Command,
        verb: &str,
        given: &ArgMatches,
    ) -> Result<Vec<String>, Failure> {
        let mut settings = Vec::new();
        for (name, options) in &self.verbs {
            let table = name.get_ref();
            let subcommand = command.find_subcommand(table);
            let Some(subcommand) = subcommand.filter(|known| !known.is_hide_set()) else {
                let visible = command
                    .get_subcommands()
                    .filter(|known| !known.is_hide_set());
                let suggestion = did_you_mean(table, visible.map(Command::get_name));
                let table = table.escape_debug();
                return Err(self.wrong(
                    name.span().start,
                    &format!("no verb is called `{table}`{suggestion}"),
                ));
            };
            for (key, value) in options {
                let setting = self.setting(subcommand, key, value)?;
                if table == verb {
                    settings.extend(setting);
                }
            }
        }
        let verb_command = command.find_subcommand(verb).unwrap_or(command);
        self.check(command, verb, &settings)?;
        let is_overruled = |option: &Arg| {
            let mut explicit = verb_command
                .get_arguments()
                .filter(|arg| is_given(given, arg));
            explicit.any(|other| {
                other.get_id() == option.get_id() || conflict(verb_command, option, other)
            })
        };
        let is_wanted = |setting: &&Setting| {
            let option = option(verb_command, &setting.option);
            option.is_some_and(|option| !is_overruled(option))
        };
        let wanted = settings.iter().filter(is_wanted);
        Ok(wanted.flat_map(Setting::words).collect())
    }

    /// What a key says; `None` for an option that is switched off.
    fn setting(
        &self,
        verb: &Command,
        key: &Spanned<String>,
        value: &Spanned<Value>,
    ) -> Result<Option<Setting>, Failure> {
        let (name, at) = (key.get_ref().as_str(), key.span().start);
        let Some(option) = option(verb, name) else {
            let names = verb.get_arguments().filter_map(Arg::get_long);
            let suggestion = did_you_mean(name, names);
            let name = name.escape_debug();
            return Err(self.wrong(
                at,
                &format!("`{}` has no option --{name}{suggestion}", verb.get_name()),
            ));
        };
        // One of such a group is always on the command line, and the others would join it.
        let mut groups = verb.get_groups();
        if groups.any(|group| {
            !group.clone().is_multiple() && group.get_args().any(|id| id == option.get_id())
        }) {
            return Err(self.wrong(
                at,
                &format!("--{name} can be given on the command line only"),
            ));
        }
        let is_flag = matches!(option.get_action(), ArgAction::SetTrue);
        let needs_value = option
            .get_num_args()
            .is_none_or(|count| count.min_values() > 0);
        let values = match value.get_ref() {
            Value::Boolean(false) if is_flag || !needs_value => return Ok(None),
            Value::Boolean(true) if is_flag || !needs_value => Some(Vec::new()),
            _ if is_flag => return Err(self.wrong(at, &format!("{name} is true or false"))),
            Value::Array(values) if values.is_empty() => return Ok(None),
            Value::Array(values) if matches!(option.get_action(), ArgAction::Append) => {
                values.iter().map(text_of).collect()
            }
            Value::Array(_) => {
                return Err(self.wrong(at, &format!("{name} takes one value, not an array")));
            }
            value => text_of(value).map(|text| vec![text]),
        };
        let Some(values) = values else {
            let what = format!("the value of {name} is neither text nor a number");
            return Err(self.wrong(at, &what));
        };
        let is_path = !matches!(
            option.get_value_hint(),
            ValueHint::Unknown | ValueHint::Other
        );
        let values = values.into_iter().map(|value| match is_path {
            true => self.resolved(&value),
            false => value,
        });
        Ok(Some(Setting {
            at,
            option: name.to_owned(),
            values: values.collect(),
        }))
    }

    /// A path as it is from the file's folder. `null` is a driver.
    fn resolved(&self, value: &str) -> String {
        let folder = self.path.parent().filter(|_| value != "null");
        let path = folder.map(|folder| folder.join(value));
        path.map_or_else(
            || value.to_owned(),
            |path| path.to_string_lossy().into_owned(),
        )
    }

    /// Parses each option alone, for the line of what is wrong, and then all, for conflicts.
    fn check(&self, command: &Command, verb: &str, settings: &[Setting]) -> Result<(), Failure> {
        let parse = |words: Vec<String>| {
            let words = ["cutape", verb].into_iter().map(str::to_owned).chain(words);
            let parsed = command.clone().try_get_matches_from(words);
            parsed.err().filter(|error| {
                // The rest of the command line is not here.
                !matches!(
                    error.kind(),
                    ErrorKind::MissingRequiredArgument
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                )
            })
        };
        let text = |error: &clap::Error| {
            // The possible values and suggestions follow; then what does not concern a file.
            let text = error.to_string();
            let lines = text.trim_start_matches("error: ").lines();
            let lines = lines.take_while(|line| !line.is_empty());
            lines.map(str::trim).collect::<Vec<_>>().join(" ")
        };
        for setting in settings {
            if let Some(error) = parse(setting.words()) {
                return Err(self.wrong(setting.at, &text(&error)));
            }
        }
        match parse(settings.iter().flat_map(Setting::words).collect()) {
            Some(error) => {
                let at = settings.first().map_or(0, |setting| setting.at);
                Err(self.wrong(at, &text(&error)))
            }
            None => Ok(()),
        }
    }

    /// Something is wrong at that place of the text.
    fn wrong(&self, at: usize, what: &str) -> Failure {
        let line = 1 + self.text.get(..at).unwrap_or("").matches('\n').count();
        Failure::unusable(format!("{}: line {line}: {what}", self.path.display()))
    }
}

/// The option of a verb with that long name.
fn option<'c>(verb: &'c Command, name: &str) -> Option<&'c Arg> {
    let mut options = verb.get_arguments().filter(|arg| !arg.is_hide_set());
    options.find(|arg| arg.get_long() == Some(name))
}

/// Whether the command line has it.
fn is_given(given: &ArgMatches, arg: &Arg) -> bool {
    let id = arg.get_id().as_str();
    given.try_contains_id(id).is_ok_and(|is_known| is_known)
        && given.value_source(id) == Some(ValueSource::CommandLine)
}

fn conflict(verb: &Command, one: &Arg, other: &Arg) -> bool {
    let has = |of: &Arg, with: &Arg| {
        let conflicts = verb.get_arg_conflicts_with(of);
        conflicts.iter().any(|arg| arg.get_id() == with.get_id())
    };
    has(one, other) || has(other, one)
}

/// A value as on the command line; `None` for a date or a table.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is) => Some(is.to_string()),
        Value::Array(_) | Value::Table(_) | Value::Datetime(_) => None,
    }
}
