//! Request traces in the format that Mooncake published: JSON lines, plain or zstd-compressed.
//!
//! A line is `{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [..]}`. `hash_ids` has one id for each
//! 512-token block of the input; here that block is a page. Ids are chained: an id stands for the whole prefix up to and including its
//! block, so an id always has the same ids before it, and the last, usually incomplete, block has one too.
//!
//! Timestamps keep the order only: in the published traces they come in steps of 3 s, so replaying them as arrival times would measure
//! bursts that never happened.
//!
//! One line is in memory at a time, and a line has a longest length, so a trace of any size is read in bounded memory.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use ruzstd::decoding::StreamingDecoder;
use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

/// Tokens that one page of a trace stands for.
pub const PAGE_TOKENS: u32 = 512;

/// Longest line, in bytes. The longest of the published traces has 4 KB; 1 MiB is a prompt of about 70 million tokens.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// First bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// One request: a prompt as the chain of its pages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Arrival, in ms from the start of the trace.
    #[serde(rename = "timestamp")]
    pub arrival_ms: u64,
    /// Tokens of the prompt.
    #[serde(rename = "input_length")]
    pub input_tokens: u64,
    /// Tokens of the answer.
    #[serde(rename = "output_length")]
    pub output_tokens: u64,
    /// The prompt's pages in order, by id. No id twice.
    #[serde(rename = "hash_ids")]
    pub pages: Vec<u64>,
}

/// Why a trace can not be read. Every message names the file, and the line where there is one.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum TraceError {
    /// The file can not be opened.
    #[error("open the trace path={}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file starts like a zstd file and is none.
    #[error("the trace is not a readable zstd file: {detail} path={}", path.display())]
    Compression {
        /// The file.
        path: PathBuf,
        /// What the decoder says.
        detail: String,
    },
    /// The file ends or fails in the middle.
    #[error("read the trace path={} line={line}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// A line is longer than any prompt.
    #[error("a line of the trace is too long path={} line={line} bytes_max={LINE_BYTES_MAX}", path.display())]
    LineTooLong {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
    },
    /// A line is not a request.
    #[error("a line of the trace is not a request path={} line={line}", path.display())]
    NotARequest {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// Why.
        source: serde_json::Error,
    },
    /// A chain has an id twice, which chained ids can not have.
    #[error("a request has the same page twice path={} line={line} id={id}", path.display())]
    RepeatedPage {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The id.
        id: u64,
    },
}

/// Reads the requests of a trace file in order. The first error ends it.
pub struct TraceReader {
    path: PathBuf,
    lines: Box<dyn BufRead + Send>,
    line: u64,
    text: Vec<u8>,
    ended: bool,
}

impl std::fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceReader").field("path", &self.path).field("line", &self.line).finish_non_exhaustive()
    }
}

impl TraceReader {
    /// Opens a trace; whether it is compressed is seen from its first bytes. Blocks.
    ///
    /// # Errors
    /// [`TraceError::Open`] or [`TraceError::Compression`].
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let failed = |source| TraceError::Open { path: path.to_owned(), source };
        let mut file = BufReader::new(File::open(path).map_err(failed)?);
        let compressed = file.fill_buf().map_err(failed)?.starts_with(&ZSTD_MAGIC);
        let lines: Box<dyn BufRead + Send> = if compressed {
            let decoder = StreamingDecoder::new(file)
                .map_err(|e| TraceError::Compression { path: path.to_owned(), detail: e.to_string() })?;
            Box::new(BufReader::new(decoder))
        } else {
            Box::new(file)
        };
        Ok(Self { path: path.to_owned(), lines, line: 0, text: Vec::new(), ended: false })
    }

    /// The next line that is not empty, or `None` at the end.
    fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            self.line += 1;
            self.text.clear();
            let read = (&mut self.lines).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut self.text);
            let bytes = read.map_err(|source| TraceError::Read { path: self.path.clone(), line: self.line, source })?;
            if bytes == 0 {
                return Ok(None);
            }
            if bytes as u64 > LINE_BYTES_MAX {
                return Err(TraceError::LineTooLong { path: self.path.clone(), line: self.line });
            }
            if !self.text.trim_ascii().is_empty() {
                return self.parse().map(Some);
            }
        }
    }

    fn parse(&self) -> Result<Request, TraceError> {
        let (path, line) = (|| self.path.clone(), self.line);
        let request: Request = serde_json::from_slice(&self.text).map_err(|source| TraceError::NotARequest {
            path: path(),
            line,
            source,
        })?;
        let mut seen = HashSet::with_capacity(request.pages.len());
        match request.pages.iter().find(|id| !seen.insert(**id)) {
            Some(id) => Err(TraceError::RepeatedPage { path: path(), line, id: *id }),
            None => Ok(request),
        }
    }
}

impl Iterator for TraceReader {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_request().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const GOOD: &str = r#"{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}"#;

    fn file_with(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn read(bytes: &[u8]) -> Vec<Result<Request, TraceError>> {
        let file = file_with(bytes);
        TraceReader::open(file.path()).unwrap().collect()
    }

    #[test]
    fn requests_come_in_the_order_of_the_file() {
        let text = format!("{GOOD}\n\n{}", GOOD.replace("[0, 1]", "[0, 2]"));
        let pages: Vec<Vec<u64>> = read(text.as_bytes()).into_iter().map(|request| request.unwrap().pages).collect();
        assert_eq!(pages, [vec![0, 1], vec![0, 2]]);
    }

    #[test]
    fn a_compressed_trace_reads_like_a_plain_one() {
        let text = format!("{GOOD}\n").repeat(1000);
        let packed = ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
        let requests = read(&packed);
        assert_eq!(requests.len(), 1000);
        assert!(requests.iter().all(Result::is_ok));
    }

    #[test]
    fn a_truncated_compressed_trace_is_an_error_and_not_a_short_trace() {
        let text = format!("{GOOD}\n").repeat(1000);
        let packed = ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
        let requests = read(&packed[..packed.len() - 10]);
        assert!(matches!(requests.last(), Some(Err(TraceError::Read { .. }))), "{:?}", requests.last());
    }

    #[test]
    fn a_bad_line_is_named_and_ends_the_trace() {
        let requests = read(format!("{GOOD}\nnot json\n{GOOD}\n").as_bytes());
        assert_eq!(requests.len(), 2);
        let error = requests[1].as_ref().unwrap_err();
        assert!(error.to_string().contains("line=2"), "{error}");
    }

    #[test]
    fn a_missing_field_is_named() {
        let requests = read(br#"{"timestamp": 0, "input_length": 600, "output_length": 5}"#);
        let error = requests[0].as_ref().unwrap_err();
        let cause = std::error::Error::source(error).unwrap().to_string();
        assert!(cause.contains("hash_ids"), "{cause}");
    }

    #[test]
    fn a_page_twice_in_one_request_is_refused() {
        let requests = read(GOOD.replace("[0, 1]", "[0, 7, 7]").as_bytes());
        assert!(matches!(requests[0], Err(TraceError::RepeatedPage { line: 1, id: 7, .. })));
    }

    #[test]
    fn a_line_without_end_is_refused_in_bounded_memory() {
        let requests = read(&vec![b'['; 3 << 20]);
        assert!(matches!(requests[..], [Err(TraceError::LineTooLong { line: 1, .. })]));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = TraceReader::open(Path::new("/no/such/trace.jsonl")).unwrap_err();
        assert!(error.to_string().contains("/no/such/trace.jsonl"));
    }
}
