//! `cairn-bench`: the command line. What it measures is in the library.

mod args;

use std::path::Path;
use std::process::ExitCode;

use cairn_bench::cairnd::{Cairnd, Recipe, temporary_folder};
use cairn_bench::error::{BenchError, Result};
use cairn_bench::load::{Load, Source};
use cairn_bench::replay::{Plan, Report, replay};
use cairn_bench::{demo, figures, kill, machine, progress, speed};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use args::{Command, DemoArgs, KillArgs, Program, ReplayArgs, SpeedArgs};

#[tokio::main]
async fn main() -> ExitCode {
    let ran = tokio::select! {
        ran = run(Program::parse().command) => ran,
        // Dropping what runs ends the server and removes its folder.
        () = interrupted() => Err(BenchError::Interrupted),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cairn-bench: {}", error.chain());
            ExitCode::FAILURE
        }
    }
}

/// Resolves at SIGINT or SIGTERM; never, if they can not be listened for: then they end the program as they always did.
async fn interrupted() {
    match signal(SignalKind::terminate()) {
        Ok(mut term) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = term.recv() => {}
        },
        Err(_) => std::future::pending().await,
    }
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Replay(args) => run_replay(&args).await,
        Command::Demo(args) => run_demo(args).await,
        Command::Speed(args) => run_speed(&args).await,
        Command::Kill(args) => run_kill(&args).await,
    }
}

async fn run_replay(args: &ReplayArgs) -> Result<()> {
    let source = match &args.origin.trace {
        Some(path) => Source::Trace(path.clone()),
        None => Source::Generated { seed: args.run.seed },
    };
    let requests_max = args.run.requests.unwrap_or(u64::MAX).min(args.origin.generate.unwrap_or(u64::MAX));
    let load = Load::plan(source, requests_max)?;
    let report = match &args.server {
        Some(endpoint) => replay_against(args, &load, endpoint).await?,
        None => replay_against_own(args, &load).await?,
    };
    if args.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&report)
                .map_err(|e| file_error("write the report", Path::new("-"))(e.into()))?
        );
    } else {
        print!("{report}");
    }
    report.judge()
}

async fn replay_against(args: &ReplayArgs, load: &Load, endpoint: &str) -> Result<Report> {
    let plan = Plan {
        concurrency: args.run.concurrency,
        page_bytes: args.run.page_bytes.0,
        durability: args.durability.into(),
        salt: args.salt,
    };
    let bar = progress::bar(load.len(), !args.json);
    let report = replay(load, endpoint, &plan, &bar).await;
    bar.finish_and_clear();
    report
}

async fn replay_against_own(args: &ReplayArgs, load: &Load) -> Result<Report> {
    let temporary = temporary_folder()?;
    let folder = args.data_dir.clone().unwrap_or_else(|| temporary.path().join("data"));
    let mut settings = args.run.sizes().settings();
    settings.extend(args.set.iter().cloned());
    let cairnd = Cairnd::start(Recipe::beside_this_program(&folder, settings)?).await?;
    let report = replay_against(args, load, cairnd.endpoint()).await?;
    cairnd.stop().await?;
    Ok(report)
}

async fn run_demo(args: DemoArgs) -> Result<()> {
    let trace = args.trace.or_else(|| std::env::var_os("CAIRN_TRACE").map(Into::into));
    let run = args.run;
    let requests_max = run.requests.unwrap_or(u64::MAX);
    let demo = demo::Demo { trace, requests_max, concurrency: run.concurrency, sizes: run.sizes(), seed: run.seed };
    demo::run(&demo).await
}

async fn run_speed(args: &SpeedArgs) -> Result<()> {
    let say_load = |when: &str| match machine::load() {
        Ok(load) => println!("load of the machine when it {when}: {load:.1}"),
        Err(_) => println!("load of the machine when it {when}: not known"),
    };
    say_load("began");
    let figures = speed::measure(&args.plan()).await?;
    say_load("ended");
    print!("{}", figures::table(&figures));
    if let Some(path) = &args.json {
        figures::write_json(&figures, path).map_err(file_error("write the figures", path))?;
    }
    figures::judge(&figures)
}

async fn run_kill(args: &KillArgs) -> Result<()> {
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}");
    let temporary = temporary_folder()?;
    let run = kill::run(&temporary.path().join("data"), args.kills, seed).await?;
    let verdict = run.verdict;
    println!(
        "{} kills under load, {} in recovery, {:.1} s: {} of {} acknowledged pages found, {} wrong bytes, {} failures",
        run.kills,
        run.kills_in_recovery,
        run.elapsed.as_secs_f64(),
        verdict.found,
        verdict.acknowledged,
        verdict.wrong_bytes,
        run.failures
    );
    run.judge()
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> BenchError {
    let path = path.to_owned();
    move |source| BenchError::File { action, path, source }
}
