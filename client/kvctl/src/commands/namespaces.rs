//! `kvctl namespaces`.

use cairn_client::{Client, NamespaceList, NamespaceSummary};
use cairn_core::{Declared, Identity};
use serde_json::{Value, json};

use crate::identity::as_value;
use crate::outcome::{Code, Failure};
use crate::print::{Output, number, size, table};

pub(crate) async fn run(client: &Client, out: &Output) -> Result<Code, Failure> {
    let list = client.namespaces().await?;
    let namespaces: Vec<Value> = list.namespaces.iter().map(as_json).collect();
    out.result(&json!({ "namespaces": namespaces, "omitted": list.omitted }), || as_text(&list))?;
    Ok(Code::Fine)
}

fn as_text(NamespaceList { namespaces, omitted }: &NamespaceList) -> String {
    if namespaces.is_empty() {
        return "no namespaces yet; the first one comes with an engine, or with `kvctl put`".to_owned();
    }
    let row = |namespace: &NamespaceSummary| {
        let id = namespace.id.to_string();
        vec![
            id[..12].to_owned(),
            number(namespace.dram_pages),
            number(namespace.ssd_pages),
            size(namespace.page_bytes),
            namespace.identity.as_ref().map_or("?".to_owned(), |identity| identity.page_tokens.to_string()),
            namespace.identity.as_ref().map_or("known from its pages only".to_owned(), describe),
        ]
    };
    let rows: Vec<Vec<String>> = namespaces.iter().map(row).collect();
    let table = table(&["namespace", "dram", "ssd", "page", "tokens", "identity"], &rows);
    match omitted {
        0 => table,
        more => format!("{table}\n\nand {} more, which do not fit in one answer", number(*more)),
    }
}

/// The fields that tell namespaces apart most often.
fn describe(identity: &Identity) -> String {
    let mut words = vec![format!("{} {} {}", identity.model, identity.dtype, identity.layout)];
    if let Declared::Is(adapter) = &identity.adapter {
        words.push(format!("adapter {}", adapter.name));
    }
    if identity.layers.count != identity.layers.of {
        // The server's word, which nobody has checked.
        let last = identity.layers.first.saturating_add(identity.layers.count.saturating_sub(1));
        words.push(format!("layers {}..{last} of {}", identity.layers.first, identity.layers.of));
    }
    words.join(", ")
}

fn as_json(namespace: &NamespaceSummary) -> Value {
    json!({
        "namespace": namespace.id.to_string(),
        "identity": namespace.identity.as_ref().map(as_value),
        "page_bytes": namespace.page_bytes,
        "dram_pages": namespace.dram_pages,
        "ssd_pages": namespace.ssd_pages,
    })
}

#[cfg(test)]
mod tests {
    use cairn_core::LayerRange;

    use super::*;
    use crate::identity::template;

    #[test]
    fn an_identity_that_no_server_should_list_can_be_shown_too() {
        for layers in [LayerRange { first: u32::MAX, count: u32::MAX, of: 1 }, LayerRange { first: 0, count: 0, of: 9 }]
        {
            let shown = describe(&Identity { layers, ..template() });
            assert!(shown.contains("layers "), "{shown}");
        }
    }
}
