//! Looking at many places of the device, one read each: headers of regions at every start, headers of pages for a rebuild, and the few pages
//! whose batch may not have passed its barrier.
//!
//! One read at a time leaves a disk idle most of the time, so places of a file are looked at by several threads, each with a share of the
//! next [`WAVE`]; what they find is handed over in the order of the places all the same. On a device that is no file, which is a test's and
//! may fail at the nth step, one after the other.

use crate::disk::Disk;

/// Reads under way at once. Disks that like fewer for pages lose nothing with as many small ones.
const READS_MAX: usize = 32;
/// Places looked at before what was found is handed over: about a twentieth of a second.
const WAVE: usize = 4096;
/// Fewer places are not worth a thread.
const SHARE_MIN: usize = 16;

/// Calls `look` for each of `places`, and `found` with what it returned, in their order. Blocks; remembers what was found at [`WAVE`] places
/// at most.
pub(crate) fn look_at_each<P: Copy + Send + Sync, T: Send>(
    disk: &Disk,
    places: impl IntoIterator<Item = P>,
    look: impl Fn(P) -> T + Sync,
    mut found: impl FnMut(P, T),
) {
    let mut places = places.into_iter();
    if disk.is_in_step() {
        return places.for_each(|place| found(place, look(place)));
    }
    loop {
        let wave: Vec<P> = places.by_ref().take(WAVE).collect();
        if wave.is_empty() {
            return;
        }
        for (place, what) in wave.iter().zip(look_at_once(&wave, &look)) {
            found(*place, what);
        }
    }
}

/// What `look` returns for each of the places, some threads at work.
fn look_at_once<P: Copy + Sync, T: Send>(places: &[P], look: &(impl Fn(P) -> T + Sync)) -> Vec<T> {
    let share = places.len().div_ceil(READS_MAX).max(SHARE_MIN);
    let work = |share: &[P]| -> Vec<T> { share.iter().map(|place| look(*place)).collect() };
    if places.len() <= share {
        return work(places);
    }
    std::thread::scope(|scope| {
        let spawn =
            |share| std::thread::Builder::new().name("ssd-look".to_owned()).spawn_scoped(scope, move || work(share));
        let workers: Vec<_> = places.chunks(share).map(|share| (share, spawn(share))).collect();
        let found = workers.into_iter().flat_map(|(share, worker)| match worker {
            Ok(worker) => worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // The system has no more threads: then here.
            Err(_) => work(share),
        });
        found.collect()
    })
}
