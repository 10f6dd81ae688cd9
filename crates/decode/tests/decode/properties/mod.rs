//! The properties of AsyncLane §6 that hold in `decode`, one file each.

mod canvas_is_cut;
mod checks;
mod commit_is_final;
mod coverage;
mod delimiters_of_forks;
mod depth_first_order;
mod edits;
mod effects_tell_all;
mod emitted_prefix_grows;
mod finished_output;
mod grammar;
mod joint_bound_holds;
mod lane_limits;
mod leaves_tile;
mod lossless;
mod one_generate_lane;
mod progress;
mod reduction_to_blocks;
mod stop_tokens;
