//! One quantized matrix: its tensors and its numbers.

use half::{bf16, f16};
use safetensors::tensor::Dtype;

use super::super::rows::each_row;
use super::super::shard::{FLOATS, Shards, Stored};
use super::MLX_KEY;
use super::codes::{WORD, code, place, word};
use super::scheme::{Codes, Gptq, Grid, MLX, MODELOPT, Scheme};
use super::stored::{factor_name, refuse_factors, scale_name};
use crate::LoadError;
use crate::memory::floats;

/// The checked tensors of a quantized matrix `[rows, columns]`.
pub(in crate::weights) struct QuantizedMatrix<'a> {
    pub(super) scheme: &'a Scheme,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) codes: Stored<'a>,
    pub(super) scales: Tensor<'a>,
    /// The factor of all scales, or what divides them.
    factor: Option<Tensor<'a>>,
    zeros: Option<Tensor<'a>>,
    /// Numbers added to the products of codes and scales.
    minimums: Option<Tensor<'a>>,
    /// The group of each input.
    order: Option<Tensor<'a>>,
    pub(super) cells: Cells,
}

/// A stored tensor and its name.
pub(super) struct Tensor<'a> {
    pub(super) name: String,
    pub(super) stored: Stored<'a>,
}

/// The place of the scale of a weight.
#[derive(Clone, Copy)]
pub(super) struct Cells {
    /// Rows and columns that share a scale.
    pub(super) size: [usize; 2],
    /// Distance of the scales of two cells that follow each other down and to the right.
    pub(super) strides: [usize; 2],
    /// Number of scales, down and to the right.
    counts: [usize; 2],
}

impl Cells {
    fn new(scheme: &Scheme, rows: usize, columns: usize) -> Self {
        let size = match scheme.grid {
            Grid::Matrix => [rows, columns],
            Grid::Rows => [1, columns],
            Grid::Groups(size) => [1, size],
            Grid::Blocks(size) => size,
        };
        let size = size.map(|size| size.max(1));
        let counts = [rows.div_ceil(size[0]), columns.div_ceil(size[1])];
        let strides = match scheme.is_transposed() {
            true => [1, rows],
            false => [counts[1], 1],
        };
        Self { size, strides, counts }
    }

    /// The index of the scale of a weight.
    pub(super) fn index(&self, row: usize, column: usize) -> usize {
        row / self.size[0] * self.strides[0] + column / self.size[1] * self.strides[1]
    }

    /// The shapes that scales may have.
    fn shapes(&self, scheme: &Scheme) -> Vec<Vec<usize>> {
        let [down, right] = self.counts;
        match scheme.grid {
            _ if scheme.is_transposed() => vec![vec![right, down]],
            Grid::Matrix => vec![vec![1], vec![], vec![1, 1]],
            Grid::Rows => vec![vec![down, 1], vec![down]],
            _ => vec![vec![down, right]],
        }
    }
}

impl<'a> QuantizedMatrix<'a> {
    /// Looks the tensors up.
    ///
    /// # Errors
    /// A tensor that is missing, or has another type or shape than the scheme implies.
    pub(super) fn find(
        scheme: &'a Scheme,
        shards: &'a Shards,
        module: &str,
        [rows, columns]: [usize; 2],
    ) -> Result<Self, LoadError> {
        let bits = scheme.bits();
        let in_word = (WORD / bits) as usize;
        let (shape, dtype) = scheme.stored_codes([rows, columns]);
        let find = |part: &str, shapes: &[&[usize]], types: &[Dtype]| {
            let name = format!("{module}.{part}");
            let stored = shards.find_any(&name, shapes)?;
            match types.contains(&stored.dtype) {
                true => Ok(Tensor { name, stored }),
                false => Err(other_type(scheme, &name, &stored, types)),
            }
        };
        let codes = find(scheme.tensor(), &[&shape], &[dtype])?;
        check_division(scheme, module, [rows, columns])?;
        let cells = Cells::new(scheme, rows, columns);
        let shapes = cells.shapes(scheme);
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let scale = scale_name(scheme, shards, module);
        let scales = match scheme.scale_numbers() {
            Some(_) if scheme.method == MLX => find(scale, &shapes, &[Dtype::U8])?,
            Some(_) => find(scale, &shapes, &[Dtype::F8_E4M3])?,
            None => find(scale, &shapes, &FLOATS)?,
        };
        let factor = match scheme.codes {
            Codes::Nvfp4 if scheme.method != MLX => {
                Some(find(factor_name(scheme), &[&[], &[1]], &[Dtype::F32])?)
            }
            _ => None,
        };
        if scheme.codes == Codes::Nvfp4 && scheme.method == MLX {
            refuse_factors(shards, module)?;
        }
        let minimums = match scheme.codes {
            Codes::Stream(_) => Some(find("biases", &shapes, &[scales.stored.dtype])?),
            _ => None,
        };
        let [down, right] = cells.counts;
        let zeros = match (scheme.zeros, scheme.codes) {
            (false, _) => None,
            (true, Codes::Gptq(_) | Codes::Awq) => {
                Some(find("qzeros", &[&[right, down.div_ceil(in_word)]], &[Dtype::I32])?)
            }
            (true, Codes::Packed(_)) => {
                let shape = [down.div_ceil(in_word), right];
                Some(find("weight_zero_point", &[&shape], &[Dtype::I32])?)
            }
            (true, _) => Some(find("weight_zero_point", &shapes, &[Dtype::I8])?),
        };
        let order = match scheme.codes {
            Codes::Gptq(Gptq { ordered, .. })
                if ordered || shards.dtype(&format!("{module}.g_idx")).is_some() =>
            {
                Some(find("g_idx", &[&[columns]], &[Dtype::I32])?)
            }
            _ => None,
        };
        if let Codes::Packed(_) = scheme.codes {
            let stated = find("weight_shape", &[&[2]], &[Dtype::I64, Dtype::I32])?;
            check_shape(&stated, [rows, columns])?;
        }
        let codes = codes.stored;
        Ok(Self { scheme, rows, columns, codes, scales, factor, zeros, minimums, order, cells })
    }

    /// Bytes of the tensors in the file.
    pub(in crate::weights) fn stored_bytes(&self) -> usize {
        let others = [&self.factor, &self.zeros, &self.minimums, &self.order];
        let others = others.into_iter().flatten().chain([&self.scales]);
        let others = others.map(|tensor| tensor.stored.bytes.len());
        self.codes.bytes.len() + others.sum::<usize>()
    }

    /// Bytes of scales, zero points and groups while the matrix is read.
    pub(in crate::weights) fn extra_bytes(&self) -> usize {
        let scales = self.cells.counts[0].saturating_mul(self.cells.counts[1]);
        let zeros = self.zeros.as_ref().or(self.minimums.as_ref()).map_or(0, |_| scales);
        let order = self.order.as_ref().map_or(0, |_| self.columns);
        floats(scales.saturating_add(zeros))
            .saturating_add(order.saturating_mul(size_of::<usize>()))
    }

    /// Appends the numbers in row-major order; they are finite.
    ///
    /// # Errors
    /// A file that cannot be read, a group that does not exist, a number that is not finite.
    pub(in crate::weights) fn read(&self, name: &str, out: &mut Vec<f32>) -> Result<(), LoadError> {
        let scales = self.read_scales()?;
        let zeros = self.read_zeros()?;
        let minimums = self.read_minimums()?;
        let order = self.read_order()?;
        let codes = self.codes.slice()?;
        let rounded = self.rounding();
        let first = out.len();
        out.resize(first + self.rows * self.columns, 0.0);
        let (cells, kind) = (&self.cells, self.scheme.codes);
        each_row(&mut out[first..], self.columns, |row, row_values| {
            kind.read_row(&codes, self.rows, row, row_values);
            let start = row / cells.size[0] * cells.strides[0];
            let scale = |cell: usize, x: f32| {
                let index = start + cell * cells.strides[1];
                let x = (x - zeros.get(index).copied().unwrap_or(self.zero())) * scales[index];
                minimums.get(index).map_or(x, |minimum| rounded(x) + minimum)
            };
            match &order {
                Some(order) => {
                    row_values.iter_mut().zip(order).for_each(|(x, group)| *x = scale(*group, *x));
                }
                None => {
                    for (cell, values) in row_values.chunks_mut(cells.size[1]).enumerate() {
                        values.iter_mut().for_each(|x| *x = scale(cell, *x));
                    }
                }
            }
            row_values.iter_mut().for_each(|x| *x = rounded(*x));
        });
        self.codes.check_finite(name, &out[first..])
    }

    /// The type in which the format's library computes.
    fn rounding(&self) -> fn(f32) -> f32 {
        match self.scales.stored.dtype {
            Dtype::F32 => |x| x,
            Dtype::F16 => |x| f16::from_f32(x).to_f32(),
            // Also the type of models whose scales have 8 bits.
            _ => |x| bf16::from_f32(x).to_f32(),
        }
    }

    /// The minimums in the order of the scales, empty if none are stored.
    pub(super) fn read_minimums(&self) -> Result<Vec<f32>, LoadError> {
        let mut all = Vec::new();
        if let Some(minimums) = &self.minimums {
            minimums.stored.read(&minimums.name, &mut all)?;
        }
        Ok(all)
    }

    /// The scales in the file's order.
    pub(super) fn read_scales(&self) -> Result<Vec<f32>, LoadError> {
        let (scales, mut all) = (&self.scales, Vec::new());
        let Some(numbers) = self.scheme.scale_numbers() else {
            scales.stored.read(&scales.name, &mut all)?;
            return Ok(all);
        };
        let factor = self.stated_factor()?;
        let bytes = scales.stored.slice()?;
        let numbers = bytes.iter().map(|byte| numbers[usize::from(*byte)]);
        all = match self.scheme.method {
            MODELOPT => numbers.map(|scale| scale * factor).collect(),
            _ => numbers.map(|scale| scale / factor).collect(),
        };
        scales.stored.check_finite(&scales.name, &all)?;
        Ok(all)
    }

    /// The factor of all scales.
    pub(super) fn read_factor(&self) -> Result<f32, LoadError> {
        let factor = self.stated_factor()?;
        Ok(if self.scheme.method == MODELOPT { factor } else { 1.0 / factor })
    }

    /// The stored factor, 1 without one.
    fn stated_factor(&self) -> Result<f32, LoadError> {
        let mut all = vec![1.0];
        if let Some(factor) = &self.factor {
            factor.stored.read(&factor.name, &mut all)?;
        }
        Ok(all.last().copied().unwrap_or(1.0))
    }

    /// The zero point of codes without stored ones.
    pub(super) fn zero(&self) -> f32 {
        match self.scheme.codes {
            Codes::Packed(bits) => (1 << (bits - 1)) as f32,
            _ => 0.0,
        }
    }

    /// The zero points in the order of the scales, empty if none are stored.
    pub(super) fn read_zeros(&self) -> Result<Vec<f32>, LoadError> {
        let Some(zeros) = &self.zeros else {
            return Ok(Vec::new());
        };
        let bytes = &*zeros.stored.slice()?;
        let (codes, bits) = (self.scheme.codes, self.scheme.bits());
        if matches!(codes, Codes::Integers(_)) {
            return Ok(bytes.iter().map(|byte| f32::from(byte.cast_signed())).collect());
        }
        let in_word = (WORD / bits) as usize;
        let [down, right] = self.cells.counts;
        // A carry goes into the next zero point of a word, as in GPTQModel.
        let one = match codes {
            Codes::Gptq(Gptq { one_less: true, .. }) => u32::MAX / ((1 << bits) - 1),
            _ => 0,
        };
        let mut all = vec![0.0; down * right];
        for row in 0..down {
            for cell in 0..right {
                let number = match self.scheme.is_transposed() {
                    true => cell * down.div_ceil(in_word) + row / in_word,
                    false => row / in_word * right + cell,
                };
                let index = row * self.cells.strides[0] + cell * self.cells.strides[1];
                let word = word(bytes, number).wrapping_add(one);
                all[index] = code(word, bits, place(codes, bits, row));
            }
        }
        Ok(all)
    }

    /// The group of each input, if it is stored.
    pub(super) fn read_order(&self) -> Result<Option<Vec<usize>>, LoadError> {
        let Some(order) = &self.order else {
            return Ok(None);
        };
        let bytes = order.stored.slice()?;
        let groups = self.cells.counts[1];
        let all = (0..self.columns).map(|input| {
            let found = word(&bytes, input);
            match usize::try_from(found) {
                Ok(group) if group < groups => Ok(group),
                _ => Err(LoadError::Tensor {
                    file: order.stored.file().to_owned(),
                    tensor: order.name.clone(),
                    expected: format!("groups of 0 to {}", groups - 1),
                    found: format!("{} at element {input}", found.cast_signed()),
                }),
            }
        });
        all.collect::<Result<_, _>>().map(Some)
    }
}

/// Refuses a matrix that groups or words do not divide.
fn check_division(
    scheme: &Scheme,
    module: &str,
    [rows, columns]: [usize; 2],
) -> Result<(), LoadError> {
    let refuse = |group: usize, found: usize| {
        let tensor = format!("{module}.{}", scheme.tensor());
        Err(LoadError::Group { tensor, group, dtype: scheme.method, found })
    };
    match (scheme.grid, scheme.codes) {
        (_, Codes::Awq) if !rows.is_multiple_of(8) => refuse(8, rows),
        // GPTQ's last group may be shorter.
        (Grid::Groups(_), Codes::Gptq(_)) => Ok(()),
        (Grid::Groups(size), _) if !columns.is_multiple_of(size) => refuse(size, columns),
        _ => Ok(()),
    }
}

/// Refuses a stated shape that is not the matrix's.
fn check_shape(stated: &Tensor<'_>, shape: [usize; 2]) -> Result<(), LoadError> {
    let bytes = stated.stored.slice()?;
    let found: Vec<i64> = match stated.stored.dtype {
        Dtype::I64 => bytes.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b)).collect(),
        _ => bytes.as_chunks().0.iter().map(|&b| i64::from(i32::from_le_bytes(b))).collect(),
    };
    let is_same = |(found, size): (&i64, usize)| usize::try_from(*found).ok() == Some(size);
    match found.iter().zip(shape).all(is_same) {
        true => Ok(()),
        false => Err(LoadError::Tensor {
            file: stated.stored.file().to_owned(),
            tensor: stated.name.clone(),
            expected: format!("the numbers {shape:?}"),
            found: format!("{found:?}"),
        }),
    }
}

/// The error for a tensor of another type than the scheme implies.
fn other_type(scheme: &Scheme, name: &str, stored: &Stored<'_>, types: &[Dtype]) -> LoadError {
    let types: Vec<String> = types.iter().map(|dtype| format!("{dtype:?}")).collect();
    let key = if scheme.method == MLX { MLX_KEY } else { "the quantization's configuration" };
    LoadError::TensorType {
        file: stored.file().to_owned(),
        tensor: name.to_owned(),
        expected: format!("{} by {key}", types.join(", ")),
        found: format!("{:?}", stored.dtype),
    }
}
