// A layer of an MLP with GELU: 16 results a work-item, each with a call of the device library's erf.
float __ocml_erf_f32(float);
__attribute__((reqd_work_group_size(256,1,1)))
kernel void mlp(global const float *x, global const float *w, global const float *b, global float *out, int n, int k) {
  int g = __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x();
  int row = g / (n / 4) * 4, col = g % (n / 4) * 4;
  float acc[4][4];
  for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) acc[i][j] = 0.0f;
  for (int p = 0; p < k; ++p) {
    float a[4], c[4];
    for (int i = 0; i < 4; ++i) a[i] = x[(row + i) * k + p];
    for (int j = 0; j < 4; ++j) c[j] = w[p * n + col + j];
    for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) acc[i][j] = __builtin_fmaf(a[i], c[j], acc[i][j]);
  }
  for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) {
    float v = acc[i][j] + b[col + j];
    out[(row + i) * n + col + j] = 0.5f * v * (1.0f + __ocml_erf_f32(v * 0.70710678f));
  }
}
