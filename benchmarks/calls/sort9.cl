// Eight short lists a work-item, sorted in private memory by a function that is not to be inlined.
#define ID (__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x())
#define NI __attribute__((noinline)) static
NI void sort(uint *a, int n) {
  for (int i = 1; i < n; ++i) { uint v = a[i]; int j = i; while (j > 0 && a[j - 1] > v) { a[j] = a[j - 1]; --j; } a[j] = v; } }
NI uint median(global const uint *x, int at, int n) {
  uint a[9]; for (int i = 0; i < 9; ++i) a[i] = x[at + i * n]; sort(a, 9); return a[4]; }
__attribute__((reqd_work_group_size(256,1,1)))
kernel void sort9(global const uint *x, global uint *o, int n) {
  int g = ID; uint s[8]; for (int k = 0; k < 8; ++k) s[k] = median(x, g + k, n);
  uint t = 0; for (int k = 0; k < 8; ++k) t = t * 31 + s[k] * median(x, g + 9 * k, n);
  o[g] = t; }
