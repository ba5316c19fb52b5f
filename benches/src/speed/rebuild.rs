//! A lost directory is made again from the headers of the pages: how close that is to reading the headers and nothing else.

use std::path::Path;
use std::sync::Arc;

use cairn_core::Clock;
use cairn_engine::OpenMode;

use super::blocking;
use super::fio::{Fio, Job, Way};
use super::house::{self, House, Sizes};
use crate::error::{BenchError, Result};
use crate::figures::{Figure, Rounds};

/// Reads that fio has under way at once: as many as a scan has.
const DEPTH: u32 = 32;
const HEADER_BYTES: u64 = 4096;
/// Least share of fio's reads of the headers that a rebuild reaches, with all else it does.
const SHARE: f64 = 0.7;

/// Loses the directory of the engine in `folder` again and again; its SSD is full of pages.
pub(super) async fn measure(folder: &Path, sizes: Sizes, rounds: usize, clock: &Arc<dyn Clock>) -> Result<Figure> {
    let fio = Fio::on(&house::ssd_path(folder), sizes.ssd_bytes());
    let way = Way::ReadOfEach(sizes.slot_bytes());
    let job = Job { way, bytes: HEADER_BYTES, depth: DEPTH, huge_pages: false };
    let mut headers = Rounds::default();
    for _ in 0..rounds {
        let (at, clock) = (folder.to_owned(), clock.clone());
        let house = blocking(move || {
            let directory = house::directory_path(&at);
            let lose = std::fs::remove_dir_all(&directory);
            lose.map_err(|source| BenchError::File { action: "lose the directory", path: directory, source })?;
            House::in_folder(&at, &sizes, clock)
        })
        .await?;
        let recovery = house.engine.stats().recovery;
        if recovery.mode != OpenMode::Rebuilt {
            return Err(BenchError::Settings("the directory was lost, and nothing was rebuilt".to_owned()));
        }
        house.close().await?;
        let per_ms = recovery.pages as f64 / recovery.took.as_secs_f64() / 1e3;
        headers.add(per_ms, fio.run(job).await? / HEADER_BYTES as f64 / 1e3);
    }
    Ok(Figure::share_of("rebuild, of fio's reads of the headers", &headers, "1/ms", SHARE))
}
