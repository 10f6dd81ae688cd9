//! A sequence decoded from start to end, with a record of every step.

use asynclane_decode::{
    AsyncLaneConfig, Candidate, Canvas, Constraint, Decoder, Effect, Input, LaneTree, LaneView,
    Offset, Proposal, Role, TokenId,
};

use super::{STOPS, Setup, TEXTS, branches, classes, filter, wanted};

/// One step: the state before, the proposals, the effects, the state after.
#[derive(Clone, Debug)]
pub struct Record {
    /// Lanes of the step, as the decoder asked for them.
    pub lanes: Vec<LaneView>,
    pub tree_before: LaneTree,
    pub canvas_before: Canvas,
    pub proposals: Vec<Proposal>,
    pub effects: Vec<Effect>,
    pub tree: LaneTree,
    pub canvas: Canvas,
}

/// All steps of one sequence.
#[derive(Debug)]
pub struct Walk {
    pub setup: Setup,
    /// Effects of the decoder's creation.
    pub born: Vec<Effect>,
    pub steps: Vec<Record>,
    /// The decoder after the last step.
    pub decoder: Decoder,
}

impl Walk {
    /// Decodes until done, or until one step more than any decoder may take.
    pub fn run(setup: &Setup) -> Self {
        let mut born = Vec::new();
        let input = Input {
            classes: classes(),
            code_prompt: setup.code_prompt,
            constraint: setup.grammar.map(|toy| Box::new(toy) as Box<dyn Constraint>),
            filter: Some(filter(8)),
            seed: 11,
            ..Input::new(setup.budget, STOPS)
        };
        let mut decoder = Decoder::new(&setup.config, input, &mut born);
        let mut steps = Vec::new();
        while !decoder.is_done() && decoder.step() <= setup.most_steps() {
            steps.push(step(&mut decoder, setup));
        }
        Self { setup: setup.clone(), born, steps, decoder }
    }

    /// The schedule's parameters, if it is AsyncLane.
    pub fn asynclane(&self) -> Option<AsyncLaneConfig> {
        let schedule = &self.setup.config.schedule;
        let own = schedule.name() == "asynclane";
        own.then(|| AsyncLaneConfig::read(schedule.settings()))
    }

    /// The emitted tokens in the end.
    pub fn output(&self) -> Vec<TokenId> {
        let canvas = self.decoder.canvas();
        Offset::ZERO
            .to(canvas.emitted())
            .iter()
            .map(|offset| canvas.get(offset).expect("emitted, hence committed"))
            .collect()
    }

    /// All effects in order.
    pub fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.born.iter().chain(self.steps.iter().flat_map(|record| &record.effects))
    }
}

impl Record {
    /// Offsets and tokens committed in this step.
    pub fn commits(&self) -> impl Iterator<Item = (Offset, TokenId)> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Commit(commit) => Some((commit.offset, commit.token)),
            _ => None,
        })
    }
}

/// Restricts the candidate of the frontier to the allowed tokens, as an executor does.
fn guided(decoder: &Decoder, offset: Offset, mut candidate: Candidate) -> Candidate {
    let Some(allowed) = decoder.allowed() else {
        return candidate;
    };
    let is_allowed = |token: TokenId| allowed[token as usize / 32] >> (token % 32) & 1 == 1;
    if offset == decoder.canvas().frontier() && !is_allowed(candidate.token) {
        let tokens: Vec<TokenId> =
            (0..TEXTS.len() as TokenId).filter(|token| is_allowed(*token)).collect();
        candidate.token = tokens[candidate.token as usize % tokens.len()];
    }
    candidate
}

fn step(decoder: &mut Decoder, setup: &Setup) -> Record {
    let now = decoder.step() + 1;
    let says = |(offset, role)| Proposal {
        offset,
        candidate: guided(decoder, offset, setup.model.says(offset, now, role == Role::Refine)),
    };
    let mut proposals: Vec<Proposal> = wanted(decoder).into_iter().map(says).collect();
    for guesses in branches(decoder) {
        let open = wanted(decoder).into_iter();
        let open = open.filter(|(offset, _)| guesses.iter().all(|guess| guess.offset != *offset));
        proposals.extend(open.map(says));
    }
    let (lanes, tree_before) = (decoder.lanes().collect(), decoder.tree().clone());
    let canvas_before = decoder.canvas().clone();
    let mut effects = Vec::new();
    decoder.apply(&proposals, &mut effects);
    let (tree, canvas) = (decoder.tree().clone(), decoder.canvas().clone());
    Record { lanes, tree_before, canvas_before, proposals, effects, tree, canvas }
}
