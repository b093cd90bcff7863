//! Loading the weights of experts: fused over all experts, or a tensor for each.

use seam_device::{DType, HostBytes};
use seam_ops::{BlockScales, ExpertBytes, ExpertWeight};

use crate::error::{ModelError, narrow};
use crate::fp8::{BlockRows, merged};
use crate::loader::Loader;
use crate::weights::HostTensor;

/// Rows of an expert as they are stored, with the scales of FP8.
struct Piece {
    tensor: HostTensor,
    blocks: Option<BlockRows>,
}

impl Piece {
    /// Bytes of `dtype`, which is the stored one or f32.
    fn bytes(&self, dtype: DType, k: usize) -> Result<HostBytes, ModelError> {
        Ok(match &self.blocks {
            _ if self.tensor.dtype == dtype => self.tensor.bytes.clone(),
            Some(blocks) => blocks.widened(self.tensor.bytes.as_slice(), k),
            None => HostBytes::from_vec(bytemuck::cast_slice(&self.tensor.to_f32()?).to_vec()),
        })
    }
}

/// The dtype in which tensors of these dtypes are kept together: bf16, f32 and FP8 as stored, all others as f32.
fn common(mut dtypes: impl Iterator<Item = DType>) -> DType {
    match dtypes.next() {
        Some(first @ (DType::BF16 | DType::F32 | DType::F8E4M3)) if dtypes.all(|d| d == first) => first,
        _ => DType::F32,
    }
}

impl Loader<'_> {
    /// Weights `[experts, n, k]` from one tensor of that shape.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn experts(&self, name: &str, shape: [usize; 3]) -> Result<ExpertWeight, ModelError> {
        let [experts, n, k] = shape;
        let tensor = self.take(name, &shape)?;
        let dtype = common(std::iter::once(tensor.dtype));
        let scales = match dtype {
            DType::F8E4M3 => Some(BlockScales { shift: 7, values: self.scales(name, &[experts], [n, k])? }),
            _ => None,
        };
        let bytes = Piece { tensor, blocks: None }.bytes(dtype, k)?;
        self.expert_weight((name, dtype), shape, ExpertBytes::Whole(&bytes), scales)
    }

    /// Weights `[experts, Σ n, k]` of which expert e has the rows of `<prefix>.<e>.<part>` for each part, a tensor
    /// `[n, k]`, one after the other.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn experts_of_parts(
        &self,
        (prefix, parts): (&str, &[&str]),
        [experts, n, k]: [usize; 3],
    ) -> Result<ExpertWeight, ModelError> {
        let piece = |expert: usize, part: &str| -> Result<Piece, ModelError> {
            let name = format!("{prefix}.{expert}.{part}");
            let tensor = self.take(&name, &[n, k])?;
            let blocks = match tensor.dtype {
                DType::F8E4M3 => Some(BlockRows { values: self.scales(&name, &[], [n, k])?, rows: 0..n }),
                _ => None,
            };
            Ok(Piece { tensor, blocks })
        };
        let mut all = Vec::with_capacity(experts);
        for expert in 0..experts {
            all.push(parts.iter().map(|part| piece(expert, part)).collect::<Result<Vec<_>, _>>()?);
        }
        let dtype = common(all.iter().flatten().map(|piece| piece.tensor.dtype));
        let bytes = |pieces: &Vec<Piece>| pieces.iter().map(|p| p.bytes(dtype, k)).collect::<Result<Vec<_>, _>>();
        let bytes = all.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
        let scales = (dtype == DType::F8E4M3).then(|| {
            let mut scales = BlockScales { shift: 0, values: Vec::new() };
            for pieces in all {
                let blocks: Vec<BlockRows> = pieces.into_iter().filter_map(|piece| piece.blocks).collect();
                // Experts are alike, and so is the number of rows that share a scale.
                let BlockScales { shift, values } = merged(&blocks, k);
                scales.shift = shift;
                scales.values.extend(values);
            }
            scales
        });
        let name = format!("{prefix}.{}", parts.join(" + "));
        self.expert_weight((&name, dtype), [experts, n * parts.len(), k], ExpertBytes::Pieces(&bytes), scales)
    }

    fn expert_weight(
        &self,
        (name, dtype): (&str, DType),
        [experts, n, k]: [usize; 3],
        bytes: ExpertBytes<'_>,
        scales: Option<BlockScales>,
    ) -> Result<ExpertWeight, ModelError> {
        let (n, k) = (narrow("rows of an expert", n)?, narrow("columns of an expert", k)?);
        let shape = [narrow("experts", experts)?, n, k];
        Ok(ExpertWeight::load(self.device, name, dtype, shape, bytes, scales.as_ref())?)
    }
}
