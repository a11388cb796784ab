//! The objects of a trace, numbered in the order in which they became known.

use cutape_format::Call;
use cutape_model::{Changes, IntervalMap, ObjectId, Origin, State};
use cutape_registry::Kind;
use rustc_hash::FxHashMap;

/// No object, or no call.
pub(crate) const NONE: u32 = u32::MAX;

/// What is kept of an object.
#[derive(Clone, Debug)]
pub(crate) struct ObjectFacts {
    pub(crate) kind: Kind,
    /// The driver's value for it; of memory its address.
    pub(crate) handle: u64,
    /// Counts the objects of its kind, from 1, as other verbs do; 0 if no call created it.
    pub(crate) generation: u32,
    /// Index of the call that created or found it; `None` if no call did.
    pub(crate) created: Option<u64>,
    /// A call of the program created it, which owns it.
    pub(crate) is_owned: bool,
    /// Index of the call that destroyed it; what ends with its parent is not destroyed.
    pub(crate) destroyed: Option<u64>,
    /// Thread of that call.
    pub(crate) thread: u32,
    /// Of the calls that first use it in that thread, and how many they are.
    pub(crate) uses: u64,
    pub(crate) use_count: u8,
    /// Its name in the image.
    pub(crate) name: Option<Box<str>>,
}

impl ObjectFacts {
    /// `module#2`
    pub(crate) fn label(&self) -> String {
        match (&self.name, self.generation) {
            (Some(name), _) => format!("{} {name}", self.kind.key()),
            (None, 0) => format!("unknown {}", self.kind.key()),
            (None, generation) => format!("{}#{generation}", self.kind.key()),
        }
    }
}

/// The objects so far.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) facts: Vec<ObjectFacts>,
    /// By the small number of the model.
    by_slot: Vec<Option<(ObjectId, u32)>>,
    /// Handles that no call returned.
    unseen: FxHashMap<(Kind, u64), u32>,
    /// Reserved address ranges, which hold no memory of the model.
    reservations: IntervalMap<u32>,
    /// Memory of allocation nodes, until other memory is there.
    node_memory: IntervalMap<u32>,
    /// The graphs of conditional nodes, by handle.
    bodies: FxHashMap<u64, u32>,
}

impl Numbers {
    fn add(&mut self, facts: ObjectFacts) -> u32 {
        let number = self.facts.len() as u32;
        self.facts.push(facts);
        number
    }

    /// Takes in what a call changed.
    pub(crate) fn update(&mut self, state: &State<()>, changes: Changes, call: u64) {
        for id in changes.created {
            let Some(object) = state.objects.get(id) else {
                continue;
            };
            let number = self.add(ObjectFacts {
                kind: object.kind,
                handle: object.handle,
                generation: object.generation,
                created: Some(object.created.index),
                is_owned: object.origin == Origin::Created,
                destroyed: None,
                thread: object.created.thread,
                uses: 0,
                use_count: 0,
                name: object.name.clone(),
            });
            if object.kind == Kind::Reservation {
                self.reservations.insert(object.handle, object.size, number);
            }
            if object.kind.is_address() && !self.node_memory.is_empty() {
                self.node_memory
                    .remove_overlapping(object.handle, object.size);
            }
            if self.by_slot.len() <= id.index() {
                self.by_slot.resize(id.index() + 1, None);
            }
            if let Some(slot) = self.by_slot.get_mut(id.index()) {
                *slot = Some((id, number));
            }
        }
        for id in changes.ended {
            if let Some(object) = state.objects.get(id)
                && object.kind == Kind::Reservation
            {
                self.reservations.remove(object.handle);
            }
            let object = state.objects.get(id);
            let is_itself =
                object.is_some_and(|object| object.end.is_some_and(|end| end.by.is_none()));
            let number = self.of(id).filter(|_| is_itself);
            if let Some(facts) = number.and_then(|number| self.facts.get_mut(number as usize)) {
                facts.destroyed = Some(call);
            }
        }
    }

    /// The number of an object of the model.
    pub(crate) fn of(&self, id: ObjectId) -> Option<u32> {
        let (known, number) = (*self.by_slot.get(id.index())?)?;
        (known == id).then_some(number)
    }

    /// The number of an object that no call returned.
    pub(crate) fn unseen(&mut self, kind: Kind, handle: u64) -> u32 {
        if let Some(&number) = self.unseen.get(&(kind, handle)) {
            return number;
        }
        let number = self.add(ObjectFacts {
            kind,
            handle,
            generation: 0,
            created: None,
            is_owned: false,
            destroyed: None,
            thread: 0,
            uses: 0,
            use_count: 0,
            name: None,
        });
        self.unseen.insert((kind, handle), number);
        number
    }

    /// What a call creates that is no object of the model.
    fn add_unmodelled(&mut self, kind: Kind, handle: u64, name: &str, call: &Call<'_>) -> u32 {
        let number = self.facts.len();
        self.add(ObjectFacts {
            kind,
            handle,
            generation: 0,
            created: Some(call.index),
            is_owned: true,
            destroyed: None,
            thread: call.thread,
            uses: 0,
            use_count: 0,
            name: Some(format!("{name} {number}").into()),
        })
    }

    /// A call has added a node that allocates memory.
    pub(crate) fn add_node_memory(&mut self, start: u64, size: u64, call: &Call<'_>) {
        let number = self.add_unmodelled(Kind::Memory, start, "of allocation node", call);
        self.node_memory.remove_overlapping(start, size);
        self.node_memory.insert(start, size, number);
    }

    /// A call has added a conditional node, or changed it.
    pub(crate) fn add_bodies(&mut self, handles: &[u8], call: &Call<'_>) {
        for handle in handles.as_chunks::<8>().0 {
            let handle = u64::from_le_bytes(*handle);
            let number = self.add_unmodelled(Kind::Graph, handle, "of conditional node", call);
            self.bodies.insert(handle, number);
        }
    }

    /// The graph of a conditional node.
    pub(crate) fn body(&self, handle: u64) -> Option<u32> {
        self.bodies.get(&handle).copied()
    }

    /// The memory of an allocation node that an address lies in: number, offset.
    pub(crate) fn in_node_memory(&self, address: u64) -> Option<(u32, u64)> {
        if self.node_memory.is_empty() {
            return None;
        }
        let (range, &number) = self.node_memory.find(address)?;
        Some((number, address.saturating_sub(range.start)))
    }

    /// The reservation that an address lies in: number, offset.
    pub(crate) fn reserved(&self, address: u64) -> Option<(u32, u64)> {
        let (range, &number) = self.reservations.find(address)?;
        Some((number, address.saturating_sub(range.start)))
    }
}
