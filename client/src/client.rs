//! The connection: made when first needed, made again when it broke, shared by all calls.

use std::sync::Arc;
use std::time::Duration;

use cairn_core::{Error, Identity, Result};
use cairn_proto::v1;
use parking_lot::Mutex;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use crate::ClientOptions;
use crate::admin::{Boot, BootId};
use crate::budget::{Budget, passing, repeated};
use crate::fault::{self, Fault};
use crate::namespace::{Namespace, Opened};

/// Flow-control windows. A window holds what may be under way before the reader has said that it wants more: with 2.25 MiB pages and
/// parts of 1 MiB, 8 MiB keep a stream busy over a round trip, and two streams fill the connection.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Longest HTTP/2 frame taken. A get of 2 MiB pages over loopback runs 1.5 to 2 times as fast as with frames of 16 KiB, the protocol's
/// default; 1 MiB is no faster.
const FRAME_BYTES: u32 = 256 << 10;
/// A connection on which a server says nothing to a ping this long after ...
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// ... one is sent at this interval, calls or no calls, has broken: its calls end then, and the next call makes another one.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Longest message that is not a page: plans, reports, the list of namespaces.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// A client of one server. Cheap to clone; clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: ClientOptions,
    channel: Channel,
    boot: Mutex<Boot>,
}

impl Client {
    /// Makes a client. Does no I/O: the connection is made by the first call, and again by the next call after it broke.
    ///
    /// Async because the connection lives in the tokio runtime that it is called in.
    ///
    /// # Errors
    /// `Invalid` if `options.endpoint` is not one.
    pub async fn connect(options: ClientOptions) -> Result<Self> {
        let channel = endpoint(&options)?.connect_lazy();
        Ok(Self::over(channel, options))
    }

    /// Makes a client over a channel that the caller has built, such as one over a transport of its own. `options.endpoint` then only
    /// names the server in errors.
    pub fn over(channel: Channel, options: ClientOptions) -> Self {
        Self { shared: Arc::new(Shared { options, channel, boot: Mutex::new(Boot::default()) }) }
    }

    /// Opens the namespace of `identity`. Repeated while the server is away or overloaded, within the client's timeout.
    ///
    /// # Errors
    /// `Invalid` if the identity is refused; `Unavailable` or `Deadline` if the server does not answer.
    pub async fn open_namespace(&self, identity: &Identity) -> Result<Namespace> {
        identity.validate().map_err(|fault| Error::invalid(fault.to_string()))?;
        let budget = self.budget("open_namespace", None);
        let opened = self.open(identity, &budget).await?;
        Ok(Namespace::new(self.clone(), identity.clone(), opened))
    }

    /// The id of the server process that answered last; `None` before the first answer that tells it.
    pub fn boot_id(&self) -> Option<BootId> {
        self.shared.boot.lock().id()
    }

    /// How often a call found that the server had been started again.
    pub fn restarts_seen(&self) -> u64 {
        self.shared.boot.lock().restarts_seen()
    }

    /// The settings that the client was made with.
    pub fn options(&self) -> &ClientOptions {
        &self.shared.options
    }

    pub(crate) async fn open(&self, identity: &Identity, budget: &Budget) -> Result<Opened> {
        let response = repeated(budget, self.options().retries_max, passing, || async {
            let request = v1::OpenNamespaceRequest { identity: Some(identity.into()) };
            self.answer(self.calls(MESSAGE_BYTES_MAX).open_namespace(request).await)
        })
        .await?;
        let opened = Opened::from_wire(response, identity)?;
        self.note_boot(opened.boot_id);
        Ok(opened)
    }

    pub(crate) fn note_boot(&self, id: BootId) {
        self.shared.boot.lock().note(id);
    }

    pub(crate) fn budget(&self, call: &'static str, total: Option<Duration>) -> Budget {
        let options = self.options();
        Budget::start(call, total.unwrap_or(options.timeout), options.grace)
    }

    pub(crate) fn calls(&self, message_bytes_max: usize) -> v1::cairn_client::CairnClient<Channel> {
        v1::cairn_client::CairnClient::new(self.channel())
            .max_decoding_message_size(message_bytes_max.max(MESSAGE_BYTES_MAX))
    }

    pub(crate) fn admin_calls(&self) -> v1::admin_client::AdminClient<Channel> {
        v1::admin_client::AdminClient::new(self.channel()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(crate) fn channel(&self) -> Channel {
        self.shared.channel.clone()
    }

    /// The message of a response, or the error of its status.
    pub(crate) fn answer<T>(&self, response: Result<Response<T>, Status>) -> Result<T> {
        response.map(Response::into_inner).map_err(|status| self.error(status))
    }

    pub(crate) fn error(&self, status: Status) -> Error {
        fault::of_status(&self.options().endpoint, status)
    }
}

fn endpoint(options: &ClientOptions) -> Result<Endpoint, Fault> {
    let given = options.endpoint.as_str();
    let uri = if given.contains("://") { given.to_owned() } else { format!("http://{given}") };
    let refused = |_| Fault::Endpoint { endpoint: given.to_owned() };
    let endpoint = Endpoint::from_shared(uri).map_err(refused)?;
    let plain = endpoint.uri().scheme_str() == Some("http") && endpoint.uri().authority().is_some();
    if !plain {
        return Err(Fault::Endpoint { endpoint: given.to_owned() });
    }
    Ok(endpoint
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES))
}
