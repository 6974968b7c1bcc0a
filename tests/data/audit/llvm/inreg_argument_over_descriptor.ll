; A function that hands its inreg argument on: LLVM 22 puts it in s0, where the scratch descriptor begins on processors
; without flat scratch, and reloads what it saved by that; the function called reads s16.
target triple = "amdgcn-amd-amdhsa"

define internal i32 @inner(i32 %a, i32 inreg %s) noinline {
  %x = add i32 %a, %s
  ret i32 %x
}

define i32 @outer(i32 %a, i32 inreg %s) noinline {
  %x = call i32 @inner(i32 %a, i32 inreg %s)
  %y = call i32 @inner(i32 %x, i32 inreg %s)
  %r = add i32 %x, %y
  ret i32 %r
}
