// vector_clones.h: one function compiled for several instruction sets; the loader picks the best.
//
// So one build runs on every machine, and fast on new ones. For integer code, where all are equal.
#pragma once

// Other compilers lack these names of architectures; sanitizers instrument the loader's choice,
// which runs before they are ready. Both get the baseline.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && __GNUC__ >= 12 && \
    !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define LG_VECTOR_CLONES \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define LG_VECTOR_CLONES
#endif
