//! Makes the arguments of a call: numbers, live handles and addresses, and memory for what is
//! behind pointers.

use cutape_format::layout::field;
use cutape_registry::{Kind, Length, Param, Role, Width, structure};

use crate::api::buffer::{Buffer, first, number};
use crate::calls::frame::{Expect, Frame, Place, handle_size};
use crate::compare::payload::Payload;
use crate::objects::skip::{Skip, skip};
use crate::plan::length::length_of;
use crate::player::{Job, Player};

/// Longest memory that is lent to the driver for one parameter.
const LONGEST: u64 = 64 << 30;

/// Room for the value of any attribute.
const LONGEST_ATTRIBUTE: usize = 256;

impl<'t> Job<'_, 't> {
    /// Builds the arguments. `preset` gives those of some parameters, by position, as an override
    /// made them.
    pub(crate) fn marshal(&mut self, preset: &[(usize, u64)]) -> Result<Frame, Skip> {
        let mut frame = self.issuer.frame();
        match self.fill(&mut frame, preset) {
            Ok(()) => Ok(frame),
            Err(skip) => {
                self.issuer.recycle(frame);
                Err(skip)
            }
        }
    }

    fn fill(&mut self, frame: &mut Frame, preset: &[(usize, u64)]) -> Result<(), Skip> {
        for (position, param) in self.function.params.iter().enumerate() {
            let given = preset.iter().find(|preset| preset.0 == position);
            let argument = match param.role {
                _ if let Some(&(_, value)) = given => value,
                Role::In(_) | Role::InOut(_) | Role::String | Role::UseMany(..) => {
                    self.input_argument(frame, position, param)?
                }
                Role::Find(..) | Role::FindMany(..) | Role::Make(..) | Role::Get(_) => {
                    self.handle_output(frame, position, param)?
                }
                Role::Out(_) | Role::Text(_) | Role::OutString => {
                    self.value_output(frame, position, param)?
                }
                Role::Value
                | Role::Use(_)
                | Role::Destroy(_)
                | Role::HostRead(_)
                | Role::HostWrite(_)
                | Role::DeviceRead(_)
                | Role::DeviceWrite(_)
                | Role::HostAddress
                | Role::Pointer
                | Role::Image
                | Role::Callback => self.argument(frame, position, param)?,
            };
            frame.args.push(argument);
        }
        Ok(())
    }

    /// An argument that is no pointer to what the call reads or writes itself.
    fn argument(&mut self, frame: &mut Frame, position: usize, param: &Param) -> Result<u64, Skip> {
        let value = self.decoded.argument(position);
        let length = |length| length_of(self.call, self.function, length);
        match param.role {
            Role::Value if matches!(param.width, Width::Memory(_)) => {
                Ok(frame.lend_copy(&self.call.argument_bytes(position)))
            }
            Role::Value if param.c_type == "CUmemLocation" => self.location_live(value),
            Role::Use(kind) | Role::Destroy(kind) => self.live_handle(kind, value),
            Role::HostRead(size) => self.host_source(frame, position, length(size)),
            Role::HostWrite(size) => self.host_target(frame, position, value, length(size)),
            Role::DeviceRead(_) | Role::DeviceWrite(_) => self.live_address(value),
            Role::HostAddress => Ok(self.ranges.translate(value)),
            Role::Pointer | Role::Image | Role::Callback if value == 0 => Ok(0),
            Role::Pointer => self.live_address(value),
            Role::Callback => skip("calls a function of the program, which a replay does not have"),
            Role::Image => Err(Skip::because(format!(
                "what {} points at is not known",
                param.name
            ))),
            _ => Ok(value),
        }
    }

    /// A pointer to what the call reads.
    fn input_argument(
        &mut self,
        frame: &mut Frame,
        position: usize,
        param: &Param,
    ) -> Result<u64, Skip> {
        let wanted = match param.role {
            Role::In(size) | Role::InOut(size) => length_of(self.call, self.function, size),
            _ => 0,
        };
        let Some(mut bytes) = self.input(position, wanted)? else {
            return Ok(0);
        };
        match param.role {
            Role::UseMany(kind, _) => {
                let mut live = Vec::with_capacity(bytes.len());
                for handle in bytes.chunks_exact(handle_size(kind)) {
                    let value = self.live_handle(kind, number(handle))?;
                    live.extend_from_slice(first(&value.to_le_bytes(), handle.len()));
                }
                return Ok(frame.lend_copy(&live));
            }
            Role::In(size) => {
                let is_attribute = matches!(size, Length::ByAttribute(..));
                if is_attribute && bytes.is_empty() && self.call.succeeded() {
                    return skip("sets an attribute that this build does not know");
                }
                self.input_live(param, size, &mut bytes)?;
                if is_attribute {
                    // The driver may read the whole union.
                    bytes.resize(LONGEST_ATTRIBUTE.max(bytes.len()), 0);
                }
            }
            Role::InOut(size) => {
                self.input_live(param, size, &mut bytes)?;
                let length = bytes.len() as u64;
                let address = lend_zeroed(frame, position, Expect::Value, length)?;
                if let Some(buffer) = frame.buffers.last_mut() {
                    buffer.bytes_mut().copy_from_slice(&bytes);
                }
                return Ok(address);
            }
            _ => bytes.push(0),
        }
        Ok(frame.lend_copy(&bytes))
    }

    /// A pointer to where the call writes handles.
    fn handle_output(
        &mut self,
        frame: &mut Frame,
        position: usize,
        param: &Param,
    ) -> Result<u64, Skip> {
        let (expect, kind, count) = match param.role {
            Role::Make(kind, parent) => (Expect::Made(kind, parent), kind, 1),
            Role::Find(kind, parent) => (Expect::Found(kind, parent), kind, 1),
            Role::FindMany(kind, parent, count) => {
                let count = length_of(self.call, self.function, count);
                (Expect::Found(kind, parent), kind, count)
            }
            Role::Get(kind) => (Expect::Got(kind), kind, 1),
            _ => return Ok(0),
        };
        if self.decoded.argument(position) == 0 {
            return Ok(0);
        }
        let length = count.saturating_mul(handle_size(kind) as u64);
        lend_zeroed(frame, position, expect, length)
    }

    /// A pointer to where the call writes anything else.
    fn value_output(
        &mut self,
        frame: &mut Frame,
        position: usize,
        param: &Param,
    ) -> Result<u64, Skip> {
        let is_null = self.decoded.argument(position) == 0;
        let length = |length| length_of(self.call, self.function, length);
        let (expect, length) = match param.role {
            // The size of a global is needed even where the program did not ask for it.
            Role::Out(size) if is_null && self.finds_global() => (Expect::Ignore, length(size)),
            _ if is_null => return Ok(0),
            Role::Out(size @ Length::ByAttribute(..)) => {
                // An attribute that this build does not know may be longer than what is compared of
                // it.
                let address = frame.lend_zeros(LONGEST_ATTRIBUTE);
                frame.places.push(Place {
                    position,
                    expect: Expect::Value,
                    address,
                    length: usable(length(size))?.min(LONGEST_ATTRIBUTE),
                });
                return Ok(address);
            }
            Role::Out(size) => (Expect::Value, length(size)),
            Role::Text(size) => (Expect::Text, length(size)),
            _ => (Expect::DriverString, 8),
        };
        lend_zeroed(frame, position, expect, length)
    }

    /// Whether the call asks for the address of a global.
    fn finds_global(&self) -> bool {
        let mut params = self.function.params.iter().enumerate();
        self.traits.finds_global
            && params.any(|(position, param)| {
                matches!(param.role, Role::Find(Kind::Global, _))
                    && self.call.argument(position) != 0
            })
    }

    /// The bytes behind an input pointer; `None` for NULL.
    pub(crate) fn input(&mut self, position: usize, wanted: u64) -> Result<Option<Vec<u8>>, Skip> {
        if self.call.argument(position) == 0 {
            return Ok(None);
        }
        match self
            .call
            .snapshot(position, field::POINTEE)
            .map(|snapshot| self.payload(&snapshot))
        {
            Some(Payload::Here(bytes)) => Ok(Some(bytes.into_owned())),
            Some(Payload::Left(..)) => {
                skip("the trace was recorded without the bytes that it needs")
            }
            None if wanted == 0 => Ok(Some(Vec::new())),
            Some(Payload::Unreadable) => skip("the trace does not have the memory that it reads"),
            None => skip("what it reads is not in the trace"),
        }
    }

    /// Where a copy finds its host bytes.
    fn host_source(
        &mut self,
        frame: &mut Frame,
        position: usize,
        length: u64,
    ) -> Result<u64, Skip> {
        let value = self.call.argument(position);
        if value == 0 {
            return Ok(0);
        }
        if length == 0 {
            return Ok(frame.lend(Buffer::zeroed(0)));
        }
        let given = self.given_bytes(length);
        let recorded = || {
            let snapshot = self.call.snapshot(position, field::POINTEE);
            snapshot.map(|snapshot| self.payload(&snapshot))
        };
        let payload = match given {
            Some(given) => Some(Payload::Here(given.to_vec().into())),
            None => recorded(),
        };
        let bytes = match payload {
            Some(Payload::Here(bytes)) => bytes,
            Some(Payload::Left(_, hash)) => {
                self.bytes_are_missing(hash);
                vec![0; usable(length)?].into()
            }
            _ => {
                return skip("the trace does not have the host memory that it reads");
            }
        };
        if (bytes.len() as u64) < length {
            return skip("the trace holds fewer host bytes than it reads");
        }
        self.look_for_stale(&bytes);
        let kept = match self.current.is_captured {
            true => Some(self.graph_host(value, length)?),
            false => self.live_host(value, length),
        };
        if let Some(address) = kept {
            self.store_source(value, address, &bytes);
            if !self.current.is_captured {
                frame.reads.push((address, address.saturating_add(length)));
            }
            return Ok(address);
        }
        Ok(frame.lend(Buffer::of(&bytes)))
    }

    /// A location by value, its type below its number.
    fn location_live(&mut self, value: u64) -> Result<u64, Skip> {
        let mut bytes = value.to_le_bytes();
        if let Some(layout) = structure("CUmemLocation") {
            self.struct_live("location", layout, &mut bytes)?;
        }
        Ok(u64::from_le_bytes(bytes))
    }
}

impl<'t> Player<'t> {
    /// Where a copy puts its host bytes.
    fn host_target(
        &mut self,
        frame: &mut Frame,
        position: usize,
        value: u64,
        length: u64,
    ) -> Result<u64, Skip> {
        if value == 0 {
            return Ok(0);
        }
        if self.current.is_captured {
            // Its bytes come with each launch of the graph.
            return self.graph_host(value, length);
        }
        if let Some(address) = self.live_host(value, length) {
            let length = usable(length)?;
            frame.places.push(Place {
                position,
                expect: Expect::Bytes,
                address,
                length,
            });
            return Ok(address);
        }
        lend_zeroed(frame, position, Expect::Bytes, length)
    }
}

fn usable(length: u64) -> Result<usize, Skip> {
    if length > LONGEST {
        return Err(Skip::because(format!(
            "more than {LONGEST} bytes of host memory in one copy"
        )));
    }
    usize::try_from(length).map_err(|_| Skip::because("more host memory than there is"))
}

pub(crate) fn lend_zeroed(
    frame: &mut Frame,
    position: usize,
    expect: Expect,
    length: u64,
) -> Result<u64, Skip> {
    let length = usable(length)?;
    let address = frame.lend_zeros(length);
    frame.places.push(Place {
        position,
        expect,
        address,
        length,
    });
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_lengths_are_refused() {
        assert!(usable(u64::MAX).is_err());
        assert_eq!(usable(4096), Ok(4096));
        assert_eq!(
            (handle_size(Kind::Device), handle_size(Kind::Stream)),
            (4, 8)
        );
    }
}
