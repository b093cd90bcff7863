//! Recording: dispatches, products and copies, kept as a list that can run again.

use crate::{Access, Buffer, BufferRange, BufferUse, DType, DeviceError, DeviceId};

/// Index of a kernel in the manifest of the kernels crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId(pub u16);

/// One launch of a kernel.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// Which kernel.
    pub kernel: KernelId,
    /// Values of the kernel's constants, in the order of its manifest entry.
    pub constants: Vec<u32>,
    /// The kernel's parameter struct as bytes; a multiple of 16.
    pub params: Vec<u8>,
    /// One range per binding, in the order of the manifest entry.
    pub bindings: Vec<BufferRange>,
    /// Workgroups along x, y, z. An upper bound: kernels leave early where the pass's tables say so.
    pub grid: [u32; 3],
}

/// Scales of the blocks of an FP8 matrix `[n, k]`.
#[derive(Clone, Debug)]
pub struct Scales {
    /// `[⌈n / 2^shift⌉, ⌈k / 128⌉]` f32.
    pub range: BufferRange,
    /// A scale holds for `2^shift` rows (and 128 columns).
    pub shift: u32,
}

impl Scales {
    /// Columns for which a scale holds.
    pub const COLUMNS: u32 = 128;

    /// Scales of a matrix `[n, k]`.
    #[must_use]
    pub fn count(n: u32, k: u32, shift: u32) -> u64 {
        u64::from(n).div_ceil(1 << shift.min(31)) * u64::from(k.div_ceil(Self::COLUMNS))
    }
}

/// `C[m, n] (+)= A[m, k] · W[n, k]ᵀ`; A and C are f32, W is bf16, f32 or FP8, all row-major.
#[derive(Clone, Debug)]
pub struct Gemm {
    /// Rows of A and C: an upper bound where `rows` is given.
    pub m: u32,
    /// Rows of W, columns of C that are written.
    pub n: u32,
    /// Columns of A and W; a multiple of 4.
    pub k: u32,
    /// Elements from one row of A to the next.
    pub lda: u32,
    /// Elements from one row of C to the next.
    pub ldc: u32,
    /// First column of C that is written.
    pub c_column: u32,
    /// dtype of W.
    pub weight: DType,
    /// Add to C instead of overwriting it.
    pub accumulate: bool,
    /// A.
    pub a: BufferRange,
    /// W, `n` rows of `k`.
    pub w: BufferRange,
    /// FP8: what its blocks are multiplied by. No other W has any.
    pub scales: Option<Scales>,
    /// C.
    pub c: BufferRange,
    /// A u32 that holds the number of rows to compute: `rows.1` is its index in words. What C holds in the rows from there up
    /// to `m` afterwards is up to the device; what A holds there reaches no other row.
    pub rows: Option<(BufferRange, u32)>,
}

/// A copy within one device.
#[derive(Clone, Debug)]
pub struct Copy {
    /// From.
    pub src: BufferRange,
    /// To; the same length.
    pub dst: BufferRange,
}

/// One recorded command.
#[derive(Clone, Debug)]
pub enum Command {
    /// A kernel.
    Dispatch(Dispatch),
    /// A matrix product.
    Gemm(Gemm),
    /// A copy.
    Copy(Copy),
    /// Zeroes a range.
    Zero(BufferRange),
}

/// Records commands for one device. Errors leave the recorder as it was before the call.
pub trait Recorder: Send {
    /// A kernel launch.
    ///
    /// # Errors
    /// [`DeviceError::BadDispatch`], [`DeviceError::Unsupported`], [`DeviceError::ForeignBuffer`],
    /// [`DeviceError::Aliased`], [`DeviceError::TooLarge`] or a range error.
    fn dispatch(&mut self, dispatch: Dispatch) -> Result<(), DeviceError>;

    /// A matrix product.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for a dtype or layout that `caps().gemm` lacks, or a range error.
    fn gemm(&mut self, gemm: Gemm) -> Result<(), DeviceError>;

    /// A copy between two buffers, or between two ranges of one buffer that do not overlap.
    ///
    /// # Errors
    /// A range error, or lengths that differ or are no multiple of 4.
    fn copy(&mut self, src: &BufferRange, dst: &BufferRange) -> Result<(), DeviceError>;

    /// Zeroes a range whose offset and length are multiples of 4.
    ///
    /// # Errors
    /// A range error.
    fn zero(&mut self, dst: &BufferRange) -> Result<(), DeviceError>;

    /// Ends recording.
    ///
    /// # Errors
    /// What the driver says.
    fn finish(self: Box<Self>) -> Result<CommandList, DeviceError>;
}

/// A finished list of commands, which may be submitted any number of times. What changes from run to run is in the
/// buffers it names, mostly the pass's tables.
pub struct CommandList {
    device: DeviceId,
    dispatches: usize,
    handle: Box<dyn std::any::Any + Send + Sync>,
}

impl CommandList {
    /// Wraps a device's own form. Only device crates call this.
    #[must_use]
    pub fn new(device: DeviceId, dispatches: usize, handle: Box<dyn std::any::Any + Send + Sync>) -> Self {
        Self { device, dispatches, handle }
    }

    /// The device it was recorded on.
    #[must_use]
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Kernel launches and products in it.
    #[must_use]
    pub fn dispatches(&self) -> usize {
        self.dispatches
    }

    /// The device's own form, if it is of type `T`.
    #[must_use]
    pub fn handle<T: std::any::Any>(&self) -> Option<&T> {
        self.handle.downcast_ref()
    }
}

impl std::fmt::Debug for CommandList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CommandList({} dispatches)", self.dispatches)
    }
}

fn check_owner(device: (DeviceId, &str), buffer: &Buffer) -> Result<(), DeviceError> {
    if buffer.device() == device.0 {
        return Ok(());
    }
    Err(DeviceError::ForeignBuffer { device: device.1.to_owned(), label: buffer.label().to_owned() })
}

fn check_writable(buffer: &Buffer) -> Result<(), DeviceError> {
    if buffer.usage() == BufferUse::Constant {
        return Err(DeviceError::ReadOnly { label: buffer.label().to_owned() });
    }
    Ok(())
}

/// The rules for bindings that hold on every device: own buffers, aligned ranges within `max_binding`, and no buffer
/// bound both read-only and writable, nor writable twice.
///
/// # Errors
/// The first rule that is broken.
pub fn check_dispatch(
    device: (DeviceId, &str),
    max_binding: u64,
    kernel: &str,
    bindings: &[(Access, &BufferRange)],
) -> Result<(), DeviceError> {
    for (i, (access, range)) in bindings.iter().enumerate() {
        check_owner(device, &range.buffer)?;
        range.check_bindable()?;
        if range.len > max_binding {
            return Err(DeviceError::TooLarge {
                device: device.1.to_owned(),
                label: range.buffer.label().to_owned(),
                bytes: range.len,
                limit: max_binding,
            });
        }
        if range.len == 0 {
            return Err(DeviceError::BadDispatch {
                kernel: kernel.to_owned(),
                reason: format!("binding {i} ({}) is empty", range.buffer.label()),
            });
        }
        if *access == Access::ReadWrite {
            check_writable(&range.buffer)?;
        }
        for (other, earlier) in &bindings[..i] {
            let writes = *access == Access::ReadWrite || *other == Access::ReadWrite;
            if writes && earlier.buffer.same(&range.buffer) {
                return Err(DeviceError::Aliased { kernel: kernel.to_owned(), label: range.buffer.label().to_owned() });
            }
        }
    }
    Ok(())
}

/// The rules for a product that hold on every device.
///
/// # Errors
/// The first rule that is broken.
pub fn check_gemm(device: (DeviceId, &str), max_binding: u64, gemm: &Gemm) -> Result<(), DeviceError> {
    let bad = |reason: String| Err(DeviceError::BadDispatch { kernel: "gemm".to_owned(), reason });
    let Gemm { m, n, k, lda, ldc, c_column, weight, .. } = *gemm;
    if m == 0 || n == 0 || k == 0 || !k.is_multiple_of(4) || !lda.is_multiple_of(4) {
        return bad(format!("m {m}, n {n}, k {k}, lda {lda}: sizes must be above 0, k and lda multiples of 4"));
    }
    if lda < k || u64::from(ldc) < u64::from(c_column) + u64::from(n) {
        return bad(format!("lda {lda} < k {k}, or ldc {ldc} < column {c_column} + n {n}"));
    }
    if (weight == DType::F8E4M3) != gemm.scales.is_some() {
        return bad(format!("{weight} weights, {} scales", if gemm.scales.is_some() { "with" } else { "without" }));
    }
    if let Some(Scales { range, shift }) = &gemm.scales {
        let bytes = Scales::count(n, k, *shift) * 4;
        if *shift >= 32 || range.len < bytes {
            return bad(format!("scales of 2^{shift} rows have {} bytes, need {bytes}", range.len));
        }
    }
    let words = |rows: u32, ld: u32, width: u64| (u64::from(rows) - 1) * u64::from(ld) + width;
    let need = [
        (words(m, lda, u64::from(k)) * 4, &gemm.a, "A"),
        (u64::from(n) * u64::from(k) * weight.size() as u64, &gemm.w, "W"),
        (words(m, ldc, u64::from(c_column) + u64::from(n)) * 4, &gemm.c, "C"),
    ];
    for (bytes, range, name) in need {
        if range.len < bytes {
            return bad(format!("{name} ({}) has {} bytes, needs {bytes}", range.buffer.label(), range.len));
        }
    }
    let mut bindings = vec![(Access::Read, &gemm.a), (Access::Read, &gemm.w), (Access::ReadWrite, &gemm.c)];
    bindings.extend(gemm.scales.iter().map(|s| (Access::Read, &s.range)));
    if let Some((range, index)) = &gemm.rows {
        if u64::from(*index) * 4 + 4 > range.len {
            return bad(format!("row count at word {index} lies outside {}", range.buffer.label()));
        }
        bindings.push((Access::Read, range));
    }
    check_dispatch(device, max_binding, "gemm", &bindings)
}

impl Copy {
    /// The rules for a copy that hold on every device.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self, device: (DeviceId, &str)) -> Result<(), DeviceError> {
        for range in [&self.src, &self.dst] {
            check_owner(device, &range.buffer)?;
        }
        self.check_ranges()
    }

    /// Those of them that hold between devices as well: ranges inside their buffers, at multiples of 4, of one length that
    /// is a multiple of 4, without overlap, the target not constant.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check_ranges(&self) -> Result<(), DeviceError> {
        for range in [&self.src, &self.dst] {
            range.buffer.range(range.offset, range.len)?;
            if !range.offset.is_multiple_of(4) {
                return Err(DeviceError::Misaligned {
                    label: range.buffer.label().to_owned(),
                    offset: range.offset,
                    align: 4,
                });
            }
        }
        check_writable(&self.dst.buffer)?;
        let overlap = self.src.buffer.same(&self.dst.buffer)
            && self.src.offset < self.dst.offset + self.dst.len
            && self.dst.offset < self.src.offset + self.src.len;
        if self.src.len != self.dst.len || !self.src.len.is_multiple_of(4) || overlap {
            return Err(DeviceError::BadDispatch {
                kernel: "copy".to_owned(),
                reason: format!(
                    "{} bytes of {} to {} bytes of {}: lengths must be equal multiples of 4, without overlap",
                    self.src.len,
                    self.src.buffer.label(),
                    self.dst.len,
                    self.dst.buffer.label()
                ),
            });
        }
        Ok(())
    }
}
