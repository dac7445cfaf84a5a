"""The project's habits as checks (CONTRIBUTING.md, docs/design.md section 6). Each rule yields "path:line: fault"."""

import re
import subprocess
from pathlib import Path

# What a module may include beside itself and base; what those may include follows from it.
DIRECT = {
    "base": [],
    "tensor": [],
    "placement": [],
    "ring": [],
    "tokenizer": [],
    "cluster": [],
    "plan": ["placement", "ring"],
    "pages": ["placement", "ring"],
    "ops": ["tensor"],
    "weights": ["tensor"],
    "comm": ["tensor", "plan"],
    "kv": ["ops", "plan"],
    "attention": ["ops", "kv", "ring", "placement", "comm"],
    "model": ["ops", "weights", "attention", "comm"],
    "sched": ["plan", "pages"],
    "worker": ["model", "attention", "kv", "comm", "plan"],
    "head": ["sched", "plan", "comm", "tokenizer"],
    "api": ["tokenizer"],
    "http": ["api", "head"],
}
DIRECT["app"] = [m for m in DIRECT if m != "base"]
# Single headers of a module that another may include though it may not include the module.
HEADERS = {"api": ["sched/request.h"]}
# Modules of which only the interface is open to the named module: headers in the folder, not in its subfolders.
INTERFACE_ONLY = {"model": ["attention", "comm"]}

# Libraries that are not modules of src/, and who links them: models/ as bytes.
NOT_MODULES = {"embedded": ["app"]}

LINES_MAX = 600
LINES_WARN = 300
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|nccl|cooperative_groups|nvml|mma\.h)")
# Written in two parts so that this file passes its own rule.
PRIVATE_PATH = re.compile(r"(?<![\w.])/wo" r"rk/\w")


def closure(module):
    seen, todo = {"base", module}, [module]
    while todo:
        for m in DIRECT[todo.pop()]:
            if m not in seen:
                seen.add(m)
                todo.append(m)
    return seen


CLOSURE = {m: closure(m) for m in DIRECT}


def is_test(path):
    return re.search(r"_(test|fuzz|bench)(_\w+)?$|^test_|_test_", path.stem) is not None


def sources(root):
    return sorted(p for p in (root / "src").rglob("*") if p.suffix in SOURCE_SUFFIXES and p.is_file())


def lines_of(path):
    return path.read_text(encoding="utf-8", errors="replace").split("\n")


def code_lines(path):
    """(number, text) of each line with comments and string contents taken out."""
    text = path.read_text(encoding="utf-8", errors="replace")
    blank = lambda m: re.sub(r"[^\n]", " ", m.group(0))
    keep = lambda m: blank(m) if m.group(0).startswith("/") else '"' + blank(m)[2:] + '"'
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', keep, text, flags=re.S)
    return list(enumerate(text.split("\n"), 1))


def includes(path):
    for number, line in enumerate(lines_of(path), 1):
        m = INCLUDE.match(line)
        if m:
            yield number, m.group(1), m.group(2)


def allowed(module, header):
    """None if a file of `module` may include `header` ("other/x.h"), else the reason."""
    other = header.split("/")[0]
    if other == module:
        return None
    if header in HEADERS.get(module, []):
        return None
    if other not in CLOSURE[module]:
        return f"{module} may not include {other} (docs/design.md section 6)"
    if other in INTERFACE_ONLY.get(module, []) and header.count("/") > 1:
        return f"{module} may include the interface headers of {other} only"
    return None


def include_directions(root):
    src = root / "src"
    for path in sources(root):
        rel = path.relative_to(src)
        module = rel.parts[0]
        if module not in DIRECT:
            yield f"{path.relative_to(root)}:1: unknown module {module}: add it to tests/tidy/rules.py and design.md"
            continue
        if is_test(path):
            continue
        for number, mark, header in includes(path):
            if mark != '"' and header.split("/")[0] not in DIRECT:
                continue
            if not (src / header).is_file() and header.split("/")[0] not in DIRECT:
                continue
            reason = allowed(module, header)
            if reason:
                yield f"{path.relative_to(root)}:{number}: {reason}"


def cmake_directions(root):
    for path in sorted((root / "src").glob("*/CMakeLists.txt")):
        text = path.read_text()
        for m in re.finditer(r"lariat_module\(\s*NAME\s+(\w+)([^)]*)\)", text):
            module, rest = m.group(1).split("_")[0], m.group(2)
            deps = re.search(r"\bDEPS\s+((?:[a-z_]+\s*)+)", rest)
            for dep in deps.group(1).split() if deps else []:
                # comm_local is a library of the module comm.
                home = dep if dep in DIRECT else dep.split("_")[0]
                known = module in CLOSURE and home in CLOSURE[module] or module in NOT_MODULES.get(dep, [])
                if not known and not any(h.startswith(dep + "/") for h in HEADERS.get(module, [])):
                    yield f"{path.relative_to(root)}:1: {module} may not depend on {dep} (docs/design.md section 6)"


def file_size(root):
    for path in sources(root):
        count = len(lines_of(path)) - 1
        if count > LINES_MAX:
            yield f"{path.relative_to(root)}:{count}: {count} lines, more than {LINES_MAX}: it is two files"


def long_files(root):
    """Not a fault: files past the size that reads well."""
    return [(n, p.relative_to(root)) for p in sources(root) if (n := len(lines_of(p)) - 1) > LINES_WARN]


def header_places(root):
    """CUDA, gRPC, protobuf and Beast stay where design.md puts them."""
    for path in sources(root):
        rel = path.relative_to(root)
        parts = rel.parts[1:]
        for number, _, header in includes(path):
            if CUDA_HEADER.match(header) and "cuda" not in parts and parts[:2] != ("comm", "nccl"):
                yield f"{rel}:{number}: CUDA and NCCL headers belong under */cuda and comm/nccl"
            if path.suffix == ".h" and re.search(r"^(grpc|grpcpp|google/protobuf)/|\.pb\.h$", header):
                yield f"{rel}:{number}: gRPC and protobuf headers belong in .cc files"
            if header.startswith("boost/beast") and parts[0] != "http":
                yield f"{rel}:{number}: Beast belongs in src/http"


def environment(root):
    for path in sources(root):
        if path.relative_to(root).parts[1] == "app" or is_test(path):
            continue
        for number, line in code_lines(path):
            if re.search(r"\b(secure_)?getenv\b", line):
                yield f"{path.relative_to(root)}:{number}: only src/app reads the environment"


def opening_comment(root):
    """A header, and a source file without a header of its name beside it, says first what it is. Tests name it."""
    for path in sources(root):
        if path.suffix != ".h" and (is_test(path) or path.with_suffix(".h").exists()):
            continue
        if not lines_of(path)[0].startswith("//"):
            yield f"{path.relative_to(root)}:1: opens without a comment that says what it is"


def pragma_once(root):
    for path in sources(root):
        # Highway's headers are compiled once a target and guard themselves by HWY_TARGET_TOGGLE.
        if path.suffix == ".h" and not any("#pragma once" in l or "HWY_TARGET_TOGGLE" in l for l in lines_of(path)):
            yield f"{path.relative_to(root)}:1: no #pragma once"


def sleeping_tests(root):
    for path in sources(root):
        if not path.stem.endswith("_test"):
            continue
        for number, line in code_lines(path):
            if re.search(r"\bsleep_(for|until)\b|\bu?sleep\s*\(", line):
                yield f"{path.relative_to(root)}:{number}: a test that sleeps hides a race: wait for the event with a deadline"


def tracked(root):
    out = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=False)
    return [root / n for n in out.stdout.decode().split("\0") if n]


def private_paths(root):
    for path in tracked(root):
        if not path.is_file() or path.stat().st_size > 1 << 20:
            continue
        data = path.read_bytes()
        if b"\0" in data[:4096]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
            if PRIVATE_PATH.search(line):
                yield f"{path.relative_to(root)}:{number}: a path of one machine"


DOC_LINK = re.compile(r"\bdocs/[\w./-]+\.md(?:#[\w-]+)?")


def doc_links(root):
    """A page or an anchor of docs/ that the tree names is there."""
    for path in tracked(root):
        if path.suffix not in {".h", ".cc", ".md", ".proto", ".txt", ".cmake"} or not path.is_file():
            continue
        for number, line in enumerate(lines_of(path), 1):
            for link in DOC_LINK.findall(line):
                page, _, anchor = link.partition("#")
                if "DATE" in page:
                    continue
                if not (root / page).is_file():
                    yield f"{path.relative_to(root)}:{number}: there is no {page}"
                elif anchor and f'id="{anchor}"' not in (root / page).read_text():
                    yield f"{path.relative_to(root)}:{number}: {page} has no anchor {anchor}"


RULES = [
    include_directions,
    cmake_directions,
    file_size,
    header_places,
    environment,
    opening_comment,
    pragma_once,
    sleeping_tests,
    private_paths,
    doc_links,
]
