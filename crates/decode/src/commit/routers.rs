//! Routers of S2D2 (arXiv 2603.25702, §4.3): they decide whether a run of masks is worth the forward
//! pass that checks it.

use alloc::format;

use super::prelude::*;
use crate::numbers::whole;

/// τ.
pub(super) const THRESHOLD: SettingInfo = SettingInfo::number("threshold", 0.0..=1.0, 0.85)
    .says("confidence that a commit without a check must exceed");
/// τ_span.
const MIN_SPAN: SettingInfo = SettingInfo::integer("min_span", 1..=64, 1)
    .says("smallest length of the first run of masks that router span checks");
/// The policy.
const ROUTER: SettingInfo = SettingInfo::name(
    "router",
    &["span", "score", "hysteresis", "bandit"],
    "span",
)
.says(
    "when the first run of masks is checked: span: from min_span masks on; score: at a score of score_on; \
     hysteresis: from above score_on until below score_off; bandit: if checks have brought more tokens \
     for each forward pass",
);
/// The estimate of α.
const ESTIMATE: SettingInfo =
    SettingInfo::name("estimate", &["entropy", "margin"], "entropy").says(
        "probability that a guess is right, for scores: entropy: e^-(entropy_scale x entropy); margin: 1 where the \
         two most probable tokens differ by more than 0.05",
    );
/// The factor from nats to fractions of the largest entropy.
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
    .says("weight of the bonus that router bandit gives to a decision it has seldom made");

/// The settings of a rule with a router: τ first, then the router's own.
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

/// Refuses settings that do not suit each other.
///
/// # Errors
/// Bounds of a hysteresis that do not leave a range between them.
pub(super) fn suits(settings: &Settings) -> Result<(), Fault> {
    let [upper, lower] = [&SCORE_ON, &SCORE_OFF].map(|bound| settings.number(bound));
    if settings.name(&ROUTER) != "hysteresis" || lower < upper {
        return Ok(());
    }
    Err(Fault {
        setting: SCORE_OFF.name,
        message: format!("must be below score_on, {upper}, for router hysteresis, got {lower}"),
    })
}

/// Least difference of the two largest probabilities of a guess that counts as right.
const MARGIN: f64 = 0.05;

/// The masks of a block after a forward pass that checked nothing.
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

/// Decides step by step; each sequence has one.
#[derive(Debug)]
pub(super) enum Router {
    /// Checks runs of this number of masks and more.
    Span(u32),
    /// Checks where the score is at least `upper`.
    Score { score: Score, upper: f64 },
    /// Begins to check above `upper`, and ends below `lower`.
    Hysteresis { score: Score, upper: f64, lower: f64, checks: bool },
    /// Takes the decision that has brought more tokens for each forward pass.
    Bandit(Box<Bandit>),
}

/// E[K] - c: the tokens that a check is expected to commit, less a penalty.
#[derive(Debug)]
pub(super) struct Score {
    /// Factor of entropies; `None` for the margin.
    entropy_scale: Option<f64>,
    penalty: f64,
    for_tokens: bool,
}

impl Score {
    /// E[K] = Σ_k Π_{i ≤ k} α_i, less the penalty.
    fn of(&self, sight: &Sight<'_>) -> f64 {
        let times = if self.for_tokens { sight.sure } else { 1 };
        let mut all = 1.0;
        let right = sight.run.iter().map(|guess| {
            all *= self.right(guess);
            all
        });
        right.sum::<f64>() - self.penalty * f64::from(as_count(times))
    }

    /// α of one guess.
    fn right(&self, guess: &Proposal) -> f64 {
        let candidate = &guess.candidate;
        match self.entropy_scale {
            Some(scale) => libm::exp(-scale * f64::from(candidate.entropy)),
            None => f64::from(u8::from(candidate.margin() > MARGIN)),
        }
    }
}

/// The upper confidence bound over two arms (check, or not) in eight contexts: halves of the run's
/// length, of the block's progress, and of the mean entropy.
#[derive(Debug)]
pub(super) struct Bandit {
    exploration: f64,
    entropy_scale: f64,
    decisions: u32,
    arms: [[Arm; 8]; 2],
    /// Arm and context of the decision whose tokens are not known.
    open: Option<(usize, usize)>,
}

/// The yield of an arm in a context.
#[derive(Clone, Copy, Debug, Default)]
struct Arm {
    times: u32,
    reward: f64,
}

impl Bandit {
    fn decide(&mut self, sight: &Sight<'_>) -> bool {
        self.decisions += 1;
        let context = self.context(sight);
        let bounds = self.arms.map(|arm| self.bound(arm[context]));
        let arm = usize::from(bounds[1] >= bounds[0]);
        self.open = Some((arm, context));
        arm == 1
    }

    /// Mean reward, and more for an arm that was seldom tried.
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
        let entropies = sight.run.iter().map(|proposal| f64::from(proposal.candidate.entropy));
        let ratio = |count: u32, total: u32| f64::from(count) / f64::from(total.max(1));
        let ratios = [
            ratio(run.saturating_sub(1), sight.length.saturating_sub(1)),
            ratio(sight.committed, sight.length),
            self.entropy_scale * entropies.sum::<f64>() / f64::from(run.max(1)),
        ];
        ratios.iter().fold(0, |context, ratio| 2 * context + usize::from(whole(2.0 * ratio) > 0))
    }
}

impl Router {
    pub(super) fn new(settings: &Settings) -> Self {
        let entropy_scale = settings.number(&ENTROPY_SCALE);
        let score = Score {
            entropy_scale: (settings.name(&ESTIMATE) == "entropy").then_some(entropy_scale),
            penalty: settings.number(&PENALTY),
            for_tokens: settings.name(&PENALTY_FOR) == "token",
        };
        let (upper, lower) = (settings.number(&SCORE_ON), settings.number(&SCORE_OFF));
        match settings.name(&ROUTER) {
            "score" => Self::Score { score, upper },
            "hysteresis" => Self::Hysteresis { score, upper, lower, checks: false },
            "bandit" => Self::Bandit(Box::new(Bandit {
                exploration: settings.number(&EXPLORATION),
                entropy_scale,
                decisions: 0,
                arms: [[Arm::default(); 8]; 2],
                open: None,
            })),
            _ => Self::Span(settings.count(&MIN_SPAN)),
        }
    }

    /// Returns true if the run is checked.
    pub(super) fn checks(&mut self, sight: &Sight<'_>) -> bool {
        match self {
            Self::Span(least) => as_count(sight.run.len()) >= *least,
            Self::Score { score, upper } => score.of(sight) >= *upper,
            Self::Hysteresis { score, upper, lower, checks } => {
                let score = score.of(sight);
                *checks = if *checks { score >= *lower } else { score > *upper };
                *checks
            }
            Self::Bandit(bandit) => bandit.decide(sight),
        }
    }

    /// Books the yield of the last decision: the tokens of the step, or of the step that checked.
    pub(super) fn rewarded(&mut self, tokens: usize) {
        let Self::Bandit(bandit) = self else {
            return;
        };
        if let Some((arm, context)) = bandit.open.take() {
            // A check is one more forward pass.
            let passes = if arm == 1 { 2.0 } else { 1.0 };
            let arm = &mut bandit.arms[arm][context];
            arm.times += 1;
            arm.reward += f64::from(as_count(tokens)) / passes;
        }
    }
}
