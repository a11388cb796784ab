//! Exported handles, as far as they tell objects apart.

use std::hash::{DefaultHasher, Hash, Hasher};

use cutape_model::Identity;

/// What is compared of an exported handle: bytes, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Handle(Option<u64>);

impl Handle {
    /// Whether the handle is bytes, which the driver makes unique for each object.
    pub(super) fn is_unique(self) -> bool {
        self.0.is_some()
    }
}

/// The handle behind an identity.
pub(super) fn handle_of(identity: &Identity) -> Handle {
    let Identity::Bytes(bytes) = identity else {
        return Handle(None);
    };
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Handle(Some(hasher.finish()))
}
