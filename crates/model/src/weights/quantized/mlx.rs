//! Files of MLX: the key `quantization` of mlx-lm and mlx-vlm, and matrices that are kept packed.
//!
//! In the mode `affine` a group of codes has a scale and a minimum, named biases, and a weight is
//! `code * scale + minimum`. `mx.dequantize` rounds the product and the sum to the type of the scales. In the other
//! modes codes are small floats (OCP MX, NVFP4) with scales of 8 bits, and weights are exact in bf16.
//!
//! A module is quantized if its codes are stored. It is so by the settings of the file, or by its own, whose absent
//! keys have the defaults of `to_quantized`, not those of the file.

use half::f16;
use kernels::BlockType;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use super::codes::{E8M0, read_stream};
use super::kept::{BLOCK, half, write_codes};
use super::matrix::QuantizedMatrix;
use super::methods::bits;
use super::modules::Modules;
use super::scheme::{Codes, GROUPS, Grid, MLX, MOST_SCHEMES, Scheme};
use super::{Group, KEY, MLX_KEY, Quantization, Shards};
use crate::LoadError;
use crate::config::Keys;
use crate::files::FileSlice;
use crate::weights::rows::each_row;

/// Bits of the mode `affine`.
const BITS: [u32; 6] = [2, 3, 4, 5, 6, 8];
/// Mode, codes, bits and group of those that are not `affine`.
const MODES: [(&str, Codes, u32, usize); 3] = [
    ("mxfp4", Codes::Mxfp4, 4, 32),
    ("mxfp8", Codes::Floats, 8, 32),
    ("nvfp4", Codes::Nvfp4, 4, 16),
];
/// Bytes of a block before its codes: a scale and a minimum.
const HEAD: usize = 4;
/// The inverse of the largest power of two among 8-bit floats (E4M3).
const INVERSE_POWER: f32 = 1.0 / 256.0;

/// True if MLX wrote the configuration. One with a method of transformers is read as that.
pub(super) fn is_stated(config: &Keys) -> bool {
    let method = config.get(KEY).and_then(|stated| stated.get("quant_method"));
    config.get(MLX_KEY).is_some_and(Value::is_object) && method.is_none_or(Value::is_null)
}

/// Reads the object `quantization`.
///
/// # Errors
/// A setting that is not supported.
pub(super) fn read(config: &Keys) -> Result<Quantization, LoadError> {
    let default = scheme(config)?;
    let mut groups = vec![Group { targets: Modules::all(), scheme: Some(default) }];
    let mut excluded = Modules::default();
    for name in config.names() {
        let own = match config.get(name) {
            Some(Value::Bool(false)) => {
                excluded.add(name);
                continue;
            }
            Some(Value::Object(_)) => scheme(&config.nested(name)?)?,
            _ => continue,
        };
        // The first group has all modules that no other names.
        let found = groups.iter().skip(1).position(|group| group.scheme == Some(own));
        let index = found.map_or(groups.len(), |index| index + 1);
        if index > MOST_SCHEMES {
            let expected = format!("one of at most {MOST_SCHEMES} settings of modules");
            return Err(config.refuse(name, expected));
        }
        if index == groups.len() {
            groups.push(Group { targets: Modules::default(), scheme: Some(own) });
        }
        groups[index].targets.add(name);
    }
    let more = match groups.len() {
        1 => "",
        _ => "; some modules otherwise",
    };
    Ok(Quantization {
        about: format!("{MLX}, {}{more}", default.about()),
        groups,
        excluded,
        is_complete: false,
        is_beside: false,
        by_type: false,
    })
}

/// The settings of the file or of a module.
fn scheme(config: &Keys) -> Result<Scheme, LoadError> {
    config.only("global_scale", &json!(false))?;
    let grouped =
        |codes, size| Scheme { codes, grid: Grid::Groups(size), zeros: false, method: MLX };
    match config.get("mode").map_or(Some("affine"), Value::as_str) {
        Some("affine") => {
            let bits = config.get("bits").map_or(Ok(4), |_| bits(config, "bits", &BITS))?;
            let size = config.optional_count("group_size")?.unwrap_or(64);
            match GROUPS.contains(&size) {
                true => Ok(grouped(Codes::Stream(bits), size)),
                false => Err(config.refuse("group_size", "32, 64 or 128")),
            }
        }
        Some(mode) if let Some(known) = MODES.iter().find(|(name, ..)| *name == mode) => {
            config.only("bits", &json!(known.2))?;
            config.only("group_size", &json!(known.3))?;
            Ok(grouped(known.1, known.3))
        }
        _ => {
            let modes = MODES.map(|(name, ..)| name).join(", ");
            Err(config.refuse("mode", format!("one of affine, {modes}")))
        }
    }
}

impl Quantization {
    /// True if MLX wrote the files.
    pub(super) fn is_mlx(&self) -> bool {
        self.groups.iter().any(|group| group.scheme.is_some_and(|scheme| scheme.method == MLX))
    }

    /// True if a matrix is stored in codes whose numbers are those of bf16.
    pub(in crate::weights) fn is_bf16(&self, shards: &Shards, name: &str) -> bool {
        let module = name.strip_suffix("weight").unwrap_or(name);
        let is_coded = self.is_mlx() && shards.dtype(name) == Some(Dtype::U32);
        is_coded
            && matches!(shards.dtype(&format!("{module}scales")), Some(Dtype::BF16 | Dtype::U8))
    }
}

impl Scheme {
    /// The block type in which codes are kept, `None` if they are not.
    pub(super) fn block_type(&self) -> Option<BlockType> {
        match self.codes {
            Codes::Stream(..=4) => Some(BlockType::Q4_1),
            Codes::Stream(5) => Some(BlockType::Q5_1),
            Codes::Stream(_) => Some(BlockType::AFFINE8),
            Codes::Nvfp4 | Codes::Mxfp4 => Some(BlockType::NVFP4),
            Codes::Floats => Some(BlockType::FP8),
            _ => None,
        }
    }
}

impl QuantizedMatrix<'_> {
    /// The block type that has exactly the codes, the scales and the minimums, `None` if none has.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn mlx_kind(&self) -> Result<Option<BlockType>, LoadError> {
        let Some(kind) = self.scheme.block_type() else {
            return Ok(None);
        };
        let fits = match kind {
            BlockType::NVFP4 => self.powers()?.is_some(),
            _ => self.halves(kind)?.fits(),
        };
        Ok(fits.then_some(kind))
    }

    /// The blocks of a matrix that is kept as `kind`, in row-major order.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn mlx_blocks(&self, kind: BlockType) -> Result<Vec<u8>, LoadError> {
        let lost = || LoadError::Setup(format!("{}: expected other scales", self.scales.name));
        let codes = self.codes.slice()?;
        let row_bytes = self.columns / BLOCK * kind.bytes();
        let mut out = vec![0; self.rows * row_bytes];
        let columns = self.columns;
        if kind == BlockType::NVFP4 {
            let (factor, scales) = self.powers()?.ok_or_else(lost)?;
            each_row(&mut out, row_bytes, |row, bytes| {
                let first = row * columns / BLOCK;
                for (number, block) in (first..).zip(bytes.chunks_exact_mut(kind.bytes())) {
                    block[..4].copy_from_slice(&factor.to_le_bytes());
                    block[4..6].fill(scales[number]);
                    block[6..].copy_from_slice(&codes[number * BLOCK / 2..][..BLOCK / 2]);
                }
            });
            return Ok(out);
        }
        let halves = self.halves(kind)?;
        if !halves.fits() {
            return Err(lost());
        }
        let bits = self.scheme.bits();
        each_row(&mut out, row_bytes, |row, bytes| {
            let mut integers = vec![0_u8; columns];
            read_stream(bits, &codes[row * columns * bits as usize / 8..], &mut integers);
            let blocks = bytes.chunks_exact_mut(kind.bytes()).zip(integers.as_chunks().0);
            for (number, (block, integers)) in blocks.enumerate() {
                let cell = self.cells.index(row, number * BLOCK);
                let [scale, minimum] = halves.pair(cell).unwrap_or_default();
                block[..2].copy_from_slice(&scale.to_le_bytes());
                block[2..HEAD].copy_from_slice(&minimum.to_le_bytes());
                write_codes(integers, &mut block[HEAD..]);
            }
        });
        Ok(out)
    }

    fn halves(&self, kind: BlockType) -> Result<Halves<'_>, LoadError> {
        Ok(Halves {
            kind,
            scales: self.read_scales()?,
            minimums: self.read_minimums()?,
            codes: self.codes.slice()?,
            cell_bytes: self.cells.size[1] * self.scheme.bits() as usize / 8,
        })
    }

    /// The factor and the scales in 8-bit floats that are the powers of two of a matrix's scales, `None` if these
    /// are too far apart. The scale of a group whose codes are all zero does not count.
    fn powers(&self) -> Result<Option<(f32, Vec<u8>)>, LoadError> {
        // Refuses scales that are not finite.
        self.read_scales()?;
        let (scales, codes) = (self.scales.stored.slice()?, self.codes.slice()?);
        let most = scales.iter().copied().max().unwrap_or(0);
        // The largest scale is the largest power of two of 8-bit floats.
        let factor = E8M0[usize::from(most)] * INVERSE_POWER;
        if !factor.is_normal() {
            return Ok(None);
        }
        let small = |scale: u8| match i32::from(scale) - i32::from(most) + 15 {
            power @ 1.. => Some((power << 3) as u8),
            power @ -2..1 => Some(1 << (power + 2)),
            _ => None,
        };
        let group_bytes = BLOCK / 2;
        let all = scales.iter().enumerate().map(|(cell, scale)| {
            let codes = &codes[cell * group_bytes..][..group_bytes];
            small(*scale).or_else(|| codes.iter().all(|pair| pair & 0x77 == 0).then_some(0))
        });
        let all: Option<Vec<u8>> = all.collect();
        Ok(all.map(|scales| (factor, scales)))
    }
}

/// Scales and minimums in 16 bits. The scale of a group whose codes are all zero does not count; MLX writes one of
/// 1e-7.
struct Halves<'a> {
    kind: BlockType,
    scales: Vec<f32>,
    minimums: Vec<f32>,
    codes: FileSlice<'a>,
    /// Bytes of the codes of a scale.
    cell_bytes: usize,
}

impl Halves<'_> {
    /// The scale and the minimum of a cell, `None` if one of them is another number in 16 bits.
    fn pair(&self, cell: usize) -> Option<[f16; 2]> {
        let is_zero = || {
            let codes = &self.codes[cell * self.cell_bytes..][..self.cell_bytes];
            codes.iter().all(|byte| *byte == 0)
        };
        let scale = half(self.kind, self.scales[cell]);
        let scale = scale.or_else(|| is_zero().then_some(f16::ZERO))?;
        Some([scale, half(self.kind, self.minimums[cell])?])
    }

    fn fits(&self) -> bool {
        (0..self.scales.len()).all(|cell| self.pair(cell).is_some())
    }
}
