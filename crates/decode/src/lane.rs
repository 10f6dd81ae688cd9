//! Lanes and the lane tree.

use alloc::vec::Vec;

use crate::coordinates::{Offset, Span, as_count, as_index};
use crate::effect::{LaneId, Role};

/// A range of generated offsets that is denoised with a clock of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its number.
    pub id: LaneId,
    /// Its purpose.
    pub role: Role,
    /// s: first offset.
    pub start: Offset,
    /// b: number of offsets it owns; of a [`Status::Finished`] lane, the valid ones.
    pub len: u32,
    /// t: number of steps it took part in.
    pub clock: u32,
    /// The lane that forked or finished before it; `None` for the root.
    pub parent: Option<LaneId>,
    /// Refine child first, so that depth-first order is output order.
    pub children: [Option<LaneId>; 2],
    /// True if it is active.
    pub status: Status,
}

/// The status of a lane (AsyncLane §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Takes part in every step.
    Active,
    /// Waits for its refine sibling (`coupled`).
    Waiting,
    /// An inner node: its children own its offsets.
    Forked,
    /// Done.
    Finished,
}

impl Lane {
    /// The offsets that it owns.
    pub fn range(&self) -> Span<Offset> {
        Span::at(self.start, self.len)
    }
}

/// All lanes of a sequence, parents before children.
///
/// Invariants (see [`LaneTree::validate`]): the leaves in depth-first order tile
/// `[0, end of the last leaf)`; at most one generate lane is active and it is the last leaf.
#[derive(Clone, Debug, Default)]
pub struct LaneTree {
    lanes: Vec<Lane>,
    /// Active lanes by start.
    active: Vec<LaneId>,
}

impl LaneTree {
    /// An empty tree with room for the usual number of lanes of a budget.
    pub(crate) fn with_room(budget: u32) -> Self {
        let lanes = as_index(budget) / 4 + 4;
        Self { lanes: Vec::with_capacity(lanes), active: Vec::with_capacity(lanes.min(32)) }
    }

    /// All lanes in order of start.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The lane `id` of this tree.
    pub fn get(&self, id: LaneId) -> &Lane {
        &self.lanes[id.index()]
    }

    /// Active lanes, left to right: refine lanes, then at most one generate lane.
    pub fn active(&self) -> &[LaneId] {
        &self.active
    }

    /// The active generate lane, if there is one.
    pub fn generate(&self) -> Option<&Lane> {
        let last = self.get(*self.active.last()?);
        (last.role == Role::Generate).then_some(last)
    }

    /// Leaves in depth-first order, which is output order.
    pub fn leaves(&self) -> Vec<LaneId> {
        let mut leaves = Vec::new();
        let mut stack: Vec<LaneId> = self.lanes.first().map(|root| root.id).into_iter().collect();
        while let Some(id) = stack.pop() {
            let lane = self.get(id);
            if lane.status != Status::Forked {
                leaves.push(id);
            }
            stack.extend(lane.children.iter().rev().flatten());
        }
        leaves
    }

    /// Adds a lane under `parent`.
    pub(crate) fn add(
        &mut self,
        role: Role,
        parent: Option<LaneId>,
        range: Span<Offset>,
        status: Status,
    ) -> LaneId {
        let id = LaneId(as_count(self.lanes.len()));
        if let Some(parent) = parent {
            let children = &mut self.lanes[parent.index()].children;
            let slot = usize::from(children[0].is_some());
            children[slot] = Some(id);
        }
        self.lanes.push(Lane {
            id,
            role,
            start: range.start,
            len: range.len(),
            clock: 0,
            parent,
            children: [None; 2],
            status,
        });
        if status == Status::Active {
            self.activate(id);
        }
        id
    }

    pub(crate) fn set_status(&mut self, id: LaneId, status: Status) {
        let lane = &mut self.lanes[id.index()];
        let was = core::mem::replace(&mut lane.status, status);
        if was == Status::Active && status != Status::Active {
            self.active.retain(|active| *active != id);
        } else if was != Status::Active && status == Status::Active {
            self.activate(id);
        }
    }

    pub(crate) fn set_len(&mut self, id: LaneId, len: u32) {
        self.lanes[id.index()].len = len;
    }

    pub(crate) fn tick(&mut self) {
        for index in 0..self.active.len() {
            let id = self.active[index];
            self.lanes[id.index()].clock += 1;
        }
    }

    pub(crate) fn drop_active(&mut self) {
        while let Some(id) = self.active.last().copied() {
            self.set_status(id, Status::Finished);
        }
    }

    fn activate(&mut self, id: LaneId) {
        let start = self.get(id).start;
        let index = self.active.partition_point(|other| self.lanes[other.index()].start < start);
        self.active.insert(index, id);
    }

    /// Checks the invariants; for tests.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn validate(&self) -> Result<(), &'static str> {
        let mut end = Offset::ZERO;
        for id in self.leaves() {
            let lane = self.get(id);
            if lane.start != end {
                return Err("leaves in depth-first order leave a gap or overlap");
            }
            end = lane.range().end;
        }
        let generating = self.active.iter().filter(|id| self.get(**id).role == Role::Generate);
        if generating.count() > 1 {
            return Err("two generate lanes are active");
        }
        if let Some(lane) = self.generate()
            && self.leaves().last() != Some(&lane.id)
        {
            return Err("the active generate lane is not the last leaf");
        }
        let ordered =
            self.active.windows(2).all(|two| self.get(two[0]).start < self.get(two[1]).start);
        if ordered { Ok(()) } else { Err("active lanes are out of order") }
    }
}
