//! What an option takes, for those that describe options in another language.

use std::any::TypeId;
use std::path::PathBuf;

use clap::{Arg, ArgAction};

/// What one value of an option is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OptionKind {
    /// It has no value.
    Flag,
    /// One of these.
    Choice(Vec<String>),
    Path,
    /// Not negative.
    Integer,
    Number,
    Text,
}

impl OptionKind {
    pub(crate) fn of(option: &Arg) -> Self {
        if matches!(option.get_action(), ArgAction::SetTrue) {
            return Self::Flag;
        }
        let parser = option.get_value_parser().type_id();
        let is = |id: TypeId| parser == id;
        let integers = [
            TypeId::of::<u8>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
        ];
        let choices = option.get_possible_values();
        let choices = choices.iter().map(|choice| choice.get_name().to_owned());
        let choices: Vec<String> = choices.collect();
        match () {
            () if !choices.is_empty() => Self::Choice(choices),
            () if is(TypeId::of::<PathBuf>()) => Self::Path,
            () if integers.into_iter().any(is) => Self::Integer,
            () if is(TypeId::of::<f64>()) => Self::Number,
            () => Self::Text,
        }
    }
}

/// Whether it can be given several times.
pub(crate) fn is_repeated(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Append)
}
