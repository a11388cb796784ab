//! Follows the objects and images that the program creates, and which of them it uses.

use cutape_format::Call;
use cutape_model::{ObjectId, Origin};
use cutape_registry::{Family, GraphOp, Kind};

use super::State;
use super::growth::{Created, Place, is_counted};
use crate::plan::Plan;

/// How many places are remembered.
const PLACES: usize = 1 << 16;
/// No object has so small an address or handle.
const SMALLEST_HANDLE: u64 = 1 << 12;

impl State {
    /// The place that created an object.
    pub(crate) fn place_of(&self, id: ObjectId) -> Option<Place> {
        let object = self.objects.get(id)?;
        let is_own = object.origin == Origin::Created && is_counted(object.kind);
        is_own.then_some((object.kind, object.created.caller, object.created.function))
    }

    /// An object was created.
    pub(super) fn grow(&mut self, id: ObjectId) {
        if let Some(key) = self.image_key(id) {
            *self.growth.images.entry(key).or_insert(0) += 1;
        }
        let (Some(place), Some(object)) = (self.place_of(id), self.model.objects.get(id)) else {
            return;
        };
        let growth = &mut self.growth;
        if growth.places.len() >= PLACES && !growth.places.contains_key(&place) {
            return;
        }
        let created = growth.places.entry(place).or_insert(Created {
            first: object.created,
            live: 0,
            bytes: 0,
            newest: id,
            is_managed: false,
            is_used: false,
        });
        let was_suspicious = created.seems_lost();
        created.live += 1;
        created.bytes = created.bytes.saturating_add(object.size);
        created.newest = id;
        growth.suspicious += usize::from(created.seems_lost() && !was_suspicious);
    }

    /// An object has ended.
    pub(super) fn shrink(&mut self, id: ObjectId) {
        self.growth.freed.remove(&id);
        if let Some(key) = self.image_key(id)
            && let Some(count) = self.growth.images.get_mut(&key)
        {
            *count -= 1;
            if *count == 0 {
                self.growth.images.remove(&key);
            }
        }
        let Some(place) = self.place_of(id) else {
            return;
        };
        let object = self.model.objects.get(id);
        let (size, end) = object.map_or((0, None), |object| (object.size, object.end));
        let context = object.and_then(|object| object.context);
        if end.is_some_and(|end| end.by.is_none()) {
            self.growth.manage(place);
            if let Some(context) = context.filter(|_| place.0 == Kind::Memory) {
                *self.growth.freed.entry(context).or_insert(0) += 1;
            }
        }
        let growth = &mut self.growth;
        if let Some(created) = growth.places.get_mut(&place) {
            let was_suspicious = created.seems_lost();
            created.live = created.live.saturating_sub(1);
            created.bytes = created.bytes.saturating_sub(size);
            growth.suspicious -= usize::from(was_suspicious && !created.seems_lost());
        }
    }

    /// Context and fingerprint of a module's image.
    pub(crate) fn image_key(&self, id: ObjectId) -> Option<(u64, u64)> {
        let fingerprint = self.image_data(id)?.fingerprint;
        (fingerprint != 0).then(|| (self.context_handle(id), fingerprint))
    }

    /// What a call uses is not lost; only while some place seems to lose objects.
    pub(super) fn note_uses(&mut self, plan: &Plan, call: &Call<'_>) {
        if self.growth.suspicious == 0 {
            return;
        }
        if let Family::Graph(GraphOp::Launch) = plan.function.family {
            // Addresses and handles are in the graph.
            let places: Vec<Place> = self.growth.places.keys().copied().collect();
            places
                .into_iter()
                .for_each(|place| self.growth.manage(place));
            return;
        }
        for position in 0..plan.function.params.len() {
            self.note_use(call.argument(position));
        }
        // Arrays, structs, and kernel parameters; a copied table of pointers as well.
        for snapshot in call.snapshots() {
            let bytes = snapshot.bytes.inline().unwrap_or_default();
            for word in bytes.as_chunks::<8>().0 {
                self.note_use(u64::from_le_bytes(*word));
            }
        }
    }

    fn note_use(&mut self, word: u64) {
        if word < SMALLEST_HANDLE {
            return;
        }
        let counted = [
            Kind::Array,
            Kind::MipmappedArray,
            Kind::Stream,
            Kind::Event,
            Kind::Graph,
            Kind::GraphExec,
            Kind::TextureObject,
            Kind::SurfaceObject,
            Kind::Module,
            Kind::Library,
            Kind::Function,
            Kind::Kernel,
        ];
        let had = counted
            .into_iter()
            .filter(|&kind| self.objects.has_had(kind));
        let objects: Vec<ObjectId> = had
            .filter_map(|kind| self.objects.live(kind, word))
            .chain(self.memory_at(word))
            .collect();
        for id in objects {
            let Some((id, place)) = self.used_place(id) else {
                continue;
            };
            let Some(created) = self.growth.places.get_mut(&place) else {
                continue;
            };
            match created.newest == id {
                true => created.is_used = true,
                false => self.growth.manage(place),
            }
        }
    }

    /// What a use of an object keeps from being lost, and the place that created it: a use of a
    /// function or a variable is one of the module that has it.
    fn used_place(&self, id: ObjectId) -> Option<(ObjectId, Place)> {
        let mut owners = std::iter::once(id).chain(self.objects.ancestors(id));
        owners.find_map(|id| Some((id, self.place_of(id)?)))
    }
}
