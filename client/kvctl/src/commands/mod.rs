//! One file a command.

mod budget;
mod clear;
pub(crate) mod completions;
mod get;
pub(crate) mod identity;
mod matching;
mod namespaces;
mod ping;
mod put;
mod quarantine;
mod scrub;
mod stats;
pub(crate) mod stopped;
mod verify;
mod watch;

use cairn_client::{Chain, Client, ClientOptions, Namespace, TierRun};
use serde_json::{Value, json};

use crate::chain::Named;
use crate::cli::{ChainArgs, Cli, Command};
use crate::outcome::{Code, Failure};
use crate::print::{Output, count};

/// Runs a command that talks to the server.
pub(crate) async fn online(cli: &Cli, command: &Command, out: &Output) -> Result<Code, Failure> {
    let client = connect(cli).await?;
    match command {
        Command::Ping { count } => ping::run(&client, *count, out).await,
        Command::Stats { watch: Some(every) } => watch::run(&client, every.0, out).await,
        Command::Stats { watch: None } => stats::run(&client, out).await,
        Command::Budget => budget::run(&client, out).await,
        Command::Namespaces => namespaces::run(&client, out).await,
        Command::Match { chain, request_tokens } => matching::run(&client, chain, *request_tokens, out).await,
        Command::Put { chain, source, durability } => put::run(&client, chain, source, *durability, out).await,
        Command::Get { chain, to, verify, first_page, request_tokens } => {
            let wanted = get::Wanted {
                to: to.as_deref(),
                verify: *verify,
                first_page: *first_page,
                request_tokens: *request_tokens,
            };
            get::run(&client, chain, wanted, out).await
        }
        Command::Clear { namespace } => clear::run(&client, namespace, out).await,
        Command::Verify { namespace, rate, .. } => verify::run(&client, namespace.as_deref(), *rate, out).await,
        Command::Scrub { now, rate } => scrub::run(&client, *now, *rate, out).await,
        Command::Quarantine { what } => quarantine::run(&client, what, out).await,
        Command::Rebuild { data_folder, yes } => stopped::rebuild(data_folder.as_deref(), *yes, out),
        Command::Identity { what } => identity::run(what, out),
        Command::Completions { shell } => completions::run(*shell, out),
    }
}

async fn connect(cli: &Cli) -> Result<Client, Failure> {
    let mut options = ClientOptions::new(&cli.server);
    options.timeout = cli.timeout.0;
    options.connect_timeout = options.connect_timeout.min(cli.timeout.0);
    Ok(Client::connect(options).await?)
}

/// Opens the namespace and makes the chain that the command line names. Files are read before the server is asked.
async fn open(client: &Client, args: &ChainArgs) -> Result<(Namespace, Chain), Failure> {
    let identity = crate::identity::read(&args.identity)?;
    let named = Named::read(&args.names)?;
    let namespace = client.open_namespace(&identity).await?;
    let chain = named.chain(&namespace)?;
    Ok((namespace, chain))
}

/// Pages by tier, for people: `3 dram, 2 ssd`.
fn runs_text(runs: &[TierRun]) -> String {
    if runs.is_empty() {
        return "-".to_owned();
    }
    runs.iter().map(|run| format!("{} {}", run.pages, run.tier.label())).collect::<Vec<_>>().join(", ")
}

fn runs_json(runs: &[TierRun]) -> Value {
    runs.iter().map(|run| json!({ "tier": run.tier.label(), "pages": run.pages })).collect()
}

/// `3 of 5 pages`.
fn part_of(pages: usize, all: usize) -> String {
    format!("{pages} of {}", count(all as u64, "page"))
}
