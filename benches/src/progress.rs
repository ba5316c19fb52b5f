//! The progress bar: on standard error, and only if someone looks at it.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over `total` requests; an invisible one if it is not `wanted` or standard error is not a terminal.
pub fn bar(total: u64, wanted: bool) -> ProgressBar {
    let visible = wanted && std::io::stderr().is_terminal();
    let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(total), target);
    if let Ok(style) = ProgressStyle::with_template("  {bar:40} {pos}/{len} requests, {per_sec}, {eta} left") {
        bar.set_style(style);
    }
    if visible {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}
