"""Long prefills one after another through the same rank processes: the same output each time, no hang, flat memory."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from prompts import haystack  # noqa: E402
from server import MIB, ROOT, Server, Stream, rss_bytes  # noqa: E402

ANSWER_TIMEOUT_S = 60
GROWTH_MAX = 2 * MIB  # of each process's resident memory, from the second prefill of a length on


class Steady(unittest.TestCase):
    def test_prefills(self):
        """20 of 4K tokens, then 12 of 8K."""
        with Server(["--ranks", "3", "--threads", "1", "--context", "16384"], ROOT / "build/logs/steady-server.log") as server:
            pids = server.rank_pids()
            for sentences, tokens, times in ((370, 4000, 20), (740, 8000, 12)):
                prompt, first, before = haystack(sentences, 8), None, None
                count = server.request("POST", "/tokenize", {"prompt": prompt})[2]
                self.assertGreater(int(count.rsplit(":", 1)[1].rstrip("}\n ")), tokens)
                for n in range(times):
                    # No two share a salt: each is computed anew.
                    stream = Stream(server, {"prompt": prompt, "max_tokens": 4, "ignore_eos": True, "temperature": 0, "logprobs": 2, "cache_salt": f"{n}"},
                                    timeout=ANSWER_TIMEOUT_S)
                    stream.join()
                    self.assertIsNone(stream.error)
                    got = (stream.outcome(), stream.logprobs)
                    first = first or got
                    self.assertEqual(got, first, f"prefill {n + 1} of {tokens} tokens differs, if only in a log-probability")
                    if n == 1:
                        before = [rss_bytes(p) for p in (server.pid, *pids)]
                after = [rss_bytes(p) for p in (server.pid, *pids)]
                for name, a, b in zip(("head", "rank 0", "rank 1", "rank 2"), before, after):
                    self.assertLessEqual(b - a, GROWTH_MAX, f"{name} has grown from {a / MIB:.1f} to {b / MIB:.1f} MiB")
            state = server.wait_idle()
            self.assertEqual((state["epoch"], server.rank_pids()), (1, pids), "the same processes did all of it")


if __name__ == "__main__":
    unittest.main()
