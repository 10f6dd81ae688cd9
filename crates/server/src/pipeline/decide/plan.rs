//! From questions to sequences: prompts, canvases, labels.

use std::sync::Arc;

use decode::{Offset, Pin};
use engine::{ClientId, Given, Limits, Request};
use step::{Attention, TokenId};
use text::{Conversation, Tokenizer, ToolFormat};

use super::labels::{Labels, Line};
use super::wording::{self, MARK};
use super::{Decide, Manner, Question, ReadSettings};
use crate::error::{ApiError, ErrorCode};
use crate::http::settings::RequestLimits;
use crate::pipeline::chat_text::Ending;
use crate::pipeline::encode::{ChatPrompt, chat_ids, client_text};
use crate::pipeline::ids::choice_seed;
use crate::pipeline::pools::Interest;

/// The sequences of a request, and what is read from them.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The sequences.
    pub readings: Vec<Reading>,
    /// Number of options of each question.
    pub options: Vec<usize>,
    /// The divisor of log-probabilities.
    pub temperature: f64,
    /// Together or apart.
    pub manner: Manner,
    /// True if the sequences may share the K/V of their prompts.
    pub shares_pages: bool,
}

/// One sequence.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The request to the engine.
    pub request: Request,
    /// The number of its first question; one slot each.
    pub first: usize,
    /// Number of its questions.
    pub count: usize,
    /// The order of the options, from 0, and the number of orders.
    pub order: (usize, usize),
}

impl Reading {
    /// Tokens that are given: prompt and pins.
    pub fn tokens(&self) -> u64 {
        (self.request.prompt.len() + self.request.given.pins.len()) as u64
    }

    /// Places by which the options of a question with `count` of them moved.
    pub fn shift(&self, count: usize) -> usize {
        shift(self.order, count)
    }
}

fn shift((order, orders): (usize, usize), count: usize) -> usize {
    order * count / orders % count
}

/// The parts of a server that planning reads.
#[derive(Clone, Copy)]
pub struct Planner<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Its labels.
    pub labels: &'a Labels,
    /// The format of calls in the input.
    pub calls: ToolFormat,
    /// The engine's limits.
    pub limits: Limits,
    /// The server's limits of a request.
    pub most: RequestLimits,
    /// The request field of the input.
    pub input: &'static str,
}

/// The sequences of `decide`, which the client `client` sent. Ends between two once nobody has an
/// interest in it.
///
/// # Errors
/// Questions that do not fit: more options than labels, more tokens than the context or than a request may
/// have, more sequences than it may have; a manner that the weights do not allow; faults of the chat
/// template.
pub(crate) fn plan(
    planner: Planner<'_>,
    decide: &Decide,
    client: ClientId,
    interest: &Interest,
) -> Result<Plan, ApiError> {
    planner.check_labels(&decide.questions)?;
    let head = planner.head(&decide.input)?;
    let (manner, groups) = planner.groups(decide)?;
    let draws = match planner.limits.attention {
        Attention::Canvas(_) => decide.settings.draws,
        _ => 1,
    };
    let orders = decide.settings.orders;
    let sequences = groups.len() * (orders as usize) * (draws as usize);
    if sequences > planner.most.max_sequences as usize {
        let rest = format!(
            "exceeds the sequences of a request: {sequences}, expected at most {} (server.max_sequences): {} canvases x \
             {orders} orders x {draws} draws",
            planner.most.max_sequences,
            groups.len()
        );
        let each = orders as usize * draws as usize;
        let over = groups.get(planner.most.max_sequences as usize / each);
        let field = match over {
            Some(group) if group.first > 0 => decide.field_of(group.first),
            _ => "questions",
        };
        return Err(ApiError::field(ErrorCode::InvalidValue, field, rest));
    }
    let mut plan = Plan {
        readings: Vec::with_capacity(sequences),
        options: decide.questions.iter().map(|question| question.options.len()).collect(),
        temperature: decide.settings.temperature,
        manner,
        shares_pages: !matches!(
            planner.limits.attention,
            Attention::Full | Attention::BlocksAfterPrompt(_)
        ),
    };
    let mut tokens = 0;
    for order in 0..orders as usize {
        for group in &groups {
            interest.check()?;
            let canvas = Canvas { group, order: (order, orders as usize) };
            let mut reading = planner.reading(&head, decide, canvas)?;
            reading.request.sender.client = client;
            tokens += u64::from(draws) * (reading.tokens() + reading.count as u64);
            if tokens > planner.most.max_request_tokens {
                let rest = format!(
                    "needs, with the questions before it, more than {} tokens over all sequences \
                     (server.max_request_tokens)",
                    planner.most.max_request_tokens
                );
                let field = decide.field_of(group.first);
                return Err(ApiError::field(ErrorCode::InvalidValue, field, rest));
            }
            for draw in 0..draws {
                let mut drawn = reading.clone();
                drawn.request.sampling.seed = choice_seed(decide.settings.seed, draw);
                plan.readings.push(drawn);
            }
        }
    }
    Ok(plan)
}

/// The chat up to the questions, and the text behind them.
struct Head {
    ids: Vec<TokenId>,
    tail: String,
}

/// Questions that share a canvas.
#[derive(Clone, Debug)]
struct Group {
    first: usize,
    lines: Vec<Line>,
}

impl Group {
    /// Tokens from the first line's beginning to the last line's label.
    fn length(&self) -> usize {
        let lines: usize =
            self.lines.iter().map(|line| line.before.len() + 1 + line.after.len()).sum();
        lines - self.lines.last().map_or(0, |last| last.after.len())
    }
}

/// A canvas to plan.
#[derive(Clone, Copy)]
struct Canvas<'a> {
    group: &'a Group,
    order: (usize, usize),
}

impl Planner<'_> {
    /// Refuses a question with more options than there are labels.
    fn check_labels(&self, questions: &[Question]) -> Result<(), ApiError> {
        let most = self.labels.tokens().len();
        match questions.iter().find(|question| question.options.len() > most) {
            None => Ok(()),
            Some(Question { options, fields, .. }) => {
                let rest = format!(
                    "has {} options, and this model's tokenizer has {most} labels that are one token",
                    options.len()
                );
                Err(ApiError::field(ErrorCode::UnsupportedValue, &fields.options, rest))
            }
        }
    }

    fn head(&self, input: &Conversation) -> Result<Head, ApiError> {
        let chat = wording::marked(input);
        let prompt = ChatPrompt {
            chat: &chat,
            calls: self.calls,
            ending: Ending::Answer,
            field: self.input,
        };
        let text = prompt.text(self.tokenizer)?;
        let Some((head, tail)) = text.rsplit_once(MARK) else {
            let rest = "cannot be put into the chat template: it drops the last message";
            return Err(ApiError::field(ErrorCode::InvalidValue, self.input, rest));
        };
        let ids = chat_ids(self.tokenizer, self.limits, head, self.input)?;
        Ok(Head { ids, tail: tail.to_owned() })
    }

    /// The questions of each canvas.
    fn groups(&self, decide: &Decide) -> Result<(Manner, Vec<Group>), ApiError> {
        let count = decide.questions.len();
        let together = || -> Result<Group, ApiError> {
            let lines = (1..=count).map(|number| self.line(number));
            Ok(Group { first: 0, lines: lines.collect::<Result<_, _>>()? })
        };
        let refuse =
            |rest: String| Err(ApiError::field(ErrorCode::InvalidValue, "diffusion.read", rest));
        let readable = self.limits.kind().readable();
        let ReadSettings { manner, .. } = decide.settings;
        match (manner, readable) {
            (Some(Manner::Joint), None) => refuse(
                "joint needs weights that read several places at once, this model's predict the next \
                 token only: use apart"
                    .to_owned(),
            ),
            (Some(Manner::Apart), _) | (None, None) => self.apart(count),
            (_, Some(most)) => {
                let group = together()?;
                let length = group.length();
                match (length <= most as usize, manner) {
                    (true, _) => Ok((Manner::Joint, vec![group])),
                    (false, None) => self.apart(count),
                    (false, Some(_)) => refuse(format!(
                        "joint needs a canvas of {length} positions, this model's have {most}: use \
                         apart"
                    )),
                }
            }
        }
    }

    fn apart(&self, count: usize) -> Result<(Manner, Vec<Group>), ApiError> {
        let lines = vec![self.line(1)?];
        let group = |first| Group { first, lines: lines.clone() };
        Ok((Manner::Apart, (0..count).map(group).collect()))
    }

    fn line(&self, number: usize) -> Result<Line, ApiError> {
        let line = self.labels.line(self.tokenizer, number);
        line.map_err(|error| ApiError::from_text(error, "questions"))?.ok_or_else(|| {
            let rest = format!("cannot be read: question {number} has no labels of one token");
            ApiError::field(ErrorCode::UnsupportedValue, "questions", rest)
        })
    }

    /// The sequence of a canvas.
    fn reading(
        &self,
        head: &Head,
        decide: &Decide,
        canvas: Canvas<'_>,
    ) -> Result<Reading, ApiError> {
        let Canvas { group, order } = canvas;
        let (first, count) = (group.first, group.lines.len());
        let questions: Vec<&Question> = decide.questions[first..first + count].iter().collect();
        let text = wording::text(&questions, self.labels.texts(), |options| shift(order, options));
        let text = client_text(self.tokenizer, &text) + &head.tail;
        let field = match count {
            1 => questions[0].fields.question.as_str(),
            _ => "questions",
        };
        let mut prompt = head.ids.clone();
        prompt.extend(chat_ids(self.tokenizer, self.limits, &text, field)?);
        let (mut pins, mut offsets) = (Vec::new(), Vec::new());
        let mut canvas = 0;
        let mut pin = |canvas: &mut u32, tokens: &[TokenId]| {
            for token in tokens {
                pins.push(Pin::fixed(Offset::new(*canvas), *token));
                *canvas += 1;
            }
        };
        for (index, line) in group.lines.iter().enumerate() {
            match self.limits.attention {
                Attention::Causal | Attention::OpenBlock(_) => prompt.extend(&line.before),
                _ => pin(&mut canvas, &line.before),
            }
            offsets.push(Offset::new(canvas));
            canvas += 1;
            if index + 1 < count {
                pin(&mut canvas, &line.after);
            }
        }
        self.check_room(prompt.len(), canvas, head.ids.len(), field)?;
        let widest = questions.iter().map(|question| question.options.len()).max().unwrap_or(0);
        let mut request = Request::new(prompt, canvas, self.limits.kind().reader(canvas));
        request.given = Given { pins, ..Given::default() };
        let tokens: Arc<[TokenId]> = self.labels.tokens()[..widest].into();
        request.extras.labels = Some(engine::Labels { offsets, tokens });
        Ok(Reading { request, first, count, order })
    }

    /// Checks that a prompt and its canvas fit the context.
    fn check_room(
        &self,
        prompt: usize,
        canvas: u32,
        head: usize,
        field: &str,
    ) -> Result<(), ApiError> {
        let context = self.limits.max_model_len as usize;
        let needed = prompt + canvas as usize;
        if needed <= context {
            return Ok(());
        }
        let field = if head >= context { self.input } else { field };
        let rest = format!(
            "has no room: with the input's {head} tokens it takes {needed}, and this model's maximum \
             context length is {context} tokens"
        );
        Err(ApiError::field(ErrorCode::ContextLengthExceeded, field, rest))
    }
}
