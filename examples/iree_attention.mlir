// Attention, then a projection, as a module for IREE: the queries (sequence, 64), the keys and values, the weights.
//
//   verilocc iree examples/iree_attention.mlir --iree-rocm-target=gfx942 -o attention.vmfb
//
// compiles it with IREE's ROCm back end, proves the register assignment of every kernel, and puts the proved code objects
// into the .vmfb. The sequence length is dynamic in @project.
#Q = affine_map<(heads, m, n, k1, k2) -> (heads, m, k1)>
#K = affine_map<(heads, m, n, k1, k2) -> (heads, k2, k1)>
#V = affine_map<(heads, m, n, k1, k2) -> (heads, k2, n)>
#S = affine_map<(heads, m, n, k1, k2) -> ()>
#O = affine_map<(heads, m, n, k1, k2) -> (heads, m, n)>

func.func @attention(%q: tensor<4x128x64xf16>, %k: tensor<4x128x64xf16>, %v: tensor<4x128x64xf16>) -> tensor<4x128x64xf16> {
  %scale = arith.constant 0.125 : f16
  %empty = tensor.empty() : tensor<4x128x64xf16>
  %result = iree_linalg_ext.attention <indexing_maps = [#Q, #K, #V, #S, #O]>
      ins(%q, %k, %v, %scale : tensor<4x128x64xf16>, tensor<4x128x64xf16>, tensor<4x128x64xf16>, f16)
      outs(%empty : tensor<4x128x64xf16>) {
    ^bb0(%score: f32):
      iree_linalg_ext.yield %score : f32
  } -> tensor<4x128x64xf16>
  return %result : tensor<4x128x64xf16>
}

func.func @project(%x: tensor<?x64xf16>, %w: tensor<64x96xf16>) -> tensor<?x96xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %rows = tensor.dim %x, %c0 : tensor<?x64xf16>
  %empty = tensor.empty(%rows) : tensor<?x96xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x96xf32>) -> tensor<?x96xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x64xf16>, tensor<64x96xf16>) outs(%init : tensor<?x96xf32>) -> tensor<?x96xf32>
  return %y : tensor<?x96xf32>
}
