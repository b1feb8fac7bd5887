//! A map from block keys.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use lmetric_prefix::BlockKey;

/// Keys are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A map whose keys are block keys.
pub(crate) type KeyMap<V> = HashMap<BlockKey, V, BuildHasherDefault<KeyHasher>>;
