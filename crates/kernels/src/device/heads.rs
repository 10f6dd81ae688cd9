//! The heads of attention: norms, rotation, and the write of queries, keys and values, alone or after their
//! product.

use super::array::{Array, Buffer, Precision, select};
use super::attention::PoolLayer;
use super::batch::{DeviceBatch, Section};
use super::launch::{HeadColumns, ProductLaunch};
use super::matrix::DeviceMatrix;
use super::rows::RowNorm;
use super::{Device, Kernel, Result, args, kernel, refuse};
use crate::cache::KvSizes;
use crate::rope::{RopeSpec, RopeTable};

/// The shared memory holds four heads of 512 numbers, for keys and values in int8.
const SPLIT: [Kernel; 2] = [kernel("split_f32", 128, 8 << 10), kernel("split_bf16", 128, 8 << 10)];
pub(super) const KERNELS: &[Kernel] = &SPLIT;

/// The rotary angles on a device.
pub struct DeviceRope {
    /// `[positions, 2, half]`.
    angles: Buffer,
    /// `[positions]`: factors of queries, if they are not all 1.
    query_factors: Option<Buffer>,
    half: usize,
    positions: usize,
}

impl DeviceRope {
    /// Copies the angles of a table.
    pub fn new(device: &Device, table: &RopeTable) -> Result<Self> {
        let (half, positions) = (table.half(), table.positions());
        let factors = table.query_factors();
        let rope = Self::zeroed(device, [half, positions], !factors.is_empty())?;
        rope.angles.write(table.numbers())?;
        if let Some(buffer) = &rope.query_factors {
            buffer.write(factors)?;
        }
        Ok(rope)
    }

    /// Allocates what the table of some angles needs, zeroed.
    pub fn reserve(device: &Device, spec: &RopeSpec) -> Result<Self> {
        let grows = !spec.query_factors().is_empty();
        Self::zeroed(device, [spec.width / 2, spec.positions], grows)
    }

    fn zeroed(device: &Device, [half, positions]: [usize; 2], grows: bool) -> Result<Self> {
        let floats = |numbers: usize| Buffer::new(device, numbers.saturating_mul(size_of::<f32>()));
        Ok(Self {
            angles: floats(half.saturating_mul(2).saturating_mul(positions))?,
            query_factors: grows.then(|| floats(positions)).transpose()?,
            half,
            positions,
        })
    }

    /// Number of positions.
    pub fn positions(&self) -> usize {
        self.positions
    }
}

/// The norm and the rotation of a row's heads.
#[derive(Clone, Copy)]
pub struct HeadTransform<'a> {
    /// The rotation at the row's position.
    pub rope: &'a DeviceRope,
    /// The norm before the rotation, with weights `[h + g, c]`; with weights `[h + 2 g, c]` value heads
    /// are normalised too.
    pub norm: Option<RowNorm<'a>>,
}

/// Where the heads of a batch's rows go.
#[derive(Clone, Copy)]
pub struct HeadRows<'a> {
    /// Norms and rotation.
    pub transform: HeadTransform<'a>,
    /// The positions and slots of the rows.
    pub batch: &'a DeviceBatch,
    /// Keys and values.
    pub layer: PoolLayer<'a>,
}

impl HeadRows<'_> {
    /// The columns of the product that has the heads.
    fn columns(&self) -> HeadColumns {
        let sizes = self.layer.pool.sizes();
        let width = sizes.kv.head_width;
        let rotated = 2 * self.transform.rope.half == width;
        HeadColumns { width, cut: rotated && self.transform.norm.is_none() && !sizes.in_bytes() }
    }

    /// The arguments of kernels that write queries to `q`, and the numbers of a row.
    fn args(&self, q: &Array) -> Result<(args::HeadSplit, usize)> {
        let Self { transform: HeadTransform { rope, norm }, batch, layer } = *self;
        let PoolLayer { pool, layer, .. } = layer;
        let (rows, sizes) = (batch.rows(), pool.sizes());
        let KvSizes { num_kv_heads, head_width: c, page, .. } = sizes.kv;
        if c == 0 || !q.width().is_multiple_of(c) || 2 * rope.half > c || q.stride() != q.width() {
            return refuse(format!("heads of {c} in rows of {}", q.width()));
        }
        let count = q.width() / c;
        let width = (count + 2 * num_kv_heads) * c;
        let all = norm.is_some_and(|norm| norm.weight.bytes() >= width * size_of::<f32>());
        let normed = count + if all { 2 * num_kv_heads } else { num_kv_heads };
        let weights = norm.map(|norm| norm.weight.range(0, normed * c * size_of::<f32>()));
        let factors =
            rope.query_factors.as_ref().map(|factors| factors.range(0, rope.positions * 4));
        let args = args::HeadSplit {
            head_norms: weights.transpose()?.unwrap_or(0),
            angles: rope.angles.range(0, rope.positions * 2 * rope.half * 4)?,
            query_factors: factors.transpose()?.unwrap_or(0),
            positions: batch.address(Section::Positions, 0)?,
            slots: batch.address(Section::Slots, 0)?,
            q: q.checked(rows, count * c, sizes.precision)?,
            layer: pool.layer(layer)?,
            heads: args::Heads {
                heads: count as u32,
                num_kv_heads: num_kv_heads as u32,
                c: c as u32,
                page: page as u32,
            },
            half: rope.half as u32,
            normed: norm.map_or(0, |_| normed as u32),
            eps: norm.map_or(0.0, |norm| norm.eps),
            in_bytes: u32::from(sizes.in_bytes()),
        };
        Ok((args, width))
    }
}

/// Splits `qkv [r, (h + 2 g) c]`, f32. Normalises and rotates the query and key heads, and writes
/// queries to `q [r, h c]`, keys and values to the row's slot in a layer of the pool.
pub fn split(qkv: &Array, heads: HeadRows<'_>, q: &Array) -> Result<()> {
    let (rows, precision) = (heads.batch.rows(), heads.layer.pool.sizes().precision);
    let (heads, width) = heads.args(q)?;
    if qkv.stride() != width {
        return refuse(format!("expected rows of {width}, found {}", qkv.stride()));
    }
    let args = args::Split { qkv: qkv.checked(rows, width, Precision::F32)?, heads };
    let grid = [rows as u32, (width as u32 / heads.heads.c).div_ceil(4), 1];
    let kernel = select(SPLIT, precision)?;
    // SAFETY: the arrays have these sizes; positions and slots of the batch were checked against
    // limits that are the table's and the pool's.
    unsafe { q.device().launch(kernel, grid, &args) }
}

/// Splits the product of `x [r, k]` and a matrix `[(h + 2 g) c, k]`, in the kernel of the product where one
/// does ([`DeviceMatrix::fused`]), with the same bits. `qkv` holds the product otherwise.
pub fn project(
    matrix: &DeviceMatrix,
    x: &Array,
    heads: HeadRows<'_>,
    qkv: &Array,
    q: &Array,
) -> Result<()> {
    let (rows, columns) = (heads.batch.rows(), heads.columns());
    let even = heads.transform.rope.half.is_multiple_of(2);
    match matrix.fused(rows, columns).filter(|_| even) {
        Some(launch) => matrix.project_as(&launch, x, heads, q),
        None => {
            matrix.product(x, rows, qkv)?;
            split(qkv, heads, q)
        }
    }
}

impl DeviceMatrix {
    /// Runs a launch whose tile's columns are whole heads.
    ///
    /// # Errors
    /// If the tile has no such kernel.
    pub fn project_as(
        &self,
        launch: &ProductLaunch,
        x: &Array,
        heads: HeadRows<'_>,
        q: &Array,
    ) -> Result<()> {
        let (rows, sizes) = (heads.batch.rows(), heads.layer.pool.sizes());
        let columns = heads.columns();
        let (heads, width) = heads.args(q)?;
        let whole = launch.tile.splits(columns);
        let fits = whole && heads.half.is_multiple_of(2) && sizes.precision == Precision::Bf16;
        let kernel = launch.tile.qkv_kernel().filter(|_| fits);
        let Some(kernel) = kernel else {
            return refuse(format!("{} splits no heads", launch.tile.names.gemm));
        };
        if (launch.sizes.rows, self.width()) != (rows, width) {
            return refuse(format!("expected {rows} rows of {width}, found {:?}", launch.sizes));
        }
        let args = args::Qkv {
            operands: self.operands(x, 0..rows, kernel.factors())?,
            share: self.share(launch)?,
            bias: self.bias()?,
            heads,
        };
        let grid = [launch.grid(x.device().limits())?, 1, 1];
        // SAFETY: the arrays have these sizes, which were checked, and of the partial sums; positions and
        // slots of the batch were checked against limits that are the table's and the pool's.
        unsafe { self.launch_product(launch, (kernel, grid), (x, 0), &args) }
    }
}
