//! `kvctl get`.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use cairn_client::{Chain, Client, ErrorKind, GetOptions, GetStop, GetStream, Page};
use cairn_core::{Clock, SystemClock};
use serde_json::json;

use super::matching::code_of;
use super::{open, part_of, runs_json, runs_text};
use crate::cli::ChainArgs;
use crate::outcome::{Code, Failure};
use crate::pages::test_page;
use crate::print::{Output, count, facts, rate, size, time};

/// What to read and what to do with it.
pub(crate) struct Wanted<'a> {
    pub(crate) to: Option<&'a Path>,
    pub(crate) verify: bool,
    pub(crate) first_page: usize,
    pub(crate) request_tokens: Option<u64>,
}

pub(crate) async fn run(client: &Client, chain: &ChainArgs, wanted: Wanted<'_>, out: &Output) -> Result<Code, Failure> {
    let (namespace, chain) = open(client, chain).await?;
    let mut file = wanted.to.map(Target::create).transpose()?;
    let options = GetOptions { first_page: wanted.first_page, request_tokens: wanted.request_tokens, timeout: None };
    let clock = SystemClock::start();
    let mut pages = namespace.get_prefix(&chain, options).await?;
    let come = take_all(&mut pages, &chain, wanted.verify, file.as_mut()).await?;
    let report = pages.end().await;
    let took = clock.now().since_start();

    let bytes = come * namespace.identity().page_bytes;
    let stop = stop_text(&report.stop);
    let json = json!({
        "namespace": namespace.id().to_string(), "chain_pages": chain.pages(), "good_pages": report.good_pages,
        "good_tokens": report.good_tokens, "read_pages": come, "read_bytes": bytes, "runs": runs_json(&report.runs),
        "verified": wanted.verify, "stop": stop, "took_us": u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
    });
    out.result(&json, || {
        let read = format!("{} in {}, {}, every checksum right", size(bytes), time(took), rate(bytes, took));
        let mut lines = vec![
            ("namespace", namespace.id().to_string()),
            ("good", format!("{}, {}", part_of(report.good_pages, chain.pages()), count(report.good_tokens, "token"))),
            ("tiers", runs_text(&report.runs)),
            ("read", if come == 0 { "-".to_owned() } else { read }),
            ("ends by", stop.clone()),
        ];
        if wanted.verify {
            lines.push(("verified", format!("{}, all as `kvctl put --random` stores them", count(come, "page"))));
        }
        lines.extend(wanted.to.map(|path| ("written to", path.display().to_string())));
        facts(&lines)
    })?;
    Ok(match &report.stop {
        GetStop::Server(reason) => code_of(*reason),
        GetStop::Broken(error) => Code::of(error.kind()),
        _ => Code::Short,
    })
}

/// Takes every page, checks and writes it as asked, and returns how many came.
async fn take_all(
    pages: &mut GetStream,
    chain: &Chain,
    verify: bool,
    mut file: Option<&mut Target<'_>>,
) -> Result<u64, Failure> {
    let mut come = 0;
    while let Some(page) = pages.next_page().await {
        if verify {
            check(&page, chain)?;
        }
        if let Some(file) = &mut file {
            file.write(&page)?;
        }
        come += 1;
    }
    Ok(come)
}

fn check(page: &Page, chain: &Chain) -> Result<(), Failure> {
    let mut expected =
        test_page(chain.key(page.index()).unwrap_or_default(), page.parts().iter().map(|part| part.len()).sum());
    for part in page.parts() {
        if *part != expected.split_to(part.len()) {
            let text = format!("page {} is not the test page of its key", page.index());
            let failure = Failure { code: Code::Server, text, hint: None };
            return Err(
                failure.hint("if it was stored by something else than `kvctl put --random`, leave --verify out")
            );
        }
    }
    Ok(())
}

fn stop_text(stop: &GetStop) -> String {
    match stop {
        GetStop::Server(reason) => reason.label().to_owned(),
        GetStop::DamagedInTransit => "damaged_in_transit".to_owned(),
        GetStop::Broken(error) if error.kind() == ErrorKind::Deadline => format!("deadline: {}", error.chain()),
        GetStop::Broken(error) => format!("broken: {}", error.chain()),
        _ => "unknown".to_owned(),
    }
}

/// The file that pages go to. Pages come in order, so they are appended.
struct Target<'a> {
    file: File,
    path: &'a Path,
}

impl<'a> Target<'a> {
    fn create(path: &'a Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|e| Failure::usage(format!("can not write {}: {e}", path.display())))?;
        Ok(Self { file, path })
    }

    fn write(&mut self, page: &Page) -> Result<(), Failure> {
        let written = page.parts().iter().try_for_each(|part| self.file.write_all(part));
        written.map_err(|e| Failure::usage(format!("can not write {}: {e}", self.path.display())))
    }
}
