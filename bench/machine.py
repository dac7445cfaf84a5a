"""What every report under docs/results says of the machine and the build, and how a command is run."""

import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CASE_TIMEOUT_S = 3600
ISA = ["sse4_2", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16"]


def run(command):
    """Standard output; ends the script, with the error's text, if the command fails or does not end."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CASE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        sys.exit(f"no end after {CASE_TIMEOUT_S} s: {' '.join(command)}")
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout


def git(*args):
    return subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True).stdout.strip()


def commit():
    return git("rev-parse", "--short", "HEAD")


def cpu():
    fields, flags = {}, []
    for line in Path("/proc/cpuinfo").read_text().split("\n"):
        key, _, value = (part.strip() for part in line.partition(":"))
        fields.setdefault(key, value)
        if key == "flags" and not flags:
            flags = value.split()
    isa = " ".join(f for f in ISA if f in flags)
    return f"{fields.get('model name', 'unknown')} (family {fields.get('cpu family')}, model {fields.get('model')}), {os.cpu_count()} cores; {isa}"


def quiet_or_warn():
    """The load average now, before anything was measured."""
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: load average {load:.2f}; numbers of a busy machine mean little", file=sys.stderr)
    return load


def spoken_command(hidden=()):
    """How this script was called; where a program of the caller's stands (the value after a hidden word) is left out."""
    words, hide = [], False
    for word in sys.argv[1:]:
        words.append("PATH" if hide else f'"{word}"' if " " in word else word)
        hide = word in hidden
    return " ".join(["bench/" + Path(sys.argv[0]).name, *words])


def header(load, seconds, command, others=""):
    dirty = " with local changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    return f"""- Date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC; Lariat {commit()}{dirty}{others}
- CPU: {cpu()}; {platform.system()} {platform.release()}
- Load average at the start: {load:.2f}; the run took {seconds / 60:.0f} min
- Command: `{command}`"""
