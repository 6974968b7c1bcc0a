//! Names and places (spec 3.2, 3.3): lanes of registers and slots, cells (3.5), and what no text has.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// What a lane is a lane of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Of {
    /// `%V.L`: `a` is V, `b` is L.
    Virtual,
    /// `$U`: `a` is U.
    Unit,
    /// `#N.L`: `a` is N, `b` is L.
    Slot,
    /// `^U`: what unit `a` held at function entry.
    Entry,
    /// `@B.I.K`: `a`, `b`, `c`.
    Read,
    /// `!B.I.K`: `a`, `b`, `c`.
    Result,
    /// What `$U` (`a` is U) holds if no copy is propagated (spec 10.6); no certificate names it.
    Unchanged,
}

/// A name or a place: 16 bits (or 32, spec 3.1) of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    pub of: Of,
    /// One value a thread (spec 3.4). A cell is never vector.
    pub vector: bool,
    /// 0: no cell; else 1 + 2 * thread + half (spec 3.5).
    pub cell: u8,
    pub c: u16,
    pub a: u32,
    pub b: u32,
}

impl Lane {
    pub fn new(of: Of, a: u32, b: u32, c: u16) -> Lane {
        Lane { of, vector: false, cell: 0, c, a, b }
    }

    pub fn unit(unit: u32) -> Lane {
        Lane { vector: unit < FIRST_SCALAR, ..Lane::new(Of::Unit, unit, 0, 0) }
    }

    pub fn entry(unit: u32) -> Lane {
        Lane { of: Of::Entry, ..Lane::unit(unit) }
    }

    /// Whether it lies in one of these units.
    pub fn is_in(self, units: &[u32]) -> bool {
        self.of == Of::Unit && units.contains(&self.a)
    }

    pub fn is_exec(self) -> bool {
        self.is_in(&EXEC)
    }

    pub fn is_scc(self) -> bool {
        self.is_in(&[SCC])
    }

    /// In no numbered file, and neither VCC nor SCC.
    pub fn is_special(self) -> bool {
        self.of == Of::Unit && self.a > VCC[3] && !self.is_scc()
    }

    #[must_use]
    pub fn with_vector(self, vector: bool) -> Lane {
        Lane { vector: vector && self.cell == 0, ..self }
    }

    /// The first lane of the 32-bit register or slot part that this lane lies in.
    #[must_use]
    pub fn base(self) -> Lane {
        let (a, b) = match self.of {
            Of::Unit => (self.a & !1, self.b),
            Of::Virtual | Of::Slot => (self.a, self.b & !1),
            _ => (self.a, self.b),
        };
        Lane { a, b, cell: 0, vector: true, ..self }
    }

    /// The cell of a thread in the register that this lane lies in; `half` is 0 or 1.
    pub fn cell_of(self, thread: u8, half: u8) -> Option<Lane> {
        if thread > 63 || half > 1 || !matches!(self.of, Of::Unit | Of::Virtual | Of::Slot) {
            return None;
        }
        Some(Lane { cell: 1 + 2 * thread + half, vector: false, ..self.base() })
    }

    /// The lane `count` steps behind this one (spec 15).
    pub fn advanced(self, count: u32, coarse: bool) -> Option<Lane> {
        if count == 0 {
            return Some(self);
        }
        if self.cell != 0 {
            let second = !coarse && count == 1 && self.cell & 1 == 1;
            return second.then_some(Lane { cell: self.cell + 1, ..self });
        }
        let step = count.checked_mul(if coarse { 2 } else { 1 })?;
        Some(match self.of {
            Of::Unit => Lane::unit(self.a.checked_add(step)?),
            Of::Entry => Lane::entry(self.a.checked_add(step)?),
            Of::Virtual | Of::Slot => Lane { b: self.b.checked_add(step)?, ..self },
            Of::Read | Of::Result => Lane { c: self.c.checked_add(u16::try_from(count).ok()?)?, ..self },
            Of::Unchanged => return None,
        })
    }
}

impl std::fmt::Display for Lane {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(cell) = self.cell.checked_sub(1) {
            let base = Lane { cell: 0, ..*self };
            write!(out, "&{base}:{}{}", cell / 2, if cell % 2 == 1 { ".1" } else { "" })?;
            return Ok(());
        }
        match self.of {
            Of::Virtual => write!(out, "%{}.{}", self.a, self.b),
            Of::Unit => write!(out, "${}", self.a),
            Of::Slot => write!(out, "#{}.{}", self.a, self.b),
            Of::Entry => write!(out, "^{}", self.a),
            Of::Read => write!(out, "@{}.{}.{}", self.a, self.b, self.c),
            Of::Result => write!(out, "!{}.{}.{}", self.a, self.b, self.c),
            Of::Unchanged => write!(out, "${} unchanged", self.a),
        }
    }
}

/// The first unit of AGPRs, and the first that is no vector register's: SGPRs, TTMPs and special registers follow.
pub const FIRST_AGPR: u32 = 4096;
pub const FIRST_SCALAR: u32 = 8192;
/// Units of registers outside the numbered files.
pub const VCC: [u32; 4] = [12_288, 12_289, 12_290, 12_291];
pub const EXEC: [u32; 4] = [12_292, 12_293, 12_294, 12_295];
pub const SCC: u32 = 12_298;
pub const FLAT_SCRATCH: [u32; 4] = [12_300, 12_301, 12_302, 12_303];

impl Hash for Lane {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.a) << 32 | u64::from(self.b));
        state.write_u64(
            u64::from(self.c) << 16 | u64::from(self.cell) << 8 | (self.of as u64) << 1 | u64::from(self.vector),
        );
    }
}

/// A short hash for lanes and other small keys.
#[derive(Default, Clone)]
pub struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Fold>>;
pub type Set<K> = HashSet<K, BuildHasherDefault<Fold>>;
