//! Scoring on a device: reduces the last hidden states of scored rows to one record per row, and to the
//! most probable tokens of rows that want them.

use super::array::{Array, Buffer, grow};
use super::batch::{SCORER_WORDS, ScoredRows, Section};
use super::canvas::{SoftArrays, SoftHead};
use super::filters::RowExtras;
use super::launch::{Division, ProductLaunch, ProductTile};
use super::matrix::DeviceMatrix;
use super::{Kernel, Result, args, kernel, refuse};
use crate::linear::Epilogue;
use step::{Candidate, TopToken};

const FOLD: Kernel = kernel("fold_partials", 128, 2 * 128 * 16);
pub(super) const KERNELS: &[Kernel] = &[FOLD];

/// Bytes of a partial record, of one row and one strip of the vocabulary; `Partial` of the kernels.
pub(super) const PARTIAL_BYTES: usize = 32;
/// Columns of a strip; `STRIP` of the kernels.
const STRIP: usize = 64;
/// Numbers of a record; `RECORD` of the kernels.
pub(super) const FIELDS: usize = 8;

/// Records of the scored rows of a batch, and their partial records. The memory is reused.
#[derive(Default)]
pub struct DeviceScores {
    records: Option<Buffer>,
    partials: Option<Buffer>,
    apart: Option<Buffer>,
    extras: RowExtras,
    soft: Option<SoftArrays>,
    bytes: Vec<u8>,
    /// The tile of the LM head's product; `None`: the fastest.
    tile: Option<&'static ProductTile>,
}

/// The LM head on a device.
#[derive(Clone, Copy)]
pub struct ScoringHead<'a> {
    /// The matrix `[v, d]`.
    pub matrix: &'a DeviceMatrix,
    /// Logits are `cap * tanh(x / cap)` of the product.
    pub cap: Option<f32>,
    /// The table and the memory of mean embeddings, if the scored rows have some.
    pub soft: Option<SoftHead<'a>>,
}

impl<'a> ScoringHead<'a> {
    /// A head whose logits are the product.
    pub fn plain(matrix: &'a DeviceMatrix) -> Self {
        Self { matrix, cap: None, soft: None }
    }
}

impl DeviceScores {
    /// Maximum rows scored at a time; partial records exist for this many rows.
    pub const CHUNK: usize = 1024;

    /// Takes a tile for the LM head's product in place of the fastest, to measure or to test it.
    pub fn use_tile(&mut self, tile: Option<&'static ProductTile>) {
        self.tile = tile;
    }

    /// Allocates memory for `rows` records with this LM head.
    pub fn reserve(&mut self, head: &DeviceMatrix, rows: usize) -> Result<()> {
        let [records, apart, partials] = Self::bytes(head.width(), rows);
        let device = head.device();
        self.extras.reserve(device, head.width(), rows, Self::CHUNK)?;
        grow(&mut self.records, device, records)?;
        grow(&mut self.apart, device, apart)?;
        grow(&mut self.partials, device, partials)
    }

    /// Allocates memory for the mean embeddings of `rows` scored rows, which are made with this table.
    pub fn reserve_soft(&mut self, table: &DeviceMatrix, rows: usize) -> Result<()> {
        let most = rows.min(Self::CHUNK);
        let room = RowExtras::rows(table.device().limits(), table.k(), most);
        if self.soft.as_ref().is_none_or(|soft| !soft.has_room(room)) {
            self.soft = None;
            self.soft = Some(SoftArrays::new(table, most)?);
        }
        Ok(())
    }

    /// Bytes that [`Self::reserve`] allocates for `rows` rows of `vocab` logits: records, logits of the
    /// input and the mask token, partial records.
    pub fn bytes(vocab: usize, rows: usize) -> [usize; 3] {
        let chunk = rows.min(Self::CHUNK);
        let strips = vocab.div_ceil(STRIP);
        let record = FIELDS * size_of::<f64>();
        [
            rows.saturating_mul(record),
            chunk * 2 * size_of::<f32>(),
            chunk.saturating_mul(strips).saturating_mul(PARTIAL_BYTES),
        ]
        .map(|bytes| bytes.checked_next_power_of_two().unwrap_or(usize::MAX))
    }

    /// Waits for all earlier work and appends the first `count` most probable tokens of the scored
    /// rows, in row order.
    pub fn read_tops(&mut self, count: usize, tops: &mut Vec<TopToken>) -> Result<()> {
        self.extras.read(count, tops)
    }

    /// Waits for all earlier work and reads the first `rows` records. The record of a row with a NaN
    /// or infinite logit is `None`.
    pub fn read(&mut self, rows: usize, candidates: &mut Vec<Option<Candidate>>) -> Result<()> {
        let Some(records) = &self.records else {
            return refuse("no memory was reserved for records");
        };
        self.bytes.resize(rows * FIELDS * size_of::<f64>(), 0);
        records.download(0, &mut self.bytes)?;
        let fields = self.bytes.as_chunks::<8>().0;
        for record in fields.as_chunks::<FIELDS>().0 {
            let [token, probability, runner_up, runner_up_probability, entropy, gap, present, _] =
                record.map(f64::from_le_bytes);
            let odd = token.is_nan() || probability.is_nan() || entropy.is_nan();
            candidates.push((!odd).then_some(Candidate {
                token: token as u32,
                probability,
                runner_up: runner_up as u32,
                runner_up_probability,
                entropy: entropy as f32,
                gap: gap as f32,
                present,
            }));
        }
        Ok(())
    }

    /// Writes the records of a range of at most [`Self::CHUNK`] of the batch's scored rows, and their
    /// most probable tokens. Their normalised hidden states are the first rows of `x [., d]`, padded.
    /// Computes the product with the LM head `[v, d]`, applies biases and sets of allowed tokens, and
    /// reduces each row. Stores the logits of rows that want more than a record, or a mean embedding,
    /// only, and of some rows at a time.
    pub fn score(
        &self,
        head: &ScoringHead<'_>,
        x: &Array,
        scored: ScoredRows<'_>,
        mask: u32,
    ) -> Result<()> {
        let (lm_head, ScoredRows { batch, range }) = (head.matrix, scored);
        let (rows, vocab) = (range.len(), lm_head.width());
        if range.end > batch.scored() || rows > Self::CHUNK || vocab < 3 {
            return refuse(format!("scored rows {range:?} of {}", batch.scored()));
        }
        if lm_head.epilogue() != Epilogue::None || !lm_head.is_alone() {
            return refuse("expected an LM head without a gate, in one format");
        }
        let step = match batch.shape().filtered || head.soft.is_some() {
            true => RowExtras::rows(lm_head.device().limits(), vocab, rows),
            false => rows,
        };
        for first in (0..rows).step_by(step.max(1)) {
            let (begin, end) = (range.start + first, range.start + rows.min(first + step));
            let part = ScoredRows { batch, range: begin..end };
            self.part(head, Inputs { x, first }, part, mask)?;
        }
        Ok(())
    }

    /// The launch of the LM head's product.
    fn launch(&self, lm_head: &DeviceMatrix, rows: usize) -> ProductLaunch {
        let launch = lm_head.launch(rows, Division::Whole);
        if let Some(tile) = self.tile {
            return ProductLaunch::undivided(tile, launch.sizes);
        }
        launch
    }

    /// As [`Self::score`], for rows whose logits are stored together.
    fn part(
        &self,
        head: &ScoringHead<'_>,
        Inputs { x, first }: Inputs<'_>,
        ScoredRows { batch, range }: ScoredRows<'_>,
        mask: u32,
    ) -> Result<()> {
        let lm_head = head.matrix;
        let (rows, vocab, device) = (range.len(), lm_head.width(), x.device());
        let (Some(records), Some(partials), Some(apart)) =
            (&self.records, &self.partials, &self.apart)
        else {
            return refuse("no memory was reserved for records");
        };
        let launch = self.launch(lm_head, rows);
        let count = vocab.div_ceil(STRIP);
        let record = FIELDS * size_of::<f64>();
        let filtered = batch.shape().filtered;
        let args = args::Head {
            pad: 0,
            operands: lm_head.operands(x, first..first + rows, None)?,
            bias: lm_head.bias()?,
            rows: batch.address(Section::Scorers, range.start * SCORER_WORDS)?,
            words: batch.address(Section::Words, 0)?,
            partials: partials.range(0, rows * count * PARTIAL_BYTES)?,
            apart: apart.range(0, rows * 2 * size_of::<f32>())?,
            logits: match filtered {
                true => self.extras.logits(rows, vocab)?,
                false => 0,
            },
            plain: head.soft.map_or(Ok(0), |_| self.soft()?.logits(rows))?,
            mask,
            count: count as u32,
            cap: head.cap.unwrap_or(0.0),
        };
        let fold = args::Fold {
            pad: 0,
            partials: args.partials,
            apart: args.apart,
            rows: args.rows,
            out: records.range(range.start * record, rows * record)?,
            count: count as u32,
            vocab: vocab as u32,
            mask,
        };
        let across = launch.wide();
        if across > 65_535 {
            return refuse(format!("an LM head of {vocab} tokens is too large"));
        }
        let kernel = kernel_of(&launch)?;
        let grid = match kernel.bulk {
            true => [launch.grid(device.limits())?, 1, 1],
            false => [launch.tall() as u32, across as u32, 1],
        };
        // SAFETY: the arrays have these sizes; biases and sets of the batch were checked against a
        // vocabulary that is the head's.
        unsafe {
            lm_head.launch_product(&launch, (kernel, grid), (x, first), &args)?;
            device.launch(FOLD, [rows as u32, 1, 1], &fold)?;
        }
        let scored = ScoredRows { batch, range };
        if filtered {
            self.extras.complete(scored.clone(), vocab, mask, fold.out)?;
        }
        match head.soft {
            Some(soft) => self.soft()?.keep(soft, scored),
            None => Ok(()),
        }
    }

    fn soft(&self) -> Result<&SoftArrays> {
        match &self.soft {
            Some(soft) => Ok(soft),
            None => refuse("no memory was reserved for mean embeddings"),
        }
    }
}

/// The kernel of the LM head of a launch.
fn kernel_of(launch: &ProductLaunch) -> Result<Kernel> {
    match launch.tile.head_kernel() {
        Some(kernel) => Ok(kernel),
        None => refuse(format!("{} has no LM head", launch.tile.names.gemm)),
    }
}

/// Normalised hidden states from a row on.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    x: &'a Array,
    first: usize,
}
