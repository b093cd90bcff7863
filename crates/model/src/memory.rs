//! The slabs of one model on one device.

use std::sync::Arc;

use seam_device::{Buffer, BufferRange, BufferUse, Device};
use seam_ops::{LayerPool, OpError, SlabId};

use crate::spec::StackSpec;

/// KV and states of running work (private), KV and operators of cached entries (shared).
pub struct Memory {
    /// KV rows that passes write.
    pub kv_private: LayerPool,
    /// KV rows of entries.
    pub kv_shared: LayerPool,
    /// State slots, in words.
    pub states: LayerPool,
    /// Operators of entries, in words.
    pub operators: LayerPool,
    empty: Buffer,
}

impl Memory {
    /// Empty pools whose slabs have about `slab_bytes` per layer.
    ///
    /// # Errors
    /// [`OpError`] if a single token or state passes the device's binding limit.
    pub fn new(device: &Arc<dyn Device>, spec: &StackSpec, slab_bytes: u64) -> Result<Self, OpError> {
        let (kv_layers, row) = spec.kv.map_or((0, 4), |kv| (kv.layers, kv.row_bytes()));
        let layers = spec.linear.map_or(0, |l| l.layers);
        let slot = spec.linear.map_or(0, |l| u64::from(l.slot_words(true)) * 4);
        let limit = device.caps().max_binding;
        if slot > limit {
            return Err(OpError::Shape {
                op: "memory",
                what: format!("a slot of one layer has {slot} bytes, the device binds {limit}"),
            });
        }
        let words = slab_bytes.max(slot);
        Ok(Self {
            kv_private: LayerPool::new("private KV", device, kv_layers, row, slab_bytes)?,
            kv_shared: LayerPool::new("shared KV", device, kv_layers, row, slab_bytes)?,
            states: LayerPool::new("states", device, layers, 4, words)?,
            operators: LayerPool::new("operators", device, layers, 4, words)?,
            empty: device.alloc("no slab", 256, BufferUse::Storage)?,
        })
    }

    fn bound(&self, pool: &LayerPool, layer: usize, slab: Option<u32>) -> BufferRange {
        slab.and_then(|slab| pool.buffer(layer, slab)).unwrap_or(&self.empty).all()
    }

    /// What a launch of a linear layer binds: the private state slab, then three shared operator slabs. `layer` counts
    /// the linear layers.
    #[must_use]
    pub fn linear_slabs(&self, layer: usize, private: Option<u32>, shared: &[u32]) -> [BufferRange; 4] {
        let shared = |i: usize| self.bound(&self.operators, layer, shared.get(i).copied());
        [self.bound(&self.states, layer, private), shared(0), shared(1), shared(2)]
    }

    /// What an attention launch binds. `layer` counts the full-attention layers.
    #[must_use]
    pub fn kv_slabs(&self, layer: usize, slabs: &[SlabId]) -> [BufferRange; 4] {
        std::array::from_fn(|i| match slabs.get(i) {
            Some(SlabId::Private(slab)) => self.bound(&self.kv_private, layer, Some(*slab)),
            Some(SlabId::Shared(slab)) => self.bound(&self.kv_shared, layer, Some(*slab)),
            None => self.empty.all(),
        })
    }
}
