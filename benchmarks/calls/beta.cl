// Logarithms of the beta function: three calls of lgamma in a loop.
float __ocml_lgamma_f32(float); float __ocml_exp_f32(float);
#define ID (__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x())
__attribute__((reqd_work_group_size(256,1,1)))
kernel void beta(global const float *x, global const float *y, global float *o, int n) {
  int g = ID; float s = 0, t = 0; 
  for (int i = g; i < n; i += 65536) { float a = x[i], b = y[i];
    float f = __ocml_lgamma_f32(a) + __ocml_lgamma_f32(b) - __ocml_lgamma_f32(a + b);
    s += f; t += f * a; o[i] = f; }
  o[g] = s; o[g + 65536] = t; }
