"""Runs tests of this folder:   python3 tests/loss/run.py NAME_test..   The last line is "N passed, N failed"."""

import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))

result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:]))
failed = len(result.failures) + len(result.errors)
print(f"{max(0, result.testsRun - failed)} passed, {failed} failed, {len(result.skipped)} skipped")
sys.exit(1 if failed else 0)
