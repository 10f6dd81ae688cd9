//! Launches of whole passes, captured once per shape of the batch.

use kernels::device::{BatchShape, Device, DeviceError, Graph};
use std::collections::HashMap;

/// Most rows of a pass whose launches are captured: of more rows, the kernels take longer than it
/// takes to launch them one by one.
const MOST_ROWS: usize = 512;
/// Most graphs that are kept; all of them go when there are more.
const MOST_GRAPHS: usize = 128;

/// The graphs of a model's passes.
#[derive(Default)]
pub(super) struct Graphs {
    /// None: a pass of this shape ran once, so that its memory is there.
    by_shape: HashMap<BatchShape, Option<Graph>>,
    /// [`Device::changes`] that they hold for.
    changes: u64,
    /// The device captures nothing.
    refused: bool,
}

impl Graphs {
    /// Of a device; with an error, none.
    pub(super) fn new(device: &Device) -> (Self, Option<DeviceError>) {
        let error = device.capture(|| Ok(())).err();
        let none = Self {
            refused: error.is_some(),
            ..Self::default()
        };
        (none, error)
    }

    /// Runs `pass`, the same launches for every batch of a shape: by itself the first time, which
    /// may take memory, and from a graph later. A device that cannot capture runs it by itself for
    /// ever.
    pub(super) fn run(
        &mut self,
        device: &Device,
        shape: BatchShape,
        mut pass: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if shape.rows > MOST_ROWS || self.refused {
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

    /// Graphs there are.
    pub(super) fn len(&self) -> usize {
        self.by_shape.values().flatten().count()
    }
}
