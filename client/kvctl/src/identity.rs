//! Identity files: JSON, every field written out.
//!
//! A faulty file is answered with everything that is wrong with it at once, each fault by the name of its field.

use std::io::Read;

use cairn_core::{Declared, HeadRange, Heads, Identity, KeyScheme, LayerRange, StateKind};
use serde_json::{Map, Value};

use crate::outcome::Failure;

/// Longest input file.
const INPUT_BYTES_MAX: u64 = 256 << 20;

/// Reads a file; `-` is standard input. A leading `@` does no harm.
pub(crate) fn read_input(file: &str) -> Result<String, Failure> {
    let name = file.strip_prefix('@').unwrap_or(file);
    let text = match name {
        "-" => read_whole(std::io::stdin().lock(), INPUT_BYTES_MAX),
        path => std::fs::File::open(path).and_then(|opened| read_whole(opened, INPUT_BYTES_MAX)),
    };
    text.map_err(|e| Failure::usage(format!("can not read {name}: {e}")))
}

/// All that `from` has, refused if that is more than `bytes_max`: half of a list of tokens would name another prefix.
fn read_whole(from: impl Read, bytes_max: u64) -> std::io::Result<String> {
    let mut text = String::new();
    let read_bytes = from.take(bytes_max + 1).read_to_string(&mut text)? as u64;
    if read_bytes > bytes_max {
        let text = format!("it has more than {bytes_max} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, text));
    }
    Ok(text)
}

/// Reads an identity that is complete and in range.
pub(crate) fn read(file: &str) -> Result<Identity, Failure> {
    parse(&read_input(file)?).map_err(|faults| {
        let list: Vec<String> = faults.iter().map(|fault| format!("\n  {fault}")).collect();
        Failure::usage(format!("{file} is not an identity:{}", list.concat()))
            .hint("`kvctl identity template` prints one to start from")
    })
}

/// An identity, or all that is wrong with the text.
fn parse(text: &str) -> Result<Identity, Vec<String>> {
    let value: Value = serde_json::from_str(text).map_err(|e| vec![format!("not JSON: {e}")])?;
    let Value::Object(given) = value else {
        return Err(vec!["not a JSON object".to_owned()]);
    };
    let faults = faults(&given);
    if !faults.is_empty() {
        return Err(faults);
    }
    let identity: Identity = serde_json::from_value(Value::Object(given)).map_err(|e| vec![e.to_string()])?;
    identity.validate().map_err(|fault| vec![fault.to_string()])?;
    Ok(identity)
}

/// What is wrong with the fields, one by one.
fn faults(given: &Map<String, Value>) -> Vec<String> {
    let sound = as_object(&template());
    let mut faults = Vec::new();
    for field in sound.keys() {
        match given.get(field) {
            None => faults.push(format!("{field}: missing; what does not apply is stated as \"none\"")),
            Some(value) => faults.extend(fault_of(field, value, &sound)),
        }
    }
    let unknown = given.keys().filter(|field| !sound.contains_key(*field));
    faults.extend(unknown.map(|field| format!("{field}: no such field")));
    faults
}

/// What is wrong with one field: in an otherwise sound identity, any fault is its own.
fn fault_of(field: &str, value: &Value, sound: &Map<String, Value>) -> Option<String> {
    let mut with = sound.clone();
    with.insert(field.to_owned(), value.clone());
    let fault = serde_json::from_value::<Identity>(Value::Object(with)).err()?;
    Some(format!("{field}: {fault}"))
}

/// One field in which two identities differ.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Difference {
    /// The field, with dots.
    pub(crate) field: String,
    pub(crate) a: Value,
    pub(crate) b: Value,
}

/// The fields in which `a` and `b` differ.
pub(crate) fn differences(a: &Identity, b: &Identity) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", &as_value(a), &as_value(b), &mut found);
    found
}

fn compare(field: &str, a: &Value, b: &Value, found: &mut Vec<Difference>) {
    if let (Value::Object(a), Value::Object(b)) = (a, b)
        && a.keys().eq(b.keys())
    {
        for (name, a) in a {
            let field = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
            compare(&field, a, &b[name], found);
        }
    } else if a != b {
        found.push(Difference { field: field.to_owned(), a: a.clone(), b: b.clone() });
    }
}

/// An identity as JSON.
pub(crate) fn as_value(identity: &Identity) -> Value {
    serde_json::to_value(identity).unwrap_or_default()
}

fn as_object(identity: &Identity) -> Map<String, Value> {
    match as_value(identity) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// A complete identity to start from: Llama 3.1 8B in bf16, 16 tokens a page.
pub(crate) fn template() -> Identity {
    Identity {
        model: "meta-llama/Llama-3.1-8B".to_owned(),
        model_revision: "d04e592bb4f6aa9cfee91e2e20afa771667e1d4b".to_owned(),
        adapter: Declared::None,
        positions: Declared::Is("rope theta=500000".to_owned()),
        kind: StateKind::Attention,
        dtype: "bf16".to_owned(),
        layout: "NHD".to_owned(),
        layout_version: "1".to_owned(),
        page_tokens: 16,
        // 16 tokens x 32 layers x (key, value) x 8 heads x 128 x 2 bytes.
        page_bytes: 2 << 20,
        layers: LayerRange { first: 0, count: 32, of: 32 },
        heads: Heads::Range(HeadRange { first: 0, count: 8, of: 8 }),
        quantisation: Declared::None,
        cache_salt: Declared::None,
        keys: KeyScheme::Tokens,
    }
}

#[cfg(test)]
mod tests {
    use cairn_core::{Adapter, Quantisation};
    use serde_json::json;

    use super::*;

    fn edited(edit: impl FnOnce(&mut Map<String, Value>)) -> Vec<String> {
        let mut fields = as_object(&template());
        edit(&mut fields);
        parse(&Value::Object(fields).to_string()).err().unwrap_or_default()
    }

    #[test]
    fn input_is_read_whole_or_refused() {
        assert_eq!(read_whole(&b"1,2,3"[..], 5).unwrap(), "1,2,3");
        assert!(read_whole(&b"1,2,34"[..], 5).unwrap_err().to_string().contains("more than 5 bytes"));
    }

    #[test]
    fn the_template_is_sound() {
        assert_eq!(parse(&as_value(&template()).to_string()), Ok(template()));
    }

    #[test]
    fn every_field_left_out_is_named() {
        for field in as_object(&template()).keys() {
            let faults = edited(|fields| drop(fields.remove(field)));
            assert!(matches!(&faults[..], [fault] if fault.starts_with(&format!("{field}: missing"))), "{faults:?}");
        }
    }

    #[test]
    fn all_faults_are_told_at_once_by_field() {
        let faults = edited(|fields| {
            fields.remove("dtype");
            fields["page_tokens"] = json!("sixteen");
            fields["adapter"] = json!({ "is": { "name": "a" } });
            fields.insert("modle".to_owned(), json!("x"));
        });
        let starts =
            ["adapter: missing field `revision`", "dtype: missing", "page_tokens: invalid type", "modle: no such"];
        assert_eq!(faults.len(), starts.len(), "{faults:?}");
        for (fault, start) in faults.iter().zip(starts) {
            assert!(fault.starts_with(start), "{fault} / {start}");
        }
    }

    #[test]
    fn values_out_of_range_are_told() {
        assert!(edited(|fields| fields["page_bytes"] = json!(1))[0].contains("page_bytes"));
        assert!(edited(|fields| fields["model"] = json!(""))[0].contains("model"));
    }

    #[test]
    fn bf16_and_fp8_differ_in_the_fields_that_say_so() {
        let fp8 = Quantisation { scheme: "fp8_e4m3".to_owned(), scales: "dynamic".to_owned() };
        let other = Identity {
            dtype: "fp8_e4m3".to_owned(),
            page_bytes: 1 << 20,
            quantisation: Declared::Is(fp8),
            ..template()
        };
        let fields: Vec<String> = differences(&template(), &other).into_iter().map(|found| found.field).collect();
        assert_eq!(fields, ["dtype", "page_bytes", "quantisation"]);
    }

    #[test]
    fn differences_within_a_field_are_told_by_their_path() {
        let adapter = |revision: &str| Identity {
            adapter: Declared::Is(Adapter { name: "a".to_owned(), revision: revision.to_owned() }),
            ..template()
        };
        let found = differences(&adapter("1"), &adapter("2"));
        assert_eq!(found, [Difference { field: "adapter.is.revision".to_owned(), a: json!("1"), b: json!("2") }]);
        assert_eq!(differences(&template(), &template()), []);
    }
}
