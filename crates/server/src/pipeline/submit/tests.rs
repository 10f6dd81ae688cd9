//! `retry-after` follows the queue, the places of the batch and the KV memory.

use engine::{Limits, Load};
use step::{Attention, LogitShift};

use super::retry_after;

#[test]
fn a_refused_request_waits_longer_if_memory_is_short() {
    let limits = Limits {
        max_model_len: 1024,
        vocab_size: 100,
        page_size: 16,
        pages: 100,
        max_running: 50,
        max_waiting: 1000,
        filter: None,
        edits: false,
        drafts: false,
        masks: false,
        attention: Attention::Full,
        logit_shift: LogitShift::None,
        prefill_chunk: 0,
    };
    let load = |waiting, pages_used| Load { running: 1, waiting, pages_used };
    // Fifty at a time; then two at a time, because each takes half of the pages.
    assert_eq!(retry_after(limits, load(200, 0), 1), 4);
    assert_eq!(retry_after(limits, load(200, 0), 50), 100);
    assert_eq!(retry_after(limits, load(0, 60), 50), 1);
    assert_eq!(retry_after(limits, load(0, 50), 50), 0);
    assert_eq!(retry_after(limits, load(3, 100), 200), 4);
}
