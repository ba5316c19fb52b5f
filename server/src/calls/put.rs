//! PutPrefix: parts from the client into page memory, page by page.
//!
//! A part's bytes are a slice of the buffer that its message arrived in; they are copied once, into the frame of the pool that will hold
//! the page. One frame is held at a time, and given back if the client goes away, sends nonsense or runs out of time; pages that were
//! sealed before stay. Answers wait in a queue of at most one an asked page, so a client may read them when it likes.

use cairn_core::metrics::Call;
use cairn_core::{Checksum, Deadline, Durability, Error, ErrorKind, PageOutcome, Result};
use cairn_engine::{Put, PutReport};
use cairn_pool::PageBufMut;
use cairn_proto::v1::put_prefix_request::Step as Incoming;
use cairn_proto::v1::put_prefix_response::Step;
use cairn_proto::{status, v1};
use tonic::{Code, Request, Status, Streaming};

use super::House;
use crate::door::Visit;
use crate::outlet::{Outgoing, Outlet, outlet};

/// Why a put ends before it is finished.
enum Broken {
    /// The client broke off; nobody is left to answer.
    Gone,
    /// The call is refused.
    Refused(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// What the client sent next.
enum Next {
    Part(v1::PagePart),
    /// It has sent everything.
    End,
    /// Nothing, until the deadline.
    Late,
}

/// A put under way.
struct Receiving<'a> {
    visit: &'a Visit,
    incoming: Streaming<v1::PutPrefixRequest>,
    answers: Answers<'a>,
    put: Put,
    asked: Durability,
    deadline: Deadline,
    pages: usize,
    page_bytes: usize,
    part_bytes_max: usize,
    /// The first page that may come next.
    next_page: usize,
}

/// What the client is told.
struct Answers<'a> {
    outlet: &'a Outlet<v1::PutPrefixResponse>,
    /// Pages whose outcome the client knows.
    told: Vec<bool>,
}

/// A page of which some bytes have come.
struct Filling {
    page: usize,
    filled_bytes: usize,
    /// `None`: the page is not needed, its bytes are dropped.
    frame: Option<PageBufMut>,
}

impl House {
    pub(super) fn serve_put(
        &self,
        mut request: Request<Streaming<v1::PutPrefixRequest>>,
    ) -> Result<Outgoing<v1::PutPrefixResponse>, Status> {
        let visit = self.rooms.door.receive(&mut request, Call::PutPrefix)?;
        let (outlet, outgoing) = outlet(1);
        let house = self.clone();
        tokio::spawn(async move { house.receive(visit, request.into_inner(), outlet).await });
        Ok(outgoing)
    }

    async fn receive(
        self,
        visit: Visit,
        incoming: Streaming<v1::PutPrefixRequest>,
        outlet: Outlet<v1::PutPrefixResponse>,
    ) {
        let outcome = tokio::select! {
            outcome = self.put(&visit, incoming, &outlet) => outcome,
            () = outlet.abandoned() => Err(Broken::Gone),
        };
        match outcome {
            Ok(done) => {
                // First: a client that has seen the end finds its place free.
                visit.answer();
                outlet.end(Ok(step(Step::Done(done))));
            }
            Err(Broken::Refused(error)) => outlet.end(Err(visit.fail(&error))),
            Err(Broken::Gone) => {}
        }
    }

    async fn put(
        &self,
        visit: &Visit,
        mut incoming: Streaming<v1::PutPrefixRequest>,
        outlet: &Outlet<v1::PutPrefixResponse>,
    ) -> Result<v1::PutDone, Broken> {
        let first = visit.until(visit.deadline(0)?, incoming.message()).await;
        let begin = match first.ok_or_else(|| Error::new(ErrorKind::Deadline, "the put did not begin in time"))? {
            Ok(Some(v1::PutPrefixRequest { step: Some(Incoming::Begin(begin)) })) => begin,
            Ok(_) => return Err(Error::invalid("a put starts with `begin`").into()),
            Err(status) => return Err(broken_off(&status)),
        };
        let mut receiving = self.begin_put(visit, incoming, outlet, begin)?;
        receiving.tell_plan();
        receiving.receive_pages().await?;
        Ok(receiving.finish().await)
    }

    fn begin_put<'a>(
        &self,
        visit: &'a Visit,
        incoming: Streaming<v1::PutPrefixRequest>,
        outlet: &'a Outlet<v1::PutPrefixResponse>,
        begin: v1::PutBegin,
    ) -> Result<Receiving<'a>> {
        let deadline = visit.deadline(begin.timeout_ms)?;
        let namespace = self.namespace(visit, &begin.namespace_id)?;
        let asked = v1::Durability::word(begin.durability)?;
        let keys = self.keys(&namespace, begin.chain)?;
        let pages = keys.len();
        let put = self.rooms.engine.begin_put(&namespace, keys, asked, deadline)?;
        Ok(Receiving {
            visit,
            incoming,
            answers: Answers { outlet, told: vec![false; pages] },
            put,
            asked,
            deadline,
            pages,
            page_bytes: usize::try_from(namespace.page_bytes()).unwrap_or(usize::MAX),
            part_bytes_max: usize::try_from(self.rooms.limits.part_bytes_max.0).unwrap_or(usize::MAX),
            next_page: 0,
        })
    }
}

impl Receiving<'_> {
    fn tell_plan(&self) {
        let run = |run: std::ops::Range<usize>| v1::PageRun { first: run.start as u64, pages: run.len() as u64 };
        let needed = self.put.needed().into_iter().map(run).collect();
        self.answers.outlet.add(step(Step::Plan(v1::PutPlan { needed })));
    }

    /// Takes parts until the client has sent all or the deadline has passed.
    async fn receive_pages(&mut self) -> Result<(), Broken> {
        let mut filling: Option<Filling> = None;
        loop {
            let part = match self.next().await? {
                Next::Part(part) => part,
                // An unfinished page goes back to the pool with `filling`.
                Next::End | Next::Late => return Ok(()),
            };
            let mut current = match filling.take() {
                Some(current) => current,
                None => self.start_page(&part).await?,
            };
            self.fill(&mut current, &part)?;
            match part.seal {
                Some(seal) => self.seal(current, Checksum::from_u64(seal.checksum)),
                None => filling = Some(current),
            }
        }
    }

    async fn next(&mut self) -> Result<Next, Broken> {
        match self.visit.until(self.deadline, self.incoming.message()).await {
            None => Ok(Next::Late),
            Some(Ok(None)) => Ok(Next::End),
            Some(Ok(Some(v1::PutPrefixRequest { step: Some(Incoming::Part(part)) }))) => Ok(Next::Part(part)),
            Some(Ok(Some(_))) => Err(Error::invalid("a put has one `begin` and then parts").into()),
            Some(Err(status)) => Err(broken_off(&status)),
        }
    }

    async fn start_page(&mut self, part: &v1::PagePart) -> Result<Filling> {
        let page = usize::try_from(part.page).unwrap_or(usize::MAX);
        if page < self.next_page || page >= self.pages {
            let (next, pages) = (self.next_page, self.pages);
            return Err(Error::invalid(format!(
                "pages are sent in ascending order, within the chain page={} next_page={next} pages={pages}",
                part.page
            )));
        }
        self.next_page = page + 1;
        let mut frame = None;
        if self.put.wants(page) {
            match self.put.reserve(page).await {
                Ok(reserved) => frame = Some(reserved),
                Err(reason) => self.answers.tell(page, PageOutcome::NotStored(reason)),
            }
        }
        Ok(Filling { page, filled_bytes: 0, frame })
    }

    fn fill(&self, filling: &mut Filling, part: &v1::PagePart) -> Result<()> {
        let Filling { page, filled_bytes, frame } = filling;
        let (start, bytes) = (*filled_bytes, part.data.len());
        if part.page != *page as u64 || part.offset != start as u64 {
            return Err(Error::invalid(format!(
                "parts of a page are sent in order, without gaps page={} offset={} expected_page={page} expected_offset={start}",
                part.page, part.offset
            )));
        }
        if bytes == 0 || bytes > self.part_bytes_max {
            let max = self.part_bytes_max;
            return Err(Error::invalid(format!("a part is empty or too large bytes={bytes} part_bytes_max={max}")));
        }
        let end = start + bytes;
        let is_last = part.seal.is_some();
        if end > self.page_bytes || (is_last && end < self.page_bytes) {
            let page_bytes = self.page_bytes;
            return Err(Error::invalid(format!(
                "a page has the wrong length page={page} bytes={end} page_bytes={page_bytes}"
            )));
        }
        if let Some(target) = frame.as_mut().and_then(|frame| frame.as_mut_slice().get_mut(start..end)) {
            target.copy_from_slice(&part.data);
        }
        *filled_bytes = end;
        Ok(())
    }

    fn seal(&mut self, filling: Filling, claimed: Checksum) {
        let Some(frame) = filling.frame else { return };
        let outcome = self.put.commit(filling.page, frame, claimed);
        // How durable it will be is known at the end only.
        if self.asked == Durability::Memory || matches!(outcome, PageOutcome::NotStored(_)) {
            self.answers.tell(filling.page, outcome);
        }
    }

    /// Waits for the durability that was asked for, tells what has not been told, and adds up.
    async fn finish(self) -> v1::PutDone {
        let Self { put, mut answers, .. } = self;
        let PutReport { outcomes, good_pages, durability, kept_off } = put.finish().await;
        let durability = v1::Durability::number(durability);
        let kept_off = kept_off.map_or(0, v1::KeptOff::number);
        let mut done = v1::PutDone { good_pages: good_pages as u64, durability, kept_off, ..Default::default() };
        for (page, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                PageOutcome::Stored(_) => done.stored += 1,
                PageOutcome::Present(_) => done.present += 1,
                PageOutcome::NotStored(_) => done.not_stored += 1,
            }
            answers.tell(page, outcome);
        }
        done
    }
}

impl Answers<'_> {
    fn tell(&mut self, page: usize, outcome: PageOutcome) {
        if let Some(told) = self.told.get_mut(page)
            && !std::mem::replace(told, true)
        {
            self.outlet.add(step(Step::Page(v1::PutPage { page: page as u64, outcome: Some(outcome.into()) })));
        }
    }
}

/// A message that can not be taken is the client's mistake, one too many the door's refusal; anything else that ends its stream early
/// means that it is gone.
fn broken_off(status: &Status) -> Broken {
    match status.code() {
        Code::ResourceExhausted => Broken::Refused(status::from_status(status)),
        Code::Internal | Code::OutOfRange | Code::InvalidArgument => Broken::Refused(Error::invalid(status.message())),
        _ => Broken::Gone,
    }
}

fn step(step: Step) -> v1::PutPrefixResponse {
    v1::PutPrefixResponse { step: Some(step) }
}
