// A tile with forty accumulators that are kept while a function of the device library is called for some of them.
float __ocml_tanh_f32(float);
#define ID (__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x())
__attribute__((reqd_work_group_size(256,1,1)))
kernel void wave(global const float *x, global const float *w, global float *o, int n, int steps) {
  int g = ID; float a[40]; for (int i = 0; i < 40; ++i) a[i] = x[i * n + g];
  for (int k = 0; k < steps; ++k) { float c = __ocml_tanh_f32(a[k & 1] + w[k]);
    for (int i = 0; i < 40; ++i) a[i] = a[i] * c + a[(i + 1) % 40]; }
  for (int i = 0; i < 40; ++i) o[i * n + g] = a[i]; }
