//! What a caller may choose: for the whole client, and call by call.

use std::time::Duration;

use cairn_core::Durability;

/// Settings of a client. [`ClientOptions::new`] fills in defaults; change the fields that matter.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Where the server is: `http://host:port`, or `host:port`.
    pub endpoint: String,
    /// Longest wait for a connection to come up, within a call's own timeout. 2 s: a server on the same network that needs longer for
    /// a handshake is better treated as away.
    pub connect_timeout: Duration,
    /// Longest time of a call that does not set its own. 10 s.
    pub timeout: Duration,
    /// How much longer than its timeout a call is waited for, so that a server that ends it in time can still say how it ended. After
    /// that the call is given up: a server that hangs does not hang its client. 500 ms.
    pub grace: Duration,
    /// Most repetitions of a call that failed in a way that allows one. 3.
    pub retries_max: u32,
}

impl ClientOptions {
    /// Defaults, for the server at `endpoint`.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            connect_timeout: Duration::from_secs(2),
            timeout: Duration::from_secs(10),
            grace: Duration::from_millis(500),
            retries_max: 3,
        }
    }
}

/// Choices of one [`crate::Namespace::match_prefix`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchOptions {
    /// Tokens of the request that would use the pages. A page that ends with its last token is of no use, because that token has to be
    /// computed anyway, and does not count. `None`: no limit.
    pub request_tokens: Option<u64>,
    /// Longest time of the call; `None`: the client's. Cut to the server's limit.
    pub timeout: Option<Duration>,
}

/// Choices of one [`crate::Namespace::put_prefix`].
#[derive(Clone, Copy, Debug)]
pub struct PutOptions {
    /// What the pages are meant to survive. The report says what was reached.
    pub durability: Durability,
    /// Longest time of the call; `None`: the client's. Cut to the server's limit.
    pub timeout: Option<Duration>,
}

impl Default for PutOptions {
    /// In memory, with the client's timeout.
    fn default() -> Self {
        Self { durability: Durability::Memory, timeout: None }
    }
}

/// Choices of one [`crate::Namespace::get_prefix`].
#[derive(Clone, Copy, Debug, Default)]
pub struct GetOptions {
    /// Pages at the start of the chain that the caller has already and vouches for: the server does not look at them, and reading starts
    /// after them.
    pub first_page: usize,
    /// As in [`MatchOptions::request_tokens`]; pages that can not be used are not read.
    pub request_tokens: Option<u64>,
    /// Longest time of the call, from its start to its last page; `None`: the client's. Cut to the server's limit.
    pub timeout: Option<Duration>,
}

/// `max_tokens` on the wire, where 0 means no limit. A request of 0 tokens can use as much as one of 1 token: nothing.
pub(crate) fn max_tokens(request_tokens: Option<u64>) -> u64 {
    request_tokens.map_or(0, |tokens| tokens.max(1))
}
