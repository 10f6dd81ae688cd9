//! Published rules that no preset uses. They are reached by their names in requests alone.

pub(super) mod capped;
pub(super) mod credit;
pub(super) mod draft_verify;
pub(super) mod early_commit;
pub(super) mod factor;
pub(super) mod hierarchy;
pub(super) mod joint_bound;
pub(super) mod learned_filter;
pub(super) mod local_leap;
pub(super) mod margin;
pub(super) mod nested_drafts;
