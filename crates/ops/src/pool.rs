//! Slabs of every layer of one kind: one allocator of places, one buffer per layer and slab.

use std::sync::Arc;

use seam_device::{Buffer, BufferRange, BufferUse, Device, Place, Slabs, SlabsFull};

use crate::error::OpError;

/// The pool cannot give the memory.
#[derive(Debug, thiserror::Error)]
pub enum PoolFull {
    /// No slab may be added, or the request is larger than a slab.
    #[error("{pool}: {source}")]
    Slabs {
        /// The pool.
        pool: &'static str,
        /// The sizes.
        source: SlabsFull,
    },
    /// The device has no memory for another slab.
    #[error("{pool}: {source}")]
    Device {
        /// The pool.
        pool: &'static str,
        /// What the device said.
        source: OpError,
    },
}

/// Places that mean the same offset in the slabs of every layer. The unit is a KV row or a word.
pub struct LayerPool {
    name: &'static str,
    device: Arc<dyn Device>,
    unit_bytes: u64,
    layers: usize,
    slabs: Slabs,
    /// `[slab][layer]`.
    buffers: Vec<Vec<Buffer>>,
}

impl LayerPool {
    /// A pool for `layers` layers with units of `unit_bytes`; a slab has about `slab_bytes` per layer, never more than
    /// the device can bind.
    ///
    /// # Errors
    /// [`OpError::Shape`] if one unit passes the binding limit.
    pub fn new(
        name: &'static str,
        device: &Arc<dyn Device>,
        layers: usize,
        unit_bytes: u64,
        slab_bytes: u64,
    ) -> Result<Self, OpError> {
        let limit = device.caps().max_binding.min(device.caps().max_buffer).min(slab_bytes.max(unit_bytes));
        // Kernels address a slab by u32 word offsets.
        let units = (limit.min(u64::from(u32::MAX) * 4) / unit_bytes.max(1)).min(u64::from(u32::MAX)) as u32;
        if units == 0 && layers > 0 {
            return Err(OpError::shape("pool", format!("{name}: a unit of {unit_bytes} bytes passes {limit}")));
        }
        Ok(Self { name, device: Arc::clone(device), unit_bytes, layers, slabs: Slabs::new(units), buffers: Vec::new() })
    }

    /// Units in one slab: the longest contiguous place.
    #[must_use]
    pub fn slab_units(&self) -> u32 {
        self.slabs.units()
    }

    /// Bytes of `units` units over all layers.
    #[must_use]
    pub fn bytes(&self, units: u64) -> u64 {
        units * self.unit_bytes * self.layers as u64
    }

    /// Units now in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.slabs.used()
    }

    /// Slabs open.
    #[must_use]
    pub fn slabs(&self) -> u32 {
        self.buffers.len() as u32
    }

    /// A contiguous place of `units`.
    ///
    /// # Errors
    /// [`PoolFull`].
    pub fn alloc(&mut self, units: u32) -> Result<Place, PoolFull> {
        let place = self.slabs.alloc(units).map_err(|source| PoolFull::Slabs { pool: self.name, source })?;
        while self.buffers.len() < self.slabs.slabs() as usize {
            let bytes = u64::from(self.slabs.units()) * self.unit_bytes;
            let opened: Result<Vec<_>, _> =
                (0..self.layers).map(|_| self.device.alloc(self.name, bytes, BufferUse::Storage)).collect();
            match opened {
                Ok(layers) => self.buffers.push(layers),
                Err(error) => {
                    self.slabs.free(place);
                    self.slabs.close_last();
                    return Err(PoolFull::Device { pool: self.name, source: error.into() });
                }
            }
        }
        Ok(place)
    }

    /// `units` in as many places as the slab size asks for, in order.
    ///
    /// # Errors
    /// [`PoolFull`]; nothing stays allocated.
    pub fn alloc_blocks(&mut self, units: u32) -> Result<Vec<Place>, PoolFull> {
        let mut places = Vec::new();
        let mut left = units;
        while left > 0 {
            match self.alloc(left.min(self.slab_units())) {
                Ok(place) => {
                    left -= place.len;
                    places.push(place);
                }
                Err(full) => {
                    places.into_iter().for_each(|p| self.free(p));
                    return Err(full);
                }
            }
        }
        Ok(places)
    }

    /// Gives a place back.
    pub fn free(&mut self, place: Place) {
        let freed = self.slabs.free(place);
        debug_assert!(freed, "{}: {place:?} was not in use", self.name);
    }

    /// The buffer of one slab of one layer (counted among the layers of the pool's kind).
    #[must_use]
    pub fn buffer(&self, layer: usize, slab: u32) -> Option<&Buffer> {
        self.buffers.get(slab as usize)?.get(layer)
    }

    /// The memory of a place in one layer.
    ///
    /// # Errors
    /// [`OpError::Shape`] if there is no such slab or layer.
    pub fn range(&self, layer: usize, place: Place) -> Result<BufferRange, OpError> {
        let buffer = self.buffer(layer, place.slab).ok_or_else(|| {
            OpError::shape("pool", format!("{} has no slab {} of layer {layer}", self.name, place.slab))
        })?;
        Ok(buffer.range(u64::from(place.offset) * self.unit_bytes, u64::from(place.len) * self.unit_bytes)?)
    }
}
