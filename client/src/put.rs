//! Putting a prefix.
//!
//! The way of a page: the server's plan says which pages it needs; the caller's source is asked for those alone, one at a time; the
//! page is summed once and cut into parts, which are slices of the caller's bytes; a queue of [`PARTS_QUEUED`] parts feeds the
//! connection, whose flow control sets the pace. So a put holds one page of the source, two parts, and what HTTP/2 has under way. The
//! bytes are copied once on this side, where the gRPC encoder writes a part into its frame.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cairn_core::{Checksum, Durability, Error, ErrorKind, KeptOff, NotStored, PageOutcome, Result};
use cairn_proto::v1;
use cairn_proto::v1::put_prefix_request::Step as Say;
use cairn_proto::v1::put_prefix_response::Step as Hear;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::budget::Budget;
use crate::fault::{self, Fault};
use crate::namespace::{Opened, pages};
use crate::{Chain, Client, Namespace, PutOptions};

const CALL: &str = "put_prefix";
/// Parts waiting for the connection.
const PARTS_QUEUED: usize = 2;
/// Bytes of one part, if the server allows it: long enough that messages cost nothing, short enough to share a connection fairly.
const PART_BYTES: usize = 1 << 20;

/// Where the pages of a put come from. Any `FnMut(usize) -> Bytes` is one.
pub trait PageSource: Send {
    /// The bytes of page `page` of the chain: exactly one page, shared and not copied. Called once for each page that the server needs,
    /// in ascending order, just before it is sent; blocks the task while it runs.
    ///
    /// # Errors
    /// Any error ends the put, and is its result.
    fn page(&mut self, page: usize) -> Result<Bytes>;
}

impl<F: FnMut(usize) -> Bytes + Send> PageSource for F {
    fn page(&mut self, page: usize) -> Result<Bytes> {
        Ok(self(page))
    }
}

/// How a put ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutReport {
    /// What became of each page of the chain.
    pub outcomes: Vec<PageOutcome>,
    /// Pages from 0 on that are there now, without a gap.
    pub good_pages: usize,
    /// What all of `good_pages` survive. Never more than was reached; `None` if there are none.
    pub durability: Option<Durability>,
    /// Pages that the server did not have and asked for.
    pub needed_pages: usize,
    /// Why the server kept pages of the chain off the SSD, if it kept any: they are in memory only.
    pub kept_off: Option<KeptOff>,
}

impl PutReport {
    /// Pages whose bytes were taken.
    pub fn stored(&self) -> usize {
        self.outcomes.iter().filter(|outcome| matches!(outcome, PageOutcome::Stored(_))).count()
    }

    /// Pages that were there already.
    pub fn present(&self) -> usize {
        self.outcomes.iter().filter(|outcome| matches!(outcome, PageOutcome::Present(_))).count()
    }

    /// Why the first page that is missing was not stored; `None` if all are there.
    pub fn first_missing(&self) -> Option<NotStored> {
        self.outcomes.iter().find_map(|outcome| match outcome {
            PageOutcome::NotStored(reason) => Some(*reason),
            PageOutcome::Stored(_) | PageOutcome::Present(_) => None,
        })
    }
}

/// A put that the server has planned.
struct Put {
    client: Client,
    parts: mpsc::Sender<v1::PutPrefixRequest>,
    answers: Streaming<v1::PutPrefixResponse>,
    needed: Vec<Range<usize>>,
    chain_pages: usize,
    page_bytes: usize,
    part_bytes: usize,
}

impl Namespace {
    /// Stores the pages of `chain` that the server does not have, and returns what became of each page.
    ///
    /// Each page becomes visible as a whole when the server has all of it. Repeated only if it has certainly not begun: it never left, or
    /// the server had no room for it, or did not know the namespace, which is opened again then. Dropping the future ends the put; pages stored by then stay.
    ///
    /// # Errors
    /// `Invalid` if a page has the wrong length; any error of `source`; `Fenced` if the chain belongs to another namespace id;
    /// `Unavailable` if the connection breaks, `Deadline` if the server does not end the call in time: pages may have been stored then.
    pub async fn put_prefix(&self, chain: &Chain, source: impl PageSource, options: PutOptions) -> Result<PutReport> {
        let budget = self.budget(CALL, options.timeout);
        let put = self.begin_put(chain, options, &budget).await?;
        budget.watch(put.run(source)).await
    }

    async fn begin_put(&self, chain: &Chain, options: PutOptions, budget: &Budget) -> Result<Put> {
        let chain_pages = chain.pages();
        self.unfenced(budget, chain, not_begun, |opened, chain| async move {
            let begin = v1::PutBegin {
                namespace_id: opened.id.as_bytes().to_vec(),
                chain: Some(chain),
                durability: v1::Durability::number(options.durability),
                timeout_ms: budget.timeout_ms(),
            };
            self.start_put(begin, &opened, chain_pages).await
        })
        .await
    }

    async fn start_put(&self, begin: v1::PutBegin, opened: &Arc<Opened>, chain_pages: usize) -> Result<Put> {
        let client = self.client().clone();
        let (parts, requests) = mpsc::channel(PARTS_QUEUED);
        // The queue is empty and its other end is held here, so there is room.
        let _ = parts.try_send(v1::PutPrefixRequest { step: Some(Say::Begin(begin)) });
        let mut answers = client.answer(client.calls(0).put_prefix(ReceiverStream::new(requests)).await)?;
        let first = answers.message().await.map_err(|status| client.error(status))?;
        let Some(Hear::Plan(plan)) = first.and_then(|answer| answer.step) else {
            return Err(Fault::protocol(CALL, "no plan").into());
        };
        let part_bytes = usize::try_from(opened.limits.part_bytes_max).unwrap_or(usize::MAX).min(PART_BYTES);
        let needed = needed(&plan, chain_pages)?;
        Ok(Put { client, parts, answers, needed, chain_pages, page_bytes: self.page_bytes(), part_bytes })
    }
}

/// Whether a put that got no plan has certainly not begun: it never left, or the server said that it has no room for it now.
fn not_begun(error: &Error) -> bool {
    fault::never_left(error) || matches!(error.kind(), ErrorKind::Overloaded { .. })
}

/// The runs of a plan, which are ascending and within the chain.
fn needed(plan: &v1::PutPlan, chain_pages: usize) -> Result<Vec<Range<usize>>, Fault> {
    let mut runs = Vec::with_capacity(plan.needed.len());
    let mut from = 0;
    for run in &plan.needed {
        let first = pages(run.first);
        let end = first.saturating_add(pages(run.pages));
        if first < from || end > chain_pages {
            return Err(Fault::protocol(CALL, "the plan's runs are out of order or beyond the chain"));
        }
        runs.push(first..end);
        from = end;
    }
    Ok(runs)
}

impl Put {
    /// Feeds and listens at once: outcomes come while pages are under way, and the server may end the call at any time.
    async fn run(self, source: impl PageSource) -> Result<PutReport> {
        let Self { client, parts, answers, needed, chain_pages, page_bytes, part_bytes } = self;
        let needed_pages = needed.iter().map(ExactSizeIterator::len).sum();
        let feed = feed(parts, needed, source, page_bytes, part_bytes);
        let listen = listen(client, answers, chain_pages, needed_pages);
        tokio::pin!(feed, listen);
        tokio::select! {
            biased;
            report = &mut listen => return report,
            fed = &mut feed => fed?,
        }
        listen.await
    }
}

/// Sends the needed pages, then half-closes by dropping the queue. Ends early, without an error, when the server has ended the call.
async fn feed(
    parts: mpsc::Sender<v1::PutPrefixRequest>,
    needed: Vec<Range<usize>>,
    mut source: impl PageSource,
    page_bytes: usize,
    part_bytes: usize,
) -> Result<()> {
    for page in needed.into_iter().flatten() {
        let bytes = source.page(page)?;
        if bytes.len() != page_bytes {
            return Err(Fault::PageBytes { page, bytes: bytes.len(), page_bytes }.into());
        }
        let checksum = Checksum::of(&bytes).to_u64();
        let mut from = 0;
        while from < page_bytes {
            let to = from.saturating_add(part_bytes).min(page_bytes);
            let seal = (to == page_bytes).then_some(v1::PageSeal { checksum, tier: 0 });
            let part = v1::PagePart { page: page as u64, offset: from as u64, data: bytes.slice(from..to), seal };
            if parts.send(v1::PutPrefixRequest { step: Some(Say::Part(part)) }).await.is_err() {
                return Ok(());
            }
            from = to;
        }
    }
    Ok(())
}

/// Collects the outcomes until the server's last word.
async fn listen(
    client: Client,
    mut answers: Streaming<v1::PutPrefixResponse>,
    chain_pages: usize,
    needed_pages: usize,
) -> Result<PutReport> {
    let mut outcomes = vec![None; chain_pages];
    loop {
        let answer = answers.message().await.map_err(|status| client.error(status))?;
        match answer.and_then(|answer| answer.step) {
            Some(Hear::Page(page)) => note(&mut outcomes, page)?,
            Some(Hear::Done(done)) => {
                // Read to the very end, so that the call is closed and not cancelled.
                let _ = answers.message().await;
                return Ok(report(outcomes, done, needed_pages)?);
            }
            Some(Hear::Plan(_)) => return Err(Fault::protocol(CALL, "a second plan").into()),
            None => return Err(Fault::protocol(CALL, "the answer ends without totals").into()),
        }
    }
}

fn note(outcomes: &mut [Option<PageOutcome>], page: v1::PutPage) -> Result<(), Fault> {
    let place = outcomes.get_mut(pages(page.page));
    let (Some(place), Some(outcome)) = (place, page.outcome) else {
        return Err(Fault::protocol(CALL, format!("no outcome, or of no page of the chain page={}", page.page)));
    };
    *place = Some(PageOutcome::try_from(outcome).map_err(Fault::refused(CALL))?);
    Ok(())
}

fn report(outcomes: Vec<Option<PageOutcome>>, done: v1::PutDone, needed_pages: usize) -> Result<PutReport, Fault> {
    let missing = || Fault::protocol(CALL, "a page has no outcome");
    let outcomes = outcomes.into_iter().collect::<Option<Vec<_>>>().ok_or_else(missing)?;
    let good_pages = pages(done.good_pages);
    if good_pages > outcomes.len() {
        return Err(Fault::protocol(CALL, "more good pages than pages"));
    }
    let durability = match good_pages {
        0 => None,
        _ => Some(v1::Durability::word(done.durability).map_err(Fault::refused(CALL))?),
    };
    // A reason that this client does not know is as good as none.
    let kept_off = v1::KeptOff::word(done.kept_off).ok();
    Ok(PutReport { outcomes, good_pages, durability, needed_pages, kept_off })
}
