//! Graphs: the launches of complete passes, captured once per batch shape.

use kernels::device::{BatchShape, Device, DeviceError, Graph};
use std::collections::HashMap;

/// Maximum rows of a captured pass: with more rows, the kernels take longer than their separate
/// launches.
const MOST_ROWS: usize = 512;
/// Maximum number of graphs kept; all are dropped when it is exceeded.
const MOST_GRAPHS: usize = 128;

/// The graphs of a model's passes.
#[derive(Default)]
pub(super) struct Graphs {
    /// `None`: a pass of this shape ran once, so its memory is allocated.
    by_shape: HashMap<BatchShape, Option<Graph>>,
    /// The value of [`Device::changes`] for which the graphs are valid.
    changes: u64,
    /// The device cannot capture launches.
    refused: bool,
}

impl Graphs {
    /// Graphs for a device. If the device cannot capture launches, also returns its error.
    pub(super) fn new(device: &Device) -> (Self, Option<DeviceError>) {
        let error = device.capture(|| Ok(())).err();
        let none = Self {
            refused: error.is_some(),
            ..Self::default()
        };
        (none, error)
    }

    /// Runs `pass`, which makes the same launches for every batch of a shape. The first pass of a
    /// shape is launched directly, because it may allocate memory; later passes are launched from
    /// a graph. A device that cannot capture launches every pass directly, as do passes whose launches
    /// are timed.
    pub(super) fn run(
        &mut self,
        device: &Device,
        shape: BatchShape,
        mut pass: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if shape.rows > MOST_ROWS || self.refused || device.is_timing() {
            return pass();
        }
        if self.changes != device.changes() || self.by_shape.len() > MOST_GRAPHS {
            self.by_shape.clear();
        }
        self.changes = device.changes();
        let Some(graph) = self.by_shape.get_mut(&shape) else {
            pass()?;
            if self.changes == device.changes() {
                self.by_shape.insert(shape, None);
            }
            return Ok(());
        };
        if graph.is_none() {
            match device.capture(&mut pass) {
                Ok(captured) => *graph = Some(captured),
                Err(_) => {
                    self.refused = true;
                    return pass();
                }
            }
        }
        match graph.as_ref().map(Graph::launch) {
            Some(Ok(true)) => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(false)) | None => pass(),
        }
    }

    /// Number of captured graphs.
    pub(super) fn len(&self) -> usize {
        self.by_shape.values().flatten().count()
    }
}
