//! Conversions between numbers that the standard library leaves to `as`.

/// The nearest number of single precision; infinite beyond its range.
#[expect(clippy::as_conversions, reason = "no other conversion rounds")]
pub const fn to_single(number: f64) -> f32 {
    number as f32
}

/// The nearest number of double precision.
#[expect(clippy::as_conversions, reason = "no other conversion rounds")]
pub(crate) const fn to_double(number: i64) -> f64 {
    number as f64
}

/// The whole part of a number, within the range of counts; 0 for NaN.
#[expect(clippy::as_conversions, reason = "no other conversion cuts off")]
pub(crate) const fn whole(number: f64) -> u32 {
    number as u32
}
