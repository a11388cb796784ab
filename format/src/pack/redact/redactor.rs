//! What takes the place of a snapshot, and of an argument.

use std::borrow::Cow;

use super::redaction::{Redaction, Secret, Subject};
use super::texts::Texts;
use crate::layout::{SnapshotHead, field};
use crate::pack::change::{CallChange, CallPart, NewBytes};
use crate::pack::record::blob_of;
use crate::pack::synthetic::{Contents, Synthetic};
use crate::read::error::Error;
use crate::read::signature::{Signature, ValueType};
use crate::read::snapshot::Bytes;
use crate::read::trace::Trace;

/// Reads the bytes of a snapshot, if the trace has them.
pub(crate) trait Resolve<'b>: Fn(Bytes<'b>) -> Option<Cow<'b, [u8]>> + Copy {}

impl<'b, F: Fn(Bytes<'b>) -> Option<Cow<'b, [u8]>> + Copy> Resolve<'b> for F {}

/// Removes what is asked for.
pub(crate) struct Redactor<'a> {
    pub(super) redaction: Redaction<'a>,
    pub(super) texts: Texts,
}

impl<'a> Redactor<'a> {
    /// Reads the trace once if it has texts to be replaced.
    pub(crate) fn new(trace: &Trace, redaction: &Redaction<'a>) -> Result<Self, Error> {
        Ok(Self {
            redaction: *redaction,
            texts: Texts::of(trace, redaction)?,
        })
    }

    pub(super) fn removes(&self, secret: Secret) -> bool {
        self.redaction.secrets.has(secret)
    }

    /// Texts that may hold both are removed with either.
    pub(super) fn removes_texts(&self) -> bool {
        self.removes(Secret::Paths) || self.removes(Secret::Names)
    }

    /// Whether payloads leave no more than their length.
    pub(crate) fn omits_payloads(&self) -> bool {
        self.removes(Secret::Payloads)
    }

    /// What takes the place of a payload; `None` if its number of bytes does.
    pub(crate) fn payload<'b>(
        &self,
        part: CallPart,
        bytes: Bytes<'b>,
        resolve: impl Resolve<'b>,
    ) -> Option<NewBytes> {
        let contents = self.redaction.contents;
        if part == CallPart::Leave || contents == Contents::Zeros || !self.omits_payloads() {
            return None;
        }
        let length = bytes.length().filter(|&length| length > 0)?;
        let read = || resolve(bytes).map(Cow::into_owned);
        Synthetic::new(contents, length, read).map(NewBytes::Synthetic)
    }

    /// What takes the place of another snapshot; `None` if it stays.
    pub(crate) fn bytes<'b>(
        &self,
        function: Option<&Signature>,
        head: &SnapshotHead,
        bytes: Bytes<'b>,
        resolve: impl Resolve<'b>,
    ) -> Option<NewBytes> {
        let subject = match head.field {
            field::POINTEE | field::TEXT => function.map_or(Subject::Text, |function| {
                (self.redaction.subject)(function, head.parameter.into())
            }),
            field::DIRECTORY => Subject::Path,
            field::INFO_LOG | field::ERROR_LOG | field::SYMBOL_NAMES => Subject::Text,
            field::FILE | field::FATBIN | field::BYTE_BEHIND => Subject::Image,
            field::KERNEL_PARAMETERS => Subject::Parameters,
            _ => Subject::Call,
        };
        let text = |new: &dyn Fn(&[u8]) -> String| {
            let Some(bytes) = resolve(bytes) else {
                return NewBytes::Omitted;
            };
            let ended = bytes.strip_suffix(b"\0");
            let mut new = new(ended.unwrap_or(&bytes)).into_bytes();
            new.extend(ended.map(|_| 0));
            NewBytes::Other(new.into())
        };
        match subject {
            Subject::Path if self.removes(Secret::Paths) => {
                Some(text(&|path| self.texts.path(path)))
            }
            Subject::Name if self.removes(Secret::Names) => {
                Some(text(&|name| self.texts.name(name)))
            }
            // Names of symbols go with the images that have them.
            Subject::Text if head.field == field::SYMBOL_NAMES && !self.removes(Secret::Names) => {
                None
            }
            Subject::Text if self.removes_texts() => Some(NewBytes::Omitted),
            Subject::Image if self.removes(Secret::Images) => Some(NewBytes::Omitted),
            Subject::Parameters if self.removes(Secret::Parameters) => {
                let bytes = resolve(bytes);
                Some(bytes.map_or(NewBytes::Omitted, |bytes| {
                    NewBytes::Other((self.redaction.parameters)(&bytes).into())
                }))
            }
            _ => self.of_file(bytes, resolve),
        }
    }

    /// The bytes without the path of the file that they are a part of; `None` if they stay.
    pub(crate) fn of_file<'b>(
        &self,
        bytes: Bytes<'b>,
        resolve: impl Resolve<'b>,
    ) -> Option<NewBytes> {
        let Bytes::InFile(range) = bytes else {
            return None;
        };
        if !self.removes(Secret::Paths) {
            return None;
        }
        // The name of its blob is a hash of the path.
        let content = resolve(bytes);
        Some(content.map_or(NewBytes::Omitted, |content| {
            NewBytes::OfFile(blob_of(&content), range.encoded().into())
        }))
    }

    /// Arguments that are parameters of a kernel become zero; `None` if there are none.
    pub(crate) fn arguments(&self, function: &Signature) -> Option<CallChange> {
        if !self.removes(Secret::Parameters) {
            return None;
        }
        let parameters = function.parameters.iter().enumerate();
        let zeros = parameters.filter(|(position, parameter)| {
            let is_number = !parameter.c_type.contains('*')
                && !matches!(parameter.value_type, ValueType::Memory(_));
            is_number && (self.redaction.subject)(function, *position) == Subject::Parameters
        });
        let arguments: Vec<(u8, u64)> = zeros.map(|(position, _)| (position as u8, 0)).collect();
        (!arguments.is_empty()).then(|| CallChange {
            arguments,
            ..CallChange::default()
        })
    }
}
