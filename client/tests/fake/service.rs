//! The services of `cairn.v1`, as simply as the protocol allows.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cairn_client::{Error, ErrorKind};
use cairn_core::{Checksum, Durability, NotStored, PageOutcome, StopReason, Tier};
use cairn_proto::v1::get_prefix_response::Step as GetStep;
use cairn_proto::v1::put_prefix_request::Step as PutSaid;
use cairn_proto::v1::put_prefix_response::Step as PutStep;
use cairn_proto::{status, v1};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{Act, Fake, PAGE_BYTES, PAGE_TOKENS, PART_BYTES, Slip};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type Said<T> = mpsc::Sender<Result<T, Status>>;

impl Fake {
    /// Notes a call and does what it was told to, if anything.
    async fn arrive(&self, call: &'static str) -> Result<(), Status> {
        let act = self.with(|state| {
            state.calls.push(call);
            state.acts.pop_front()
        });
        match act {
            None => Ok(()),
            Some(Act::Fail(error)) => Err(status::to_status(&error)),
            Some(Act::Hang) => std::future::pending().await,
        }
    }

    fn knows(&self, namespace_id: &[u8]) -> Result<(), Status> {
        match self.with(|state| state.known.is_some_and(|known| known == namespace_id)) {
            true => Ok(()),
            false => Err(status::to_status(&Error::new(ErrorKind::Fenced, "no such namespace"))),
        }
    }

    fn keys(chain: Option<v1::Chain>) -> Vec<Vec<u8>> {
        match chain.and_then(|chain| chain.of) {
            Some(v1::chain::Of::Keys(keys)) => {
                keys.packed.chunks_exact(keys.key_bytes.max(1) as usize).map(<[u8]>::to_vec).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The pages of the longest prefix.
    fn prefix(&self, keys: &[Vec<u8>]) -> Vec<Bytes> {
        self.with(|state| keys.iter().map_while(|key| state.pages.get(key).cloned()).collect())
    }

    /// Sends pages from `first` on, the prefix before which the caller vouches for.
    async fn send_pages(&self, pages: Vec<Bytes>, first: usize, chain_pages: usize, out: Said<v1::GetPrefixResponse>) {
        let slip = self.with(|state| state.slip);
        let good_pages = first + pages.len();
        for (sent, page) in pages.into_iter().enumerate() {
            let i = first + sent;
            let slip = slip.filter(|(after, _)| *after == sent).map(|(_, slip)| slip);
            match slip {
                Some(Slip::Hang) => std::future::pending().await,
                Some(Slip::Cut) => {
                    // On the paused clock this waits until all that was sent has arrived, and no longer.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    return self.cut();
                }
                Some(Slip::NoEnd) => return,
                Some(Slip::Flip | Slip::Gap) | None => send_page(i, &page, slip, &out).await,
            }
        }
        let stop = if good_pages == chain_pages { StopReason::EndOfChain } else { StopReason::NotStored };
        let stop = v1::StopReason::number(stop);
        let done = v1::GetDone { good_pages: good_pages as u64, good_tokens: 0, stop };
        say(&out, GetStep::Done(done)).await;
        // The end comes a moment after the last word.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn take_pages(
        &self,
        keys: Vec<Vec<u8>>,
        mut parts: Streaming<v1::PutPrefixRequest>,
        out: Said<v1::PutPrefixResponse>,
    ) {
        let present: Vec<bool> = self.with(|state| keys.iter().map(|key| state.pages.contains_key(key)).collect());
        let mut outcomes: Vec<PageOutcome> = present.iter().map(|there| outcome_before(*there)).collect();
        let ends_after = self.with(|state| state.put_ends_after).unwrap_or(usize::MAX);
        let mut taken = 0;
        let mut page = BytesMut::new();
        while taken < ends_after
            && let Ok(Some(v1::PutPrefixRequest { step: Some(PutSaid::Part(part)) })) = parts.message().await
        {
            self.with(|state| state.parts.push((part.page, part.offset, part.data.len())));
            page.extend_from_slice(&part.data);
            let Some(seal) = part.seal else { continue };
            let bytes = page.split().freeze();
            assert_eq!(seal.checksum, Checksum::of(&bytes).to_u64());
            let at = usize::try_from(part.page).unwrap();
            self.with(|state| state.pages.insert(keys[at].clone(), bytes));
            outcomes[at] = PageOutcome::Stored(Durability::Memory);
            taken += 1;
        }
        report_put(&outcomes, &out).await;
    }
}

fn outcome_before(present: bool) -> PageOutcome {
    if present { PageOutcome::Present(Durability::Ssd) } else { PageOutcome::NotStored(NotStored::Deadline) }
}

async fn report_put(outcomes: &[PageOutcome], out: &Said<v1::PutPrefixResponse>) {
    for (page, outcome) in outcomes.iter().enumerate() {
        let page = v1::PutPage { page: page as u64, outcome: Some((*outcome).into()) };
        let _ = out.send(Ok(v1::PutPrefixResponse { step: Some(PutStep::Page(page)) })).await;
    }
    let good = outcomes.iter().take_while(|outcome| !matches!(outcome, PageOutcome::NotStored(_))).count() as u64;
    let done = v1::PutDone {
        good_pages: good,
        durability: if good > 0 { v1::Durability::number(Durability::Memory) } else { 0 },
        ..Default::default()
    };
    let _ = out.send(Ok(v1::PutPrefixResponse { step: Some(PutStep::Done(done)) })).await;
}

async fn send_page(i: usize, page: &Bytes, slip: Option<Slip>, out: &Said<v1::GetPrefixResponse>) {
    let checksum = Checksum::of(page).to_u64();
    let mut offset = 0;
    for piece in page.chunks(PART_BYTES) {
        let last = offset + piece.len() == page.len();
        let tier = v1::Tier::number(if i == 0 { Tier::Dram } else { Tier::Ssd });
        let seal = last.then_some(v1::PageSeal { checksum, tier });
        let mut data = piece.to_vec();
        if matches!(slip, Some(Slip::Flip)) && last {
            data[0] ^= 4;
        }
        let part = v1::PagePart { page: i as u64, offset: offset as u64, data: data.into(), seal };
        if !(matches!(slip, Some(Slip::Gap)) && offset > 0 && !last) {
            say(out, GetStep::Part(part)).await;
        }
        offset += piece.len();
    }
}

async fn say(out: &Said<v1::GetPrefixResponse>, step: GetStep) {
    let _ = out.send(Ok(v1::GetPrefixResponse { step: Some(step) })).await;
}

#[tonic::async_trait]
impl v1::cairn_server::Cairn for Fake {
    async fn open_namespace(
        &self,
        request: Request<v1::OpenNamespaceRequest>,
    ) -> Result<Response<v1::OpenNamespaceResponse>, Status> {
        self.arrive("open_namespace").await?;
        let identity = request.into_inner().identity.unwrap_or_default();
        let (id, boot) = self.with(|state| {
            let id = [state.next_id; 32];
            state.known = Some(id);
            (id, state.boot)
        });
        Ok(Response::new(v1::OpenNamespaceResponse {
            namespace_id: id.to_vec(),
            page_bytes: identity.page_bytes(),
            page_tokens: identity.page_tokens(),
            limits: Some(v1::Limits { chain_pages_max: 64, part_bytes_max: PART_BYTES as u64, timeout_ms_max: 60_000 }),
            boot_id: vec![boot; 16],
        }))
    }

    async fn r#match(&self, request: Request<v1::MatchRequest>) -> Result<Response<v1::MatchResponse>, Status> {
        self.arrive("match").await?;
        let request = request.into_inner();
        self.with(|state| {
            state.timeouts_ms.push(request.timeout_ms);
            state.max_tokens.push(request.max_tokens);
        });
        self.knows(&request.namespace_id)?;
        let keys = Self::keys(request.chain);
        let pages = self.prefix(&keys).len() as u64;
        Ok(Response::new(v1::MatchResponse {
            pages,
            tokens: pages * u64::from(PAGE_TOKENS),
            runs: vec![v1::TierRun { tier: v1::Tier::number(Tier::Dram), pages }],
            pages_beyond_max_tokens: 0,
            ready_in_us: 7,
            stop: v1::StopReason::number(StopReason::NotStored),
        }))
    }

    type PutPrefixStream = Answers<v1::PutPrefixResponse>;

    async fn put_prefix(
        &self,
        request: Request<Streaming<v1::PutPrefixRequest>>,
    ) -> Result<Response<Self::PutPrefixStream>, Status> {
        self.arrive("put_prefix").await?;
        let mut parts = request.into_inner();
        let Some(v1::PutPrefixRequest { step: Some(PutSaid::Begin(begin)) }) = parts.message().await? else {
            return Err(Status::invalid_argument("no begin"));
        };
        self.knows(&begin.namespace_id)?;
        let keys = Self::keys(begin.chain);
        let missing = self.with(|state| keys.iter().map(|key| !state.pages.contains_key(key)).collect::<Vec<_>>());
        let run = |(page, _)| v1::PageRun { first: page as u64, pages: 1 };
        let needed = missing.into_iter().enumerate().filter(|(_, missing)| *missing).map(run).collect();
        let (out, answers) = mpsc::channel(4);
        let _ = out.send(Ok(v1::PutPrefixResponse { step: Some(PutStep::Plan(v1::PutPlan { needed })) })).await;
        let fake = self.clone();
        tokio::spawn(async move { fake.take_pages(keys, parts, out).await });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    type GetPrefixStream = Answers<v1::GetPrefixResponse>;

    async fn get_prefix(
        &self,
        request: Request<v1::GetPrefixRequest>,
    ) -> Result<Response<Self::GetPrefixStream>, Status> {
        self.arrive("get_prefix").await?;
        let request = request.into_inner();
        self.with(|state| state.max_tokens.push(request.max_tokens));
        self.knows(&request.namespace_id)?;
        let keys = Self::keys(request.chain);
        let first = usize::try_from(request.first_page).unwrap().min(keys.len());
        let pages = self.prefix(&keys[first..]);
        let planned = pages.len() as u64;
        let (out, answers) = mpsc::channel(4);
        let plan = v1::GetPlan { pages: planned, page_bytes: PAGE_BYTES as u64, runs: Vec::new() };
        say(&out, GetStep::Plan(plan)).await;
        let fake = self.clone();
        tokio::spawn(async move { fake.send_pages(pages, first, keys.len(), out).await });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}

#[tonic::async_trait]
impl v1::admin_server::Admin for Fake {
    async fn stats(&self, _: Request<v1::StatsRequest>) -> Result<Response<v1::StatsResponse>, Status> {
        self.arrive("stats").await?;
        let boot_id = self.with(|state| vec![state.boot; 16]);
        let server = v1::ServerStats { boot_id, ..Default::default() };
        Ok(Response::new(v1::StatsResponse { server: Some(server), ..Default::default() }))
    }

    async fn list_namespaces(
        &self,
        _: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesResponse>, Status> {
        self.arrive("list_namespaces").await?;
        Ok(Response::new(v1::ListNamespacesResponse::default()))
    }

    async fn clear(&self, request: Request<v1::ClearRequest>) -> Result<Response<v1::ClearResponse>, Status> {
        self.arrive("clear").await?;
        self.knows(&request.into_inner().namespace_id)?;
        let pages = self.with(|state| std::mem::take(&mut state.pages)).len() as u64;
        Ok(Response::new(v1::ClearResponse { pages }))
    }

    async fn scrub(&self, request: Request<v1::ScrubRequest>) -> Result<Response<v1::ScrubResponse>, Status> {
        self.arrive("scrub").await?;
        let scrub = v1::ScrubStats { asked: request.into_inner().now, ..Default::default() };
        Ok(Response::new(v1::ScrubResponse { scrub: Some(scrub) }))
    }

    type VerifyStream = Answers<v1::VerifyResponse>;

    /// Two calls make a whole: the first has a word of progress and ends in the middle, the second comes to the end.
    async fn verify(&self, request: Request<v1::VerifyRequest>) -> Result<Response<Self::VerifyStream>, Status> {
        self.arrive("verify").await?;
        let counts = |pages, damaged| Some(v1::VerifyCounts { pages, damaged, bytes: pages, unreadable: 0 });
        let said = |counts, next, last| Ok(v1::VerifyResponse { counts, progress_ppm: 500_000, next, last });
        let answers = match request.into_inner().from {
            None => {
                let next = Some(v1::Slot { region: 1, slot: 2 });
                vec![said(counts(1, 0), None, false), said(counts(3, 0), next, true)]
            }
            Some(from) => {
                assert_eq!((from.region, from.slot), (1, 2));
                vec![said(counts(2, 1), None, true)]
            }
        };
        Ok(Response::new(Box::pin(tokio_stream::iter(answers))))
    }

    async fn quarantine(
        &self,
        request: Request<v1::QuarantineRequest>,
    ) -> Result<Response<v1::QuarantineResponse>, Status> {
        self.arrive("quarantine").await?;
        let released_slots = u64::from(request.into_inner().release_slots);
        Ok(Response::new(v1::QuarantineResponse { released_slots, ..Default::default() }))
    }
}
