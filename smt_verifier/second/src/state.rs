//! What places hold (spec 4): one part for scalars and one for each class of threads.

use std::rc::Rc;

use crate::lanes::{Lane, Map, Of, Set};

/// Names of one place, or places of one name.
const MOST: usize = 4096;

#[derive(Clone, Debug, Default)]
struct Facts {
    /// Lists are sorted: thousands of names may be those of one place.
    holds: Map<Lane, Vec<Lane>>,
    /// The places that hold a name: `holds` the other way round.
    places: Map<Lane, Vec<Lane>>,
    undefined: Set<Lane>,
    doubtful: Set<Lane>,
    /// Targets of copies that LLVM deletes because nothing reads them, which hold something else then (spec 10.13).
    unwritten: Set<Lane>,
}

/// One part of the state. A clone is cheap until it is changed.
#[derive(Clone, Debug, Default)]
pub struct Part(Rc<Facts>);

/// What is known of one name before it is copied: its places; whether it is undefined, or doubtful.
pub type Known = (Vec<Lane>, bool, bool);

impl Part {
    pub fn holds(&self, place: Lane) -> &[Lane] {
        self.0.holds.get(&place).map_or(&[], Vec::as_slice)
    }

    pub fn places(&self, name: Lane) -> &[Lane] {
        self.0.places.get(&name).map_or(&[], Vec::as_slice)
    }

    pub fn is_undefined(&self, name: Lane) -> bool {
        self.0.undefined.contains(&name)
    }

    pub fn is_doubtful(&self, name: Lane) -> bool {
        self.0.doubtful.contains(&name)
    }

    pub fn known(&self, name: Lane) -> Known {
        (self.places(name).to_vec(), self.is_undefined(name), self.is_doubtful(name))
    }

    /// What is known of a name is so.
    pub fn give(&mut self, name: Lane, (places, undefined, doubtful): &Known) {
        places.iter().for_each(|place| self.add(*place, name));
        if *undefined {
            self.set_undefined(name);
        } else if *doubtful {
            self.set_doubtful(name);
        }
    }

    /// All places that hold something.
    pub fn all_places(&self) -> impl Iterator<Item = Lane> + '_ {
        self.0.holds.keys().copied()
    }

    /// All names that are doubtful.
    pub fn all_doubtful(&self) -> impl Iterator<Item = Lane> + '_ {
        self.0.doubtful.iter().copied()
    }

    /// All names of which something is known.
    pub fn all_names(&self) -> impl Iterator<Item = Lane> + '_ {
        self.0.places.keys().chain(self.0.doubtful.iter()).copied()
    }

    /// The place holds the name too. What is beyond any real text is not remembered, so that time is bounded.
    pub fn add(&mut self, place: Lane, name: Lane) {
        let (names, places) = (self.holds(place), self.places(name));
        if names.len() >= MOST || places.len() >= MOST {
            return;
        }
        if let (Err(of_name), Err(of_place)) = (names.binary_search(&name), places.binary_search(&place)) {
            let facts = Rc::make_mut(&mut self.0);
            facts.holds.entry(place).or_default().insert(of_name, name);
            facts.places.entry(name).or_default().insert(of_place, place);
        }
    }

    /// The place holds of what it holds only these names, until `unpropagate` (spec 10.6).
    pub fn narrow(&mut self, place: Lane, names: &[Lane]) {
        let unchanged = Lane { of: Of::Unchanged, ..place };
        if self.holds(unchanged).is_empty() {
            let own = self.holds(place).to_vec();
            self.replace(unchanged, &own);
        }
        let both: Vec<Lane> = self.holds(place).iter().filter(|name| names.contains(name)).copied().collect();
        self.replace(place, &both);
    }

    /// What the place holds where no copy is propagated.
    pub fn unchanged(&self, place: Lane) -> &[Lane] {
        match self.holds(Lane { of: Of::Unchanged, ..place }) {
            [] => self.holds(place),
            own => own,
        }
    }

    /// Copies have not been propagated: what was narrowed is as it was.
    pub fn unpropagate(&mut self) {
        let all: Vec<Lane> = self.all_places().filter(|place| place.of == Of::Unchanged).collect();
        for place in all {
            let names = self.holds(place).to_vec();
            self.write(Lane { of: Of::Unit, ..place }, &names);
        }
    }

    /// The place holds what it does only as long as LLVM does not delete the copy to it.
    pub fn note_unwritten(&mut self, place: Lane) {
        Rc::make_mut(&mut self.0).unwritten.insert(place);
    }

    /// Such places.
    pub fn unwritten(&self) -> Vec<Lane> {
        self.0.unwritten.iter().copied().collect()
    }

    pub fn is_unwritten(&self, place: Lane) -> bool {
        self.0.unwritten.contains(&place)
    }

    /// The place holds exactly these names.
    pub fn write(&mut self, place: Lane, names: &[Lane]) {
        if self.is_unwritten(place) {
            Rc::make_mut(&mut self.0).unwritten.remove(&place);
        }
        if place.of == Of::Unit {
            self.replace(Lane { of: Of::Unchanged, ..place }, &[]);
        }
        self.replace(place, names);
    }

    fn replace(&mut self, place: Lane, names: &[Lane]) {
        if !self.holds(place).is_empty() {
            let facts = Rc::make_mut(&mut self.0);
            for name in facts.holds.remove(&place).unwrap_or_default() {
                drop_from(&mut facts.places, name, place);
            }
        }
        names.iter().for_each(|name| self.add(place, *name));
    }

    /// No place holds the name, and it is neither undefined nor doubtful.
    pub fn forget(&mut self, name: Lane) {
        if self.places(name).is_empty() && !self.is_doubtful(name) {
            return;
        }
        let facts = Rc::make_mut(&mut self.0);
        for place in facts.places.remove(&name).unwrap_or_default() {
            drop_from(&mut facts.holds, place, name);
        }
        facts.undefined.remove(&name);
        facts.doubtful.remove(&name);
    }

    pub fn set_undefined(&mut self, name: Lane) {
        self.set_doubtful(name);
        Rc::make_mut(&mut self.0).undefined.insert(name);
    }

    pub fn set_doubtful(&mut self, name: Lane) {
        Rc::make_mut(&mut self.0).doubtful.insert(name);
    }
}

/// Take one value out of the list of a key; an empty list is no entry.
fn drop_from(lists: &mut Map<Lane, Vec<Lane>>, key: Lane, value: Lane) {
    if let Some(list) = lists.get_mut(&key) {
        if let Ok(index) = list.binary_search(&value) {
            list.remove(index);
        }
        if list.is_empty() {
            lists.remove(&key);
        }
    }
}
