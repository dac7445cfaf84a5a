"""C31: ranks killed, stopped and cut off one by one, at every moment, with restarts left and without; a killed head."""

import os
import re
import resource
import signal
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import disturb  # noqa: E402
from prompts import haystack  # noqa: E402
from server import ROOT, Fault, Server, Stream, children_of, cpu_seconds, difference, eventually, process_state, ranks_of  # noqa: E402

LOGS = ROOT / "build/logs"
FLAGS = ["--ranks", "3", "--threads", "1", "--context", "8192", "--heartbeat-timeout", "2"]
STREAM = {"prompt": haystack(30, 9), "max_tokens": 400, "ignore_eos": True, "temperature": 0.8, "seed": 5}
KINDS = ("kill", "stop", "cut")
CAUSES = {"kill": "signal 9", "stop": "no heartbeat", "cut": "is gone|session"}
DEADLINE_S = 10  # the report's bound for the error form


def strike(kind, pid):
    if kind == "cut":
        disturb.cut(pid, disturb.tcp_sockets(pid)[0], "both")
    else:
        os.kill(pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)


def begun(server, body):
    """A stream that has brought its first token."""
    first = threading.Event()
    stream = Stream(server, body, on_tokens=lambda _: first.set())
    if not first.wait(60):
        raise Fault(f"no token within 60 s: {stream.error}")
    return stream


def all_gone(pids, seconds):
    eventually(seconds, lambda: all(process_state(p) is None for p in pids), f"the end of {pids}")


class Watcher(threading.Thread):
    """Asks for /health and a small completion over and over; keeps every answer."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.ended = server, threading.Event()
        self.health, self.answers, self.waiting = [], [], []
        self.start()

    def run(self):
        while not self.ended.is_set():
            status, body = self.server.health()
            self.health.append((status, body.get("reason", "")))
            if "waiting to start" in body.get("reason", ""):
                # Only what is seen before and after the same question counts: meanwhile the group may have formed.
                children = children_of(self.server.pid)
                if "waiting to start" in self.server.health()[1].get("reason", ""):
                    self.waiting.append(children)
            begun = time.monotonic()
            status, headers, text = self.server.request("POST", "/v1/completions", {"prompt": "The", "max_tokens": 1})
            self.answers.append((status, headers, text, time.monotonic() - begun))

    def end(self):
        self.ended.set()
        self.join()


class Recovers(unittest.TestCase):
    def setUp(self):
        self.server = Server(FLAGS, LOGS / "failures-server.log")
        self.addCleanup(self.server.__exit__, Fault, None, None)
        alone = Stream(self.server, STREAM)
        alone.join()
        self.assertIsNone(alone.error)
        self.wanted = alone.outcome()

    def test_each_rank_in_each_way(self):
        """(a) (b) (c): the stream goes on with its tokens, whichever rank it is."""
        epoch = 1
        for kind in KINDS:
            for rank in range(3):
                with self.subTest(kind=kind, rank=rank):
                    stream = begun(self.server, STREAM)
                    old = self.server.rank_pids()
                    strike(kind, old[rank])
                    stream.join()
                    self.assertIsNone(stream.error)
                    self.assertEqual(difference(self.wanted, stream.outcome()), "")
                    state = self.server.wait_ready(60, epoch)
                    self.assertEqual(state["epoch"], epoch := epoch + 1)
                    all_gone(old, 0)
                    blamed = state["last_recovery"]
                    if kind != "cut":  # of a connection, either end may be the one to blame
                        self.assertEqual(blamed["rank"], rank, blamed)
                    self.assertRegex(blamed["cause"], CAUSES[kind])
        self.server.wait_idle()
        self.server.stop()

    def test_idle(self):
        """(d): noticed without a request."""
        epoch = 1
        for kind in KINDS:
            for rank in range(3):
                with self.subTest(kind=kind, rank=rank):
                    old = self.server.rank_pids()
                    strike(kind, old[rank])
                    state = self.server.wait_ready(DEADLINE_S, epoch)
                    self.assertEqual(state["epoch"], epoch := epoch + 1)
                    if kind != "cut":
                        self.assertEqual(state["last_recovery"]["rank"], rank, state["last_recovery"])
                    self.assertRegex(state["last_recovery"]["cause"], CAUSES[kind])
                    self.assertIsNone(state["last_recovery"]["recomputed_ms"])
                    self.assertFalse(set(old) & {r["pid"] for r in state["ranks"]})
                    all_gone(old, 0)
        metrics = self.server.metrics()
        self.assertEqual(metrics["lariat_epoch"], epoch)
        self.assertEqual(metrics['lariat_rank_restarts_total{rank="2"}'], epoch - 1)
        self.assertEqual(metrics["lariat_worker_restarts_total"], epoch - 1)
        self.assertLess(metrics['lariat_rank_heartbeat_age_seconds{rank="0"}'], 2)
        self.server.stop()

    def test_stuck_in_compute(self):
        """A rank that keeps the others waiting leaves every thread's stack and exit code 70; the stream goes on."""
        self.stuck(rank=2, waiting=False)

    def test_stuck_in_a_wait(self):
        """The same of one that does not wake up when what it waits for has come."""
        for rank in (0, 1):
            with self.subTest(rank=rank):
                self.stuck(rank, waiting=True)
                self.server.start()

    def stuck(self, rank, waiting):
        self.server.stop()
        # Its peers know it after 2 s. In the last wait of a step it has nobody who waits for it but the head: then its
        # own watchdog tells.
        self.server.args = [*FLAGS, "--comm-timeout", "2", "--stall-timeout", "8"]
        self.server.start()
        stream = begun(self.server, STREAM)
        long = Stream(self.server, {"prompt": haystack(500, 7), "max_tokens": 2})
        hang = disturb.Hang(self.server.rank_pids()[rank], waiting)  # the main thread computes
        code = hang.wait_ended()
        long.join()
        self.assertIsNone(long.error)
        stream.join()
        self.assertEqual(code, 70)
        self.assertIsNone(stream.error)
        self.assertEqual(difference(self.wanted, stream.outcome()), "")
        self.assertRegex(self.server.wait_ready(60, 1)["last_recovery"]["cause"], rf"rank {rank} .*exit code 70")
        self.assertRegex(self.server.log_text(), r"stalled: (rank \d waited|no progress) in [^\n]*\n(.*\n)*.*worker_main\.cc:\d+")
        self.server.wait_idle()
        self.server.stop()

    def test_out_of_memory(self):
        """A rank that gets no more memory ends; the stream does not."""
        stream = begun(self.server, STREAM)
        pid = self.server.rank_pids()[1]
        # No more memory at all. Blocks of any size still come from what the process holds, so long prompts follow.
        resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
        others = [Stream(self.server, {"prompt": haystack(300, seed), "max_tokens": 2, "logprobs": 5, "echo": True}) for seed in range(1, 5)]
        for s in [stream, *others]:
            s.join()
        self.assertIsNone(stream.error)
        self.assertEqual(difference(self.wanted, stream.outcome()), "")
        self.assertGreater(self.server.state()["epoch"], 1, "the rank did not need any memory")
        self.server.wait_idle()
        self.server.stop()


class Layouts(unittest.TestCase):
    def test_a_rank_killed_under_each(self):
        for flags in (["--layout", "tp=2"], ["--layout", "tp=4"], ["--layout", "tp=2,cp=2"],
                      ["--ranks", "3", "--kv", "replicated"], ["--ranks", "2", "--rank-shares", "3,1"]):
            with self.subTest(flags=flags), Server([*flags, "--threads", "1", "--context", "8192"],
                                                   LOGS / "failures-server.log") as server:
                alone = Stream(server, STREAM)
                alone.join()
                self.assertIsNone(alone.error)
                pids = server.rank_pids()
                self.lose(server, alone.outcome(), [pids[-1]])
                self.lose(server, alone.outcome(), [server.rank_pids()[0]])
                server.wait_idle()

    def test_several_at_once(self):
        with Server(FLAGS, LOGS / "failures-server.log") as server:
            alone = Stream(server, STREAM)
            alone.join()
            self.assertIsNone(alone.error)
            for ranks in ([0, 2], [0, 1, 2]):
                pids = server.rank_pids()
                self.lose(server, alone.outcome(), [pids[r] for r in ranks])
            server.wait_idle()

    def lose(self, server, wanted, pids):
        epoch = server.state()["epoch"]
        stream = begun(server, STREAM)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        stream.join()
        self.assertIsNone(stream.error)
        self.assertEqual(difference(wanted, stream.outcome()), "")
        self.assertEqual(server.wait_ready(60, epoch)["epoch"], epoch + 1)


class Spent(unittest.TestCase):
    def test_each_rank_in_each_way(self):
        """With restarts spent the stream ends in an error that names rank and cause, within 10 s; others get 503."""
        with Server([*FLAGS, "--max-restarts", "0"], LOGS / "failures-server.log") as server:
            epoch = 0
            for kind in KINDS:
                for rank in range(3):
                    with self.subTest(kind=kind, rank=rank):
                        epoch = server.wait_ready(60, epoch)["epoch"]
                        self.spent(server, kind, rank)

    def spent(self, server, kind, rank):
        stream = begun(server, {**STREAM, "max_tokens": 5000})
        pids = server.rank_pids()
        watcher = Watcher(server)
        struck = time.monotonic()
        strike(kind, pids[rank])
        stream.join()
        took = time.monotonic() - struck
        eventually(DEADLINE_S, lambda: any(s == 503 for s, _, _, _ in watcher.answers) and watcher.waiting, "a refusal while there is no group")
        server.wait_ready(60)
        watcher.end()
        self.assertLess(took, DEADLINE_S)
        self.assertFalse(stream.done, "an error is no normal end")
        self.assertEqual(stream.finish, {})
        named = r"rank \d" if kind == "cut" else f"rank {rank}"
        cause = {"kill": r"signal 9|is gone", "stop": "no heartbeat", "cut": "is gone|session"}[kind]
        for text in (stream.error or "", *(r for s, r in watcher.health if s == 503 and "waiting" in r)):
            self.assertRegex(text, named)
            self.assertRegex(text, cause)
        self.assertTrue(any(s == 503 for s, _ in watcher.health))
        for status, headers, text, seconds in watcher.answers:
            # One that was under way when the rank was lost shares the stream's end.
            self.assertIn(status, (200, 500, 503), text)
            if status == 503:
                self.assertIn("Retry-After", headers)
                self.assertLess(seconds, 2, "refused at once")
        self.assertTrue(all(c == [] for c in watcher.waiting), f"ranks {watcher.waiting} while there is no group")
        all_gone(pids, 0)
        server.wait_idle()


class Starting(unittest.TestCase):
    def starting(self, *flags):
        """A server whose ranks have processes and are not ready yet, and their pids."""
        server = Server([*FLAGS, *flags], LOGS / "failures-server.log", wait=False)
        self.addCleanup(server.__exit__, Fault, None, None)
        server.port = eventually(30, server.port_of_socket, "a port")
        pids = eventually(30, lambda: p if len(p := ranks_of(server.pid)) == 3 else None, "three ranks")
        return server, pids

    def test_a_rank_killed(self):
        """(e): killed before the last one joined; with restarts left the group forms all the same."""
        for rank in range(3):
            with self.subTest(rank=rank):
                server, pids = self.starting()
                os.kill(pids[rank], signal.SIGKILL)
                state = server.wait_ready(60, 1)
                self.assertEqual(state["epoch"], 2)
                all_gone(pids, 0)
                self.assertEqual(state["last_recovery"]["rank"], rank, state["last_recovery"])
                server.wait_listening()
                server.stop()

    def test_a_rank_killed_without_restarts(self):
        for rank in range(3):
            with self.subTest(rank=rank):
                server, pids = self.starting("--max-restarts", "0")
                os.kill(pids[rank], signal.SIGKILL)
                server.process.wait(timeout=DEADLINE_S)
                self.assertEqual(server.process.returncode, 1)
                self.assertRegex(server.log_text(), f"rank {rank} .*signal 9")
                all_gone(pids, 0)
                self.assertEqual(server.leftovers(), [])

    def test_a_rank_stopped_without_restarts(self):
        """(e): one that never joins is waited for until the limit, and named."""
        server, pids = self.starting("--max-restarts", "0")
        os.kill(pids[1], signal.SIGSTOP)
        server.process.wait(timeout=30 + DEADLINE_S)
        self.assertEqual(server.process.returncode, 1)
        self.assertRegex(server.log_text(), "rank 1 .*(no sign of life|no heartbeat)")
        all_gone(pids, 0)
        self.assertEqual(server.leftovers(), [])

    def test_health_tells_what_forming_waits_for(self):
        server, pids = self.starting()
        os.kill(pids[1], signal.SIGSTOP)
        try:
            status, body = server.health()
            self.assertEqual(status, 503)
            self.assertRegex(body["reason"], r"rank \d: ")
            status, headers, text = server.request("POST", "/v1/completions", {"prompt": "The"})
            self.assertEqual(status, 503, text)
            self.assertIn("Retry-After", headers)
            self.assertRegex(text, r"rank \d: ")
            self.assertEqual(server.metrics()["lariat_ready"], 0)
        finally:
            os.kill(pids[1], signal.SIGCONT)
        server.wait_listening()
        self.assertEqual(server.health()[0], 200)
        server.stop()


class Head(unittest.TestCase):
    def killed(self, prepare):
        """The head gone by SIGKILL: its ranks follow within 3 s, and the next start clears what it left."""
        server = Server(FLAGS, LOGS / "failures-server.log")
        self.addCleanup(server.__exit__, Fault, None, None)
        pids = prepare(server)
        server.kill()
        all_gone(pids, 3)
        server.start()
        self.assertEqual(server.health()[0], 200)
        own = {p.split("/")[0] for p in server.leftovers()}
        self.assertEqual(len(own), 1, f"more than this server's folder: {own}")
        server.stop()

    def test_idle(self):
        self.killed(lambda server: server.rank_pids())

    def test_streaming(self):
        def prepare(server):
            begun(server, {**STREAM, "max_tokens": 5000})
            return server.rank_pids()
        self.killed(prepare)

    def test_with_a_stopped_rank(self):
        def prepare(server):
            pids = server.rank_pids()
            os.kill(pids[2], signal.SIGSTOP)
            return pids
        self.killed(prepare)

    def test_while_forming(self):
        server = Server(FLAGS, LOGS / "failures-server.log", wait=False)
        self.addCleanup(server.__exit__, Fault, None, None)
        pids = eventually(30, lambda: children_of(server.pid), "a rank")
        server.kill()
        all_gone(pids, 3)
        server.start()
        self.assertEqual(len({p.split("/")[0] for p in server.leftovers()}), 1)
        server.stop()


if __name__ == "__main__":
    unittest.main()
