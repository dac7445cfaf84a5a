"""The requests that disturbed runs are measured by: text the embedded model knows, so that its answers are sure."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def haystack(sentences, seed):
    return subprocess.run([str(ROOT / "scripts/needle-prompt"), str(sentences), str(seed)],
                          check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def four_streams():
    """Long prefill, long decode, seeded draws, draws of two choices with penalty and log-probabilities."""
    return {
        "prefill": {"prompt": haystack(350, 3), "max_tokens": 24, "ignore_eos": True, "temperature": 0},
        "decode": {"prompt": haystack(20, 4), "max_tokens": 140, "ignore_eos": True, "temperature": 0},
        "seeded": {"prompt": haystack(120, 5), "max_tokens": 90, "ignore_eos": True, "temperature": 0.8, "seed": 11},
        "choices": {"prompt": haystack(40, 6), "max_tokens": 60, "ignore_eos": True, "temperature": 0.8, "seed": 12,
                    "n": 2, "frequency_penalty": 0.3, "logprobs": 2},
    }
