//! Functions of `f32` without branches: activations, and what distributions need.

/// `a * b + c`, in one rounding where the processor has an instruction for it.
#[inline(always)]
pub(crate) fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// `tanh x`, within 5·10⁻⁷ of its value, relatively.
///
/// A quotient of polynomials in x², fitted to the least relative error on [-8.5, 8.5]; beyond, the result is that of the bound.
#[inline(always)]
pub(crate) fn tanh<const FUSED: bool>(x: f32) -> f32 {
    const NUMERATOR: [f32; 5] = [1.0, 0.134_132_56, 0.003_534_037, 2.125_120_4e-5, 1.426_943_5e-8];
    const DENOMINATOR: [f32; 5] = [1.0, 0.467_465_8, 0.026_022_79, 3.348_881e-4, 8.145_210_6e-7];
    let x = x.clamp(-8.5, 8.5);
    let z = x * x;
    let polynomial = |coefficients: [f32; 5]| {
        let [rest @ .., highest] = coefficients;
        rest.iter().rev().fold(highest, |sum, coefficient| multiply_add::<FUSED>(sum, z, *coefficient))
    };
    (x * polynomial(NUMERATOR) / polynomial(DENOMINATOR)).clamp(-1.0, 1.0)
}

/// `e^x`, within 3·10⁻⁷ of its value, relatively, for x from -87 to 88; constant beyond.
#[inline(always)]
pub(crate) fn exp<const FUSED: bool>(x: f32) -> f32 {
    /// Adding it rounds to an integer, whose bits are then the lowest ones.
    const ROUNDER: f32 = 12_582_912.0;
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    let x = x.clamp(-87.0, 88.0);
    let shifted = multiply_add::<FUSED>(x, std::f32::consts::LOG2_E, ROUNDER);
    let power = shifted - ROUNDER;
    let r = (x - power * LN_2[0]) - power * LN_2[1];
    let mut sum = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = multiply_add::<FUSED>(sum, r, coefficient);
    }
    let exponent = shifted.to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(127) << 23;
    sum * f32::from_bits(exponent)
}

/// `ln x`, within 3·10⁻⁷ of its value or 10⁻⁷ in all, for normal positive x.
#[inline(always)]
pub(crate) fn ln<const FUSED: bool>(x: f32) -> f32 {
    // x = m · 2^e with m between √½ and √2; ln m is a series in (m - 1) / (m + 1).
    let bits = x.to_bits().wrapping_sub(0x3f35_04f3);
    let exponent = (bits as i32 >> 23) as f32;
    let m = f32::from_bits((bits & 0x007f_ffff) + 0x3f35_04f3);
    let f = (m - 1.0) / (m + 1.0);
    let z = f * f;
    let mut sum = 2.0 / 9.0;
    for coefficient in [2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0, 2.0] {
        sum = multiply_add::<FUSED>(sum, z, coefficient);
    }
    multiply_add::<FUSED>(exponent, std::f32::consts::LN_2, f * sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(from: f32, to: f32) -> impl Iterator<Item = f32> {
        (0..=200_000).map(move |step| from + (to - from) * (step as f32 / 200_000.0))
    }

    fn relative(value: f32, exact: f64) -> f64 {
        if exact == 0.0 { f64::from(value).abs() } else { (f64::from(value) / exact - 1.0).abs() }
    }

    #[test]
    fn tanh_is_near_the_exact_one() {
        for x in numbers(-12.0, 12.0).chain(numbers(-1e-3, 1e-3)) {
            let exact = f64::from(x).tanh();
            assert!(relative(tanh::<false>(x), exact) < 5e-7, "{x:e}");
            assert!(relative(tanh::<true>(x), exact) < 5e-7, "{x:e}");
        }
        assert!((0.999_999..=1.0).contains(&tanh::<true>(f32::INFINITY)));
        assert!((-1.0..=-0.999_999).contains(&tanh::<false>(-1e30)));
        assert!(tanh::<true>(f32::NAN).is_nan(), "what is wrong must stay visible");
    }

    #[test]
    fn exp_and_ln_are_near_the_exact_ones() {
        for x in numbers(-80.0, 80.0).chain(numbers(-1.0, 1.0)) {
            assert!(relative(exp::<false>(x), f64::from(x).exp()) < 3e-7, "{x:e}");
            assert!(relative(exp::<true>(x), f64::from(x).exp()) < 3e-7, "{x:e}");
        }
        for x in numbers(0.01, 30.0).chain(numbers(0.99, 1.01)) {
            let exact = f64::from(x).ln();
            for value in [ln::<false>(x), ln::<true>(x)] {
                let off = (f64::from(value) - exact).abs();
                assert!(off < 1e-7 || off / exact.abs() < 3e-7, "{x:e}");
            }
        }
        assert!(exp::<true>(f32::NAN).is_nan());
    }
}
