# Shared by the parts of scripts/test. A part prints "RESULT passed=N failed=N skipped=N" last.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# Names and lines in a sanitizer's report.
symbolizer=/usr/lib/llvm-19/bin/llvm-symbolizer
export ASAN_OPTIONS="external_symbolizer_path=$symbolizer" TSAN_OPTIONS="external_symbolizer_path=$symbolizer"

result() { echo "RESULT passed=$1 failed=$2 skipped=${3:-0}"; }

configure() { cmake --preset "$1" "${@:2}" || die "cmake --preset $1 failed"; }

# build PRESET [TARGET...]: everything if no target is named.
build() {
  local preset=$1
  shift
  if [ $# -eq 0 ]; then set -- all; fi
  cmake --build --preset "$preset" -j "$JOBS" --target "$@" || die "the $preset build failed"
}

# targets PRESET REGEX: the build's executables whose name matches, one a line.
targets() { ninja -C "build/$1" -t targets all | sed -n 's/^bin\/\([A-Za-z0-9_]*\): .*/\1/p' | grep -E "$2" || true; }

# run_ctest PRESET [ctest arguments]: runs and prints the RESULT line.
run_ctest() {
  local preset=$1 out code=0
  shift
  out=$(mktemp)
  ctest --test-dir "build/$preset" --output-on-failure --timeout "${CTEST_TIMEOUT:-300}" --no-tests=error -j "$JOBS" "$@" 2>&1 |
    tee "$out" || code=$?
  local total failed skipped
  total=$(sed -n 's/.* tests failed out of \([0-9]*\).*/\1/p' "$out" | tail -n 1)
  failed=$(sed -n 's/.*, \([0-9]*\) tests failed out of.*/\1/p' "$out" | tail -n 1)
  skipped=$(grep -cE '\*\*\*(Skipped|Not Run \(Disabled\))' "$out" || true)
  rm -f "$out"
  total=${total:-0} failed=${failed:-0}
  if [ "$code" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1 total=$((total + 1)); fi
  result $((total - failed - skipped)) "$failed" "$skipped"
  [ "$failed" -eq 0 ]
}

# sanitized PRESET MODULE...: builds the modules' tests and runs them. A module without a test is a fault.
sanitized() {
  local preset=$1 wanted=() module
  shift
  configure "$preset"
  for module in "$@"; do
    [ -n "$(targets "$preset" "^${module}_test$")" ] || die "there is no target ${module}_test"
    wanted+=("${module}_test")
  done
  build "$preset" "${wanted[@]}"
  local names
  names=$(IFS='|'; echo "$*")
  run_ctest "$preset" -R "^(${names})\\." ${CTEST_EXCLUDE:+-E "$CTEST_EXCLUDE"}
}

# scripted SCRIPT...: runs each; counts its "N passed, N failed" line, or itself as one.
scripted() {
  local script out passed=0 failed=0 line code p f
  out=$(mktemp)
  for script in "$@"; do
    code=0
    echo "-- $script"
    "$script" 2>&1 | tee "$out" || code=$?
    line=$(grep -oE '[0-9]+ passed, [0-9]+ failed' "$out" | tail -n 1 || true)
    if [ -n "$line" ]; then p=${line%% *} f=$(sed 's/.*, \([0-9]*\) failed/\1/' <<<"$line"); else p=1 f=0; fi
    if [ $code -ne 0 ] && [ "$f" -eq 0 ]; then f=1; [ -n "$line" ] || p=0; fi
    passed=$((passed + p)) failed=$((failed + f))
  done
  rm -f "$out"
  result "$passed" "$failed"
  [ "$failed" -eq 0 ]
}
