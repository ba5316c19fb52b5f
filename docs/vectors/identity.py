"""Computes identity.json from docs/FORMAT.md alone, without Cairn's code: `pip install blake3 xxhash`, then `python3 identity.py > identity.json`."""

import json
import struct

from blake3 import blake3
from xxhash import xxh3_64_intdigest

KINDS = ["attention", "latent_attention", "sliding_window", "recurrent", "compressed_attention", "encoder_output"]


def u32(value):
    return struct.pack("<I", value)


def u64(value):
    return struct.pack("<Q", value)


def text(value):
    raw = value.encode()
    return u32(len(raw)) + raw


def declared(value, write):
    return b"\0" if value == "none" else b"\1" + write(value["is"])


def canonical(i):
    heads, keys = i["heads"], i["keys"]
    fields = [
        text(i["model"]),
        text(i["model_revision"]),
        declared(i["adapter"], lambda a: text(a["name"]) + text(a["revision"])),
        declared(i["positions"], text),
        bytes([1 + KINDS.index(i["kind"])]),
        text(i["dtype"]),
        text(i["layout"]),
        text(i["layout_version"]),
        u32(i["page_tokens"]),
        u64(i["page_bytes"]),
        b"".join(u32(i["layers"][k]) for k in ("first", "count", "of")),
        b"\0" if heads == "replicated" else b"\1" + b"".join(u32(heads["range"][k]) for k in ("first", "count", "of")),
        declared(i["quantisation"], lambda q: text(q["scheme"]) + text(q["scales"])),
        declared(i["cache_salt"], text),
        b"\0" if keys == "tokens" else b"\1" + text(keys["engine_hash"]["algorithm"]) + declared(keys["engine_hash"]["seed"], text),
    ]
    return b"cairn identity v1" + b"".join(bytes([tag]) + field for tag, field in enumerate(fields, 1))


def derive(context, body):
    return blake3(body, derive_key_context=context).digest()


def tenant_salt(secret, tenant):
    return blake3(b"cairn tenant salt v1" + tenant.encode(), key=secret).digest()


def namespace_id(salt, identity):
    return derive("cairn 2026 namespace id v1", salt + canonical(identity))


def page_key(namespace, parent, tokens, extra):
    body = u32(len(tokens)) + b"".join(map(u32, tokens)) + u32(len(extra)) + extra
    return derive("cairn 2026 page key v1", namespace + (parent or bytes(32)) + body)


def engine_key(namespace, engine_hash):
    return derive("cairn 2026 engine key v1", namespace + engine_hash)


def header(h):
    body = (
        b"CAIRNPG1" + h["device"] + u32(h["region"]) + u32(h["slot"]) + h["namespace"] + h["key"] + (h["parent"] or bytes(32))
        + u32(h["position"]) + u32(h["parent"] is not None) + u64(h["generation"]) + u64(h["payload_bytes"]) + u64(int(h["checksum"], 16))
    )
    return body + blake3(body, key=h["header_key"]).digest()


def hexed(value):
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {k: hexed(v) for k, v in value.items()}
    return [hexed(v) for v in value] if isinstance(value, list) else value


PLAIN = {
    "model": "meta-llama/Llama-3.1-8B", "model_revision": "d04e592", "adapter": "none", "positions": "none", "kind": "attention",
    "dtype": "bf16", "layout": "NHD", "layout_version": "1", "page_tokens": 16, "page_bytes": 2097152,
    "layers": {"first": 0, "count": 32, "of": 32}, "heads": {"range": {"first": 0, "count": 8, "of": 8}},
    "quantisation": "none", "cache_salt": "none", "keys": "tokens",
}
FULL = PLAIN | {
    "adapter": {"is": {"name": "sql", "revision": "3"}}, "positions": {"is": "rope theta=500000"}, "kind": "latent_attention",
    "page_tokens": 64, "page_bytes": 73728, "layers": {"first": 16, "count": 16, "of": 61}, "heads": "replicated",
    "quantisation": {"is": {"scheme": "fp8_e4m3", "scales": "dynamic"}}, "cache_salt": {"is": "team-\u00fc"},
    "keys": {"engine_hash": {"algorithm": "vllm sha256_cbor", "seed": {"is": "0"}}},
}


def vectors():
    secret = bytes(range(32))
    salts = {tenant: tenant_salt(secret, tenant) for tenant in ("local", "acme-1")}
    identities = [
        {"identity": i, "salt": salts[t], "canonical": canonical(i), "namespace_id": namespace_id(salts[t], i)}
        for i in (PLAIN, FULL) for t in salts
    ]
    namespace = identities[0]["namespace_id"]
    chain, parent = [], None
    for tokens, extra in (([1, 2, 3, 4], b""), ([5, 6, 7, 0xFFFFFFFF], b"image sha256:00"), ([0, 0, 0, 0], b"")):
        key = page_key(namespace, parent, tokens, extra)
        chain.append({"tokens": tokens, "extra": extra, "key": key})
        parent = key
    hashes = [bytes(16), bytes(range(32)), b"\xff" * 64]
    payload = bytes(range(256)) * 4
    first = {
        "header_key": bytes(range(32, 64)), "device": bytes(range(16)), "region": 3, "slot": 7, "namespace": namespace,
        "key": chain[0]["key"], "parent": None, "position": 0, "generation": 42, "payload_bytes": len(payload),
        "checksum": f"{xxh3_64_intdigest(payload):016x}",
    }
    second = first | {"slot": 8, "key": chain[1]["key"], "parent": chain[0]["key"], "position": 1, "generation": 43}
    return {
        "tenant_salts": [{"secret": secret, "tenant": t, "salt": s} for t, s in salts.items()],
        "identities": identities,
        "token_chain": {"namespace": namespace, "pages": chain},
        "engine_keys": [{"namespace": namespace, "hash": h, "key": engine_key(namespace, h)} for h in hashes],
        "checksums": [{"bytes": b, "xxh3_64": f"{xxh3_64_intdigest(b):016x}"} for b in (b"", b"a", payload)],
        "slot_headers": [h | {"encoded": header(h)} for h in (first, second)],
    }


if __name__ == "__main__":
    print(json.dumps(hexed(vectors()), indent=1))
