//! Keys and values on a device, and attention over them.

use super::array::{Array, Buffer, Precision};
use super::batch::{DeviceBatch, Of};
use super::rows::of;
use super::{Device, Kernel, Result, args, refuse};

/// Slots of a part of a context; `PART` of the kernels.
const PART: usize = 512;
/// Queries of a block; `QUERIES` of the kernels.
const QUERIES: usize = 64;
/// Widest head.
const WIDEST: usize = 128;

/// Queries, and two chunks of keys and of values, of heads of `width` numbers.
const fn shared(width: u32) -> u32 {
    (64 + 4 * 64) * width * 2
}

const fn kernel(name: &'static str, threads: u32, shared: u32) -> Kernel {
    Kernel {
        name,
        threads,
        shared,
    }
}

const ATTEND: [Kernel; 3] = [
    kernel("attend_bf16_32", 128, shared(32)),
    kernel("attend_bf16_64", 128, shared(64)),
    kernel("attend_bf16_128", 128, shared(128)),
];
const EXACT: Kernel = kernel("attend_f32", 32, 0);
const COMBINE: [Kernel; 2] = [
    kernel("combine_f32", 128, 0),
    kernel("combine_bf16", 128, 0),
];
#[cfg_attr(
    not(feature = "cuda"),
    expect(dead_code, reason = "a driver looks them up")
)]
pub(super) const KERNELS: &[Kernel] = &[
    ATTEND[0], ATTEND[1], ATTEND[2], EXACT, COMBINE[0], COMBINE[1],
];

/// What decides a pool's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSizes {
    /// What keys and values are kept as.
    pub precision: Precision,
    /// Layers.
    pub layers: usize,
    /// Key/value heads `g`.
    pub groups: usize,
    /// Head width `c`.
    pub head_width: usize,
    /// Slots of a page.
    pub page: usize,
    /// Pages.
    pub pages: usize,
}

impl PoolSizes {
    /// Bytes of keys, or of values, of one layer.
    fn half(&self) -> usize {
        let page = self.groups * self.page * self.head_width * self.precision.bytes();
        page.saturating_mul(self.pages)
    }

    /// Bytes of a slot in all layers.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        2 * self.layers * self.groups * self.head_width * self.precision.bytes()
    }

    /// Whether there are kernels for such heads.
    ///
    /// # Errors
    /// What would be accepted.
    pub fn check(&self) -> Result<()> {
        let c = self.head_width;
        let whole = self.precision == Precision::F32 || c.is_multiple_of(8);
        match (1..=WIDEST).contains(&c) && whole {
            true => Ok(()),
            false => refuse(format!(
                "heads of {c}, expected at most {WIDEST}, in bf16 a multiple of 8"
            )),
        }
    }
}

/// Keys and values of all layers, `[layers, 2, pages, g, p, c]`.
pub struct DevicePool {
    buffer: Buffer,
    sizes: PoolSizes,
}

impl DevicePool {
    /// A pool of zeros.
    ///
    /// # Errors
    /// If the device has no room or no kernels for such heads.
    pub fn new(device: &Device, sizes: PoolSizes) -> Result<Self> {
        sizes.check()?;
        let bytes = sizes.half().saturating_mul(2 * sizes.layers);
        Ok(Self {
            buffer: Buffer::new(device, bytes)?,
            sizes,
        })
    }

    /// Its sizes.
    #[must_use]
    pub fn sizes(&self) -> PoolSizes {
        self.sizes
    }

    /// Whose memory it is.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }

    /// Its memory.
    #[must_use]
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    pub(super) fn start(&self) -> u64 {
        self.buffer.range(0, 0).unwrap_or(0)
    }

    /// Addresses of a layer's keys and values.
    pub(super) fn layer(&self, layer: usize) -> Result<(u64, u64)> {
        let half = self.sizes.half();
        let keys = self.buffer.range(2 * layer * half, half)?;
        Ok((keys, self.buffer.range((2 * layer + 1) * half, half)?))
    }

    /// Most rows of a tile for so many query heads.
    ///
    /// # Errors
    /// If a block has no room for the query heads of one key head.
    pub fn tile(&self, heads: usize) -> Result<usize> {
        let groups = self.sizes.groups;
        if groups == 0 || !heads.is_multiple_of(groups) || heads / groups > QUERIES {
            return refuse(format!("{heads} query heads over {groups} key heads"));
        }
        Ok(QUERIES / (heads / groups).max(1))
    }
}

/// What decides the room that attention needs beside its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSizes {
    /// Rows of the batch.
    pub rows: usize,
    /// Query heads `h`.
    pub heads: usize,
    /// Head width `c`.
    pub head_width: usize,
    /// Most slots that a row sees.
    pub visible: usize,
}

impl AttentionSizes {
    /// Bytes of the results of all parts, and of their sums: a result of every head of every row
    /// for every 512 slots.
    #[must_use]
    pub fn bytes(&self) -> [usize; 2] {
        let parts = self.visible.div_ceil(PART).max(1);
        let results = self.rows.saturating_mul(self.heads).saturating_mul(parts);
        [self.head_width, 2].map(|width| results.saturating_mul(width * size_of::<f32>()))
    }
}

/// Results of the parts of contexts. Its memory is used again.
#[derive(Default)]
pub struct AttentionScratch {
    partial: Option<Buffer>,
    sums: Option<Buffer>,
}

impl AttentionScratch {
    /// Room for batches up to these sizes, none of which takes more then.
    ///
    /// # Errors
    /// If the device has no room.
    pub fn new(device: &Device, sizes: AttentionSizes) -> Result<Self> {
        let [partial, sums] = sizes.bytes();
        Ok(Self {
            partial: Some(Buffer::new(device, partial)?),
            sums: Some(Buffer::new(device, sums)?),
        })
    }

    /// Overwrites `out [r, h c]`, padded, with the attention of every row of the batch: `q [r, h c]`
    /// to the slots `[0, visible)` of its segment in a layer of the pool.
    ///
    /// # Errors
    /// If an array has another shape, or the device fails.
    pub fn attend(
        &mut self,
        q: &Array,
        (pool, layer): (&DevicePool, usize),
        batch: &DeviceBatch,
        out: &Array,
    ) -> Result<()> {
        let (rows, sizes) = (batch.rows(), pool.sizes());
        let c = sizes.head_width;
        let heads = q.width() / c;
        pool.tile(heads)?;
        let shape = batch.shape();
        let parts = shape.visible.div_ceil(PART);
        let device = pool.device();
        let [partial, sums] = AttentionSizes {
            rows,
            heads,
            head_width: c,
            visible: shape.visible,
        }
        .bytes();
        let partial = grown(&mut self.partial, device, partial)?;
        let sums = grown(&mut self.sums, device, sums)?;
        let (keys, values) = pool.layer(layer)?;
        let attend = args::Attend {
            q: q.checked(rows, heads * c, sizes.precision)?,
            keys,
            values,
            partial,
            sums,
            tiles: batch.address(Of::Tiles, 0)?,
            pages: batch.address(Of::Words, 0)?,
            visible: batch.address(Of::Visible, 0)?,
            heads: heads as u32,
            groups: sizes.groups as u32,
            c: c as u32,
            page: sizes.page as u32,
            parts: parts as u32,
            scale: (std::f64::consts::LOG2_E / (c as f64).sqrt()) as f32,
        };
        let (kernel, across) = match sizes.precision {
            Precision::F32 => (EXACT, shape.tallest * heads),
            Precision::Bf16 if c <= 32 => (ATTEND[0], sizes.groups),
            Precision::Bf16 if c <= 64 => (ATTEND[1], sizes.groups),
            Precision::Bf16 => (ATTEND[2], sizes.groups),
        };
        if across > 65_535 || parts > 65_535 {
            return refuse(format!("{heads} heads over {parts} parts"));
        }
        let combine = args::Combine {
            partial,
            sums,
            visible: attend.visible,
            out: out.checked(rows, heads * c, sizes.precision)?,
            heads: heads as u32,
            c: c as u32,
            parts: parts as u32,
            stride: out.stride() as u32,
        };
        let grid = [rows as u32, heads.div_ceil(4) as u32, 1];
        // SAFETY: sizes are those of the arrays; the batch was checked against the pool's pages,
        // and its tiles were cut for as many rows as `tile` says or fewer.
        unsafe {
            device.launch(
                kernel,
                [shape.tiles as u32, across as u32, parts as u32],
                &attend,
            )?;
            device.launch(of(COMBINE, sizes.precision), grid, &combine)
        }
    }
}

/// The address of at least so many bytes.
fn grown(buffer: &mut Option<Buffer>, device: &Device, bytes: usize) -> Result<u64> {
    if buffer.as_ref().is_none_or(|buffer| buffer.bytes() < bytes) {
        *buffer = None;
        *buffer = Some(Buffer::new(device, bytes.next_power_of_two())?);
    }
    match buffer {
        Some(buffer) => buffer.range(0, bytes),
        None => refuse("no memory"),
    }
}
