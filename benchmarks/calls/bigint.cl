// 256-bit integers multiplied modulo a prime, by functions over 64-bit limbs in private memory.
#define ID (__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x())
#define NI __attribute__((noinline)) static
typedef struct { ulong w[4]; } B;
static ulong high(ulong a, ulong b) { ulong al = (uint)a, ah = a >> 32, bl = (uint)b, bh = b >> 32;
  ulong m = ah * bl + ((al * bl) >> 32), k = al * bh + (uint)m; return ah * bh + (m >> 32) + (k >> 32); }
NI B add(B a, B b) { B r; ulong c = 0; for (int i = 0; i < 4; ++i) { ulong t = a.w[i] + c; c = t < c; r.w[i] = t + b.w[i]; c += r.w[i] < t; } return r; }
NI B mulmod(B a, B b) { B r = {{0, 0, 0, 0}};
  for (int i = 0; i < 4; ++i) { ulong c = 0; B t; for (int j = 0; j < 4; ++j) { ulong lo = a.w[i] * b.w[j], hi = high(a.w[i], b.w[j]);
      t.w[j] = lo + c; c = hi + (t.w[j] < lo); } t.w[0] += c * 38; r = add(r, t); }
  return r; }
__attribute__((reqd_work_group_size(256,1,1)))
kernel void bigint(global const ulong *x, global ulong *o, int n) {
  int g = ID; B s, b; for (int i = 0; i < 4; ++i) { s.w[i] = x[i * n + g]; b.w[i] = x[(i + 4) * n + g]; }
  for (int k = 0; k < n; ++k) { s = mulmod(s, s); if (x[k] & 1) s = add(mulmod(s, b), s); }
  for (int i = 0; i < 4; ++i) o[i * n + g] = s.w[i]; }
