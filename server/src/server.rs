//! The life of a server: open, serve, stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::Metrics;
use cairn_core::{Clock, Deadline, Error, OsEntropy, SystemClock};
use cairn_engine::Engine;
use cairn_proto::v1::admin_server::AdminServer;
use cairn_proto::v1::cairn_server::CairnServer;
use prometheus::Registry;
use thiserror::Error as ThisError;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::service::interceptor::InterceptedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tracing::{error, info, warn};

use crate::calls::{House, Rooms};
use crate::config::Settings;
use crate::config::settings::{LimitSettings, SettingsFault};
use crate::connections::Listener;
use crate::data_folder::DataFolder;
use crate::door::Door;
use crate::http::{self, Shown, Stopping};
use crate::storage::{self, Storage, StorageError};

/// Largest HTTP/2 frame that clients may send: fewer, larger frames cost less for page bytes.
const FRAME_BYTES_MAX: u32 = 256 << 10;
/// Connections of the metrics port: a few scrapers and probes.
const METRICS_CONNECTIONS_MAX: u64 = 32;
/// A connection that does not answer a ping this long after ...
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// ... one is sent at this interval is closed, and its calls end.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Why the server did not start.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum StartError {
    /// The settings.
    #[error("the settings are refused")]
    Settings(#[from] SettingsFault),
    /// An address.
    #[error("listen on an address address={address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// What it stores in.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The metrics.
    #[error("register the metrics")]
    Metrics(#[from] prometheus::Error),
    /// No randomness.
    #[error("make the boot id")]
    BootId(#[source] Error),
    /// The opening thread died.
    #[error("open the storage")]
    Died(#[from] tokio::task::JoinError),
}

/// Starts servers.
#[derive(Debug)]
pub struct Server;

/// A server that serves. Stop it with [`Running::stop`]; dropping it stops nothing in an orderly way.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    metrics_address: SocketAddr,
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    stopping: Stopping,
    reporter: Reporter,
    stop: watch::Sender<bool>,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
    showing: JoinHandle<io::Result<()>>,
    folder: DataFolder,
}

/// The health service's status; a wrapper because the reporter has no `Debug`.
struct Reporter(HealthReporter);

impl std::fmt::Debug for Reporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reporter(..)")
    }
}

impl Server {
    /// Opens the data folder and serves. Returns when calls are answered. Must be called within a multi-threaded runtime.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub async fn start(settings: Settings) -> Result<Running, StartError> {
        settings.validate()?;
        // Addresses first: the folder is not touched by a server that could not listen.
        let listener = bind(settings.server.listen, settings.limits.connections_max).await?;
        let metrics_listener = bind(settings.server.metrics_listen, METRICS_CONNECTIONS_MAX).await?;
        let registry = Registry::new();
        let shared = storage::Shared {
            clock: Arc::new(SystemClock::start()),
            entropy: Arc::new(OsEntropy),
            metrics: Arc::new(Metrics::new(&registry)?),
        };
        let mut boot_id = [0; 16];
        shared.entropy.fill(&mut boot_id).map_err(StartError::BootId)?;
        let (opening, with) = (settings.clone(), shared.clone());
        let Storage { engine, folder } = tokio::task::spawn_blocking(move || storage::open(&opening, &with)).await??;

        let insecure = settings.is_insecure();
        shared.metrics.insecure.set(i64::from(insecure));
        let (address, metrics_address) = (addressed(&listener)?, addressed(&metrics_listener)?);
        if insecure {
            warn!(%address, %metrics_address, "anyone who reaches this address can read and clear every page: there is no authentication");
        }
        let house = House {
            rooms: Arc::new(Rooms {
                engine: Arc::clone(&engine),
                door: Door::new(&settings.limits, Arc::clone(&shared.clock), Arc::clone(&shared.metrics)),
                limits: settings.limits.clone(),
                metrics: Arc::clone(&shared.metrics),
                clock: Arc::clone(&shared.clock),
                started: shared.clock.now(),
                boot_id,
                insecure,
            }),
        };
        let stopping = Stopping::default();
        let shown = Shown {
            engine: Arc::clone(&engine),
            metrics: shared.metrics,
            registry,
            stopping: stopping.clone(),
            boot_id,
            insecure,
        };
        let (stop, stopped) = watch::channel(false);
        let (reporter, serving) = serve(house, &settings.limits, listener, insecure, stopped.clone()).await;
        let showing = tokio::spawn(async move {
            axum::serve(metrics_listener, http::router(shown)).with_graceful_shutdown(until_stopped(stopped)).await
        });
        info!(%address, %metrics_address, data = %settings.data.dir.display(), "serving");
        let clock = shared.clock;
        Ok(Running { address, metrics_address, engine, clock, stopping, reporter, stop, serving, showing, folder })
    }
}

impl Running {
    /// The address of the gRPC API.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of `/metrics` and `/healthz`.
    pub fn metrics_address(&self) -> SocketAddr {
        self.metrics_address
    }

    /// Waits until every arena of the page pool is ready. The server serves before that, from the arenas that are.
    pub async fn wait_warm(&self) {
        let engine = Arc::clone(&self.engine);
        tokio::task::spawn_blocking(move || engine.wait_warm()).await.ok();
    }

    /// Waits until the server ends by itself, which it does only if something is badly wrong.
    pub async fn ended(&mut self) {
        let outcome = (&mut self.serving).await;
        error!(?outcome, "the server ended by itself");
    }

    /// Stops: takes no new calls, lets those in flight end, flushes what waits to be written, closes. After `grace` it no longer waits.
    pub async fn stop(mut self, grace: Duration) {
        info!(grace_s = grace.as_secs_f64(), "stopping");
        let deadline = Deadline::after(&*self.clock, grace);
        self.stopping.begin();
        self.reporter.0.set_service_status("", ServingStatus::NotServing).await;
        self.stop.send(true).ok();
        if tokio::time::timeout(grace, &mut self.serving).await.is_err() {
            warn!("calls were still in flight at the end of the grace time; they are cut off");
            self.serving.abort();
        }
        self.engine.close(deadline.remaining(&*self.clock)).await;
        self.showing.abort();
        drop(self.folder);
        info!("stopped");
    }
}

async fn bind(address: SocketAddr, connections_max: u64) -> Result<Listener, StartError> {
    Listener::bind(address, connections_max).await.map_err(|source| StartError::Listen { address, source })
}

fn addressed(listener: &Listener) -> Result<SocketAddr, StartError> {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    listener.address().map_err(|source| StartError::Listen { address: unknown, source })
}

async fn until_stopped(mut stopped: watch::Receiver<bool>) {
    // An error means that the server itself is gone.
    stopped.wait_for(|stopped| *stopped).await.ok();
}

/// Serves the API. Every limit of HTTP/2 and of messages is set here, before memory is taken.
async fn serve(
    house: House,
    limits: &LimitSettings,
    listener: Listener,
    insecure: bool,
    stopped: watch::Receiver<bool>,
) -> (Reporter, JoinHandle<Result<(), tonic::transport::Error>>) {
    let message_bytes_max = usize::try_from(limits.message_bytes_max.0).unwrap_or(usize::MAX);
    let window = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let door = house.rooms.door.clone();
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<CairnServer<House>>().await;
    reporter.set_serving::<AdminServer<House>>().await;
    if insecure {
        reporter.set_service_status("cairn.insecure", ServingStatus::Serving).await;
    }
    let cairn = CairnServer::new(house.clone()).max_decoding_message_size(message_bytes_max);
    let admin = AdminServer::new(house).max_decoding_message_size(message_bytes_max);
    let serving = tonic::transport::Server::builder()
        // A unary call that does not come to an end, its message included; streaming calls keep their own deadline.
        .timeout(limits.timeout_max.0 + Duration::from_secs(1))
        .max_concurrent_streams(u32::try_from(limits.streams_max).unwrap_or(u32::MAX))
        .initial_stream_window_size(window(limits.stream_window_bytes.0))
        .initial_connection_window_size(window(limits.connection_window_bytes.0))
        .max_frame_size(FRAME_BYTES_MAX)
        .http2_max_header_list_size(window(limits.header_bytes_max.0))
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .add_service(health)
        .add_service(InterceptedService::new(cairn, door.clone()))
        .add_service(InterceptedService::new(admin, door))
        .serve_with_incoming_shutdown(listener.incoming(), until_stopped(stopped));
    (Reporter(reporter), tokio::spawn(serving))
}
