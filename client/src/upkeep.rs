//! Care of a server's SSD: the scrub, a verification, and what is in quarantine.

use cairn_core::{NamespaceId, Result};
use cairn_proto::v1;
use tonic::Streaming;

use crate::Client;
use crate::budget::{Budget, passing, repeated};
use crate::fault::Fault;

const VERIFY: &str = "verify";

/// A verification under way, over as many calls as it takes. Dropping it ends it.
#[derive(Debug)]
pub struct Verification {
    client: Client,
    request: v1::VerifyRequest,
    /// `None` between two calls, and at the end.
    answers: Option<(Streaming<v1::VerifyResponse>, Budget)>,
    /// What earlier calls have counted.
    before: v1::VerifyCounts,
    ended: bool,
}

/// How far a verification is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Verified {
    /// What was found so far.
    pub counts: v1::VerifyCounts,
    /// How far it is, in millionths.
    pub progress_ppm: u64,
    /// It has come to its end.
    pub done: bool,
}

impl Verification {
    /// The next word of progress; `None` after the one that says that it is done. Each call takes the client's timeout at most; a server that is
    /// away or busy with another verification for so long ends it.
    ///
    /// # Errors
    /// `Overloaded` if another verification is under way, `Fenced` if there is no such namespace; `Unavailable` or `Deadline` if the server
    /// does not answer.
    pub async fn next(&mut self) -> Result<Option<Verified>> {
        if self.ended {
            return Ok(None);
        }
        let (mut answers, budget) = match self.answers.take() {
            Some(open) => open,
            None => self.call().await?,
        };
        let client = &self.client;
        let heard = budget.watch(async { answers.message().await.map_err(|status| client.error(status)) }).await?;
        let heard = heard.ok_or_else(|| Fault::protocol(VERIFY, "the answer ends without its counts"))?;
        let counts = sum(self.before, heard.counts.unwrap_or_default());
        match (heard.last, heard.next) {
            (false, _) => self.answers = Some((answers, budget)),
            (true, next) => {
                // To the very end, so that the call is closed and not cancelled.
                budget.watch(async { answers.message().await.map_err(|status| client.error(status)) }).await?;
                self.before = counts;
                self.ended = next.is_none();
                self.request.from = next;
            }
        }
        Ok(Some(Verified { counts, progress_ppm: heard.progress_ppm, done: self.ended }))
    }

    async fn call(&self) -> Result<(Streaming<v1::VerifyResponse>, Budget)> {
        let client = &self.client;
        let budget = client.budget(VERIFY, None);
        let answers = repeated(&budget, client.options().retries_max, passing, || async {
            let request = v1::VerifyRequest { timeout_ms: budget.timeout_ms(), ..self.request.clone() };
            client.answer(client.admin_calls().verify(request).await)
        })
        .await?;
        Ok((answers, budget))
    }
}

fn sum(a: v1::VerifyCounts, b: v1::VerifyCounts) -> v1::VerifyCounts {
    v1::VerifyCounts {
        pages: a.pages + b.pages,
        bytes: a.bytes + b.bytes,
        damaged: a.damaged + b.damaged,
        unreadable: a.unreadable + b.unreadable,
    }
}

/// Calls for the care of the SSD.
impl Client {
    /// What the scrub has done and how far it is.
    ///
    /// # Errors
    /// `Unavailable` or `Deadline` if the server does not answer.
    pub async fn scrub(&self) -> Result<v1::ScrubStats> {
        self.ask_scrub(v1::ScrubRequest::default()).await
    }

    /// Begins a pass of the scrub now, at so many bytes a second (0: as fast as the SSD can), or as fast as the server's settings allow.
    ///
    /// # Errors
    /// As [`Client::scrub`].
    pub async fn scrub_now(&self, bytes_per_second: Option<u64>) -> Result<v1::ScrubStats> {
        self.ask_scrub(v1::ScrubRequest { now: true, bytes_per_second }).await
    }

    /// Reads and verifies what lies on the SSD, of one namespace or all, at so many bytes a second (0: as fast as it can). Does nothing before the
    /// first [`Verification::next`].
    pub fn verify(&self, namespace: Option<&NamespaceId>, bytes_per_second: u64) -> Verification {
        let namespace_id = namespace.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
        let request = v1::VerifyRequest { namespace_id, bytes_per_second, from: None, timeout_ms: 0 };
        Verification { client: self.clone(), request, answers: None, before: v1::VerifyCounts::default(), ended: false }
    }

    /// What is out of use after an error.
    ///
    /// # Errors
    /// `Unavailable` or `Deadline` if the server does not answer.
    pub async fn quarantine(&self) -> Result<v1::QuarantineResponse> {
        self.ask_quarantine(v1::QuarantineRequest::default()).await
    }

    /// Puts the slots of damaged pages back in use, takes writes again after one failed, or both. Not repeated.
    ///
    /// # Errors
    /// `Unavailable` if the disk still fails, or the server does not answer; `Deadline`.
    pub async fn release(&self, slots: bool, writes: bool) -> Result<v1::QuarantineResponse> {
        self.ask_quarantine(v1::QuarantineRequest { release_slots: slots, release_writes: writes }).await
    }

    async fn ask_scrub(&self, request: v1::ScrubRequest) -> Result<v1::ScrubStats> {
        let budget = self.budget("scrub", None);
        let answer = budget.watch(async { self.answer(self.admin_calls().scrub(request).await) }).await?;
        answer.scrub.ok_or_else(|| Fault::protocol("scrub", "no answer in the message").into())
    }

    async fn ask_quarantine(&self, request: v1::QuarantineRequest) -> Result<v1::QuarantineResponse> {
        let budget = self.budget("quarantine", None);
        budget.watch(async { self.answer(self.admin_calls().quarantine(request).await) }).await
    }
}
