#!/usr/bin/env python3
"""Writes a GGUF file of a Llama shape with seeded random weights and no vocabulary, for peers' benchmarks.

  bench/make_gguf.py bench/shapes/smollm2-135m.json F16 out.gguf

The shape is the config.json that `lariat bench --random-weights` takes, so both engines run the same one.
Format: version 3 of the public GGUF specification. Weights lie in +-[2^-6, 2^-5), the size of a usual
initialisation; nothing depends on their values but that no activation overflows.
"""

import json
import random
import struct
import sys

ALIGNMENT = 32
U32, F32_KV, STRING = 4, 6, 8
# name: (type number, bytes, bits kept of a random word, exponent of 2^-6 in place)
TYPES = {"F32": (0, 4, 0x807FFFFF, 121 << 23), "F16": (1, 2, 0x83FF, 9 << 10), "BF16": (30, 2, 0x807F, 121 << 7)}


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def entry(key, kind, value):
    packed = text(value) if kind == STRING else struct.pack("<I" if kind == U32 else "<f", value)
    return text(key) + struct.pack("<I", kind) + packed


def metadata(c, dtype):
    heads = c["num_attention_heads"]
    head_dim = c.get("head_dim", c["hidden_size"] // heads)
    return [
        entry("general.architecture", STRING, "llama"),
        entry("general.name", STRING, "random"),
        entry("general.file_type", U32, {"F32": 0, "F16": 1, "BF16": 32}[dtype]),
        entry("llama.block_count", U32, c["num_hidden_layers"]),
        entry("llama.context_length", U32, c["max_position_embeddings"]),
        entry("llama.embedding_length", U32, c["hidden_size"]),
        entry("llama.feed_forward_length", U32, c["intermediate_size"]),
        entry("llama.attention.head_count", U32, heads),
        entry("llama.attention.head_count_kv", U32, c["num_key_value_heads"]),
        entry("llama.attention.key_length", U32, head_dim),
        entry("llama.attention.value_length", U32, head_dim),
        entry("llama.attention.layer_norm_rms_epsilon", F32_KV, c["rms_norm_eps"]),
        entry("llama.rope.dimension_count", U32, head_dim),
        entry("llama.rope.freq_base", F32_KV, c["rope_theta"]),
        entry("llama.vocab_size", U32, c["vocab_size"]),
        entry("tokenizer.ggml.model", STRING, "no_vocab"),
    ]


def tensors(c, dtype):
    """(name, dims with the contiguous one first, type). Norms are f32, as in any converted file."""
    e, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    head_dim = c.get("head_dim", e // c["num_attention_heads"])
    q, kv = c["num_attention_heads"] * head_dim, c["num_key_value_heads"] * head_dim
    yield "token_embd.weight", [e, v], dtype
    yield "output_norm.weight", [e], "F32"
    if not c["tie_word_embeddings"]:
        yield "output.weight", [e, v], dtype
    for i in range(c["num_hidden_layers"]):
        yield f"blk.{i}.attn_norm.weight", [e], "F32"
        yield f"blk.{i}.attn_q.weight", [e, q], dtype
        yield f"blk.{i}.attn_k.weight", [e, kv], dtype
        yield f"blk.{i}.attn_v.weight", [e, kv], dtype
        yield f"blk.{i}.attn_output.weight", [q, e], dtype
        yield f"blk.{i}.ffn_norm.weight", [e], "F32"
        yield f"blk.{i}.ffn_gate.weight", [e, f], dtype
        yield f"blk.{i}.ffn_up.weight", [e, f], dtype
        yield f"blk.{i}.ffn_down.weight", [f, e], dtype


def random_weights(rng, count, dtype):
    """`count` numbers with random sign and mantissa and the exponent of 2^-6, as bytes."""
    _, size, keep, exponent = TYPES[dtype]
    words = int.from_bytes(rng.randbytes(count * size), "little")
    repeat = lambda word: int.from_bytes(word.to_bytes(size, "little") * count, "little")
    return (words & repeat(keep) | repeat(exponent)).to_bytes(count * size, "little")


def main():
    if len(sys.argv) != 4 or sys.argv[2] not in TYPES:
        sys.exit(__doc__)
    config_path, dtype, out_path = sys.argv[1:]
    with open(config_path) as f:
        config = json.load(f)
    infos, plan, offset = [], [], 0
    for name, dims, kind in tensors(config, dtype):
        count = 1
        for d in dims:
            count *= d
        number, size = TYPES[kind][:2]
        infos.append(text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number, offset))
        plan.append((len(dims) == 1, count, kind))
        offset += -(-count * size // ALIGNMENT) * ALIGNMENT
    entries = metadata(config, dtype)
    rng = random.Random(1)
    with open(out_path, "wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(entries)) + b"".join(entries) + b"".join(infos))
        out.write(b"\0" * (-out.tell() % ALIGNMENT))
        for is_norm, count, kind in plan:
            out.write(struct.pack("<f", 1.0) * count if is_norm else random_weights(rng, count, kind))
            out.write(b"\0" * (-out.tell() % ALIGNMENT))


if __name__ == "__main__":
    main()
