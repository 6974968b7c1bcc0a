// Inverses of 3x3 matrices, by functions that give and take structures.
#define ID (__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x())
#define NI __attribute__((noinline)) static
typedef struct { float m[9]; } M;
NI float det(M a) { return a.m[0] * (a.m[4] * a.m[8] - a.m[5] * a.m[7]) - a.m[1] * (a.m[3] * a.m[8] - a.m[5] * a.m[6])
  + a.m[2] * (a.m[3] * a.m[7] - a.m[4] * a.m[6]); }
NI M mul(M a, M b) { M c; for (int i = 0; i < 3; ++i) for (int j = 0; j < 3; ++j) { float s = 0;
  for (int k = 0; k < 3; ++k) s += a.m[3 * i + k] * b.m[3 * k + j]; c.m[3 * i + j] = s; } return c; }
NI M inv(M a) { float d = 1.0f / det(a); M r;
  r.m[0] = (a.m[4] * a.m[8] - a.m[5] * a.m[7]) * d; r.m[1] = (a.m[2] * a.m[7] - a.m[1] * a.m[8]) * d;
  r.m[2] = (a.m[1] * a.m[5] - a.m[2] * a.m[4]) * d; r.m[3] = (a.m[5] * a.m[6] - a.m[3] * a.m[8]) * d;
  r.m[4] = (a.m[0] * a.m[8] - a.m[2] * a.m[6]) * d; r.m[5] = (a.m[2] * a.m[3] - a.m[0] * a.m[5]) * d;
  r.m[6] = (a.m[3] * a.m[7] - a.m[4] * a.m[6]) * d; r.m[7] = (a.m[1] * a.m[6] - a.m[0] * a.m[7]) * d;
  r.m[8] = (a.m[0] * a.m[4] - a.m[1] * a.m[3]) * d; return r; }
__attribute__((reqd_work_group_size(256,1,1)))
kernel void inverse(global const float *x, global float *o, int n) {
  int g = ID; M s; for (int i = 0; i < 9; ++i) s.m[i] = x[i * n + g];
  for (int k = 0; k < n; ++k) { M t; for (int i = 0; i < 9; ++i) t.m[i] = x[(9 * k + i) * n + g]; s = mul(inv(t), s); }
  for (int i = 0; i < 9; ++i) o[i * n + g] = s.m[i]; }
