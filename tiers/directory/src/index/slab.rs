//! Places for entries, numbered densely; a freed number is used again.
//!
//! In segments, so that it grows without moving what is there: growing costs the same at any length, and no memory lies idle but the
//! rest of the last segment. Segments are kept once made. Bound: the limit given at the start.

/// Places of one segment.
const SEGMENT_PLACES: usize = 4096;
/// No place; never a number.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Slab<T> {
    segments: Vec<Vec<Place<T>>>,
    /// Places made, free ones included.
    made: u32,
    /// The free place that is used next.
    free: u32,
    taken: u32,
    taken_max: u32,
}

#[derive(Debug)]
enum Place<T> {
    Taken(T),
    Free { next: u32 },
}

const fn split(number: u32) -> (usize, usize) {
    (number as usize / SEGMENT_PLACES, number as usize % SEGMENT_PLACES)
}

impl<T> Slab<T> {
    pub(super) const fn new(taken_max: u32) -> Self {
        Self { segments: Vec::new(), made: 0, free: NONE, taken: 0, taken_max }
    }

    /// Puts `item` into a free place and returns its number; `None` at the limit.
    pub(super) fn insert(&mut self, item: T) -> Option<u32> {
        if self.taken >= self.taken_max {
            return None;
        }
        let number = match self.free {
            NONE => self.make(item),
            number => self.reuse(number, item)?,
        };
        self.taken += 1;
        Some(number)
    }

    fn make(&mut self, item: T) -> u32 {
        let number = self.made;
        let (segment, _) = split(number);
        if segment == self.segments.len() {
            self.segments.push(Vec::with_capacity(SEGMENT_PLACES));
        }
        self.segments[segment].push(Place::Taken(item));
        self.made += 1;
        number
    }

    fn reuse(&mut self, number: u32, item: T) -> Option<u32> {
        let place = self.place_mut(number)?;
        let Place::Free { next } = *place else { return None };
        *place = Place::Taken(item);
        self.free = next;
        Some(number)
    }

    /// Frees the place `number` and returns what was in it.
    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let next = self.free;
        let place = self.place_mut(number).filter(|place| matches!(place, Place::Taken(_)))?;
        let Place::Taken(item) = std::mem::replace(place, Place::Free { next }) else { return None };
        self.free = number;
        self.taken -= 1;
        Some(item)
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        let (segment, at) = split(number);
        match self.segments.get(segment)?.get(at)? {
            Place::Taken(item) => Some(item),
            Place::Free { .. } => None,
        }
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        match self.place_mut(number)? {
            Place::Taken(item) => Some(item),
            Place::Free { .. } => None,
        }
    }

    fn place_mut(&mut self, number: u32) -> Option<&mut Place<T>> {
        let (segment, at) = split(number);
        self.segments.get_mut(segment)?.get_mut(at)
    }

    pub(super) const fn len(&self) -> usize {
        self.taken as usize
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let places = self.segments.iter().flatten();
        (0_u32..).zip(places).filter_map(|(number, place)| match place {
            Place::Taken(item) => Some((number, item)),
            Place::Free { .. } => None,
        })
    }

    /// Bytes allocated.
    pub(super) fn resident_bytes(&self) -> usize {
        self.segments.capacity() * size_of::<Vec<Place<T>>>()
            + self.segments.len() * SEGMENT_PLACES * size_of::<Place<T>>()
    }
}
