//! `kvctl quarantine`: what is out of use after an error, and putting it in use again.

use std::time::Duration;

use cairn_client::Client;
use cairn_proto::v1::{QuarantineResponse, QuarantinedSlot};
use serde_json::{Value, json};

use crate::cli::{QuarantineCommand, ReleaseArgs};
use crate::outcome::{Code, Failure};
use crate::print::{Output, count, facts, number, table, time};

pub(crate) async fn run(client: &Client, what: &QuarantineCommand, out: &Output) -> Result<Code, Failure> {
    match what {
        QuarantineCommand::List => {
            let found = client.quarantine().await?;
            out.result(&as_json(&found), || as_text(&found))?;
        }
        QuarantineCommand::Release(ReleaseArgs { slots, writes }) => {
            let left = client.release(*slots, *writes).await?;
            out.result(&as_json(&left), || {
                let released = if *slots {
                    format!("{} in use again\n\n", count(left.released_slots, "slot"))
                } else {
                    String::new()
                };
                released + &as_text(&left)
            })?;
        }
    }
    Ok(Code::Fine)
}

fn as_text(found: &QuarantineResponse) -> String {
    let writes = match &found.writes {
        None => "taken".to_owned(),
        Some(fault) => format!("NONE TAKEN since {} ago: {}", time(Duration::from_millis(fault.age_ms)), fault.cause),
    };
    let slots = found.slots.len() as u64 + found.omitted;
    let bytes: u64 = found.slots.iter().map(|slot| slot.bytes).sum();
    let mut text = facts(&[
        ("writes", writes),
        (
            "slots out of use",
            if slots == 0 { "0".to_owned() } else { format!("{}, {} bytes", number(slots), number(bytes)) },
        ),
    ]);
    if found.writes.is_some() {
        text.push_str("\n\nlook at the disk (its log, `dmesg`), then `kvctl quarantine release --writes`, or start the server again");
    }
    if !found.slots.is_empty() {
        let row = |slot: &QuarantinedSlot| {
            vec![slot.region.to_string(), number(slot.offset), number(slot.bytes), slot.damage.clone()]
        };
        let rows: Vec<Vec<String>> = found.slots.iter().map(row).collect();
        text.push_str(&format!("\n\n{}", table(&["region", "offset", "bytes", "damage"], &rows)));
    }
    if found.omitted > 0 {
        text.push_str(&format!("\n\nand {} more", number(found.omitted)));
    }
    text
}

fn as_json(found: &QuarantineResponse) -> Value {
    let slot = |slot: &QuarantinedSlot| json!({ "region": slot.region, "offset": slot.offset, "bytes": slot.bytes, "damage": slot.damage });
    json!({
        "writes_taken": found.writes.is_none(),
        "write_fault": found.writes.as_ref().map(|fault| json!({ "cause": fault.cause, "age_ms": fault.age_ms })),
        "slots": found.slots.iter().map(slot).collect::<Vec<_>>(), "omitted": found.omitted,
        "released_slots": found.released_slots,
    })
}

#[cfg(test)]
mod tests {
    use cairn_proto::v1::WriteFault;

    use super::*;

    #[test]
    fn what_is_out_of_use_is_named_with_its_reason_and_the_way_out() {
        let found = QuarantineResponse {
            writes: Some(WriteFault { cause: "the disk refused operation=barrier".to_owned(), age_ms: 61_000 }),
            slots: vec![QuarantinedSlot { region: 3, offset: 12_288, bytes: 12_288, damage: "payload".to_owned() }],
            ..QuarantineResponse::default()
        };
        let text = as_text(&found);
        for part in ["since 1 min 01 s ago: the disk refused", "release --writes", "3       12,288  12,288  payload"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(as_text(&QuarantineResponse::default()), "writes            taken\nslots out of use  0");
    }
}
