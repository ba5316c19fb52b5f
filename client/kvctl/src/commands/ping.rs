//! `kvctl ping`: health, and the time of a round trip.

use std::time::Duration;

use cairn_client::{Client, Health};
use cairn_core::{Clock, SystemClock};
use serde_json::json;

use crate::outcome::{Code, Failure};
use crate::print::{Output, count, facts, hex, time};

pub(crate) async fn run(client: &Client, calls: u32, out: &Output) -> Result<Code, Failure> {
    let clock = SystemClock::start();
    let (first, mut health) = timed(client, &clock).await?;
    let mut trips = Vec::new();
    for _ in 0..calls {
        let (trip, now) = timed(client, &clock).await?;
        trips.push(trip);
        health = now;
    }
    trips.sort_unstable();
    let (min, median, max) = (trips[0], trips[trips.len() / 2], trips[trips.len() - 1]);
    let server = client.stats().await?.server.unwrap_or_default();
    let status = match health {
        Health::Serving => "serving",
        Health::NotServing => "not serving",
        Health::Unknown => "unknown",
    };

    let json = json!({
        "server": client.options().endpoint, "health": status, "version": server.version, "boot_id": hex(&server.boot_id),
        "insecure": server.insecure, "uptime_ms": server.uptime_ms, "calls": calls, "first_us": micros(first),
        "rtt_us": { "min": micros(min), "median": micros(median), "max": micros(max) },
    });
    out.result(&json, || {
        let up = Duration::from_millis(server.uptime_ms);
        let mut lines = vec![
            ("server", client.options().endpoint.clone()),
            ("health", status.to_owned()),
            ("process", format!("cairn {}, up {}, boot {}", server.version, time(up), hex(&server.boot_id))),
            (
                "rtt",
                format!(
                    "min {}, median {}, max {} ({})",
                    time(min),
                    time(median),
                    time(max),
                    count(calls.into(), "call")
                ),
            ),
            ("connect", format!("{} (first call, connection included)", time(first))),
        ];
        if server.insecure {
            lines.push(("INSECURE", "it listens on a routable address and asks nobody who they are".to_owned()));
        }
        facts(&lines)
    })?;
    Ok(if health == Health::NotServing { Code::Unreachable } else { Code::Fine })
}

async fn timed(client: &Client, clock: &SystemClock) -> Result<(Duration, Health), Failure> {
    let started = clock.now();
    let health = client.health(client.options().timeout).await?;
    Ok((clock.now().since(started), health))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
