use std::collections::BTreeSet;
pub struct Limits {
    pub allocatable: BTreeSet<u32>,
    pub kept: BTreeSet<u32>,
    pub saved: BTreeSet<u32>,
}
