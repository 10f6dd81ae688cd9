//! Graphs: the launches of complete passes, captured once per batch shape.

use super::largest::ROWS;
use crate::inputs::PassRows;
use kernels::device::{BatchShape, Device, DeviceError, Graph};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum rows of a captured pass, with padding: with more rows, the kernels take longer than their
/// separate launches.
const MOST_ROWS: usize = 512;
/// Maximum number of shapes that are remembered, with a graph or without.
const MOST_SHAPES: usize = 128;
/// Maximum bytes of device memory that graphs take.
const MOST_BYTES: u64 = 256 << 20;
/// Graphs take one part in this of the memory that is free beside weights, arrays and KV pages.
const PARTS: u64 = 4;

/// The network of a pass and the shape of its batch, which decide its launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PassShape {
    pub(super) pass_rows: PassRows,
    pub(super) batch: BatchShape,
}

/// Rows of a batch are padded to a multiple of this. A pass that is never captured has no padding, because
/// no other one needs its shape.
pub(super) fn padding(rows: usize) -> usize {
    match BatchShape::rows(rows, ROWS) <= MOST_ROWS {
        true => ROWS,
        false => 1,
    }
}

/// The graphs of a model's passes.
#[derive(Default)]
pub(super) struct Graphs {
    by_shape: HashMap<PassShape, Known>,
    /// The value of [`Device::changes`] for which the graphs are valid.
    changes: u64,
    /// Number of passes until now.
    clock: u64,
    /// Bytes of device memory that graphs may take.
    budget: u64,
    /// Bytes that they take.
    taken: Arc<AtomicU64>,
    /// The device does not capture launches, or has refused to.
    refused: bool,
}

/// A shape that ran.
struct Known {
    /// `None`: a pass ran once, so its memory is allocated.
    graph: Option<Graph>,
    /// The clock of the last pass.
    used: u64,
    /// Bytes of device memory that the graph takes, as far as the driver tells.
    bytes: u64,
}

impl Graphs {
    /// Graphs for a device. If the device cannot capture launches, also returns its error.
    pub(super) fn new(device: &Device) -> (Self, Option<DeviceError>) {
        let error = device.capture(|| Ok(())).err();
        let none = Self { refused: error.is_some(), ..Self::default() };
        (none, error)
    }

    /// Limits the graphs' memory to a part of what is free now.
    pub(super) fn reserve(&mut self, free: u64) {
        self.budget = (free / PARTS).min(MOST_BYTES);
    }

    /// Runs `pass`, which makes the same launches for every batch of a shape. The first pass of a
    /// shape is launched directly, because it may allocate memory; later passes are launched from
    /// a graph. A device that cannot capture launches every pass directly, as do passes whose launches
    /// are timed.
    pub(super) fn run(
        &mut self,
        device: &Device,
        shape: PassShape,
        mut pass: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if shape.batch.rows > MOST_ROWS || self.refused {
            return pass();
        }
        if self.changes != device.changes() {
            self.clear();
        }
        self.changes = device.changes();
        self.clock += 1;
        let used = self.clock;
        let Some(known) = self.by_shape.get_mut(&shape) else {
            pass()?;
            if self.changes == device.changes() {
                self.remember(device, shape);
            }
            return Ok(());
        };
        known.used = used;
        let launched = match &known.graph {
            Some(graph) => graph.launch(),
            None => self.capture(device, shape, &mut pass),
        };
        match launched {
            Ok(true) => Ok(()),
            Ok(false) => pass(),
            Err(error) => {
                // A pass that fails without a graph says nothing about graphs.
                pass()?;
                self.refuse(&error);
                Ok(())
            }
        }
    }

    /// Captures a pass and launches it.
    fn capture(
        &mut self,
        device: &Device,
        shape: PassShape,
        pass: &mut impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<bool, DeviceError> {
        let before = device.memory()?.0;
        let graph = device.capture(pass)?;
        let bytes = before.saturating_sub(device.memory()?.0);
        let launched = graph.launch()?;
        if let Some(known) = self.by_shape.get_mut(&shape) {
            known.graph = Some(graph);
        }
        self.count(shape, bytes);
        Ok(launched)
    }

    /// Counts the bytes of a new graph, and makes room for them. If one graph alone takes too many,
    /// there are no graphs from now on.
    fn count(&mut self, shape: PassShape, bytes: u64) {
        if let Some(known) = self.by_shape.get_mut(&shape) {
            known.bytes = bytes;
            self.taken.fetch_add(bytes, Ordering::Relaxed);
        }
        let now = self.clock;
        let others = |known: &Known| known.bytes > 0 && known.used < now;
        while self.is_over() && self.forget_oldest(others) {}
        if self.is_over() {
            let budget = self.budget;
            self.refuse(&DeviceError(format!(
                "a graph takes {bytes} bytes of device memory, {budget} are left for graphs"
            )));
        }
    }

    /// Makes room for a shape.
    fn remember(&mut self, device: &Device, shape: PassShape) {
        while self.by_shape.len() >= MOST_SHAPES && self.forget_oldest(|_| true) {}
        let known = Known { graph: None, used: self.clock, bytes: 0 };
        self.by_shape.insert(shape, known);
        self.changes = device.changes();
    }

    /// Drops what was used longest ago, among those of a kind. False if there is none.
    fn forget_oldest(&mut self, suits: impl Fn(&Known) -> bool) -> bool {
        let some = self.by_shape.iter().filter(|(_, known)| suits(known));
        let oldest = some.min_by_key(|(_, known)| known.used);
        let Some(shape) = oldest.map(|(shape, _)| *shape) else {
            return false;
        };
        if let Some(known) = self.by_shape.remove(&shape) {
            self.taken.fetch_sub(known.bytes, Ordering::Relaxed);
        }
        true
    }

    fn clear(&mut self) {
        self.by_shape.clear();
        self.taken.store(0, Ordering::Relaxed);
    }

    /// From now on launches kernels one by one.
    fn refuse(&mut self, error: &DeviceError) {
        self.clear();
        self.refused = true;
        tracing::warn!("CUDA graphs are off, kernels launch one by one: {error}");
    }

    /// Number of captured graphs.
    pub(super) fn len(&self) -> usize {
        let graphs = self.by_shape.values();
        graphs.filter(|known| known.graph.is_some()).count()
    }

    /// Bytes of device memory that the graphs take, as far as the driver tells.
    pub(super) fn bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.taken)
    }

    /// Returns true if the graphs take more than they may.
    fn is_over(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > self.budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(rows: usize) -> PassShape {
        PassShape { batch: BatchShape { rows, ..BatchShape::default() }, ..PassShape::default() }
    }

    /// The number of calls of a pass of this shape: 0 where a graph is launched.
    fn calls(graphs: &mut Graphs, device: &Device, rows: usize) -> usize {
        let mut count = 0;
        let ran = graphs.run(device, shape(rows), || {
            count += 1;
            Ok(())
        });
        ran.unwrap();
        count
    }

    fn bytes(graphs: &Graphs) -> u64 {
        graphs.bytes().load(Ordering::Relaxed)
    }

    fn new(device: &Device) -> Graphs {
        let (mut graphs, refusal) = Graphs::new(device);
        assert_eq!(refusal, None);
        graphs.reserve(device.memory().unwrap().0);
        graphs
    }

    #[test]
    fn rows_that_no_graph_can_have_are_not_padded() {
        for (rows, pad) in [(1, ROWS), (449, ROWS), (512, ROWS), (513, 1), (4000, 1)] {
            assert_eq!(padding(rows), pad, "{rows}");
        }
    }

    #[test]
    fn the_shape_used_longest_ago_is_forgotten() {
        let device = Device::counting();
        let mut graphs = new(&device);
        for _ in 0..2 {
            for rows in 0..MOST_SHAPES {
                assert_eq!(calls(&mut graphs, &device, rows), 1);
            }
        }
        assert_eq!(graphs.len(), MOST_SHAPES);
        assert_eq!(calls(&mut graphs, &device, 0), 0);
        assert_eq!(calls(&mut graphs, &device, MOST_SHAPES), 1);
        assert_eq!(calls(&mut graphs, &device, 0), 0, "it was used");
        assert_eq!(graphs.len(), MOST_SHAPES - 1);
        assert_eq!(calls(&mut graphs, &device, 1), 1, "forgotten: direct");
        assert_eq!(calls(&mut graphs, &device, 1), 1, "captured");
        assert_eq!(calls(&mut graphs, &device, 1), 0);
    }

    /// Whatever the order of shapes, the number is bounded, and the last ones are kept.
    #[test]
    fn random_orders_stay_in_bounds() {
        let device = Device::counting();
        let mut graphs = new(&device);
        let (mut state, mut last) = (1_u64, Vec::new());
        for _ in 0..4000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let rows = (state >> 33) as usize % 300;
            calls(&mut graphs, &device, rows);
            last.retain(|known| *known != rows);
            last.push(rows);
            assert!(graphs.len() <= graphs.by_shape.len() && graphs.by_shape.len() <= MOST_SHAPES);
            let kept = last.iter().rev().take(MOST_SHAPES);
            assert!(kept.into_iter().all(|known| graphs.by_shape.contains_key(&shape(*known))));
        }
        assert!(graphs.len() > 0);
    }

    #[test]
    fn memory_is_bounded_and_one_graph_that_is_too_large_ends_graphs() {
        let device = Device::counting();
        let mut graphs = new(&device);
        graphs.reserve(400);
        assert_eq!(graphs.budget, 100);
        for rows in 0..10 {
            for _ in 0..2 {
                calls(&mut graphs, &device, rows);
            }
            graphs.count(shape(rows), 30);
            assert_eq!(bytes(&graphs), 30 * (rows as u64 + 1).min(3));
        }
        assert_eq!(calls(&mut graphs, &device, 9), 0);
        assert_eq!(calls(&mut graphs, &device, 6), 1, "forgotten");
        graphs.count(shape(6), 101);
        assert_eq!((graphs.len(), bytes(&graphs)), (0, 0));
        assert_eq!(calls(&mut graphs, &device, 9), 1);
        assert_eq!(calls(&mut graphs, &device, 9), 1);
        assert_eq!(graphs.len(), 0);
    }

    #[test]
    fn an_error_of_a_pass_is_not_one_of_its_graph() {
        let device = Device::counting();
        let mut graphs = new(&device);
        assert_eq!(calls(&mut graphs, &device, 7), 1);
        let error = || DeviceError("no".to_owned());
        let failed = graphs.run(&device, shape(7), || Err(error()));
        assert_eq!(failed, Err(error()));
        assert_eq!(calls(&mut graphs, &device, 7), 1);
        assert_eq!(calls(&mut graphs, &device, 7), 0, "captured");
    }
}
