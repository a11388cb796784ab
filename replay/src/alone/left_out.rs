//! Work that is left out because memory of other processes is not here, or has only a stand-in.

use cutape_registry::Family;

use crate::objects::skip::{Root, Skip};
use crate::player::Job;
use crate::report::OneExchange;
use crate::unavailable::absent::{Cause, is_shared_by_ranks};
use crate::unavailable::exchanges::Partner;
use crate::unavailable::held_addresses::Known;

impl Job<'_, '_> {
    /// Leaves a call out that needs memory which is unavailable; else remembers the addresses that
    /// it copies.
    pub(crate) fn needs_nothing_unavailable(&mut self) -> Result<(), Skip> {
        self.find_private_memory();
        let cause = match self.unavailable.absent.is_empty() {
            true => None,
            false => self.unavailable.absence(
                (self.trace, self.call),
                self.function,
                (&self.ranges, &self.held_addresses),
            ),
        };
        if let Some(cause) = cause {
            if let Cause::Function(function) = cause {
                self.leave_out_absent(function);
            }
            return Err(self.unavailable.skip(cause, "memory"));
        }
        if self.options.alone.is_some() {
            self.exchanges_nothing()?;
        }
        let state = &mut **self.player;
        let known = Known::new(&state.ranges, &state.unavailable.absent);
        let copy = (self.call, self.function);
        state.held_addresses.note_copy(copy, known, state.trace);
        Ok(())
    }

    /// What a call would have written that needs memory which is absent.
    #[cold]
    fn leave_out_absent(&mut self, function: &'static str) {
        let writes = self
            .unavailable
            .would_write_here(self.call, self.function, &self.ranges);
        if !writes {
            return;
        }
        let is_recorded = self.plan.exchange_outputs.are_recorded();
        if is_recorded && self.put_exchange_outputs().is_ok() {
            return;
        }
        self.comparer.bytes_comparable = false;
        let what = "work on memory of another process or API was left out, and what it would have \
                    written is missing";
        let advice =
            match is_shared_by_ranks(function) && !is_recorded && self.options.alone.is_none() {
                true => "; record with --outputs-of-exchanges, and give all ranks (--rank)",
                false => "",
            };
        self.player
            .report
            .exchanges
            .miss(self.call.index, &format!("{what}{advice}"));
        self.report.note(format!(
            "{what}: bytes are not compared from there on{advice}"
        ));
    }

    /// Leaves a call out that exchanges data with other ranks, and puts back what it changed.
    fn exchanges_nothing(&mut self) -> Result<(), Skip> {
        let state = &mut **self.player;
        let known = Known::new(&state.ranges, &state.unavailable.absent);
        let call = (self.call, self.function);
        let memory = (&state.held_addresses, &known);
        let partner = state.exchanges.partner(call, memory);
        let Some(partner) = partner else {
            return Ok(());
        };
        let left_out = (self.call, &partner);
        state.exchanges.left_out(left_out, memory, &state.ranges);
        let kernel = state.exchanges.kernel_of(self.call);
        let may_write = self.call.succeeded() && state.exchanges.may_write_own(call, &state.ranges);
        let names_exported = state.exchanges.names_exported(call.0, call.1, memory);
        let put = may_write.then(|| match self.put_exchange_outputs() {
            Ok(()) if names_exported => {
                Err("it may change memory that was exported, of which the \
                 recorder keeps nothing"
                    .to_owned())
            }
            put => put,
        });
        if let Some(Err(why)) = &put
            && self.comparer.bytes_comparable
        {
            self.comparer.bytes_comparable = false;
            let (index, ranks) = (self.call.index, &partner.ranks);
            self.report.note(format!(
                "call {index} exchanges data with {ranks} and was left out; {why}: bytes are not \
                 compared from there on"
            ));
        }
        let one = OneExchange {
            function: self.function.name,
            kernel,
            with: &partner.ranks,
            call: self.call.index,
            put,
        };
        self.player.report.exchanges.leave_out(one);
        let Partner { ranks, memory } = &*partner;
        let reason = match self.function.family {
            Family::StreamMemory(_) => {
                format!("waits for a value that {ranks} may write ({memory})")
            }
            _ => format!("exchanges data with {ranks} ({memory})"),
        };
        Err(Skip::from_root(Root::Exchange, reason))
    }
}
