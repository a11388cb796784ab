//! Values that rows repeat: each is kept once, and rows have its number.

use std::borrow::Borrow;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Numbers values in the order in which they come.
#[derive(Debug)]
pub(crate) struct Dictionary<K, V> {
    numbers: FxHashMap<K, u64>,
    /// By number.
    pub(crate) values: Vec<V>,
}

impl<K: Eq + Hash, V> Default for Dictionary<K, V> {
    fn default() -> Self {
        Self {
            numbers: FxHashMap::default(),
            values: Vec::new(),
        }
    }
}

impl<K: Eq + Hash, V> Dictionary<K, V> {
    /// The number of a key; a new one gets the value.
    pub(crate) fn number<Q>(&mut self, key: &Q, value: impl FnOnce() -> V) -> u64
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(&number) = self.numbers.get(key) {
            return number;
        }
        let number = self.values.len() as u64;
        self.numbers.insert(key.to_owned(), number);
        self.values.push(value());
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_have_one_number() {
        let mut names: Dictionary<String, usize> = Dictionary::default();
        let numbers = ["a", "b", "a", "c"].map(|name| names.number(name, || name.len()));
        assert_eq!(numbers, [0, 1, 0, 2]);
        assert_eq!(names.values.len(), 3);
    }
}
