//! Products by cublasLt: which ones, their plans, and the memory they share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use seam_device::{Buffer, BufferRange, BufferUse, DType, DeviceError, Gemm, Precision};
use seam_kernels::gemm::{FEW_ROWS, parts};

use crate::blas::{ALIGN, Plan, Session, Shape, WORKSPACE};
use crate::core::{Core, lock};
use crate::driver::{Address, Refusal, Stream};
use crate::memory::{alloc, memory};

/// The library in a device, and what its products share.
pub(crate) struct Products {
    session: Arc<Session>,
    /// By shape and alignment; `None` where the library has no algorithm.
    plans: Mutex<HashMap<Shape, Option<Arc<Plan>>>>,
    shared: Mutex<Shared>,
}

/// Memory that all lists use one after another (see `Timeline::order`).
#[derive(Default)]
struct Shared {
    workspace: Option<Buffer>,
    /// A in bf16. It grows by replacement: a list keeps the one that it was recorded with.
    scratch: Option<Buffer>,
}

/// A product as it is recorded: first `A` goes to `parts`, then each part is multiplied.
pub(crate) struct Planned {
    plan: Arc<Plan>,
    workspace: Buffer,
    /// Where the parts of A go: `count` of them, `stride` bytes apart, the least significant first.
    pub(crate) parts: BufferRange,
    pub(crate) count: u32,
    stride: u64,
}

/// One call of the library.
pub(crate) struct Product {
    plan: Arc<Plan>,
    /// W, A, C.
    operands: [Address; 3],
    accumulate: bool,
    workspace: Address,
}

impl Product {
    pub(crate) fn run(&self, stream: &Stream) -> Result<(), Refusal> {
        self.plan.run(stream, self.operands, self.accumulate, self.workspace)
    }
}

/// Sizes of scratch memory: few, so that lists share it.
fn grown(bytes: u64) -> u64 {
    const STEP: u64 = 64 << 20;
    if bytes < STEP { bytes.next_power_of_two() } else { bytes.next_multiple_of(STEP) }
}

/// Whether the library takes such a product: few rows are bound by the bytes of W, which the own kernel reads once, and
/// f32 weights have no tensor cores that keep their bits.
fn takes(gemm: &Gemm) -> bool {
    gemm.m > FEW_ROWS && gemm.weight == DType::BF16
}

impl Products {
    pub(crate) fn new(session: Session) -> Self {
        Self { session: Arc::new(session), plans: Mutex::default(), shared: Mutex::default() }
    }

    /// Number of shapes for which a plan was sought.
    #[cfg(test)]
    pub(crate) fn plans(&self) -> usize {
        lock(&self.plans).len()
    }

    fn plan(&self, core: &Core, shape: &Shape) -> Result<Option<Arc<Plan>>, DeviceError> {
        let mut plans = lock(&self.plans);
        if let Some(plan) = plans.get(shape) {
            return Ok(plan.clone());
        }
        let plan = core.gpu.done("plan a product", Plan::new(&self.session, shape))?.map(Arc::new);
        plans.insert(*shape, plan.clone());
        Ok(plan)
    }

    /// The buffer in `slot` with at least `bytes`, new if there is none.
    fn memory(core: &Core, slot: &mut Option<Buffer>, label: &str, bytes: u64) -> Result<Buffer, DeviceError> {
        if let Some(buffer) = slot.as_ref().filter(|b| b.bytes() >= bytes) {
            return Ok(buffer.clone());
        }
        // The smaller one goes as soon as its lists are gone.
        *slot = None;
        let buffer = alloc(core, label, grown(bytes), BufferUse::Storage)?;
        *slot = Some(buffer.clone());
        Ok(buffer)
    }

    /// How a product that was checked is computed; none if it is left to the own kernels.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], or what library and driver say.
    pub(crate) fn planned(&self, core: &Core, gemm: &Gemm) -> Result<Option<Planned>, DeviceError> {
        if !takes(gemm) {
            return Ok(None);
        }
        // Rows of A in bf16 begin at multiples of 16 bytes.
        let lda = parts::leading(gemm.k);
        let byte = (u64::from(gemm.c_column) * 4) | u64::from(ALIGN);
        let align_c = 1u32 << byte.trailing_zeros();
        let &Gemm { m, n, k, ldc, .. } = gemm;
        let Some(plan) = self.plan(core, &Shape { m, n, k, lda, ldc, align_c })? else { return Ok(None) };
        let count = match core.caps.precision {
            Precision::F32 => 3,
            Precision::Bf16 => 1,
        };
        let stride = parts::stride(m, k);
        let bytes = stride * u64::from(count);
        let mut shared = lock(&self.shared);
        let workspace = Self::memory(core, &mut shared.workspace, "workspace of products", WORKSPACE)?;
        let scratch = Self::memory(core, &mut shared.scratch, "operands of products", bytes)?;
        Ok(Some(Planned { plan, workspace, parts: scratch.range(0, bytes)?, count, stride }))
    }
}

impl Planned {
    /// The calls that follow the split of A, and the memory they need beside the operands.
    ///
    /// # Errors
    /// [`DeviceError::ForeignBuffer`].
    pub(crate) fn calls(&self, core: &Core, gemm: &Gemm) -> Result<(Vec<Product>, [Buffer; 2]), DeviceError> {
        let at =
            |range: &BufferRange| Ok::<_, DeviceError>(memory(core, &range.buffer)?.address().offset(range.offset));
        let (w, a) = (at(&gemm.w)?, at(&self.parts)?);
        let c = at(&gemm.c)?.offset(u64::from(gemm.c_column) * 4);
        let workspace = at(&self.workspace.all())?;
        let call = |part: u32| Product {
            plan: Arc::clone(&self.plan),
            operands: [w, a.offset(u64::from(part) * self.stride), c],
            accumulate: gemm.accumulate || part > 0,
            workspace,
        };
        Ok(((0..self.count).map(call).collect(), [self.workspace.clone(), self.parts.buffer.clone()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_has_few_sizes() {
        assert_eq!([1, 3, 4096, (64 << 20) - 1].map(grown), [1, 4, 4096, 64 << 20]);
        assert_eq!([(64 << 20) + 1, 300 << 20].map(grown), [128 << 20, 320 << 20]);
    }
}
