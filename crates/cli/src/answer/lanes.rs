//! The lane tree of an answer, drawn with box characters.

use std::fmt::Write;

use decode::{Effect, LaneId, Offset, Role, Span};
use engine::StepTrace;

use super::canvas::Canvas;

/// The lanes of one answer, collected from its steps.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: Vec<Lane>,
    root: Option<LaneId>,
}

#[derive(Debug)]
struct Lane {
    id: LaneId,
    role: Role,
    parent: Option<LaneId>,
    start: Offset,
    len: u32,
    /// First and last step in which the lane took part.
    steps: Option<(u32, u32)>,
    split: Option<u32>,
}

impl Lanes {
    /// Applies one step.
    pub fn apply(&mut self, step: &StepTrace) {
        for id in &step.lanes {
            if self.root.is_none() {
                self.root = Some(*id);
                self.lanes.push(Lane {
                    id: *id,
                    role: Role::Generate,
                    parent: None,
                    start: Offset::ZERO,
                    len: step.canvas,
                    steps: None,
                    split: None,
                });
            }
            if let Some(lane) = self.find(*id) {
                lane.steps = Some((lane.steps.map_or(step.step, |(first, _)| first), step.step));
            }
        }
        for effect in &step.effects {
            match *effect {
                Effect::Start { lane: id, role, parent, start, len, .. } => {
                    self.lanes.push(Lane {
                        id,
                        role,
                        parent,
                        start,
                        len,
                        steps: None,
                        split: None,
                    });
                }
                Effect::Fork { lane, split } => {
                    if let Some(lane) = self.find(lane) {
                        lane.split = Some(split);
                    }
                }
                Effect::Resize { lane, len } | Effect::Finish { lane, valid: len } => {
                    if let Some(lane) = self.find(lane) {
                        lane.len = len;
                    }
                }
                _ => {}
            }
        }
    }

    /// The tree; every leaf with its text.
    pub fn draw(&self, canvas: &Canvas<'_>) -> String {
        let out = String::from("lane tree (refine child first = output order)\n");
        let mut drawing = Drawing { lanes: &self.lanes, canvas, out };
        if let Some(root) = self.lanes.first() {
            drawing.lane(root, "", "");
        }
        drawing.out
    }

    /// The role of the lane that owns the mask at `offset`: the youngest that has not forked.
    pub fn role_at(&self, offset: Offset) -> Option<Role> {
        let holds =
            |lane: &&Lane| lane.split.is_none() && Span::at(lane.start, lane.len).contains(offset);
        self.lanes.iter().rev().find(holds).map(|lane| lane.role)
    }

    fn find(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.id == id)
    }
}

struct Drawing<'a> {
    lanes: &'a [Lane],
    canvas: &'a Canvas<'a>,
    out: String,
}

impl Drawing<'_> {
    /// Draws `lane` after the prefix `branch` and its children after the prefix `below`.
    fn lane(&mut self, lane: &Lane, branch: &str, below: &str) {
        let role = match lane.role {
            Role::Generate => "generate",
            Role::Refine => "refine",
        };
        let steps = match lane.steps {
            Some((first, last)) if first == last => format!("step {first}"),
            Some((first, last)) => format!("steps {first}-{last}"),
            None => "complete at start".to_owned(),
        };
        let what = match lane.split {
            Some(split) => format!("forked at {}", lane.start.plus(split)),
            None => self.canvas.text(Span::at(lane.start, lane.len)),
        };
        let end = lane.start.plus(lane.split.unwrap_or(lane.len));
        let (id, start) = (lane.id.0, lane.start);
        let _ = writeln!(self.out, "{branch}{role} {id} [{start}, {end}) {steps}: {what}");
        let lanes = self.lanes;
        let mut children = lanes.iter().filter(|child| child.parent == Some(lane.id)).peekable();
        while let Some(child) = children.next() {
            // A spawned successor continues at its parent's level.
            let (first, rest) = match (lane.split, children.peek()) {
                (None, _) => ("", ""),
                (Some(_), Some(_)) => ("├─ ", "│  "),
                (Some(_), None) => ("└─ ", "   "),
            };
            self.lane(child, &format!("{below}{first}"), &format!("{below}{rest}"));
        }
    }
}
