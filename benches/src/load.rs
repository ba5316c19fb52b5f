//! Where requests come from: a trace file or the generator, cut to a number of requests.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::generator::Generator;
use crate::trace::{Request, TraceError, TraceReader};

/// Where requests come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file.
    Trace(PathBuf),
    /// Made up.
    Generated {
        /// The seed.
        seed: u64,
    },
}

/// A number of requests of one source.
#[derive(Clone, Debug)]
pub struct Load {
    source: Source,
    requests: u64,
}

impl Load {
    /// At most `requests_max` requests of `source`. Reads a trace once through, so that a bad line is found before anything is measured.
    ///
    /// # Errors
    /// Any [`TraceError`].
    pub fn plan(source: Source, requests_max: u64) -> Result<Self, TraceError> {
        let mut load = Self { source, requests: requests_max };
        if let Source::Trace(_) = load.source {
            load.requests = load.requests()?.try_fold(0, |count, request| request.map(|_| count + 1))?;
        }
        Ok(load)
    }

    /// How many requests there are.
    pub fn len(&self) -> u64 {
        self.requests
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// The requests in order, from the first.
    ///
    /// # Errors
    /// [`TraceError::Open`] or [`TraceError::Compression`].
    pub fn requests(&self) -> Result<Requests, TraceError> {
        let all: Requests = match &self.source {
            Source::Trace(path) => Box::new(TraceReader::open(path)?),
            Source::Generated { seed } => Box::new(Generator::new(*seed).map(Ok)),
        };
        let requests = usize::try_from(self.requests).unwrap_or(usize::MAX);
        Ok(Box::new(all.take(requests)))
    }
}

/// Requests in order.
pub type Requests = Box<dyn Iterator<Item = Result<Request, TraceError>> + Send>;

/// The queue that several workers take requests from, in order. It holds no requests: each is read when it is taken.
pub struct Queue(Mutex<Requests>);

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Queue {
    /// A queue of `requests`.
    pub fn of(requests: Requests) -> Self {
        Self(Mutex::new(requests))
    }

    /// The next request.
    pub fn take(&self) -> Option<Result<Request, TraceError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_load_can_be_read_again_from_the_start() {
        let load = Load::plan(Source::Generated { seed: 1 }, 10).unwrap();
        let read = || load.requests().unwrap().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(read().len(), 10);
        assert_eq!(read(), read());
    }

    #[test]
    fn a_bad_line_is_found_before_the_load_starts() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, r#"{{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}}"#).unwrap();
        writeln!(file, "{{").unwrap();
        let source = Source::Trace(file.path().to_owned());
        assert!(Load::plan(source.clone(), 2).is_err());
        assert_eq!(Load::plan(source, 1).unwrap().len(), 1);
    }
}
