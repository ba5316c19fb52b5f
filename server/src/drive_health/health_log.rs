//! What a drive tells, out of the JSON that `smartctl --json=c -A` prints. Any bytes are taken; what is missing or odd is not told.

use serde_json::Value;

use super::Unknown;

/// NVMe counts what is written in thousands of sectors.
const DATA_UNIT_BYTES: u64 = 512_000;
/// Percentages are a byte on the wire; a worn drive goes beyond 100.
const PERCENT_MAX: u64 = 255;
/// Letters that are taken from the program's own words.
const SAID_CHARS_MAX: usize = 200;
/// In the exit status: the device could not be opened.
const UNOPENED: u64 = 1 << 1;

/// What a drive tells about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HealthLog {
    /// Of its rated life, in per cent; more than 100 when it has outlived that.
    pub(crate) used_percent: u64,
    /// Bytes ever written to it, by anyone.
    pub(crate) written_bytes: Option<u64>,
    /// Of its spare blocks, in per cent.
    pub(crate) spare_percent: Option<u64>,
    /// What NVMe calls so, a set of bits; 0: nothing to warn of.
    pub(crate) critical_warning: u64,
}

/// Reads the answer. The program's exit status does not count: a drive that fails makes it other than 0 as well.
pub(super) fn read(answer: &[u8]) -> Result<HealthLog, Unknown> {
    let answer: Value = serde_json::from_slice(answer).map_err(|_| Unknown::NotJson)?;
    let log = &answer["nvme_smart_health_information_log"];
    let used_percent =
        percent(&log["percentage_used"]).or_else(|| percent(&answer["endurance_used"]["current_percent"]));
    let Some(used_percent) = used_percent else { return Err(why_not(&answer)) };
    Ok(HealthLog {
        used_percent,
        written_bytes: number(&log["data_units_written"]).map(|units| units.saturating_mul(DATA_UNIT_BYTES)),
        spare_percent: percent(&log["available_spare"]),
        critical_warning: number(&log["critical_warning"]).unwrap_or(0),
    })
}

fn percent(value: &Value) -> Option<u64> {
    number(value).filter(|percent| *percent <= PERCENT_MAX)
}

/// A whole number; counters of 128 bits may come as a fraction with an exponent.
fn number(value: &Value) -> Option<u64> {
    let whole = |value: f64| (value >= 0.0).then(|| super::whole(value));
    value.as_u64().or_else(|| value.as_f64().and_then(whole))
}

/// The program's own words, if it has any.
fn why_not(answer: &Value) -> Unknown {
    let unopened = number(&answer["smartctl"]["exit_status"]).is_some_and(|status| status & UNOPENED != 0);
    match answer["smartctl"]["messages"][0]["string"].as_str() {
        Some(said) => Unknown::Refused { said: printable(said), unopened },
        None => Unknown::NotTold,
    }
}

fn printable(said: &str) -> String {
    said.chars().filter(|letter| matches!(letter, ' '..='~')).take(SAID_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn told(answer: &Value) -> HealthLog {
        read(answer.to_string().as_bytes()).unwrap()
    }

    #[track_caller]
    fn untold(answer: &[u8]) -> String {
        read(answer).unwrap_err().to_string()
    }

    fn nvme() -> Value {
        json!({
            "json_format_version": [1, 0],
            "smartctl": { "version": [7, 3], "argv": ["smartctl", "--json=c", "-A", "/dev/nvme0n1"], "exit_status": 0 },
            "device": { "name": "/dev/nvme0n1", "type": "nvme", "protocol": "NVMe" },
            "nvme_smart_health_information_log": {
                "critical_warning": 0, "temperature": 38, "available_spare": 98, "available_spare_threshold": 10,
                "percentage_used": 7, "data_units_read": 9_000_000, "data_units_written": 24_000_000, "media_errors": 0,
            },
            "power_on_time": { "hours": 8123 },
        })
    }

    #[test]
    fn an_nvme_drive_tells_its_wear_what_was_written_its_spare_and_its_warnings() {
        let log = told(&nvme());
        assert_eq!((log.used_percent, log.written_bytes), (7, Some(12_288_000_000_000)));
        assert_eq!((log.spare_percent, log.critical_warning), (Some(98), 0));
    }

    #[test]
    fn a_drive_that_fails_is_read_although_the_program_ends_with_an_error() {
        let mut answer = nvme();
        answer["smartctl"]["exit_status"] = json!(8);
        answer["smartctl"]["messages"] = json!([{ "string": "a word of warning", "severity": "warning" }]);
        answer["nvme_smart_health_information_log"]["critical_warning"] = json!(5);
        answer["nvme_smart_health_information_log"]["percentage_used"] = json!(255);
        assert_eq!((told(&answer).used_percent, told(&answer).critical_warning), (255, 5));
    }

    #[test]
    fn a_sata_drive_tells_its_wear_where_the_program_makes_it_out_and_nothing_of_vendors_attributes() {
        let mut answer = json!({
            "device": { "name": "/dev/sda", "type": "sat", "protocol": "ATA" },
            "ata_smart_attributes": { "table": [{ "id": 241, "name": "Total_LBAs_Written", "raw": { "value": 123_456 } }] },
        });
        assert_eq!(untold(answer.to_string().as_bytes()), "the drive does not tell how much of its life is used");
        answer["endurance_used"] = json!({ "current_percent": 3 });
        let log = told(&answer);
        assert_eq!((log.used_percent, log.written_bytes, log.spare_percent), (3, None, None));
    }

    #[test]
    fn a_drive_that_can_not_be_opened_is_told_of_in_the_programs_words() {
        let denied = json!({ "smartctl": {
            "messages": [{ "string": "Smartctl open device: /dev/nvme0n1 failed: Permission denied", "severity": "error" }],
            "exit_status": 2,
        } });
        let said = untold(denied.to_string().as_bytes());
        assert!(said.contains("Permission denied; ssd.health_program needs root's rights"), "{said}");
        let noisy = json!({ "smartctl": { "messages": [{ "string": format!("\u{1b}[31m{}\n", "x".repeat(9999)) }] } });
        let said = untold(noisy.to_string().as_bytes());
        assert!(said.len() == 200 && said.is_ascii() && !said.contains('\u{1b}'), "{said}");
    }

    #[test]
    fn missing_fields_other_types_and_huge_numbers_cost_no_more_than_themselves() {
        for odd in [json!(null), json!("7"), json!([7]), json!({ "n": 7 }), json!(true), json!(-1), json!(-0.5)] {
            for field in ["data_units_written", "available_spare", "critical_warning"] {
                let mut answer = nvme();
                answer["nvme_smart_health_information_log"][field] = odd.clone();
                assert_eq!(told(&answer).used_percent, 7, "{field} {odd}");
            }
            let mut answer = nvme();
            answer["nvme_smart_health_information_log"]["percentage_used"] = odd.clone();
            assert!(untold(answer.to_string().as_bytes()).contains("does not tell"), "{odd}");
        }
        let with = |units: &str| {
            let text = nvme().to_string().replace("24000000", units);
            read(text.as_bytes()).unwrap().written_bytes
        };
        assert_eq!(with("18446744073709551615"), Some(u64::MAX));
        assert_eq!(with("340282366920938463463374607431768211455"), Some(u64::MAX));
        assert_eq!(with("1e3"), Some(512_000_000));
    }

    #[test]
    fn garbage_is_a_reason_and_no_panic() {
        let deep = "[".repeat(100_000);
        let broken = nvme().to_string();
        let cut = broken.split_at(broken.len() / 2).0;
        for garbage in ["", " ", "smartctl 7.3 usage", "\u{0}\u{1}", "{\"a\":", deep.as_str(), cut, "1e999"] {
            assert!(untold(garbage.as_bytes()).contains("no JSON"), "{garbage:.20}");
        }
        assert!(untold(b"\xff\xfe{}").contains("no JSON"));
        for other in ["null", "7", "[]", "\"x\"", "{}", "{\"smartctl\":[{}]}", "{\"smartctl\":{\"messages\":{}}}"] {
            assert!(untold(other.as_bytes()).contains("does not tell"), "{other}");
        }
    }
}
