//! Checks the ranges, pages, slots and tokens of a batch on which a real executor relies.

use step::{
    Attention, Batch, ExecuteError, ExecutorSpec, Row, Segment, as_count, as_index, set_words,
};

/// Checks everything that needs no look into the KV store.
///
/// # Errors
/// The first value that is out of range.
pub(crate) fn check_shape(batch: &Batch, spec: &ExecutorSpec) -> Result<(), ExecuteError> {
    let mut next = 0;
    for (number, segment) in batch.segments.iter().enumerate() {
        let (rows, pages) = (&segment.rows, &segment.pages);
        if rows.start != next || rows.end < rows.start || as_index(rows.end) > batch.rows.len() {
            return error(format!("segment {number}: rows {rows:?} do not follow row {next}"));
        }
        next = rows.end;
        if pages.end < pages.start || as_index(pages.end) > batch.pages.len() {
            return error(format!("segment {number}: page range {pages:?} is out of range"));
        }
        for row in batch.rows_of(segment) {
            check_row(row, segment, batch, spec)
                .or_else(|what| error(format!("segment {number}, {row:?}: {what}")))?;
        }
    }
    if as_index(next) != batch.rows.len() {
        return error(format!("rows from {next} on belong to no segment"));
    }
    let copied = batch.copies.iter().flat_map(|copy| [copy.source, copy.destination]);
    for page in copied.chain(batch.pages.iter().copied()) {
        if page.0 >= spec.pages {
            return error(format!("page {} of {}", page.0, spec.pages));
        }
    }
    for bias in &batch.biases {
        let scale = bias.repetition > 0.0 && bias.repetition < f32::INFINITY;
        let amount = bias.amount < f32::INFINITY;
        if bias.token >= spec.vocab_size || !scale || !amount {
            return error(format!("{bias:?} is out of range"));
        }
    }
    let words = set_words(spec.vocab_size);
    if !batch.allowed.len().is_multiple_of(words) {
        return error(format!(
            "allowed sets of {} words, expected a multiple of {words}",
            batch.allowed.len()
        ));
    }
    Ok(())
}

/// An [`ExecuteError`] as a result.
pub(crate) fn error<T>(what: String) -> Result<T, ExecuteError> {
    Err(ExecuteError(what))
}

fn check_row(
    row: &Row,
    segment: &Segment,
    batch: &Batch,
    spec: &ExecutorSpec,
) -> Result<(), String> {
    let pages = u64::from(as_count(segment.pages.len()));
    let slots = pages * u64::from(spec.page_size);
    if u64::from(row.slot.get()) >= slots || u64::from(row.reach().get()) > slots {
        return Err(format!("the page table has {slots} slots"));
    }
    if row.position.get() >= spec.max_positions {
        return Err(format!("the model has {} positions", spec.max_positions));
    }
    let unknown = |token| token >= spec.vocab_size && Some(token) != spec.mask;
    if unknown(row.token) {
        return Err(format!("the model has {} tokens", spec.vocab_size));
    }
    if row.biases.end < row.biases.start || as_index(row.biases.end) > batch.biases.len() {
        return Err(format!("the batch has {} biases", batch.biases.len()));
    }
    check_attention(row, spec.attention)?;
    let sets = batch.allowed.len() / set_words(spec.vocab_size);
    let mut named = row.allowed.into_iter().chain(row.score.among());
    if named.any(|set| as_index(set) >= sets) {
        return Err(format!("the batch has {sets} allowed sets"));
    }
    if row.score.tops() >= as_index(spec.vocab_size) {
        let most = spec.vocab_size - 1;
        return Err(format!("the model has {most} tokens other than the mask"));
    }
    Ok(())
}

/// Checks that a row sees what weights of this kind were trained to see. The slots beyond the range
/// of a row are the caller's to choose, but for its own one, which it sees.
fn check_attention(row: &Row, attention: Attention) -> Result<(), String> {
    if attention != Attention::Full && row.beyond != 0 {
        return match row.sees(row.slot) && row.visible_end <= row.slot {
            true => Ok(()),
            false => Err("a row with slots beyond its range sees its own slot there".to_owned()),
        };
    }
    match attention {
        Attention::Full => Ok(()),
        Attention::Causal if row.visible_end == row.slot.next() => Ok(()),
        Attention::Causal => Err("causal weights see up to their own slot".to_owned()),
        // A final token sees up to its own slot; the block's end is not known here.
        Attention::OpenBlock(_) if row.visible_end > row.slot => Ok(()),
        Attention::OpenBlock(_) => Err("a row of an open block sees its own slot".to_owned()),
        Attention::Canvas(_) if row.denoise.is_none() && row.visible_end == row.slot.next() => {
            Ok(())
        }
        Attention::Canvas(_) if row.denoise.is_some() && row.visible_end > row.slot => Ok(()),
        Attention::Canvas(_) => {
            Err("a final token sees up to its own slot, one of a canvas its whole canvas"
                .to_owned())
        }
        // Where the prompt ends is not known here.
        Attention::BlocksAfterPrompt(_)
            if row.slot.get() == row.position.get() && row.visible_end > row.slot =>
        {
            Ok(())
        }
        Attention::BlocksAfterPrompt(_) => {
            Err("blocks lie in the order of positions and see their own slot".to_owned())
        }
        Attention::Blocks(length) => {
            let end = row.position.block_end(length);
            let in_order = row.slot.get() == row.position.get();
            if !in_order || row.visible_end.get() > end.get() || row.visible_end <= row.slot {
                return Err(format!(
                    "weights with blocks of {length} see from their own slot up to {end}"
                ));
            }
            Ok(())
        }
    }
}
