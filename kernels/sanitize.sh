#!/bin/sh
# The kernels under the address and undefined-behaviour sanitizers, which end a run at the first finding.
#
#   kernels/sanitize.sh                        the kernels' tests, the CUDA kernels' on the host among them, but no
#                                              statistics; the test of the sanitizers themselves, a little fuzzing
#   kernels/sanitize.sh build                  only compiles what the others run
#   kernels/sanitize.sh fuzz SECONDS [SEED]    random requests for so long, then random files and arguments as long
#   kernels/sanitize.sh python MODULE [...]    python -m MODULE on the sanitized kernels
#
# PYTHON=... chooses the interpreter, which must have the test extra.
set -eu
cd "$(dirname "$0")/.."
python=$(command -v "${PYTHON:-python}")
build=$PWD/build/sanitize

build() {
  [ -f "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || set -- -G Ninja
  # -O1 -g1: half of the usual time to compile, and most of the speed.
  cmake -S kernels -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" \
    -DLG_SANITIZE=ON -DLG_WERROR=ON -DPython_EXECUTABLE="$python" --log-level=WARNING "$@" >/dev/null
  cmake --build "$build" --parallel 2 >"$build/log" || { cat "$build/log"; return 1; }
}

# libstdc++ too: the sanitizer looks for __cxa_throw when it starts, before the module brings it.
# Python itself never frees all, so leaks say nothing there; the fuzz driver looks for them.
on_sanitized_kernels() {
  LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)" \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    GNNLOAD_SANITIZED="$build" "$python" -m tests.sanitized "$@"
}

run_tests() {
  on_sanitized_kernels pytest -q -p no:cacheprovider "$@"
}

fuzz_kernels() {
  "$build/fuzz/fuzz" --seconds "$1" --seed "$2"
}

fuzz_python() {
  on_sanitized_kernels tests.fuzz --seconds "$1" --seed "$2"
}

# The CUDA kernels are compiled with sanitizers, too (tests/cuda/host_build.py). The laws of draws need many of the same,
# and reach no memory that the others do not.
kernel_tests() {
  ls tests/ops/test_*.py | grep -v _conformance
  for of in device_driver emulated_libcuda emulator gather layers neighbors scan walks weighted; do
    echo "tests/cuda/test_$of.py"
  done
}

# In two processes, as continuous integration has two cores.
run_all() {
  { run_tests $(kernel_tests | awk 'NR % 2') && fuzz_kernels 10 0; } >"$build/half" 2>&1 &
  failed=0
  { run_tests $(kernel_tests | awk 'NR % 2 == 0') tests/fuzz/test_sanitizers.py && fuzz_python 10 0; } ||
    failed=1
  wait $! || failed=1
  cat "$build/half"
  return $failed
}

what=${1:-all}
[ $# -eq 0 ] || shift
case $what in
  build) build ;;
  all) build && run_all && echo "sanitize: no finding" ;;
  fuzz) build && fuzz_kernels "$1" "${2:-0}" && fuzz_python "$1" "${2:-0}" ;;
  python) build && on_sanitized_kernels "$@" ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
