// Systems of 13 equations: a function eliminates in registers, of which 1,024 threads have too few, and calls a division.
#define ID (__builtin_amdgcn_workgroup_id_x() * 1024 + __builtin_amdgcn_workitem_id_x())
#define N 13
__attribute__((noinline)) static float over(float a, float b) { return a / b; }
__attribute__((noinline)) static float solve(global const float *x, int n) {
  float a[N][N + 1]; for (int i = 0; i < N; ++i) for (int j = 0; j <= N; ++j) a[i][j] = x[(i * (N + 1) + j) * n];
  for (int k = 0; k < N; ++k) for (int i = k + 1; i < N; ++i) { float f = over(a[i][k], a[k][k]);
    for (int j = k; j <= N; ++j) a[i][j] -= f * a[k][j]; }
  return over(a[N - 1][N], a[N - 1][N - 1]); }
__attribute__((reqd_work_group_size(1024,1,1)))
kernel void solves(global const float *x, global float *o, int n) { int g = ID; o[g] = solve(x + g, n); }
