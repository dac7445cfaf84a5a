#!/usr/bin/env python3
"""Lariat beside llama.cpp on one shape, in one run, taking turns; writes docs/results/DATE-NAME.md.

  bench/peer_llama.py --llama-bench PATH [--name NAME] [--quick] [--threads 2] [--rounds 3] [--long-rounds 1]

Both engines get random weights of bench/shapes/smollm2-135m.json. A round runs every case of every
configuration once, each in a process of its own and after a warm-up (none before 16K of prefill); the table shows the median of the rounds. Cases of 16K
tokens run --long-rounds times. --quick is one round up to 4K. llama-bench is any build the caller gives.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from machine import ROOT, header, quiet_or_warn, run, spoken_command

SHAPE = ROOT / "bench/shapes/smollm2-135m.json"
LONG = 16384
DECODED = 64
# (engine, weights, KV, flash attention). The first of each engine runs the 16K cases too.
LARIAT = [("lariat", "bf16", "f16", None), ("lariat", "f32", "f32", None)]
LLAMA = [
    ("llama.cpp", "F16", "f16", "on"),
    ("llama.cpp", "F16", "f16", "off"),
    ("llama.cpp", "BF16", "f16", "on"),
    ("llama.cpp", "F32", "f16", "on"),
]
LONG_CONFIGS = LARIAT + LLAMA[:2]


def title(config):
    engine, weights, kv, flash = config
    return f"{engine} {weights}, {kv} KV" + (f", fa {flash}" if flash else "")


def case_title(case):
    kind, n = case
    return f"prefill {n}" if kind == "pp" else f"decode at {n}"


def lariat_command(args, config, case, out):
    _, weights, kv, _ = config
    kind, n = case
    work = ["--pp", str(n)] if kind == "pp" else ["--tg", str(DECODED), "--depth", str(n)]
    return [str(args.lariat), "bench", "--random-weights", str(SHAPE), *work, "--repeat", "1",
            "--warmup", "0" if case == ("pp", LONG) else "1", "--threads", str(args.threads), "--dtype", weights, "--kv-type", kv, "--json-out", str(out)]


def measure_lariat(args, config, case):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        run(lariat_command(args, config, case, out.name))
        record = json.loads(Path(out.name).read_text())["runs"][0]
    return record["prefill_tps" if case[0] == "pp" else "decode_tps"], max(record["peak_rss_bytes_per_rank"])


def llama_command(args, config, case, gguf):
    _, _, kv, flash = config
    kind, n = case
    work = ["-p", str(n), "-n", "0"] if kind == "pp" else ["-p", "0", "-n", str(DECODED), "-d", str(n)]
    work += ["--no-warmup"] if case == ("pp", LONG) else []
    return [str(args.llama_bench), "-m", str(gguf), *work, "-r", "1", "-t", str(args.threads), "-fa", flash,
            "-ctk", kv, "-ctv", kv, "-ngl", "0", "-o", "json"]


def measure_llama(args, config, case, gguf):
    return json.loads(run(llama_command(args, config, case, gguf)))[0]["avg_ts"], None


def table(configs, cases, results):
    lines = ["| | " + " | ".join(title(c) for c in configs) + " | ratio |", "|---" * (len(configs) + 2) + "|"]
    for case in cases:
        values = {c: statistics.median(results[(c, case)]) for c in configs if results.get((c, case))}
        ours = values.get(LARIAT[0])
        peer = max((values[c] for c in LLAMA[:2] if c in values), default=None)
        ratio = f"{ours / peer:.2f}" if ours and peer else ""
        shown = [f"{values[c]:.1f}" if c in values else "" for c in configs]
        lines.append(f"| {case_title(case)} | " + " | ".join(shown) + f" | {ratio} |")
    return "\n".join(lines)


def report(args, configs, cases, results, rss, seconds, load):
    peaks = ", ".join(f"{title(c)}: {v / 2**20:.0f} MiB" for c, v in rss.items())
    return f"""# Lariat beside llama.cpp, SmolLM2-135M shape

{header(load, seconds, args.command, f"; llama.cpp: {args.llama_version}")}

Shape: 30 layers, d 576, 9/3 heads, D 64, ffn 1536, vocabulary 49152, tied; random weights in both. Tokens a second, median of
{args.rounds} round(s) (16K: {args.long_rounds}) in which the engines take turns, {args.threads} threads each. Decode is {DECODED} tokens after the given depth. The ratio is
{title(LARIAT[0])} over the better of llama.cpp F16 with flash attention on and off.

{table(configs, cases, results)}

Peak resident memory of the longest case: {peaks}.
"""


def plan(args):
    cases = [("pp", 512), ("pp", 4096), ("tg", 0), ("tg", 4096)] + ([] if args.quick else [("pp", LONG), ("tg", LONG)])
    configs = LARIAT + (LLAMA[:2] if args.quick or args.f16_only else LLAMA)
    todo = []
    for r in range(max(args.rounds, args.long_rounds)):
        for case in cases:
            long_case = case[1] >= LONG
            if r >= (args.long_rounds if long_case else args.rounds):
                continue
            # Without flash attention llama.cpp prefills slower the longer the prompt: minutes that decide nothing.
            todo += [(c, case) for c in configs
                     if not long_case or (c in LONG_CONFIGS and not (case[0] == "pp" and c == LLAMA[1]))]
    order = [("pp", 512), ("pp", 4096), ("pp", LONG), ("tg", 0), ("tg", 4096), ("tg", LONG)]
    return configs, [c for c in order if c in cases], todo


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", required=True, type=Path)
    parser.add_argument("--llama-version", default="a native build", help="what to call the build in the report")
    parser.add_argument("--lariat", type=Path, default=ROOT / "build/release/bin/lariat")
    parser.add_argument("--name", default="llama-cpp-135m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long-rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--f16-only", action="store_true", help="leave out llama.cpp's BF16 and F32 files")
    parser.add_argument("--out-dir", type=Path, default=ROOT / "docs/results")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.long_rounds = 1, 0
    for tool in (args.lariat, args.llama_bench):
        if not os.access(tool, os.X_OK):
            sys.exit(f"{tool} is not a program; build it first")
    args.command = spoken_command(hidden=("--llama-bench", "--lariat"))
    load = quiet_or_warn()
    configs, cases, todo = plan(args)
    results, rss, start = {}, {}, time.monotonic()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    out = args.out_dir / f"{datetime.date.today()}-{args.name}{'-quick' if args.quick else ''}"
    with tempfile.TemporaryDirectory() as folder:
        for n, (config, case) in enumerate(todo, 1):
            if config[0] == "lariat":
                value, peak = measure_lariat(args, config, case)
                rss[config] = max(rss.get(config, 0), peak)
            else:
                gguf = Path(folder) / f"{config[1]}.gguf"
                if not gguf.exists():
                    run([sys.executable, str(ROOT / "bench/make_gguf.py"), str(SHAPE), config[1], str(gguf)])
                value, _ = measure_llama(args, config, case, gguf)
            results.setdefault((config, case), []).append(value)
            # After every case, so that a run that is cut short leaves what it measured.
            text = report(args, configs, cases, results, rss, time.monotonic() - start, load)
            out.with_suffix(".md").write_text(text)
            raw = [{"config": title(c), "case": case_title(k), "tok_s": v} for (c, k), v in results.items()]
            out.with_suffix(".json").write_text(json.dumps(raw, indent=1) + "\n")
            print(f"[{n}/{len(todo)}] {time.monotonic() - start:6.0f} s  {case_title(case)}, {title(config)}: {value:.1f} tok/s", flush=True)
    print(f"\n{text}\nwritten: {out}.md and .json")


if __name__ == "__main__":
    main()
