//! Mixtures of experts: a row chooses experts, rows are grouped by expert, and every group is
//! multiplied with its expert's matrices.

mod group;
mod scratch;

pub use scratch::ExpertScratch;

use super::array::select;
use super::array::{Array, Buffer, Precision};
use super::batch::{DeviceBatch, Section};
use super::launch::MatrixFormat;
use super::matrix::DeviceMatrix;
use super::{Kernel, Result, args, kernel, refuse};
use crate::linear::Epilogue;
use crate::routing::{RouterFunction, Routing};

const ROUTE: [Kernel; 2] = [kernel("route_f32", 256, 0), kernel("route_bf16", 256, 0)];
// Two affinities per expert.
const CHOOSE: Kernel = kernel("choose_experts", 32, 2 * 4 * MOST_EXPERTS as u32);
pub(super) const KERNELS: &[Kernel] = &[
    ROUTE[0],
    ROUTE[1],
    CHOOSE,
    group::COUNT,
    group::GROUP,
    group::GATHER[0],
    group::GATHER[1],
    group::GATHER_INT8,
    group::FEW[0],
    group::FEW[1],
    group::MANY[0],
    group::MANY[1],
    group::FEW_INT8[0],
    group::FEW_INT8[1],
    group::MANY_INT8[0],
    group::MANY_INT8[1],
    group::FEW_INT8W[0],
    group::FEW_INT8W[1],
    group::MANY_INT8W[0],
    group::MANY_INT8W[1],
    group::FEW_PACKED[0],
    group::FEW_PACKED[1],
    group::MANY_PACKED[0],
    group::MANY_PACKED[1],
    group::GROUPS_BF16[0][0],
    group::GROUPS_BF16[0][1],
    group::GROUPS_BF16[1][0],
    group::GROUPS_BF16[1][1],
    group::GROUPS_INT8[0][0],
    group::GROUPS_INT8[0][1],
    group::GROUPS_INT8[1][0],
    group::GROUPS_INT8[1][1],
    group::GROUPS_INT8W[0][0],
    group::GROUPS_INT8W[0][1],
    group::GROUPS_INT8W[1][0],
    group::GROUPS_INT8W[1][1],
    group::GROUPS_PACKED[0][0],
    group::GROUPS_PACKED[0][1],
    group::GROUPS_PACKED[1][0],
    group::GROUPS_PACKED[1][1],
    group::EXACT,
    group::MIX,
];

/// Experts of a layer, and of a row, at most; `MOST_EXPERTS` and `MOST_CHOSEN` of the kernels.
const MOST_EXPERTS: usize = 1024;
const MOST_CHOSEN: usize = 32;
/// Addresses of an expert.
const ADDRESSES: usize = 4;
/// Rows and experts of a block of the router.
const ROUTED: usize = 8;

/// The sizes of a mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertSizes {
    /// Experts of the layer.
    pub count: usize,
    /// Experts of a row.
    pub chosen: usize,
    /// Model width `d`.
    pub width: usize,
    /// Width of an expert.
    pub inner: usize,
    /// The number formats of both matrices.
    pub formats: [MatrixFormat; 2],
}

impl ExpertSizes {
    /// The number format of the products' inputs.
    pub(super) fn precision(&self) -> Precision {
        self.formats[0].inputs()
    }

    /// The number formats in which gated results are written, and read by the second product.
    fn gated(&self) -> [Precision; 2] {
        [self.formats[0].gated(), self.formats[1].inputs()]
    }
}

/// The experts of a layer and their router.
pub struct DeviceExperts {
    gate: DeviceMatrix,
    /// Keeps the memory that `addresses` names.
    experts: Vec<[DeviceMatrix; 2]>,
    /// The addresses of each expert's two matrices, and of their factors.
    addresses: Buffer,
    bias: Option<Buffer>,
    scales: Option<Buffer>,
    function: RouterFunction,
    sizes: ExpertSizes,
}

impl DeviceExperts {
    /// A mixture of gated MLPs, `[gate and up, down]`, whose router is `[count, d]` in f32.
    ///
    /// # Errors
    /// If the matrices have different sizes or biases, a number has no kernels, or the device is out
    /// of memory.
    pub fn new(
        gate: DeviceMatrix,
        experts: Vec<[DeviceMatrix; 2]>,
        routing: Routing<'_>,
    ) -> Result<Self> {
        let device = gate.device().clone();
        let Some([gate_up, down]) = experts.first() else {
            return refuse("a mixture without experts");
        };
        let sizes = ExpertSizes {
            count: experts.len(),
            chosen: routing.chosen,
            width: down.width(),
            inner: gate_up.width(),
            formats: [gate_up.format(), down.format()],
        };
        check(&sizes, routing.function)?;
        let mut addresses = Vec::with_capacity(ADDRESSES * experts.len() * size_of::<u64>());
        for [gate_up, down] in &experts {
            let gated = gate_up.epilogue().is_gated() && down.epilogue() == Epilogue::None;
            let shapes = [gate_up, down].map(|matrix| (matrix.width(), matrix.k(), matrix.bias()));
            let want = [(sizes.inner, sizes.width, Ok(0)), (sizes.width, sizes.inner, Ok(0))];
            let formats = [gate_up, down].map(DeviceMatrix::format);
            let alone = down.is_alone() && gate_up.precision() == down.precision();
            if !gated || shapes != want || formats != sizes.formats || !alone {
                return refuse("no CUDA kernels for experts of several sizes or with biases");
            }
            let own = [gate_up.address()?, down.address()?];
            let factors = [gate_up.factors()?, down.factors()?];
            for address in own.into_iter().chain(factors) {
                addresses.extend(address.to_ne_bytes());
            }
        }
        if (gate.width(), gate.k(), gate.precision()) != (sizes.count, sizes.width, Precision::F32)
        {
            return refuse("expected a router in f32 with a row for every expert");
        }
        let table = Buffer::new(&device, addresses.len())?;
        table.upload(&addresses)?;
        let floats = |numbers: Option<&[f32]>| match numbers {
            Some(numbers) if numbers.len() == sizes.count || device.is_counting() => {
                let buffer = Buffer::new(&device, sizes.count * size_of::<f32>())?;
                buffer.write(numbers)?;
                Ok(Some(buffer))
            }
            Some(numbers) => refuse(format!("{} numbers for experts", numbers.len())),
            None => Ok(None),
        };
        Ok(Self {
            bias: floats(routing.bias)?,
            scales: floats(routing.scales)?,
            function: routing.function,
            gate,
            experts,
            addresses: table,
            sizes,
        })
    }

    /// The sizes of the mixture.
    pub fn sizes(&self) -> ExpertSizes {
        self.sizes
    }

    /// Number of experts.
    pub fn count(&self) -> usize {
        self.experts.len()
    }

    /// Chooses the experts of the batch's rows from the first rows of `x [r, d]`, padded, and leaves
    /// them in `scratch`. Padding rows choose none.
    pub fn choose(
        &self,
        x: &Array,
        rows: usize,
        batch: &DeviceBatch,
        scratch: &mut ExpertScratch,
    ) -> Result<()> {
        let ExpertSizes { count, chosen, .. } = self.sizes;
        let device = x.device();
        if rows > batch.rows() || x.stride() != self.gate.stride() {
            return refuse(format!("{rows} rows of a batch of {}", batch.rows()));
        }
        scratch.reserve(device, &self.sizes, rows)?;
        let route = args::Route {
            pad: 0,
            x: x.checked(rows, self.sizes.width, x.precision())?,
            gate: self.gate.address()?,
            logits: scratch.logits(rows * count)?,
            rows: rows as u32,
            experts: count as u32,
            k: x.stride() as u32,
        };
        let address = |buffer: &Option<Buffer>| match buffer {
            Some(buffer) => buffer.range(0, count * size_of::<f32>()),
            None => Ok(0),
        };
        let (gating, groups, best, scale) = match self.function {
            RouterFunction::Softmax { normalised } => (u32::from(normalised), 1, 1, 1.0),
            RouterFunction::Sigmoid { groups, best, scale } => {
                (2, groups as u32, best as u32, scale)
            }
        };
        let choose = args::Choose {
            logits: route.logits,
            slots: batch.address(Section::Slots, 0)?,
            bias: address(&self.bias)?,
            scales: address(&self.scales)?,
            experts: scratch.chosen(rows * chosen)?,
            weights: scratch.weights(rows * chosen)?,
            count: count as u32,
            chosen: chosen as u32,
            gating,
            groups,
            best,
            scale,
        };
        let (rows, across) = (rows as u32, count.div_ceil(ROUTED) as u32);
        // SAFETY: the arrays have these sizes; the scratch memory has room for these rows, and the
        // numbers of experts were checked.
        unsafe {
            let grid = [rows.div_ceil(ROUTED as u32), across, 1];
            device.launch(select(ROUTE, x.precision())?, grid, &route)?;
            device.launch(CHOOSE, [rows, 1, 1], &choose)
        }
    }
}

/// Checks that kernels exist for these sizes.
fn check(sizes: &ExpertSizes, function: RouterFunction) -> Result<()> {
    let groups = match function {
        RouterFunction::Softmax { .. } => 1,
        RouterFunction::Sigmoid { groups, .. } => groups,
    };
    let ExpertSizes { count, chosen, .. } = *sizes;
    match count <= MOST_EXPERTS && chosen <= MOST_CHOSEN.min(count) && groups <= 32 {
        true => Ok(()),
        false => refuse(format!(
            "no CUDA kernels for {chosen} of {count} experts in {groups} groups, at most \
             {MOST_CHOSEN} of {MOST_EXPERTS} in 32"
        )),
    }
}
