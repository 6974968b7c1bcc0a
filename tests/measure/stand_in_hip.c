/* A stand-in for HIP's runtime: as much of libamdhip64 as measure/hip.py calls, on this machine's memory.
 *
 * A "kernel" adds its first two buffers, byte by byte, into the third. What else it does is said by a word that the
 * tests put behind the ELF file: SLOW, WRONG, UNSTEADY, ENDLESS, FAULTY, FOREIGN, ABORT. Time is counted, not measured.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 1, NO_DEVICE = 100, NO_BINARY = 209, NOT_FOUND = 500, NOT_READY = 600, FAULT = 719 };
#define MOST 64

typedef struct { char *at; size_t size; } Buffer;
typedef struct { const char *word; int runs; } Module;

static Buffer buffers[MOST];
static float now;
static int endless, faulty;

/* What the tests look at. */
unsigned launched[7];
size_t launched_bytes;
int held;

static const char *name_of(int code) { return code == NO_DEVICE ? "hipErrorNoDevice" : code == NO_BINARY ? "hipErrorNoBinaryForGpu" : "hipErrorStandIn"; }
const char *hipGetErrorString(int code) { return name_of(code); }
int hipInit(unsigned flags) { (void)flags; return OK; }
int hipGetDeviceCount(int *count) { *count = getenv("STAND_IN_NONE") ? 0 : 1; return *count ? OK : NO_DEVICE; }
int hipSetDevice(int number) { return number ? INVALID : OK; }
int hipDeviceGetName(char *name, int size, int number) { (void)number; strncpy(name, "Stand-in", (size_t)size); return OK; }
int hipDeviceGetPCIBusId(char *bus, int size, int number) { (void)number; strncpy(bus, "0000:0A:00.0", (size_t)size); return OK; }
int hipRuntimeGetVersion(int *version) { *version = 60443483; return OK; }

static Buffer *holding(const void *at, size_t size) {
  for (int i = 0; i < MOST; i++)
    if (buffers[i].at && (const char *)at >= buffers[i].at && (const char *)at + size <= buffers[i].at + buffers[i].size) return &buffers[i];
  return NULL;
}

int hipMalloc(void **at, size_t size) {
  for (int i = 0; i < MOST; i++)
    if (!buffers[i].at) {
      buffers[i].at = *at = calloc(1, size);
      buffers[i].size = size;
      held++;
      return *at ? OK : 2;
    }
  return 2;
}
int hipFree(void *at) {
  if (faulty) return FAULT;
  Buffer *buffer = holding(at, 0);
  if (!buffer || buffer->at != at) return INVALID;
  free(at);
  buffer->at = NULL;
  held--;
  return OK;
}
int hipMemcpyHtoD(void *to, const void *from, size_t size) { if (!holding(to, size)) return INVALID; memcpy(to, from, size); return OK; }
int hipMemcpyDtoH(void *to, const void *from, size_t size) { if (!holding(from, size)) return INVALID; memcpy(to, from, size); return OK; }
int hipMemcpyDtoDAsync(void *to, const void *from, size_t size, void *stream) {
  (void)stream;
  if (!holding(to, size) || !holding(from, size)) return INVALID;
  now += 5;
  memcpy(to, from, size);
  return OK;
}
int hipMemsetAsync(void *to, int value, size_t size, void *stream) {
  (void)stream; (void)value;
  now += 5;
  return holding(to, size) ? OK : INVALID;
}

int hipModuleLoadData(void **module, const void *image) {
  const unsigned char *elf = image;
  uint64_t sections;
  uint16_t size, count;
  memcpy(&sections, elf + 0x28, 8);
  memcpy(&size, elf + 0x3A, 2);
  memcpy(&count, elf + 0x3C, 2);
  const char *word = (const char *)elf + sections + (uint64_t)size * count;
  if (!strcmp(word, "FOREIGN")) return NO_BINARY;
  Module *made = calloc(1, sizeof *made);
  made->word = strdup(word);
  *module = made;
  held++;
  return OK;
}
int hipModuleUnload(void *module) { free(module); held--; return OK; }
int hipModuleGetFunction(void **function, void *module, const char *name) {
  *function = module;
  return strcmp(name, "gemm") ? NOT_FOUND : OK;
}
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned lds, void *stream, void **parameters, void **extra) {
  Module *module = function;
  if (stream || parameters || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)3) return INVALID;
  unsigned given[7] = {gx, gy, gz, bx, by, bz, lds};
  memcpy(launched, given, sizeof given);
  launched_bytes = *(size_t *)extra[3];
  if (launched_bytes != 24) return INVALID;
  unsigned char *at[3];
  memcpy(at, extra[1], sizeof at);
  Buffer *out = holding(at[2], 1);
  if (!out || !holding(at[0], out->size) || !holding(at[1], out->size)) return INVALID;
  for (size_t i = 0; i < out->size; i++) at[2][i] = (unsigned char)(at[2][i] + at[0][i] + at[1][i]);
  module->runs++;
  if (!strcmp(module->word, "WRONG")) at[2][out->size - 1] ^= 1;
  if (!strcmp(module->word, "UNSTEADY")) at[2][0] = (unsigned char)module->runs;
  if (!strcmp(module->word, "ENDLESS")) endless = 1;
  if (!strcmp(module->word, "ABORT")) {
    fputs("Memory access fault by GPU node-1 on address 0x7f0000000000. Reason: Unknown.\n", stderr);
    abort();
  }
  if (!strcmp(module->word, "FAULTY")) faulty = 1;
  now += (strcmp(module->word, "SLOW") ? 1.0f : 2.0f) + 0.001f * (float)(module->runs % 7);
  return OK;
}

int hipEventCreate(void **event) { *event = calloc(1, sizeof(float)); held++; return OK; }
int hipEventDestroy(void *event) { free(event); held--; return OK; }
int hipEventRecord(void *event, void *stream) { (void)stream; *(float *)event = now; return OK; }
int hipEventQuery(void *event) { (void)event; return faulty ? FAULT : endless ? NOT_READY : OK; }
int hipEventElapsedTime(float *time, void *start, void *stop) { *time = *(float *)stop - *(float *)start; return OK; }
