//! Getting a prefix, page by page.
//!
//! The way of a page: frames arrive, at most a flow-control window ahead of the reader; the gRPC decoder gathers them into a message
//! (its copy); a part's bytes are a slice of that message and are summed as they come; with the last part the sum is compared to the
//! seal, and only then is the page handed out, still in its parts. A stream holds one page and the window.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cairn_core::{Error, Result, StopReason, Tier};
use cairn_proto::v1;
use cairn_proto::v1::get_prefix_response::Step as Hear;
use tonic::Streaming;

use crate::assemble::{Closed, Cursor};
use crate::budget::{Budget, passing};
use crate::fault::Fault;
use crate::namespace::{Opened, TierRun, pages, tier_runs};
use crate::options::max_tokens;
use crate::{Chain, Client, GetOptions, Namespace};

const CALL: &str = "get_prefix";
/// What a message holds besides the bytes of its part.
const PART_EXTRA_BYTES: u64 = 64 << 10;
/// Longest message taken, whatever the server says that it may send.
const PART_MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// A page, verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    page: usize,
    tier: Tier,
    parts: Vec<Bytes>,
}

impl Page {
    /// Its position in the chain.
    pub fn index(&self) -> usize {
        self.page
    }

    /// Where the server found it.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Its bytes, in order, as they arrived.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Its bytes in one piece. Copies them once unless they came in one part; [`Namespace::get_prefix_into`] saves that.
    pub fn into_bytes(mut self) -> Bytes {
        if self.parts.len() == 1 {
            return self.parts.swap_remove(0);
        }
        let mut whole = BytesMut::with_capacity(self.parts.iter().map(Bytes::len).sum());
        self.parts.iter().for_each(|part| whole.extend_from_slice(part));
        whole.freeze()
    }
}

/// How a get ended.
#[derive(Debug)]
pub struct GetReport {
    /// Pages from 0 on that are good, `first_page` included: the length of the prefix that may be used. Those from `first_page` on
    /// were handed over and verified.
    pub good_pages: usize,
    /// Their tokens.
    pub good_tokens: u64,
    /// Pages handed over, by the tier that the server found them in, in prefix order.
    pub runs: Vec<TierRun>,
    /// Why it ends there.
    pub stop: GetStop,
}

/// Why a get ended. Pages handed over before it are good in every case.
#[derive(Debug)]
#[non_exhaustive]
pub enum GetStop {
    /// The server's reason.
    Server(StopReason),
    /// The bytes of the next page were not those that the server sealed: damaged on the way. They were not handed out.
    DamagedInTransit,
    /// The call broke off: the connection was lost (`Unavailable`), or the server did not end it in time (`Deadline`).
    Broken(Error),
}

/// The pages of a prefix as they come. Drop it to end the call early.
#[derive(Debug)]
pub struct GetStream {
    reading: Reading,
    parts: Vec<Bytes>,
}

impl GetStream {
    /// Pages that the server set out to send, by tier, in prefix order.
    pub fn planned(&self) -> &[TierRun] {
        &self.reading.planned
    }

    /// The next page, verified; `None` at the end, which [`GetStream::end`] explains. Ends by the call's timeout. Cancel-safe: nothing
    /// is lost if the future is dropped.
    pub async fn next_page(&mut self) -> Option<Page> {
        while let Some((_, part)) = self.reading.next_part().await {
            self.reading.cursor.add(&part.data);
            self.parts.push(part.data);
            if let Some((page, tier)) = self.reading.close(part.seal) {
                return Some(Page { page, tier, parts: std::mem::take(&mut self.parts) });
            }
        }
        self.parts.clear();
        None
    }

    /// Reads to the end and says how it ended. Pages not taken by then are read, verified, counted and dropped.
    pub async fn end(mut self) -> GetReport {
        while self.next_page().await.is_some() {}
        self.reading.report()
    }
}

impl Namespace {
    /// Starts to read the pages of the longest reusable prefix of `chain`, in order. Repeated while the server is away or overloaded,
    /// until the server has answered with its plan; not after that.
    ///
    /// # Errors
    /// `Fenced` if the chain belongs to another namespace id; `Unavailable` or `Deadline` if the server does not answer. What happens
    /// after the plan is not an error but a [`GetStop`].
    pub async fn get_prefix(&self, chain: &Chain, options: GetOptions) -> Result<GetStream> {
        Ok(GetStream { reading: self.read(chain, options).await?, parts: Vec::new() })
    }

    pub(crate) async fn read(&self, chain: &Chain, options: GetOptions) -> Result<Reading> {
        let budget = &self.budget(CALL, options.timeout);
        let chain_pages = chain.pages();
        self.unfenced(budget, chain, passing, |opened, chain| async move {
            let request = v1::GetPrefixRequest {
                namespace_id: opened.id.as_bytes().to_vec(),
                chain: Some(chain),
                first_page: options.first_page as u64,
                max_tokens: max_tokens(options.request_tokens),
                timeout_ms: budget.timeout_ms(),
            };
            self.start_get(request, &opened, chain_pages, budget).await
        })
        .await
    }

    async fn start_get(
        &self,
        request: v1::GetPrefixRequest,
        opened: &Arc<Opened>,
        chain_pages: usize,
        budget: &Budget,
    ) -> Result<Reading> {
        let client = self.client().clone();
        let message_bytes = opened.limits.part_bytes_max.saturating_add(PART_EXTRA_BYTES).min(PART_MESSAGE_BYTES_MAX);
        let first_page = pages(request.first_page);
        let mut answers = client.answer(client.calls(pages(message_bytes)).get_prefix(request).await)?;
        let first = answers.message().await.map_err(|status| client.error(status))?;
        let Some(Hear::Plan(plan)) = first.and_then(|answer| answer.step) else {
            return Err(Fault::protocol(CALL, "no plan").into());
        };
        let end = first_page.saturating_add(pages(plan.pages));
        if plan.page_bytes != self.identity().page_bytes || (plan.pages > 0 && end > chain_pages) {
            return Err(Fault::protocol(CALL, "the plan is for another chain or page size").into());
        }
        Ok(Reading {
            planned: tier_runs(CALL, &plan.runs)?,
            answers: Some(answers),
            client,
            budget: *budget,
            cursor: Cursor::new(first_page, end, self.page_bytes()),
            page_tokens: self.page_tokens(),
            runs: Vec::new(),
            // The caller vouches for the pages before the first one sent.
            good_pages_max: end.min(chain_pages),
            stop: None,
        })
    }
}

/// A get under way, whatever becomes of its bytes.
#[derive(Debug)]
pub(crate) struct Reading {
    planned: Vec<TierRun>,
    /// `None` once it has ended.
    answers: Option<Streaming<v1::GetPrefixResponse>>,
    client: Client,
    budget: Budget,
    pub(crate) cursor: Cursor,
    page_tokens: u32,
    runs: Vec<TierRun>,
    /// The most pages that can be good, by what the server has said so far.
    good_pages_max: usize,
    stop: Option<GetStop>,
}

impl Reading {
    /// The next part and its place in the page under way; `None` at the end. Cancel-safe.
    pub(crate) async fn next_part(&mut self) -> Option<(Range<usize>, v1::PagePart)> {
        let answers = self.answers.as_mut()?;
        let client = &self.client;
        let heard = self.budget.watch(async { answers.message().await.map_err(|status| client.error(status)) }).await;
        match heard.map(|answer| answer.and_then(|answer| answer.step)) {
            Ok(Some(Hear::Part(part))) => match self.cursor.place(&part) {
                Ok(place) => return Some((place, part)),
                Err(fault) => self.stop(GetStop::Broken(fault.into())),
            },
            Ok(Some(Hear::Done(done))) => self.done(&done).await,
            Ok(Some(Hear::Plan(_))) => self.broken("a second plan"),
            Ok(None) => self.broken("the answer ends without its length"),
            Err(error) => self.stop(GetStop::Broken(error)),
        }
        None
    }

    /// Ends a part whose bytes the cursor has summed; tells the page that became whole and right with it.
    pub(crate) fn close(&mut self, seal: Option<v1::PageSeal>) -> Option<(usize, Tier)> {
        match self.cursor.close(seal) {
            Ok(Closed::Open) => {}
            Ok(Closed::Good { page, tier }) => {
                match self.runs.last_mut() {
                    Some(run) if run.tier == tier => run.pages += 1,
                    _ => self.runs.push(TierRun { tier, pages: 1 }),
                }
                return Some((page, tier));
            }
            Ok(Closed::Damaged) => self.stop(GetStop::DamagedInTransit),
            Err(fault) => self.stop(GetStop::Broken(fault.into())),
        }
        None
    }

    /// How it ended.
    pub(crate) fn report(self) -> GetReport {
        let good_pages = self.cursor.page().min(self.good_pages_max);
        GetReport {
            good_pages,
            good_tokens: good_pages as u64 * u64::from(self.page_tokens),
            runs: self.runs,
            stop: self.stop.unwrap_or_else(|| GetStop::Broken(Fault::protocol(CALL, "not read to its end").into())),
        }
    }

    async fn done(&mut self, done: &v1::GetDone) {
        self.good_pages_max = pages(done.good_pages);
        match v1::StopReason::word(done.stop) {
            Ok(reason) => {
                let answers = self.answers.take();
                // Before the wait: whoever drops this future must still find how the get ended.
                self.stop(GetStop::Server(reason));
                // Read to the very end, so that the call is closed and not cancelled.
                if let Some(mut answers) = answers {
                    let _ = self.budget.watch(async { Ok(answers.message().await) }).await;
                }
            }
            Err(refused) => self.stop(GetStop::Broken(Fault::refused(CALL)(refused).into())),
        }
    }

    fn broken(&mut self, what: &str) {
        self.stop(GetStop::Broken(Fault::protocol(CALL, what).into()));
    }

    /// Ends the call; dropping the answers cancels what the server may still be sending.
    fn stop(&mut self, stop: GetStop) {
        self.answers = None;
        self.stop = Some(stop);
    }
}
