"""The real server as a child of the test, and what the system says of its processes. Standard library alone."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("LARIAT_BIN", ROOT / "build/release/bin/lariat"))
READY_TIMEOUT_S = 120
MIB = 1 << 20


class Fault(Exception):
    """What a test found wrong."""


def eventually(seconds, probe, what):
    """probe()'s first true value; a Fault after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > end:
            raise Fault(f"{what}: not within {seconds} s")
        time.sleep(0.01)


def process_state(pid):
    """R, S, D, T, Z, .. or None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def process_parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def children_of(parent):
    return sorted(int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and process_parent(p.name) == parent)


def rank_of(pid):
    """By its command line; None before it has one. Process numbers tell nothing: they begin anew now and then."""
    try:
        args = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(args[args.index("--rank") + 1]) if "--rank" in args else None


def ranks_of(head):
    """The pids of a head's ranks by rank, as far as they have begun."""
    pids = {rank_of(pid): pid for pid in children_of(head)}
    return [pids[rank] for rank in sorted(r for r in pids if r is not None)]


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def peak_rss_bytes(pid):
    """VmHWM, since the process began."""
    return int(re.search(r"^VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)[1]) * 1024


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads_of(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


class Server:
    """`lariat serve` with a temporary folder of its own, so that whatever it leaves there is seen."""

    def __init__(self, args, log, model="needle-5m", wait=True):
        self.args = list(args)
        self.model = model
        self.tmp = tempfile.TemporaryDirectory(prefix="lrt-", dir="/tmp")
        self.log_path = Path(log)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.start(wait)

    def start(self, wait=True):
        self.log = open(self.log_path, "ab")
        self.log_start = self.log.tell()
        self.process = subprocess.Popen(
            [str(BINARY), "serve", self.model, "--port", "0", *self.args], stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log, env={**os.environ, "TMPDIR": self.tmp.name})
        self.pid = self.process.pid
        self.port = None
        if wait:
            self.wait_listening()

    def log_text(self):
        with open(self.log_path, "rb") as f:
            f.seek(self.log_start)
            return f.read().decode(errors="replace")

    def wait_listening(self):
        def listening():
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", self.log_text())
            if not found and self.process.poll() is not None:
                raise Fault(f"the server ended with {self.process.returncode}: {self.log_text()[-2000:]}")
            return found
        self.port = int(eventually(READY_TIMEOUT_S, listening, "the server").group(1))

    def port_of_socket(self):
        """The port it listens at, known before it says so: from the system's table of its sockets."""
        mine = set()
        for fd in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                mine.add(os.readlink(fd))
            except FileNotFoundError:
                pass
        for line in Path(f"/proc/{self.pid}/net/tcp").read_text().splitlines()[1:]:
            f = line.split()
            if f[3] == "0A" and f"socket:[{f[9]}]" in mine:
                return int(f[1].split(":")[1], 16)
        return None

    def request(self, method, path, body=None, timeout=60):
        """(status, headers, text)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            r = c.getresponse()
            return r.status, dict(r.getheaders()), r.read().decode()
        finally:
            c.close()

    def state(self):
        return json.loads(self.request("GET", "/v1/lariat/state")[2])

    def health(self):
        status, _, text = self.request("GET", "/health")
        return status, json.loads(text)

    def metrics(self):
        """Every sample of /metrics: name with labels -> value."""
        text = self.request("GET", "/metrics")[2]
        return {m[1]: float(m[2]) for m in re.finditer(r"^(lariat_[^ ]+) (\S+)$", text, re.M)}

    def rank_pids(self):
        return [r["pid"] for r in self.state()["ranks"]]

    def wait_ready(self, seconds=60, epoch=0):
        def ready():
            s = self.state()
            return s if s["ready"] and s["epoch"] > epoch else None
        return eventually(seconds, ready, "a group that is ready")

    def wait_idle(self, seconds=10):
        def idle():
            s = self.state()
            return s if s["ready"] and not s["requests"] and s["kv_pages_used"] == 0 else None
        return eventually(seconds, idle, "no request and no page in use")

    def leftovers(self):
        """What the server's temporary folder holds: paths below it."""
        root = Path(self.tmp.name)
        return sorted(str(p.relative_to(root)) for p in root.rglob("*"))

    def stop(self):
        """Ends it as a user would; what it left behind is a Fault."""
        if self.process.poll() is None:
            pids = children_of(self.pid)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.kill()
                raise Fault("the server did not end on SIGTERM within 20 s")
            if left := [p for p in pids if process_state(p) is not None]:
                raise Fault(f"ranks {left} are left of a server that ended")
            if self.process.returncode != 0:
                raise Fault(f"the server ended with {self.process.returncode}")
            if left := self.leftovers():
                raise Fault(f"left in the temporary folder: {left}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.stop()
        finally:
            self.kill()
            self.log.close()
            self.tmp.cleanup()


class Stream(threading.Thread):
    """One streamed completion. Ends with `ids` by choice, or with `error`; every chunk's arrival is kept."""

    def __init__(self, server, body, timeout=120, on_tokens=None):
        super().__init__(daemon=True)
        self.port = server.port
        self.body = {"stream": True, "return_token_ids": True, **body}
        self.timeout = timeout
        self.on_tokens = on_tokens
        self.ids = {}
        self.logprobs = {}
        self.finish = {}
        self.times = []
        self.status = None
        self.error = None
        self.done = False
        self.retry = False
        self.socket = None
        self.aborted = False
        self.start()

    def count(self):
        return sum(len(i) for i in self.ids.values())

    def abort(self):
        self.aborted = True
        if (s := self.socket) is not None:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def run(self):
        try:
            self.read()
        except Exception as e:  # noqa: BLE001 - whatever it is, it is this stream's failure
            self.error = self.error or f"{type(e).__name__}: {e}"

    def read(self):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        try:
            c.connect()
            self.socket = c.sock
            c.request("POST", "/v1/completions", json.dumps(self.body), {"Content-Type": "application/json"})
            r = c.getresponse()
            self.status = r.status
            if r.status != 200:
                self.error = r.read().decode()
                return
            while line := r.readline():
                if line.startswith(b"data: "):
                    self.take(line[6:].strip())
            if not self.done and not self.error:
                self.error = "the stream ended without [DONE]"
        finally:
            c.close()

    def take(self, payload):
        if payload == b"[DONE]":
            self.done = True
            return
        event = json.loads(payload)
        if "error" in event:
            self.error = json.dumps(event["error"])
            return
        for choice in event["choices"]:
            index = choice["index"]
            if ids := choice.get("token_ids"):
                self.ids.setdefault(index, []).extend(ids)
                self.times.append(time.monotonic())
                if self.on_tokens:
                    self.on_tokens(len(ids))
            if choice.get("logprobs"):
                self.logprobs.setdefault(index, []).extend(choice["logprobs"]["token_logprobs"])
            if choice["finish_reason"]:
                if index in self.finish:
                    self.error = f"choice {index} finished twice"
                self.finish[index] = choice["finish_reason"]

    def outcome(self):
        """What a client can tell one run from another by."""
        return {"ids": {str(k): v for k, v in sorted(self.ids.items())},
                "finish": {str(k): v for k, v in sorted(self.finish.items())}}


def difference(wanted, got):
    """Where two outcomes differ, in words; empty if nowhere."""
    if wanted == got:
        return ""
    for index, ids in wanted["ids"].items():
        other = got["ids"].get(index, [])
        for i, (a, b) in enumerate(zip(ids, other)):
            if a != b:
                return f"choice {index}: token {i} is {b}, undisturbed {a}"
        if len(ids) != len(other):
            return f"choice {index}: {len(other)} tokens, undisturbed {len(ids)}"
    return f"finish {got['finish']}, undisturbed {wanted['finish']}"
