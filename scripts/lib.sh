# Shared by the scripts: where the tree is, how to speak, how to fail. Source it; it changes to the tree's root.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

say() { printf '%s\n' "$*"; }
step() { printf '== %s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# The compiler launcher in cmake/toolchain.cmake sets what makes a cache entry valid for every clone; the size
# is the only thing left to the environment.
export CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-10G}
JOBS=${LARIAT_JOBS:-$(nproc)}
