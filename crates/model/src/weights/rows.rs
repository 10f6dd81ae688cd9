//! Work on the rows of a matrix, shared between threads.

use std::num::NonZero;
use std::thread;

/// Elements below which one thread is as fast.
const SERIAL: usize = 1 << 20;

/// Calls `fill` with the number and the elements of every row of a row-major matrix.
pub(crate) fn each_row<T: Send>(
    numbers: &mut [T],
    columns: usize,
    fill: impl Fn(usize, &mut [T]) + Sync,
) {
    let threads = match numbers.len() < SERIAL {
        true => 1,
        false => thread::available_parallelism().map_or(1, NonZero::get),
    };
    let columns = columns.max(1);
    let rows = (numbers.len() / columns).div_ceil(threads).max(1);
    let fill = &fill;
    thread::scope(|scope| {
        for (part, numbers) in numbers.chunks_mut(rows * columns).enumerate() {
            let mut work = move || {
                for (row, numbers) in numbers.chunks_mut(columns).enumerate() {
                    fill(part * rows + row, numbers);
                }
            };
            match threads {
                1 => work(),
                _ => drop(scope.spawn(work)),
            }
        }
    });
}
