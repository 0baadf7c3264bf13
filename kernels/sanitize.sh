#!/bin/sh
# The kernels under the address and undefined-behaviour sanitizers, which end a run at the first finding.
#
#   kernels/sanitize.sh                         build, tests/ops, the test of the sanitizers, a little fuzzing
#   kernels/sanitize.sh fuzz SECONDS [SEED]     build, random requests and files for so long
#   kernels/sanitize.sh python MODULE [...]     build, python -m MODULE on the sanitized kernels
#
# PYTHON=... chooses the interpreter, which must have the test extra.
set -eu
cd "$(dirname "$0")/.."
python=$(command -v "${PYTHON:-python}")
build=$PWD/build/sanitize

make_all() {
  [ -f "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || set -- -G Ninja
  cmake -S kernels -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DLG_SANITIZE=ON -DLG_WERROR=ON \
    -DPython_EXECUTABLE="$python" --log-level=WARNING "$@"
  cmake --build "$build" --parallel 2 >"$build/log" || { cat "$build/log"; return 1; }
}

# libstdc++ too: the sanitizer looks for __cxa_throw when it starts, before the module brings it.
# Python itself never frees all, so leaks say nothing there; the fuzz driver looks for them.
on_sanitized_kernels() {
  LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)" \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    GNNLOAD_SANITIZED="$build" "$python" -m tests.sanitized "$@"
}

fuzz() {
  "$build/fuzz/fuzz" --seconds "$1" --seed "$2"
  on_sanitized_kernels tests.fuzz --seconds "$1" --seed "$2"
}

what=${1:-all}
[ $# -eq 0 ] || shift
make_all
case $what in
  all)
    on_sanitized_kernels pytest tests/ops tests/fuzz/test_sanitizers.py -q -p no:cacheprovider
    fuzz 10 0
    echo "sanitize: no finding" ;;
  fuzz) fuzz "$1" "${2:-0}" ;;
  python) on_sanitized_kernels "$@" ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
