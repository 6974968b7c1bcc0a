// Rays marched through a field of distances: a branch that some threads take calls a function.
float __ocml_sin_f32(float); float __ocml_sqrt_f32(float);
#define ID (__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x())
#define NI __attribute__((noinline)) static
NI float dist(float x, float y, float z) { float a = __ocml_sqrt_f32(x * x + y * y + z * z) - 1.0f;
  float b = y + 0.3f * __ocml_sin_f32(5.0f * x) * __ocml_sin_f32(5.0f * z); return a < b ? a : b; }
NI float3 normal(float3 p) { float e = 0.001f, d = dist(p.x, p.y, p.z);
  return (float3)(dist(p.x + e, p.y, p.z) - d, dist(p.x, p.y + e, p.z) - d, dist(p.x, p.y, p.z + e) - d); }
__attribute__((reqd_work_group_size(256,1,1)))
kernel void march(global const float *x, global float *o, int n) {
  int g = ID; float3 p = (float3)(x[g], x[g + n], x[g + 2 * n]), v = (float3)(x[g + 3 * n], x[g + 4 * n], x[g + 5 * n]);
  float t = 0, lit = 0;
  for (int k = 0; k < 64; ++k) { float d = dist(p.x, p.y, p.z);
    if (d < 0.001f) { float3 m = normal(p); lit += m.x * v.x + m.y * v.y + m.z * v.z; v = v - 2.0f * m; }
    p += d * v; t += d; }
  o[g] = t; o[g + n] = lit; }
