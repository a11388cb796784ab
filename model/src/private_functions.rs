//! Functions that no recorded call returned: libraries take some from the driver's private tables.

use cutape_format::layout::OriginNote;
use cutape_format::{Call, Note};
use cutape_registry::Kind;

use crate::objects::{NewObject, Origin};
use crate::site::Site;
use crate::state::{Data, PendingObject, State};

/// What a note of a call tells of, and what that belongs to: a kernel of a library, or a function of
/// a module.
pub fn kinds_of_origin(note: &OriginNote) -> (Kind, Kind) {
    match note.is_kernel {
        0 => (Kind::Function, Kind::Module),
        _ => (Kind::Kernel, Kind::Library),
    }
}

/// Whether a note of a call tells of such a function.
pub(crate) fn tells_of_functions(call: &Call<'_>) -> bool {
    call.has_notes() && call.notes().any(|note| matches!(note, Note::Origin(..)))
}

impl<X> State<X> {
    /// Adds the functions that notes of a call tell of. Their parents are what they belong to.
    pub fn find_noted(&mut self, call: &Call<'_>) {
        for note in call.notes() {
            let Note::Origin(note, name) = note else {
                continue;
            };
            let (kind, owner) = kinds_of_origin(&note);
            let parent = self.objects.live(owner, note.owner);
            let site = Site::of("", call);
            let new = NewObject {
                parent,
                context: self.context_of(call.thread, parent),
                name: Some(name.into()),
                ..NewObject::of(kind, note.handle, Origin::Found, site, call)
            };
            if !self.is_known(&new) {
                self.create_on_return(PendingObject {
                    new,
                    data: Data::None,
                    size: 0,
                });
            }
        }
    }
}
