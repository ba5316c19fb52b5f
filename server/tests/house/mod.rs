//! A server in this process and a plain gRPC client to it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

pub mod process;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use cairn_core::{
    Checksum, Declared, Error, Heads, Identity, KeyScheme, LayerRange, NamespaceId, PageKey, StateKind,
    chain_from_tokens,
};
use cairn_proto::v1::admin_client::AdminClient;
use cairn_proto::v1::cairn_client::CairnClient;
use cairn_proto::{key_chain, namespace_id, status, v1};
use cairn_server::config::Settings;
use cairn_server::{Running, Server};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Status;
use tonic::transport::Channel;

pub use cairn_proto::v1::get_prefix_response::Step as GetStep;
pub use cairn_proto::v1::put_prefix_request::Step as PutStep;
pub use cairn_proto::v1::put_prefix_response::Step as PutAnswer;

pub const PAGE_TOKENS: u32 = 16;

/// A server with its client, on a folder of its own.
pub struct House {
    pub running: Running,
    pub folder: TempDir,
    pub cairn: CairnClient<Channel>,
    pub admin: AdminClient<Channel>,
}

/// Small tiers, ports of the system's choice.
pub fn settings(folder: &Path) -> Settings {
    let mut settings = Settings::default();
    let small = [
        ("server.listen", "127.0.0.1:0"),
        ("server.metrics_listen", "127.0.0.1:0"),
        ("data.dir", folder.to_str().unwrap()),
        ("dram.bytes", "16MiB"),
        ("dram.arena_bytes", "4MiB"),
        ("dram.huge_pages", "off"),
        ("ssd.bytes", "32MiB"),
        ("ssd.region_bytes", "4MiB"),
        ("ssd.read_threads", "1"),
        // Of no concern to a test, whatever drive it runs on.
        ("ssd.health_program", ""),
        ("limits.page_bytes_max", "2MiB"),
    ];
    for (name, value) in small {
        settings.set(name, value).unwrap();
    }
    settings
}

impl House {
    pub async fn open() -> Self {
        Self::open_with(&[]).await
    }

    pub async fn open_with(changes: &[(&str, &str)]) -> Self {
        Self::open_in(tempfile::tempdir().unwrap(), changes).await
    }

    pub async fn open_in(folder: TempDir, changes: &[(&str, &str)]) -> Self {
        let mut settings = settings(folder.path());
        for (name, value) in changes {
            settings.set(name, value).unwrap();
        }
        let running = Server::start(settings).await.unwrap();
        running.wait_warm().await;
        let endpoint = Channel::from_shared(format!("http://127.0.0.1:{}", running.address().port())).unwrap();
        let channel = endpoint.connect().await.unwrap();
        let cairn = CairnClient::new(channel.clone()).max_decoding_message_size(64 << 20);
        Self { running, folder, cairn, admin: AdminClient::new(channel) }
    }

    /// Stops in order and keeps the folder.
    pub async fn stop(self) -> TempDir {
        let Self { running, folder, .. } = self;
        running.stop(Duration::from_secs(10)).await;
        folder
    }

    pub async fn namespace(&mut self, identity: &Identity) -> NamespaceId {
        let request = v1::OpenNamespaceRequest { identity: Some(identity.into()) };
        namespace_id(&self.cairn.open_namespace(request).await.unwrap().into_inner().namespace_id).unwrap()
    }

    pub async fn stats(&mut self) -> v1::StatsResponse {
        self.admin.stats(v1::StatsRequest {}).await.unwrap().into_inner()
    }

    /// Asks for the stats until they are as they should be.
    pub async fn until(&mut self, what: &str, is_so: impl Fn(&v1::StatsResponse) -> bool) {
        for _ in 0..50_000 {
            if is_so(&self.stats().await) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("never came true: {what}");
    }

    /// Puts `pages` and returns every answer, the totals last.
    pub async fn put(&mut self, begin: v1::PutBegin, parts: Vec<v1::PagePart>) -> Result<Vec<PutAnswer>, Status> {
        put(&mut self.cairn, begin, parts).await
    }

    /// Gets the pages of a chain: their bytes, and how it ended.
    pub async fn get(&mut self, request: v1::GetPrefixRequest) -> Result<(Vec<Vec<u8>>, v1::GetDone), Status> {
        get_pages(&mut self.cairn, request).await
    }

    /// The body of a page of the metrics port.
    pub async fn http(&self, path: &str) -> String {
        http_get(self.running.metrics_address(), path).await
    }
}

/// Puts pages and returns every answer, the totals last.
/// Whether what the directory had lost has been found again.
pub fn is_rebuilt(stats: &v1::StatsResponse) -> bool {
    stats.recovery.as_ref().is_some_and(|recovery| recovery.mode == "rebuilt from headers")
}

pub async fn put(
    cairn: &mut CairnClient<Channel>,
    begin: v1::PutBegin,
    parts: Vec<v1::PagePart>,
) -> Result<Vec<PutAnswer>, Status> {
    let begin = std::iter::once(PutStep::Begin(begin));
    let steps: Vec<_> = begin.chain(parts.into_iter().map(PutStep::Part)).map(put_step).collect();
    let mut answers = cairn.put_prefix(tokio_stream::iter(steps)).await?.into_inner();
    let mut all = Vec::new();
    while let Some(answer) = answers.message().await? {
        all.push(answer.step.unwrap());
    }
    Ok(all)
}

/// Gets the pages of a chain: their bytes, and how it ended.
pub async fn get_pages(
    cairn: &mut CairnClient<Channel>,
    request: v1::GetPrefixRequest,
) -> Result<(Vec<Vec<u8>>, v1::GetDone), Status> {
    let mut steps = cairn.get_prefix(request).await?.into_inner();
    let (mut pages, mut page) = (Vec::new(), Vec::new());
    while let Some(step) = steps.message().await? {
        match step.step.unwrap() {
            GetStep::Plan(_) => {}
            GetStep::Part(part) => {
                assert_eq!((part.page, part.offset), (pages.len() as u64, page.len() as u64));
                page.extend_from_slice(&part.data);
                if let Some(seal) = part.seal {
                    assert_eq!(Checksum::of(&page).to_u64(), seal.checksum);
                    pages.push(std::mem::take(&mut page));
                }
            }
            GetStep::Done(done) => return Ok((pages, done)),
        }
    }
    panic!("a get ended without its last message");
}

/// The answer to a plain HTTP request.
pub async fn http_get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

pub fn put_step(step: PutStep) -> v1::PutPrefixRequest {
    v1::PutPrefixRequest { step: Some(step) }
}

pub fn identity(page_bytes: u64) -> Identity {
    Identity {
        model: "llama".into(),
        model_revision: "r1".into(),
        adapter: Declared::None,
        positions: Declared::None,
        kind: StateKind::Attention,
        dtype: "bf16".into(),
        layout: "NHD".into(),
        layout_version: "1".into(),
        page_tokens: PAGE_TOKENS,
        page_bytes,
        layers: LayerRange { first: 0, count: 2, of: 2 },
        heads: Heads::Replicated,
        quantisation: Declared::None,
        cache_salt: Declared::None,
        keys: KeyScheme::Tokens,
    }
}

pub fn keys(namespace: &NamespaceId, pages: u32) -> Vec<PageKey> {
    let tokens: Vec<u32> = (0..pages * PAGE_TOKENS).collect();
    chain_from_tokens(namespace, &tokens, PAGE_TOKENS, &[]).unwrap()
}

/// A chain of so many pages that shares none with those of other numbers.
pub fn chain_of(namespace: &NamespaceId, number: u32, pages: u32) -> Vec<PageKey> {
    let tokens: Vec<u32> = (0..pages * PAGE_TOKENS).map(|token| number << 8 | token).collect();
    chain_from_tokens(namespace, &tokens, PAGE_TOKENS, &[]).unwrap()
}

/// Bytes that differ from page to page.
pub fn page(page: u64, page_bytes: u64) -> Bytes {
    (0..page_bytes).map(|at| at.wrapping_mul(31).wrapping_add(page.wrapping_mul(97)).to_le_bytes()[0]).collect()
}

/// A page in parts of at most `part_bytes`.
pub fn parts(number: u64, bytes: &Bytes, part_bytes: usize) -> Vec<v1::PagePart> {
    let checksum = Checksum::of(bytes).to_u64();
    let offsets = (0..bytes.len()).step_by(part_bytes);
    offsets
        .map(|offset| {
            let end = bytes.len().min(offset + part_bytes);
            let seal = (end == bytes.len()).then_some(v1::PageSeal { checksum, tier: 0 });
            v1::PagePart { page: number, offset: offset as u64, data: bytes.slice(offset..end), seal }
        })
        .collect()
}

/// Pages `0..pages` in parts.
pub fn all_parts(pages: u64, page_bytes: u64) -> Vec<v1::PagePart> {
    (0..pages).flat_map(|number| parts(number, &page(number, page_bytes), 1 << 20)).collect()
}

pub fn begin(namespace: &NamespaceId, keys: &[PageKey], durability: v1::Durability) -> v1::PutBegin {
    v1::PutBegin {
        namespace_id: namespace.as_bytes().to_vec(),
        chain: Some(key_chain(keys)),
        durability: durability.into(),
        timeout_ms: 0,
    }
}

pub fn get(namespace: &NamespaceId, keys: &[PageKey]) -> v1::GetPrefixRequest {
    v1::GetPrefixRequest {
        namespace_id: namespace.as_bytes().to_vec(),
        chain: Some(key_chain(keys)),
        ..Default::default()
    }
}

pub fn matching(namespace: &NamespaceId, keys: &[PageKey]) -> v1::MatchRequest {
    v1::MatchRequest { namespace_id: namespace.as_bytes().to_vec(), chain: Some(key_chain(keys)), ..Default::default() }
}

/// The error that a refused call shows to its caller.
pub fn refusal<T: std::fmt::Debug>(outcome: Result<T, Status>) -> Error {
    status::from_status(&outcome.unwrap_err())
}

/// The totals, which come last.
pub fn totals(answers: &[PutAnswer]) -> v1::PutDone {
    match answers.last() {
        Some(PutAnswer::Done(done)) => *done,
        other => panic!("a put ended without totals: {other:?}"),
    }
}

/// Outcomes by page, in the order told.
pub fn outcomes(answers: &[PutAnswer]) -> Vec<(u64, cairn_core::PageOutcome)> {
    let outcome = |answer: &PutAnswer| match answer {
        PutAnswer::Page(page) => Some((page.page, page.outcome.unwrap().try_into().unwrap())),
        _ => None,
    };
    answers.iter().filter_map(outcome).collect()
}
