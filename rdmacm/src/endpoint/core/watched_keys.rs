//! The keys of exported memory that a message of the peer may take back.

use std::collections::BTreeMap;

/// Keys of exports, each with `true` if a message has taken it back.
///
/// Only keys that are watched are remembered: a peer that takes back others costs no memory.
#[derive(Debug, Default)]
pub(in crate::endpoint) struct WatchedKeys(BTreeMap<u32, bool>);

impl WatchedKeys {
    /// Watches `key`, which an export has from now on.
    pub(in crate::endpoint) fn watch(&mut self, key: u32) {
        self.0.insert(key, false);
    }

    pub(in crate::endpoint) fn forget(&mut self, key: u32) {
        self.0.remove(&key);
    }

    /// Records that a message has taken `key` back.
    pub(super) fn on_invalidated(&mut self, key: u32) {
        if let Some(is_invalidated) = self.0.get_mut(&key) {
            *is_invalidated = true;
        }
    }

    /// Returns `true` if a message has taken `key` back since it was watched.
    pub(in crate::endpoint) fn is_invalidated(&self, key: u32) -> bool {
        self.0.get(&key) == Some(&true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_watched_key_is_remembered() {
        let mut keys = WatchedKeys::default();
        keys.watch(7);
        keys.on_invalidated(8);
        assert!(!keys.is_invalidated(7) && !keys.is_invalidated(8));
        keys.on_invalidated(7);
        assert!(keys.is_invalidated(7));
        // Another window may get the key later.
        keys.forget(7);
        assert!(!keys.is_invalidated(7));
        keys.watch(7);
        assert!(!keys.is_invalidated(7));
    }
}
