//! Prints `docs/CONFIG.md` and `docs/METRICS.md` from the tables that the server itself uses.

use cairn_core::metrics::{Metrics, Row as MetricRow};

use super::settings::{Row, Settings};

const CONFIG_HEAD: &str = "\
# Configuration

Printed from the settings table of `cairnd`: `cairnd --print-config-doc > docs/CONFIG.md`. A test compares them.

A file (`--config FILE`, TOML), then the environment (`CAIRN_<SECTION>_<KEY>`), then flags: each may set any key, the later one wins.
Every key can be given as `--set section.key=value`; the common ones have a flag of their own (`cairnd --help`). An unknown key is
refused wherever it stands. `cairnd --print-config` prints the settings in effect, `cairnd --check-config` checks them and exits.

Sizes: `4096`, `64MiB`, `1.5GB`. Durations: `250ms`, `10s`, `5m`, `2h`.

`cairnd` exits with 0 after an orderly stop, 2 if the configuration is refused, 3 if another server uses the data folder, 4 if the
folder has a format that this version does not know, 5 if the stop was cut short, by a second signal or because the storage did not close
in time, and 1 for anything else.

`cairnd verify DIR` and `cairnd rebuild DIR --yes` serve nothing: they look at a data folder whose server is stopped, and set its directory
aside. They exit with 0 if all is whole (or done), 1 if damage was found, 2 if there is no data folder or no `--yes`, 3 if a server uses
it, 4 if its format is not known, and 5 if it could not be read.

Memory besides the pool, at its worst, all of it bounded by `[limits]`: `request_bytes_max` for requests that are being received;
`stream_window_bytes` for each put that waits for page memory; 1 MiB for each call whose client does not read its answer; and about 200
bytes for each page of the chain of each call in flight. With the defaults: 512 MiB, 64 x 4 MiB, 256 x 1 MiB, and 256 x 12 MiB if every
call brings a chain of 65,536 pages; where clients are not trusted, lower `calls_max` and `chain_pages_max` first.

";

const METRICS_HEAD: &str = "\
# Metrics

Printed from the metrics table: `cairnd --print-metrics-doc > docs/METRICS.md`. A test compares them.

In Prometheus text format at `/metrics` of `server.metrics_listen`. Labels have closed sets of values; none comes from a client.

| metric | kind | unit | label | what |
|---|---|---|---|---|
";

/// The text of `docs/CONFIG.md`.
pub fn config_doc() -> String {
    let mut out = String::from(CONFIG_HEAD);
    let mut section = "";
    for row in Settings::table() {
        if row.section != section {
            section = row.section;
            out.push_str(&format!("## [{section}]\n\n| key | kind | default | range | what | why this default |\n|---|---|---|---|---|---|\n"));
        }
        out.push_str(&config_line(&row));
        if is_last_of_section(&row) {
            out.push('\n');
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn is_last_of_section(row: &Row) -> bool {
    Settings::table().iter().rfind(|other| other.section == row.section).is_some_and(|last| last.key == row.key)
}

fn config_line(row: &Row) -> String {
    let range = row.range.map(|(min, max)| format!("{min} to {max}")).unwrap_or_default();
    let Row { key, kind, default, what, why, .. } = row;
    format!("| `{key}` | {kind} | `{default}` | {range} | {what} | {why} |\n")
}

/// The text of `docs/METRICS.md`.
pub fn metrics_doc() -> String {
    let lines = Metrics::table().into_iter().map(|row| metric_line(&row));
    std::iter::once(METRICS_HEAD.to_owned()).chain(lines).collect()
}

fn metric_line(row: &MetricRow) -> String {
    let label = match &row.label {
        Some((name, values)) => format!("`{name}`: {}", values.join(", ")),
        None => String::new(),
    };
    format!("| `{}` | {} | {} | {label} | {} |\n", row.name, row.kind, row.unit, row.help)
}
