// 16 values that are kept across calls in a loop, of functions two levels deep that are not to be inlined.
#define ID (__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x())
#define NI __attribute__((noinline)) static
NI float step1(float a, float b) { float t = a * b + 1.5f; for (int i = 0; i < 4; ++i) t = t * a + b / (t + 2.0f); return t; }
NI float step2(float a, float b, float c) { return step1(a, b) + step1(b, c) * step1(c, a); }
__attribute__((reqd_work_group_size(256,1,1)))
kernel void rows(global const float *x, global float *o, int n) {
  int g = ID; float v[16]; for (int i = 0; i < 16; ++i) v[i] = x[i * n + g];
  float s = 0;
  for (int k = 0; k < n; ++k) { s += step2(s, x[k], v[0]); for (int i = 0; i < 16; ++i) v[i] = v[i] * s + x[k + i]; }
  for (int i = 0; i < 16; ++i) o[i * n + g] = v[i] + s;
}
