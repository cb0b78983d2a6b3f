//! Seeded generators: numpy's PCG64 for environments, so that a seed means what it means in Gymnasium.

/// The generator that `numpy.random.default_rng(seed)` is: PCG64 (XSL-RR) behind numpy's `SeedSequence`.
///
/// ```
/// use aktis_simulate::Pcg64;
///
/// // numpy.random.default_rng(7).random()
/// assert_eq!(Pcg64::seeded(7).unit(), 0.625095466604667);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pcg64 {
    state: u128,
    increment: u128,
}

const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

impl Pcg64 {
    /// The generator of a seed.
    pub fn seeded(seed: u64) -> Self {
        let words = seed_words(seed);
        let wide = |high: u64, low: u64| (u128::from(high) << 64) | u128::from(low);
        let increment = (wide(words[2], words[3]) << 1) | 1;
        let mut generator = Self { state: 0, increment };
        generator.advance();
        generator.state = generator.state.wrapping_add(wide(words[0], words[1]));
        generator.advance();
        generator
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// 64 random bits.
    #[inline(always)]
    pub fn bits(&mut self) -> u64 {
        self.advance();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// A number in `[0, 1)`, a multiple of 2⁻⁵³.
    #[inline(always)]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number in `[low, high)`, as `Generator.uniform` of numpy draws it.
    #[inline(always)]
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// An integer in `0..bound`. The bias of the multiplication is below `bound / 2⁶⁴`.
    #[inline(always)]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    pub(crate) fn words(&self) -> [u64; 4] {
        let split = |wide: u128| [(wide >> 64) as u64, wide as u64];
        let ([a, b], [c, d]) = (split(self.state), split(self.increment));
        [a, b, c, d]
    }

    pub(crate) fn from_words(words: [u64; 4]) -> Self {
        let wide = |high: u64, low: u64| (u128::from(high) << 64) | u128::from(low);
        Self { state: wide(words[0], words[1]), increment: wide(words[2], words[3]) }
    }
}

/// `numpy.random.SeedSequence(seed).generate_state(4, uint64)`.
fn seed_words(seed: u64) -> [u64; 4] {
    const POOL: usize = 4;
    let entropy = [seed as u32, (seed >> 32) as u32];
    let mut hash = 0x43b0_d7e5_u32;
    let mut mixed = |value: u32| {
        let value = value ^ hash;
        hash = hash.wrapping_mul(0x931e_8875);
        let value = value.wrapping_mul(hash);
        value ^ (value >> 16)
    };
    let combine = |x: u32, y: u32| {
        let result = 0xca01_f9dd_u32.wrapping_mul(x).wrapping_sub(0x4973_f715_u32.wrapping_mul(y));
        result ^ (result >> 16)
    };
    let mut pool = [0u32; POOL];
    for (index, word) in pool.iter_mut().enumerate() {
        *word = mixed(entropy.get(index).copied().unwrap_or(0));
    }
    for source in 0..POOL {
        for target in (0..POOL).filter(|target| *target != source) {
            pool[target] = combine(pool[target], mixed(pool[source]));
        }
    }
    let mut hash = 0x8b51_f9dd_u32;
    let mut halves = pool.iter().cycle().map(|word| {
        let value = word ^ hash;
        hash = hash.wrapping_mul(0x58f3_8ded);
        let value = value.wrapping_mul(hash);
        u64::from(value ^ (value >> 16))
    });
    std::array::from_fn(|_| {
        let low = halves.next().unwrap_or_default();
        low | (halves.next().unwrap_or_default() << 32)
    })
}

/// A fast generator for the choices of policies: xoshiro256++, seeded by SplitMix64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Xoshiro {
    state: [u64; 4],
}

impl Xoshiro {
    pub(crate) fn seeded(seed: u64) -> Self {
        let mut counter = seed;
        let state = std::array::from_fn(|_| {
            counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = counter;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        });
        Self { state }
    }

    #[inline(always)]
    pub(crate) fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number in `(0, 1)`, never an end: its logarithm is finite.
    #[inline(always)]
    pub(crate) fn open_unit(&mut self) -> f32 {
        ((self.bits() >> 41) as f32 + 0.5) * (1.0 / (1u32 << 23) as f32)
    }

    /// An integer in `0..bound`.
    #[inline(always)]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// Two independent standard normal numbers, by Box and Muller.
    #[inline(always)]
    pub(crate) fn normals(&mut self) -> [f32; 2] {
        let radius = (-2.0 * self.open_unit().ln()).sqrt();
        let (sine, cosine) = (std::f32::consts::TAU * self.open_unit()).sin_cos();
        [radius * cosine, radius * sine]
    }

    pub(crate) fn words(&self) -> [u64; 4] {
        self.state
    }

    pub(crate) fn from_words(state: [u64; 4]) -> Self {
        Self { state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_of_two_words_gives_numpys_numbers() {
        // numpy.random.default_rng(12345678901234).random(2)
        let mut generator = Pcg64::seeded(12_345_678_901_234);
        assert_eq!([generator.unit(), generator.unit()], [0.40637757035390765, 0.026203563409374464]);
        // numpy.random.default_rng(0).uniform(-0.05, 0.05, 2)
        let mut generator = Pcg64::seeded(0);
        assert_eq!(
            [generator.uniform(-0.05, 0.05), generator.uniform(-0.05, 0.05)],
            [0.013696168732145436, -0.02302132862361297]
        );
    }

    #[test]
    fn normal_numbers_have_their_moments() {
        let mut generator = Xoshiro::seeded(3);
        let numbers: Vec<f32> = (0..50_000).flat_map(|_| generator.normals()).collect();
        let moment = |power: i32| {
            numbers.iter().map(|x| f64::from(*x).powi(power)).sum::<f64>() / numbers.len() as f64
        };
        assert!(moment(1).abs() < 0.02, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.02, "{}", moment(2));
        assert!((moment(4) - 3.0).abs() < 0.1, "{}", moment(4));
    }
}
