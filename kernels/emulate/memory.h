// memory.h: atomic operations, fences, and loads and stores that name a cache.
//
// Atomic operations take 32 and 64 bits, signed or not: the host's int64_t is another type than the
// device's.
#pragma once

#include <type_traits>

#include "emulate/machine.h"

namespace emulate {

template <class T>
using Given = std::common_type_t<T>;  // not deduced: the pointer says the type

template <class T, class Change>
T change(T* address, Change changed) {
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "32 or 64 bits");
  give_way();
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &old, changed(old), false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST)) {
  }
  return old;
}

}  // namespace emulate

#define LG_ATOMIC(name, expression)                                          \
  template <class T>                                                         \
  T name(T* address, emulate::Given<T> value) {                              \
    return emulate::change(address, [=](T old) -> T { return expression; }); \
  }
LG_ATOMIC(atomicAdd, old + value)
LG_ATOMIC(atomicSub, old - value)
LG_ATOMIC(atomicMin, old < value ? old : value)
LG_ATOMIC(atomicMax, old < value ? value : old)
LG_ATOMIC(atomicAnd, old& value)
LG_ATOMIC(atomicOr, old | value)
LG_ATOMIC(atomicXor, old ^ value)
#undef LG_ATOMIC

template <class T>
T atomicExch(T* address, emulate::Given<T> value) {
  return emulate::change(address, [=](T) { return value; });
}

template <class T>
T atomicCAS(T* address, emulate::Given<T> expected, emulate::Given<T> value) {
  return emulate::change(address, [=](T old) { return old == expected ? value : old; });
}

inline void __threadfence() { emulate::give_way(); }
inline void __threadfence_block() { emulate::give_way(); }
// Other processes, which emulate other devices, run at the same time.
inline void __threadfence_system() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  emulate::give_way();
}
inline void __nanosleep(unsigned) { emulate::give_way(); }

[[noreturn]] inline void __trap() {
  emulate::set_error("thread %u calls __trap", emulate::machine.running);
  emulate::fail();
}

template <class T>
T __ldg(const T* address) {
  return *address;
}

// Others go on after the load: who decides by what it saw, and then stores, finds that it is old.
#define LG_LOAD(name)        \
  template <class T>         \
  T name(const T* address) { \
    const T seen = *address; \
    emulate::give_way();     \
    return seen;             \
  }
LG_LOAD(__ldca)
LG_LOAD(__ldcg)
LG_LOAD(__ldcs)
LG_LOAD(__ldlu)
LG_LOAD(__ldcv)
#undef LG_LOAD

#define LG_STORE(name)                             \
  template <class T>                               \
  void name(T* address, emulate::Given<T> value) { \
    *address = value;                              \
  }
LG_STORE(__stwb)
LG_STORE(__stcg)
LG_STORE(__stcs)
LG_STORE(__stwt)
#undef LG_STORE
