//! Pseudorandom numbers, which are the same in each run.

/// A pseudorandom sequence (xorshift), from a seed that is not zero.
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    /// Returns a number below `bound`.
    pub fn roll(&mut self, bound: usize) -> usize {
        usize::try_from(self.number() % bound as u64).expect("the number should fit")
    }

    /// Returns any number but zero.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Puts `things` into a random order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for place in (1..things.len()).rev() {
            things.swap(place, self.roll(place + 1));
        }
    }
}
