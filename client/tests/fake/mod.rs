//! A small server in the same process, over in-memory pipes and on tokio's paused clock: no ports, no waiting. It keeps pages in a map,
//! does what a test tells it to, and remembers what it was asked.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test stands on it")]

mod service;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use cairn_client::{Chain, Client, ClientOptions, Error, Namespace, Result};
use cairn_core::{Declared, HeadRange, Heads, Identity, KeyScheme, LayerRange, NamespaceId, StateKind};
use parking_lot::Mutex;
use tonic::transport::{Endpoint, Server};

pub const PAGE_BYTES: usize = 1000;
pub const PART_BYTES: usize = 300;
pub const PAGE_TOKENS: u32 = 4;

/// What the server does to the next call, instead of answering it.
#[derive(Debug)]
pub enum Act {
    /// Ends it with an error.
    Fail(Error),
    /// Never says anything.
    Hang,
}

/// How the stream of a get goes wrong, after so many whole pages.
#[derive(Clone, Copy, Debug)]
pub enum Slip {
    /// One bit of the next page is changed on the way.
    Flip,
    /// Nothing more comes.
    Hang,
    /// The connection is cut.
    Cut,
    /// A part is left out.
    Gap,
    /// The answer ends without its length.
    NoEnd,
}

#[derive(Debug, Default)]
pub struct State {
    /// Pages by key.
    pub pages: HashMap<Vec<u8>, Bytes>,
    /// The namespace that it knows.
    pub known: Option<[u8; 32]>,
    /// The id that it gives to the next namespace opened.
    pub next_id: u8,
    pub boot: u8,
    pub acts: VecDeque<Act>,
    pub slip: Option<(usize, Slip)>,
    /// Connections that it still refuses.
    pub refuse_connections: u32,
    pub connections: u32,
    /// The calls that came, by name.
    pub calls: Vec<&'static str>,
    pub timeouts_ms: Vec<u64>,
    pub max_tokens: Vec<u64>,
    /// Page, offset and length of each part that came.
    pub parts: Vec<(u64, u64, usize)>,
    /// What becomes of a put after so many pages.
    pub put_ends_after: Option<usize>,
    pumps: Vec<tokio::task::AbortHandle>,
}

#[derive(Clone, Debug, Default)]
pub struct Fake(Arc<Mutex<State>>);

impl Fake {
    /// A running server and a client of it.
    pub fn start() -> (Self, Client) {
        let fake = Self::default();
        let (pipes, incoming) = wire::pipes();
        let server = Server::builder()
            .add_service(cairn_proto::v1::cairn_server::CairnServer::new(fake.clone()))
            .add_service(cairn_proto::v1::admin_server::AdminServer::new(fake.clone()))
            .serve_with_incoming(incoming);
        tokio::spawn(server);
        let endpoint = Endpoint::from_static("http://fake");
        let channel = endpoint.connect_with_connector_lazy(wire::Connector { fake: fake.clone(), pipes });
        (fake, Client::over(channel, ClientOptions::new("http://fake")))
    }

    /// A running server, and a namespace opened with it.
    pub async fn opened() -> (Self, Namespace) {
        let (fake, client) = Self::start();
        let namespace = client.open_namespace(&identity()).await.unwrap();
        (fake, namespace)
    }

    /// Changes or reads what the server is.
    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock())
    }

    pub fn will(&self, act: Act) {
        self.with(|state| state.acts.push_back(act));
    }

    /// Stores the first `pages` pages of `chain`, as [`page`] makes them.
    pub fn holds(&self, chain: &Chain, pages: usize) {
        for i in 0..pages {
            let key = chain.key(i).unwrap().to_vec();
            self.with(|state| state.pages.insert(key, page(i)));
        }
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        self.with(|state| state.pumps.drain(..).for_each(|pump| pump.abort()));
    }

    /// How often `call` came.
    pub fn count(&self, call: &str) -> usize {
        self.with(|state| state.calls.iter().filter(|called| **called == call).count())
    }
}

/// The bytes of page `i`: of every page others.
#[expect(clippy::cast_possible_truncation, reason = "a byte of each number is wanted")]
pub fn page(i: usize) -> Bytes {
    (0..PAGE_BYTES).map(|at| (at % 251 + at / 251 + 17 * i) as u8).collect()
}

/// A chain of `pages` pages.
pub fn chain(namespace: &Namespace, pages: u32) -> Chain {
    let tokens: Vec<u32> = (0..pages * PAGE_TOKENS).collect();
    namespace.chain_of_tokens(&tokens, &[]).unwrap()
}

pub fn namespace_id(id: u8) -> NamespaceId {
    NamespaceId::from_bytes([id; 32])
}

pub fn identity() -> Identity {
    Identity {
        model: "m".to_owned(),
        model_revision: "1".to_owned(),
        adapter: Declared::None,
        positions: Declared::None,
        kind: StateKind::Attention,
        dtype: "bf16".to_owned(),
        layout: "NHD".to_owned(),
        layout_version: "1".to_owned(),
        page_tokens: PAGE_TOKENS,
        page_bytes: PAGE_BYTES as u64,
        layers: LayerRange { first: 0, count: 1, of: 1 },
        heads: Heads::Range(HeadRange { first: 0, count: 1, of: 1 }),
        quantisation: Declared::None,
        cache_salt: Declared::None,
        keys: KeyScheme::Tokens,
    }
}

/// The kind of the error that a call must have ended with.
pub fn kind<T: std::fmt::Debug>(result: Result<T>) -> cairn_client::ErrorKind {
    result.unwrap_err().kind()
}
