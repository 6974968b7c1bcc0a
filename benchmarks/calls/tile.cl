// A tile with 140 accumulators of 1,024 threads, which take more registers than there are, and an activation for them.
float __ocml_erf_f32(float);
#define ID (__builtin_amdgcn_workgroup_id_x() * 1024 + __builtin_amdgcn_workitem_id_x())
__attribute__((noinline)) static float act(float x) { return 0.5f * x * (1.0f + __ocml_erf_f32(x * 0.70710678f)); }
__attribute__((reqd_work_group_size(1024,1,1)))
kernel void tile(global const float *x, global const float *w, global float *o, int n, int steps) {
  int g = ID; float a[140]; for (int i = 0; i < 140; ++i) a[i] = x[i * n + g];
  for (int k = 0; k < steps; ++k) { float c = act(w[k * n + g]);
    for (int i = 0; i < 140; ++i) a[i] = a[i] * c + a[(i + 1) % 140]; }
  for (int i = 0; i < 140; ++i) o[i * n + g] = a[i]; }
