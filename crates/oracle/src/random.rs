//! A small deterministic generator (splitmix64), so that a failing case is named by its seed.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream with that seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number in `[0, below)`; 0 when `below` is 0.
    pub fn below(&mut self, below: u64) -> u64 {
        if below == 0 { 0 } else { self.bits() % below }
    }

    /// A number from the normal distribution with mean 0 and deviation 1.
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        (radius * (std::f64::consts::TAU * self.unit()).cos()) as f32
    }

    /// `len` such numbers.
    pub fn normals(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.normal()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normals_have_unit_moments() {
        let values = Random::new(1).normals(100_000);
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / 1e5;
        let square = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 1e5;
        // Standard errors are 0.0032 and 0.0045; five of them.
        assert!(mean.abs() < 0.016 && (square - 1.0).abs() < 0.023, "{mean} {square}");
    }
}
