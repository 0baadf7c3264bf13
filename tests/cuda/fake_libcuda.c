// A libcuda.so.1 that keeps no device: it prints what it is told, as the driver would read it.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int cuModuleLoadData(void** module, const void* image) {
  *module = (void*)0x1234;
  return strcmp(image, "cubin") ? 200 : 0;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = (void*)0x77;
  return module == (void*)0x1234 && !strcmp(name, "_Zpick") ? 0 : 500;
}

int cuFuncSetAttribute(void* function, int attribute, int value) {
  printf("attribute %p %d %d\n", function, attribute, value);
  return 0;
}

typedef struct {
  int32_t fanout;
  uint64_t seed;
} Draws;

// Of pick(const int32_t*, Draws, float).
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** parameters,
                   void** extra) {
  printf("launch %p %u,%u,%u %u,%u,%u %u %lu %lu %d %lu %g %s\n", function, grid_x, grid_y, grid_z, block_x,
         block_y, block_z, shared_bytes, (unsigned long)(uintptr_t)stream,
         (unsigned long)*(uint64_t*)parameters[0], ((Draws*)parameters[1])->fanout,
         (unsigned long)((Draws*)parameters[1])->seed, *(float*)parameters[2], extra ? "extra" : "");
  return grid_x == 9 ? 700 : 0;
}

int cuGetErrorName(int status, const char** name) {
  *name = status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR";
  return 0;
}

int cuGetErrorString(int status, const char** text) { return cuGetErrorName(status, text); }
