//! Routers of S2D2 (arXiv 2603.25702, §4.3): whether a run of masks is worth the forward pass that
//! checks it.

use alloc::boxed::Box;
use alloc::format;

use crate::candidate::Proposal;
use crate::coordinates::as_count;
use crate::describe::Fault;
use crate::numbers::whole;
use crate::settings::{SettingInfo, Settings};

/// τ.
pub(super) const THRESHOLD: SettingInfo = SettingInfo::number("threshold", 0.0..=1.0, 0.85)
    .says("confidence that a commit without a check must exceed");
/// τ_span.
const MIN_SPAN: SettingInfo = SettingInfo::integer("min_span", 1..=64, 1)
    .says("fewest masks in the first run of masks that router span checks");
/// The policy.
const ROUTER: SettingInfo = SettingInfo::name(
    "router",
    &["span", "score", "hysteresis", "bandit"],
    "span",
)
.says(
    "when the first run of masks is checked: span: from min_span masks on; score: at a score of score_on; \
     hysteresis: from above score_on until below score_off; bandit: if checks brought more \
     tokens for each forward pass so far",
);
/// The estimate of α.
const ESTIMATE: SettingInfo =
    SettingInfo::name("estimate", &["entropy", "margin"], "entropy").says(
        "probability that a guess is right, for scores: entropy: e^-(entropy_scale x entropy); margin: 1 where the \
         two most probable tokens differ by more than 0.05",
    );
/// What turns nats into shares of the largest entropy.
const ENTROPY_SCALE: SettingInfo = SettingInfo::number("entropy_scale", 0.0..=f64::MAX, 0.084)
    .says("factor of an entropy in nats, for scores; the published code divides by ln of the vocabulary's size");
/// c.
const PENALTY: SettingInfo =
    SettingInfo::number("score_penalty", 0.0..=64.0, 1.0).says("tokens subtracted from a score");
/// Static or dynamic.
const PENALTY_FOR: SettingInfo = SettingInfo::name(
    "score_penalty_for",
    &["check", "token"],
    "check",
)
.says(
    "check: the penalty counts once; token: for each mask whose confidence exceeds the threshold",
);
/// τ_score, or τ_on.
const SCORE_ON: SettingInfo =
    SettingInfo::number("score_on", -64.0..=64.0, 0.0).says("score of a run that is checked");
/// τ_off.
const SCORE_OFF: SettingInfo = SettingInfo::number("score_off", -64.0..=64.0, -5.0)
    .says("score below which router hysteresis stops checking");
/// β.
const EXPLORATION: SettingInfo = SettingInfo::number("exploration", 0.0..=f64::MAX, 1.0)
    .says("weight of the bonus that router bandit gives to what it has seldom tried");

/// The settings of a rule that checks as a router says: τ first, and what the router reads.
pub(super) const SETTINGS: &[SettingInfo] = &[
    THRESHOLD,
    ROUTER,
    MIN_SPAN,
    ESTIMATE,
    ENTROPY_SCALE,
    PENALTY,
    PENALTY_FOR,
    SCORE_ON,
    SCORE_OFF,
    EXPLORATION,
];

/// Whether the settings suit each other.
///
/// # Errors
/// Bounds of a hysteresis that do not leave a range between them.
pub(super) fn suits(of: &Settings) -> Result<(), Fault> {
    let [on, off] = [&SCORE_ON, &SCORE_OFF].map(|bound| of.number(bound));
    if of.name(&ROUTER) != "hysteresis" || off < on {
        return Ok(());
    }
    Err(Fault {
        setting: SCORE_OFF.name,
        message: format!("must be below score_on, {on}, for router hysteresis, got {off}"),
    })
}

/// Least difference of the two largest probabilities of a guess that counts as right.
const MARGIN: f64 = 0.05;

/// What a router sees: the masks of a block after a forward pass that nothing checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight<'a> {
    /// The first run of masks.
    pub run: &'a [Proposal],
    /// Masks whose confidence exceeds the threshold.
    pub sure: usize,
    /// Committed offsets of the block.
    pub committed: u32,
    /// Offsets of the block.
    pub length: u32,
}

/// Decides step by step; one for a sequence.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Router {
    /// Checks runs of so many masks and more.
    Span(u32),
    /// Checks where the score is at least `on`.
    Score {
        /// The score.
        score: Score,
        /// τ_score.
        on: f64,
    },
    /// Begins above `on`, and ends below `off`.
    Hysteresis {
        /// The score.
        score: Score,
        /// (τ_on, τ_off).
        bounds: (f64, f64),
        /// Whether the last run was checked.
        checks: bool,
    },
    /// Takes what brought more tokens for each forward pass.
    Bandit(Box<Bandit>),
}

/// E[K] - c: the tokens that a check is expected to commit, less a penalty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Score {
    /// Factor of entropies; `None` for the margin.
    entropy_scale: Option<f64>,
    penalty: f64,
    for_tokens: bool,
}

impl Score {
    fn of(&self, sight: &Sight<'_>) -> f64 {
        let times = match self.for_tokens {
            true => f64::from(as_count(sight.sure)),
            false => 1.0,
        };
        self.expected(sight.run) - self.penalty * times
    }

    /// E[K] = Σ_k Π_{i ≤ k} α_i.
    fn expected(&self, run: &[Proposal]) -> f64 {
        let mut all = 1.0;
        let right = run.iter().map(|guess| {
            all *= self.right(guess);
            all
        });
        right.sum()
    }

    /// α of one guess.
    fn right(&self, guess: &Proposal) -> f64 {
        let candidate = &guess.candidate;
        match self.entropy_scale {
            Some(scale) => libm::exp(-scale * f64::from(candidate.entropy)),
            None => {
                let margin = candidate.probability - candidate.runner_up_probability;
                f64::from(u8::from(margin > MARGIN))
            }
        }
    }
}

/// The upper confidence bound over two arms (check, or not) in eight contexts: halves of the run's
/// length, of the block's progress, and of the mean entropy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bandit {
    exploration: f64,
    entropy_scale: f64,
    decisions: u32,
    arms: [[Arm; 8]; 2],
    /// Arm and context of the decision whose tokens are not known.
    open: Option<(usize, usize)>,
}

/// What an arm brought in a context.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Arm {
    times: u32,
    reward: f64,
}

impl Bandit {
    fn new(exploration: f64, entropy_scale: f64) -> Self {
        Self {
            exploration,
            entropy_scale,
            decisions: 0,
            arms: [[Arm::default(); 8]; 2],
            open: None,
        }
    }

    fn decide(&mut self, sight: &Sight<'_>) -> bool {
        self.decisions += 1;
        let context = self.context(sight);
        let bounds = self.arms.map(|arm| self.bound(arm[context]));
        let arm = usize::from(bounds[1] >= bounds[0]);
        self.open = Some((arm, context));
        arm == 1
    }

    /// Mean reward, and more for what was seldom tried.
    fn bound(&self, arm: Arm) -> f64 {
        if arm.times == 0 {
            return f64::INFINITY;
        }
        let times = f64::from(arm.times);
        let seldom = libm::sqrt(libm::log(f64::from(self.decisions)) / times);
        arm.reward / times + self.exploration * seldom
    }

    fn context(&self, sight: &Sight<'_>) -> usize {
        let run = as_count(sight.run.len());
        let entropy: f64 = sight
            .run
            .iter()
            .map(|of| f64::from(of.candidate.entropy))
            .sum();
        let of = |part: u32, whole: u32| f64::from(part) / f64::from(whole.max(1));
        let shares = [
            of(run.saturating_sub(1), sight.length.saturating_sub(1)),
            of(sight.committed, sight.length),
            self.entropy_scale * entropy / f64::from(run.max(1)),
        ];
        shares.iter().fold(0, |context, share| {
            2 * context + usize::from(whole(2.0 * share) > 0)
        })
    }

    fn rewarded(&mut self, tokens: usize) {
        let Some((arm, context)) = self.open.take() else {
            return;
        };
        // A check is a forward pass more.
        let passes = if arm == 1 { 2.0 } else { 1.0 };
        let arm = &mut self.arms[arm][context];
        arm.times += 1;
        arm.reward += f64::from(as_count(tokens)) / passes;
    }
}

impl Router {
    pub(super) fn new(of: &Settings) -> Self {
        let scale = of.number(&ENTROPY_SCALE);
        let score = Score {
            entropy_scale: (of.name(&ESTIMATE) == "entropy").then_some(scale),
            penalty: of.number(&PENALTY),
            for_tokens: of.name(&PENALTY_FOR) == "token",
        };
        let (on, off) = (of.number(&SCORE_ON), of.number(&SCORE_OFF));
        match of.name(&ROUTER) {
            "score" => Self::Score { score, on },
            "hysteresis" => Self::Hysteresis {
                score,
                bounds: (on, off),
                checks: false,
            },
            "bandit" => Self::Bandit(Box::new(Bandit::new(of.number(&EXPLORATION), scale))),
            _ => Self::Span(of.count(&MIN_SPAN)),
        }
    }

    /// Whether the run is checked.
    pub(super) fn checks(&mut self, sight: &Sight<'_>) -> bool {
        match self {
            Self::Span(least) => as_count(sight.run.len()) >= *least,
            Self::Score { score, on } => score.of(sight) >= *on,
            Self::Hysteresis {
                score,
                bounds: (on, off),
                checks,
            } => {
                let score = score.of(sight);
                *checks = if *checks { score >= *off } else { score > *on };
                *checks
            }
            Self::Bandit(bandit) => bandit.decide(sight),
        }
    }

    /// What the last decision brought: tokens of the step, or of the step that checked.
    pub(super) fn rewarded(&mut self, tokens: usize) {
        if let Self::Bandit(bandit) = self {
            bandit.rewarded(tokens);
        }
    }
}
