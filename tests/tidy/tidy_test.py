#!/usr/bin/env python3
"""Holds the tree to tests/tidy/rules.py, and each rule to an example that breaks it."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import rules

ROOT = Path(__file__).resolve().parents[2]


class Tree(unittest.TestCase):
    """The tree as it is: one test a rule."""


def _tree_test(rule):
    def test(self):
        faults = list(rule(ROOT))
        self.assertFalse(faults, "\n" + "\n".join(faults))

    return test


for _rule in rules.RULES:
    setattr(Tree, f"test_{_rule.__name__}", _tree_test(_rule))


class Format(unittest.TestCase):
    def test_clang_format(self):
        tool = shutil.which("clang-format-19")
        if not tool:
            self.skipTest("clang-format-19 is not installed")
        files = [str(p) for p in rules.sources(ROOT)]
        run = subprocess.run([tool, "--dry-run", "-Werror", *files], capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, 0, "\n" + run.stderr[:4000])


class RulesFire(unittest.TestCase):
    """Each rule on a small tree that breaks it, and on the nearest one that does not."""

    def faults(self, rule, files):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            subprocess.run(["git", "init", "-q", folder], check=True)
            subprocess.run(["git", "-C", folder, "add", "-A"], check=True)
            return list(rule(root))

    def check(self, rule, bad, good):
        for files in bad:
            self.assertEqual(len(self.faults(rule, files)), 1, files)
        for files in good:
            self.assertEqual(self.faults(rule, files), [], files)

    def test_include_directions(self):
        inc = '// x\n#include "{}"\n'.format
        self.check(
            rules.include_directions,
            bad=[
                {"src/ring/a.h": inc("tensor/t.h")},
                {"src/sched/a.cc": inc("comm/group.h")},
                {"src/api/a.cc": inc("sched/queue.h")},
                {"src/model/a.cc": inc("comm/gloo/g.h")},
                {"src/base/a.h": inc("app/main.h")},
                {"src/kv/a.cc": "#include <model/m.h>\n"},
                {"src/novel/a.h": "// x\n"},
            ],
            good=[
                {"src/attention/a.cc": inc("tensor/t.h")},
                {"src/api/a.cc": inc("sched/request.h")},
                {"src/model/a.cc": inc("comm/group.h")},
                {"src/http/a.cc": inc("sched/queue.h")},
                {"src/ring/a.cc": "#include <vector>\n"},
                {"src/ring/a_test.cc": inc("tensor/t.h")},
            ],
        )

    def test_cmake_directions(self):
        self.check(
            rules.cmake_directions,
            bad=[{"src/ring/CMakeLists.txt": "lariat_module(NAME ring DEPS base tensor)"}],
            good=[{"src/ops/CMakeLists.txt": "lariat_module(NAME ops DEPS base tensor LIBS hwy::hwy)"}],
        )

    def test_file_size(self):
        self.check(
            rules.file_size,
            bad=[{"src/ops/a.cc": "//\n" * 601}],
            good=[{"src/ops/a.cc": "//\n" * 600}],
        )

    def test_header_places(self):
        self.check(
            rules.header_places,
            bad=[
                {"src/ops/a.cc": "#include <cuda_runtime.h>\n"},
                {"src/comm/a.cc": "#include <nccl.h>\n"},
                {"src/comm/a.h": "#include <grpcpp/grpcpp.h>\n"},
                {"src/comm/b.h": '#include "comm/step.pb.h"\n'},
                {"src/app/a.cc": "#include <boost/beast/core.hpp>\n"},
            ],
            good=[
                {"src/ops/cuda/a.cc": "#include <cuda_runtime.h>\n"},
                {"src/comm/nccl/a.cc": "#include <nccl.h>\n"},
                {"src/comm/a.cc": "#include <grpcpp/grpcpp.h>\n"},
                {"src/http/a.cc": "#include <boost/beast/core.hpp>\n"},
            ],
        )

    def test_environment(self):
        self.check(
            rules.environment,
            bad=[{"src/ops/a.cc": 'auto* x = std::getenv("X");\n'}],
            good=[{"src/app/a.cc": 'getenv("X");\n'}, {"src/ops/a.cc": "// getenv\n"}],
        )

    def test_opening_comment(self):
        self.check(
            rules.opening_comment,
            bad=[{"src/ops/a.h": "#pragma once\n"}, {"src/ops/b.cc": "\n// late\n"}],
            good=[{"src/ops/a.h": "// a\n", "src/ops/a.cc": "\n", "src/ops/a_test.cc": "\n"}],
        )

    def test_pragma_once(self):
        self.check(rules.pragma_once, bad=[{"src/ops/a.h": "// a\n"}], good=[{"src/ops/a.h": "#pragma once\n"}])

    def test_sleeping_tests(self):
        self.check(
            rules.sleeping_tests,
            bad=[{"src/ops/a_test.cc": "std::this_thread::sleep_for(1ms);\n"}],
            good=[{"src/ops/a.cc": "std::this_thread::sleep_for(1ms);\n"}, {"src/ops/a_test.cc": '"sleep(1)";\n'}],
        )

    def test_private_paths(self):
        place = "/wo" + "rk/main"
        self.check(
            rules.private_paths,
            bad=[{"README.md": f"see {place}\n"}],
            good=[{"README.md": "see network/main and /work\n"}],
        )

    def test_doc_links(self):
        page = {"docs/a.md": '<a id="x"></a>'}
        self.check(
            rules.doc_links,
            bad=[{"src/ops/a.h": "// docs/b.md\n"}, {"src/ops/a.h": "// docs/a.md#y\n", **page}],
            good=[{"src/ops/a.h": "// docs/a.md#x, docs/a.md\n", **page}],
        )


if __name__ == "__main__":
    for count, path in sorted(rules.long_files(ROOT), reverse=True):
        print(f"long: {path} has {count} lines", file=sys.stderr)
    unittest.main(verbosity=1)
