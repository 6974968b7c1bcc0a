// A hash of 64-byte blocks: rounds with sixteen words kept across calls, three functions deep.
#define ID (__builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x())
#define NI __attribute__((noinline)) static
#define ROT(x, n) (((x) << (n)) | ((x) >> (32 - (n))))
NI uint f(uint a, uint b, uint c) { return (a & b) ^ (~a & c) ^ ROT(a, 7) ^ ROT(b, 13); }
NI uint g2(uint a, uint b, uint c, uint w) { return f(a, b, c) + ROT(f(c, a, b), 5) + w; }
NI uint4 round4(uint4 s, uint a, uint b, uint c, uint d) {
  s.x += g2(s.y, s.z, s.w, a); s.y ^= g2(s.z, s.w, s.x, b); s.z += g2(s.w, s.x, s.y, c); s.w ^= g2(s.x, s.y, s.z, d); return s; }
__attribute__((reqd_work_group_size(64,1,1)))
kernel void hash(global const uint *x, global uint4 *o, int n) {
  int g = ID; uint4 s = (uint4)(1, 2, 3, 4);
  for (int k = 0; k < n; ++k) { uint w[16]; for (int i = 0; i < 16; ++i) w[i] = x[(k * 16 + i) * 64 + g];
    for (int r = 0; r < 4; ++r) { s = round4(s, w[4 * r], w[4 * r + 1], w[4 * r + 2], w[4 * r + 3]);
      for (int i = 0; i < 16; ++i) w[i] += s.x * w[(i + 1) & 15]; }
    s ^= (uint4)(w[0], w[5], w[10], w[15]); }
  o[g] = s; }
