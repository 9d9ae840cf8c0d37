//! A packet or a configuration is made from one number.

#[path = "../../../ipv6/tests/common/rng.rs"]
mod generator;

pub(crate) use generator::Rng;

impl Rng {
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let zeros = self.chance(16);
        (0..len).map(|_| if zeros { 0 } else { self.next() as u8 }).collect()
    }

    pub(crate) fn seed(&mut self) -> [u8; 32] {
        std::array::from_fn(|_| self.next() as u8)
    }
}
