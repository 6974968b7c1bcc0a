; Calls that keep to the calling convention: of a recursive function, one that the linker may replace, an address, and one
; in another module; beside a call of a local function that need not.
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @elsewhere(i32)

define internal i32 @recursive(i32 %n) noinline {
  %c = icmp ult i32 %n, 2
  br i1 %c, label %done, label %more
more:
  %m = sub i32 %n, 1
  %r = call i32 @recursive(i32 %m)
  %p = mul i32 %r, %n
  ret i32 %p
done:
  ret i32 1
}

define weak i32 @replaceable(i32 %n) noinline {
  %r = mul i32 %n, 3
  ret i32 %r
}

define i32 @seen(i32 %n) noinline {
  %r = mul i32 %n, 5
  ret i32 %r
}

define internal i32 @local(i32 %n) noinline {
  %r = mul i32 %n, 7
  ret i32 %r
}

define i32 @f(i32 %a, ptr %g) {
  %1 = call i32 @recursive(i32 %a)
  %2 = call i32 @replaceable(i32 %1)
  %3 = call i32 @seen(i32 %2)
  %4 = call i32 @elsewhere(i32 %3)
  %5 = call i32 %g(i32 %4)
  %6 = call i32 @local(i32 %5)
  %s = add i32 %6, %a
  ret i32 %s
}
