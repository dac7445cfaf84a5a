#!/usr/bin/env python3
"""What splitting costs: two ranks of one thread beside one rank of two threads, on the same cores; writes
docs/results/DATE-split-cost.md.

  bench/split_cost.py [--rounds 3] [--quick] [--kv-type bf16]

Ranks are processes that share one packed copy of the weights and talk over Gloo, as under `lariat serve`. cp=2 runs the
SmolLM2-135M shape; its 9 query heads do not divide by 2, so tp=2 runs the same shape with 8 query and 4 KV heads. The
layouts take turns; the table shows medians of the rounds. --quick is one round of 2K of prefill and a depth of 2K.

A limit for decode comes from bytes alone, with the memory bus as the only resource: one rank reads W of weights
and K of keys and values a token; each cp rank reads all of W and half of K, so 2 ranks move 2W + K and the limit
is (W + K) / (2W + K); tp ranks read halves of both, so their limit is 1.
"""

import argparse
import datetime
import json
import statistics
import tempfile
import time
from pathlib import Path

from machine import ROOT, header, quiet_or_warn, run, spoken_command

DECODED = 64
KV_BYTES = {"f32": 4, "bf16": 2, "f16": 2}
WEIGHT_BYTES = 2  # bf16
# (axis, shape, layout flags); one rank of two threads first.
PAIRS = [
    ("cp", "smollm2-135m", ["--ranks", "1", "--threads", "2"], ["--layout", "tp=1,cp=2", "--threads", "1"]),
    ("tp", "llama-135m-8h", ["--ranks", "1", "--threads", "2"], ["--layout", "tp=2,cp=1", "--threads", "1"]),
]


def measure(args, shape, layout, work):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        run([str(args.lariat), "bench", "--random-weights", str(ROOT / f"bench/shapes/{shape}.json"), *layout, *work,
             "--dtype", "bf16", "--kv-type", args.kv_type, "--repeat", "1", "--warmup", "0" if "--pp" in work else "1",
             "--json-out", out.name])
        return json.loads(Path(out.name).read_text())["runs"][0]


def decode_limit(axis, shape, depth, kv_type):
    if axis == "tp":
        return 1.0
    c = json.loads((ROOT / f"bench/shapes/{shape}.json").read_text())
    kv_width = c["num_key_value_heads"] * c["head_dim"]
    q_width = c["num_attention_heads"] * c["head_dim"]
    layer = c["hidden_size"] * (2 * q_width + 2 * kv_width + 3 * c["intermediate_size"])
    weights = WEIGHT_BYTES * (c["num_hidden_layers"] * layer + c["vocab_size"] * c["hidden_size"])
    kv = KV_BYTES[kv_type] * 2 * kv_width * c["num_hidden_layers"] * depth
    return (weights + kv) / (2 * weights + kv)


def speed(record):
    return record["prefill_tps"] or record["decode_tps"]


def duration_ms(record):
    return record["ttft_ms"] or record["tg"] / record["decode_tps"] * 1000


def waits(record):
    """Each rank's wait on others, as a share of the measured time."""
    return [ms / duration_ms(record) for ms in record["comm_wait_ms_per_rank"]]


def row(args, axis, shape, name, depth, one, two):
    a, b = (statistics.median(speed(r) for r in records) for records in (one, two))
    limit = 1.0 if depth is None else decode_limit(axis, shape, depth, args.kv_type)
    wait = max(statistics.median(w) for w in zip(*(waits(r) for r in two)))
    return f"| {name} | {axis}=2 | {a:.1f} | {b:.1f} | {b / a:.2f} | {limit:.2f} | {b / a / limit:.2f} | {100 * wait:.1f} % |"


def memory_row(shape, layout, record):
    mib = lambda values: ", ".join(f"{v / 2**20:.1f}" for v in values)
    return f"| {shape} | {layout} | {mib(record['kv_bytes_per_rank'])} | {record['weights_bytes_shared'] / 2**20:.1f} | {mib(record['pss_bytes_per_rank'])} |"


def report(args, results, cases, seconds, load):
    lines, memory = [], []
    for axis, shape, _, _ in PAIRS:
        for name, _, depth in cases:
            one, two = results.get((axis, name, 1)), results.get((axis, name, 2))
            if one and two:
                lines.append(row(args, axis, shape, name, depth, one, two))
                if depth is not None:
                    memory += [memory_row(shape, "one rank", one[-1]), memory_row(shape, f"{axis}=2", two[-1])]
    body, held = "\n".join(lines), "\n".join(memory)
    return f"""# The cost of the split

{header(load, seconds, args.command)}

Two ranks of one thread (processes over Gloo) beside one rank of two threads, bf16 weights, {args.kv_type} K and V, median of
{args.rounds} round(s) in which the layouts take turns. cp=2: SmolLM2-135M shape; tp=2: the same with 8 query and 4 KV heads, for 9 do
not divide by 2. Decode is {DECODED} tokens. The limit of decode is what bytes allow (bench/split_cost.py); the wait is the larger
rank's time spent waiting on the other, as a share of the measured time.

| | layout | one rank tok/s | two ranks tok/s | ratio | limit | of the limit | wait |
|---|---|---|---|---|---|---|---|
{body}

Memory at the decode's depth, MiB a rank: pages of K and V in use, packed weights (one copy, shared), and each process's proportional
share (PSS) of all it has mapped.

| shape | layout | K and V | weights, once | PSS |
|---|---|---|---|---|
{held}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lariat", type=Path, default=ROOT / "build/release/bin/lariat")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kv-type", choices=list(KV_BYTES), default="bf16")
    parser.add_argument("--out-dir", type=Path, default=ROOT / "docs/results")
    args = parser.parse_args()
    args.command, load = spoken_command(hidden=("--lariat",)), quiet_or_warn()
    args.rounds = 1 if args.quick else args.rounds
    lengths, deep = ([2048], 2048) if args.quick else ([8192, 16384], 16384)
    cases = [(f"prefill {n}", ["--pp", str(n)], None) for n in lengths]
    cases.append((f"decode at {deep}", ["--tg", str(DECODED), "--depth", str(deep)], deep))
    out = args.out_dir / f"{datetime.date.today()}-split-cost{'-quick' if args.quick else ''}.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    results, start = {}, time.monotonic()
    for n in range(args.rounds):
        for axis, shape, one, two in PAIRS:
            for name, work, _ in cases:
                for ranks, layout in ((1, one), (2, two)):
                    record = measure(args, shape, layout, work)
                    results.setdefault((axis, name, ranks), []).append(record)
                    print(f"{time.monotonic() - start:6.0f} s  round {n + 1}, {axis}, {ranks} rank(s), {name}: {speed(record):.1f} tok/s", flush=True)
                # After every pair, so that a run that is cut short leaves what it measured.
                out.write_text(report(args, results, cases, time.monotonic() - start, load))
    print(f"\n{out.read_text()}\nwritten: {out}")


if __name__ == "__main__":
    main()
