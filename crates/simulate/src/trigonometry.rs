//! Sine and cosine of `f64` without branches, so that loops over environments become vector instructions.
//!
//! They use only operations that IEEE 754 rounds exactly, and no fused ones: results are the same on every machine.

use std::f64::consts::FRAC_2_PI;

/// Adding it rounds to an integer, whose lowest bits are then those of the sum.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// The nearest integer, for |x| below 2⁵¹.
#[inline(always)]
pub(crate) fn round(x: f64) -> f64 {
    (x + ROUNDER) - ROUNDER
}

/// π/2 in three parts: the first two have 33 bits each, so that products with small integers are exact.
const HALF_PI: [f64; 3] = [f64::from_bits(0x3FF9_21FB_5440_0000), f64::from_bits(0x3DD0_B461_1A60_0000), {
    2.022_266_248_795_950_6e-21
}];

/// `(sin x, cos x)`, within one unit in the last place for |x| up to 10⁵; without meaning far beyond.
#[inline(always)]
pub fn sin_cos(x: f64) -> (f64, f64) {
    let shifted = x * FRAC_2_PI + ROUNDER;
    let turns = shifted - ROUNDER;
    let quadrant = shifted.to_bits();
    // The remainder as a sum of two numbers, the second below the last bit of the first.
    let first = (x - turns * HALF_PI[0]) - turns * HALF_PI[1];
    let rest = turns * HALF_PI[2];
    let r = first - rest;
    let tail = (first - r) - rest;
    let (sine, cosine) = near_zero(r, tail);
    let odd = (quadrant & 1).wrapping_neg();
    let select = |a: f64, b: f64| (a.to_bits() & !odd) | (b.to_bits() & odd);
    let sine_sign = (quadrant & 2) << 62;
    let cosine_sign = (quadrant.wrapping_add(1) & 2) << 62;
    (f64::from_bits(select(sine, cosine) ^ sine_sign), f64::from_bits(select(cosine, sine) ^ cosine_sign))
}

/// The cosine alone.
#[inline(always)]
pub fn cos(x: f64) -> f64 {
    sin_cos(x).1
}

/// Sine and cosine of `r + tail` for |r| up to π/4, by Taylor's series; the last terms are below 10⁻¹⁹.
#[inline(always)]
fn near_zero(r: f64, tail: f64) -> (f64, f64) {
    const fn over_factorial(n: u32) -> f64 {
        let (mut product, mut k) = (1.0, 2);
        while k <= n {
            product *= k as f64;
            k += 1;
        }
        1.0 / product
    }
    let z = r * r;
    let mut sine = over_factorial(17);
    sine = sine * z - over_factorial(15);
    sine = sine * z + over_factorial(13);
    sine = sine * z - over_factorial(11);
    sine = sine * z + over_factorial(9);
    sine = sine * z - over_factorial(7);
    sine = sine * z + over_factorial(5);
    sine = sine * z - over_factorial(3);
    let sine = r + (tail * (1.0 - 0.5 * z) + r * z * sine);

    let mut cosine = over_factorial(18);
    cosine = over_factorial(16) - cosine * z;
    cosine = cosine * z - over_factorial(14);
    cosine = cosine * z + over_factorial(12);
    cosine = cosine * z - over_factorial(10);
    cosine = cosine * z + over_factorial(8);
    cosine = cosine * z - over_factorial(6);
    cosine = cosine * z + over_factorial(4);
    // 1 - z/2 loses bits; the middle bracket has them.
    let half = 0.5 * z;
    let nearly = 1.0 - half;
    let cosine = nearly + (((1.0 - nearly) - half) + (z * z * cosine - r * tail));
    (sine, cosine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Pcg64;

    /// Distance in units of the last place of `b`.
    fn distance(a: f64, b: f64) -> f64 {
        let unit = (f64::from_bits(b.abs().to_bits() + 1) - b.abs()).max(f64::MIN_POSITIVE);
        (a - b).abs() / unit
    }

    #[test]
    fn both_are_within_a_unit_of_the_last_place() {
        let mut random = Pcg64::seeded(1);
        for range in [0.3, 4.0, 100.0, 1e5] {
            for _ in 0..20_000 {
                let x = random.uniform(-range, range);
                let (sine, cosine) = sin_cos(x);
                assert!(distance(sine, x.sin()) <= 1.0, "sin {x:e}: {sine:e} {:e}", x.sin());
                assert!(distance(cosine, x.cos()) <= 1.0, "cos {x:e}: {cosine:e} {:e}", x.cos());
            }
        }
        assert_eq!(sin_cos(0.0), (0.0, 1.0));
    }

    #[test]
    fn small_angles_are_nearly_always_rounded_exactly() {
        let mut random = Pcg64::seeded(2);
        let differ = (0..20_000).map(|_| random.uniform(-0.25, 0.25)).filter(|x| sin_cos(*x) != x.sin_cos());
        assert!(differ.count() < 1000);
    }
}
