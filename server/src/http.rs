//! `/metrics` and `/healthz`, on their own port.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use axum::routing::get;
use cairn_core::metrics::Metrics;
use cairn_engine::Engine;
use prometheus::{Encoder, Registry, TEXT_FORMAT, TextEncoder};

use crate::drive_health::DriveHealth;

/// Whether the server takes calls; shared by everyone who reports it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Stopping(Arc<AtomicBool>);

impl Stopping {
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What the pages show.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) engine: Arc<Engine>,
    pub(crate) drive: Arc<DriveHealth>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) registry: Registry,
    pub(crate) stopping: Stopping,
    pub(crate) boot_id: [u8; 16],
    pub(crate) insecure: bool,
}

type Page = (StatusCode, [(HeaderName, &'static str); 1], Vec<u8>);

/// The routes.
pub(crate) fn router(shown: Shown) -> Router {
    Router::new().route("/metrics", get(metrics)).route("/healthz", get(health)).with_state(shown)
}

async fn metrics(State(shown): State<Shown>) -> Page {
    // The snapshots also set the gauges that nobody counts up and down.
    shown.engine.stats();
    shown.drive.look();
    shown.metrics.resident_bytes.set(i64::try_from(crate::process::resident_bytes()).unwrap_or(i64::MAX));
    let mut text = Vec::new();
    match TextEncoder::new().encode(&shown.registry.gather(), &mut text) {
        Ok(()) => (StatusCode::OK, [(CONTENT_TYPE, TEXT_FORMAT)], text),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, [(CONTENT_TYPE, "text/plain")], error.to_string().into_bytes())
        }
    }
}

async fn health(State(shown): State<Shown>) -> Page {
    let (code, status) = match shown.stopping.has_begun() {
        false => (StatusCode::OK, "serving"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
    };
    let boot_id: String = shown.boot_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let body = serde_json::json!({
        "status": status,
        "version": env!("CARGO_PKG_VERSION"),
        "boot_id": boot_id,
        "insecure": shown.insecure,
    });
    (code, [(CONTENT_TYPE, "application/json")], body.to_string().into_bytes())
}
