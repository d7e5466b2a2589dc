//! Hashing: fast for the tables of small numbers, strong for the states that were visited.

use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};

/// Multiplies and rotates; for keys of a few numbers.
#[derive(Clone, Copy, Default)]
pub struct Quick(u64);

/// The tables of small numbers.
pub type Fast = BuildHasherDefault<Quick>;

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

/// For keys that are hashes already.
#[derive(Clone, Copy, Default)]
pub struct Hashed(u64);

/// The set of visited states.
pub type Same = BuildHasherDefault<Hashed>;

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes are keys");
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

/// 64 bits of SipHash.
pub fn of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
