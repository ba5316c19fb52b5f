//! The life of a server: open, serve, stop.

use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::{Metrics, Port};
use cairn_core::{Clock, Deadline, Error, OsEntropy, SystemClock};
use cairn_engine::{Closed, Engine};
use cairn_proto::v1::admin_server::AdminServer;
use cairn_proto::v1::cairn_server::CairnServer;
use prometheus::Registry;
use thiserror::Error as ThisError;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tracing::{error, info, warn};

use crate::calls::{House, Rooms};
use crate::config::Settings;
use crate::config::settings::{LimitSettings, SettingsFault};
use crate::connections::{Listener, Patience, Phase, Rules, reached};
use crate::data_folder::DataFolder;
use crate::door::Door;
use crate::doorway::Doorway;
use crate::drive_health::{DriveHealth, Question};
use crate::http::{self, Shown, Stopping};
use crate::process;
use crate::storage::{self, Storage, StorageError};

/// Largest HTTP/2 frame that clients may send: fewer, larger frames cost less for page bytes.
const FRAME_BYTES_MAX: u32 = 256 << 10;
/// Connections of the metrics port: a few scrapers and probes.
const METRICS_CONNECTIONS_MAX: u64 = 32;
/// HTTP/2 starts with 24 bytes that every client sends at once, and pings from then on.
const API_PATIENCE: Patience = Patience::Opening { bytes: 24, time: Duration::from_secs(10) };
/// A scraper asks at once, and again after its interval, which is a minute at most.
const METRICS_PATIENCE: Patience = Patience::Answers { first: Duration::from_secs(10), next: Duration::from_secs(75) };
/// Longest question to the health service: the name of a service.
const HEALTH_BYTES_MAX: usize = 1024;
/// How much longer than its own deadline a call is waited for that does not come to an end.
const UNARY_GRACE: Duration = Duration::from_secs(1);
/// Names that the health service answers for besides those of the services.
const HEALTH_ALL: &str = "";
const HEALTH_INSECURE: &str = "cairn.insecure";
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

/// A server that serves. Stop it with [`Running::stop`]; dropping it stops nothing in an orderly way, and keeps the data folder taken.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    metrics_address: SocketAddr,
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    stopping: Stopping,
    reporter: Reporter,
    phase: watch::Sender<Phase>,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
    showing: JoinHandle<io::Result<()>>,
    /// Asks the drive for its health.
    asking: JoinHandle<()>,
    /// Let go of only when the storage is closed: whatever else ends the server, something may still write there until the process ends.
    folder: ManuallyDrop<DataFolder>,
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
        let registry = Registry::new();
        let shared = storage::Shared {
            clock: Arc::new(SystemClock::start()),
            entropy: Arc::new(OsEntropy),
            metrics: Arc::new(Metrics::new(&registry)?),
        };
        let (phase, now) = watch::channel(Phase::Serving);
        // Addresses first: the folder is not touched by a server that could not listen.
        let bind = |address, port, connections_max, patience| {
            bind(address, Rules { port, connections_max, patience }, Arc::clone(&shared.metrics), now.clone())
        };
        let connections_max = connections_max(&settings);
        let listener = bind(settings.server.listen, Port::Api, connections_max, API_PATIENCE).await?;
        let metrics_listen = settings.server.metrics_listen;
        let metrics_listener = bind(metrics_listen, Port::Metrics, METRICS_CONNECTIONS_MAX, METRICS_PATIENCE).await?;
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
        let question = Question::new(folder.ssd_file(), settings.ssd.health_program.0.clone());
        let drive = DriveHealth::new(question, Arc::clone(&shared.clock), Arc::clone(&shared.metrics));
        let house = House {
            rooms: Arc::new(Rooms {
                engine: Arc::clone(&engine),
                drive: Arc::clone(&drive),
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
            drive: Arc::clone(&drive),
            metrics: shared.metrics,
            registry,
            stopping: stopping.clone(),
            boot_id,
            insecure,
        };
        let (reporter, serving) = serve(house, &settings.limits, listener, insecure, now).await;
        // Shown until the very end: that the server is stopping is worth seeing.
        let showing = tokio::spawn(async move { axum::serve(metrics_listener, http::router(shown)).await });
        let asking = tokio::spawn(drive.watch());
        info!(%address, %metrics_address, data = %settings.data.dir.display(), "serving");
        let clock = shared.clock;
        let folder = ManuallyDrop::new(folder);
        Ok(Running {
            address,
            metrics_address,
            engine,
            clock,
            stopping,
            reporter,
            phase,
            serving,
            showing,
            asking,
            folder,
        })
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

    /// Stops: takes no new calls, lets those in flight end, flushes what waits to be written, closes; all of it within `grace`. Calls
    /// have three quarters of it; those that are left then are cut off. If the storage can not be closed in time, the data folder stays
    /// taken until the process ends. Tells which it was.
    pub async fn stop(mut self, grace: Duration) -> Closed {
        info!(grace_s = grace.as_secs_f64(), "stopping");
        self.asking.abort();
        let deadline = Deadline::after(&*self.clock, grace);
        self.stopping.begin();
        self.reporter.stop().await;
        self.phase.send_replace(Phase::Draining);
        if tokio::time::timeout(grace.mul_f64(0.75), &mut self.serving).await.is_err() {
            warn!("calls were still in flight at the end of their time; they are cut off");
            self.serving.abort();
        }
        self.phase.send_replace(Phase::Cut);
        self.showing.abort();
        let closed = self.engine.close(deadline.remaining(&*self.clock)).await;
        match closed {
            Closed::Orderly => drop(ManuallyDrop::into_inner(self.folder)),
            Closed::Abandoned => {
                warn!("the storage did not close in time; the data folder stays taken until the process ends");
            }
        }
        info!("stopped");
        closed
    }
}

impl Reporter {
    /// Tells all who watch that the server stops, and ends their streams: a watch would last as long as its client.
    async fn stop(&mut self) {
        let services = [HEALTH_ALL, CairnServer::<House>::NAME, AdminServer::<House>::NAME, HEALTH_INSECURE];
        for service in services {
            self.0.set_service_status(service, ServingStatus::NotServing).await;
            self.0.clear_service_status(service).await;
        }
    }
}

/// As set, or as many as there are files for.
fn connections_max(settings: &Settings) -> u64 {
    let arenas = settings.dram.bytes.0.div_ceil(settings.dram.arena_bytes.0.max(1));
    let possible = process::connections_possible(arenas + METRICS_CONNECTIONS_MAX);
    let wanted = settings.limits.connections_max;
    if possible < wanted {
        warn!(
            wanted,
            possible,
            "fewer connections are taken than limits.connections_max: this process may open too few files; raise its limit (ulimit -n)"
        );
    }
    wanted.min(possible)
}

async fn bind(
    address: SocketAddr,
    rules: Rules,
    metrics: Arc<Metrics>,
    phase: watch::Receiver<Phase>,
) -> Result<Listener, StartError> {
    let bound = Listener::bind(address, rules, metrics, phase).await;
    bound.map_err(|source| StartError::Listen { address, source })
}

fn addressed(listener: &Listener) -> Result<SocketAddr, StartError> {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    listener.address().map_err(|source| StartError::Listen { address: unknown, source })
}

/// Serves the API. Every limit of HTTP/2 and of messages is set here, before memory is taken.
async fn serve(
    house: House,
    limits: &LimitSettings,
    listener: Listener,
    insecure: bool,
    phase: watch::Receiver<Phase>,
) -> (Reporter, JoinHandle<Result<(), tonic::transport::Error>>) {
    let message_bytes_max = usize::try_from(limits.message_bytes_max.0).unwrap_or(usize::MAX);
    let window = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let door = house.rooms.door.clone();
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<CairnServer<House>>().await;
    reporter.set_serving::<AdminServer<House>>().await;
    if insecure {
        reporter.set_service_status(HEALTH_INSECURE, ServingStatus::Serving).await;
    }
    // Not behind the door: a probe is answered when the server is at its limits.
    let health = health.max_decoding_message_size(HEALTH_BYTES_MAX);
    let cairn = CairnServer::new(house.clone()).max_decoding_message_size(message_bytes_max);
    let admin = AdminServer::new(house).max_decoding_message_size(message_bytes_max);
    let serving = tonic::transport::Server::builder()
        // Until there is an answer, the time for the message to come included. A streaming call has one at once and then keeps its own
        // deadline; the others take no longer than this.
        .timeout(limits.timeout_default.0 + UNARY_GRACE)
        .max_concurrent_streams(u32::try_from(limits.streams_max).unwrap_or(u32::MAX))
        .initial_stream_window_size(window(limits.stream_window_bytes.0))
        .initial_connection_window_size(window(limits.connection_window_bytes.0))
        .max_frame_size(FRAME_BYTES_MAX)
        .http2_max_header_list_size(window(limits.header_bytes_max.0))
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .add_service(health)
        .add_service(Doorway::new(cairn, door.clone()))
        .add_service(Doorway::new(admin, door))
        .serve_with_incoming_shutdown(listener.incoming(), reached(phase, Phase::Draining));
    (Reporter(reporter), tokio::spawn(serving))
}
