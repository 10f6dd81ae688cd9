//! The real server over the demo model, from a socket's far end.

mod faults;
mod freeing;
mod goldens;
mod together;
