/* The kernels of the test programs, written by hand in PTX 7.0 so that every driver from CUDA 11 on
 * can compile them. */
#ifndef CUTAPE_PTX_H
#define CUTAPE_PTX_H

#define PTX_TEXT static const char __attribute__((unused))
#define PTX_HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

/* The index of the thread in the grid in %index and the number of threads in %stride. */
#define PTX_GRID_STRIDE                      \
    " .reg .b32 %thread, %block, %threads, %blocks, %index, %stride;\n" \
    " mov.u32 %thread, %tid.x;\n"            \
    " mov.u32 %block, %ctaid.x;\n"           \
    " mov.u32 %threads, %ntid.x;\n"          \
    " mov.u32 %blocks, %nctaid.x;\n"         \
    " mad.lo.u32 %index, %block, %threads, %thread;\n" \
    " mul.lo.u32 %stride, %threads, %blocks;\n"

/* mark(out): *out = 42. */
PTX_TEXT PTX_MARK[] = PTX_HEAD
    ".visible .entry mark(.param .u64 out)\n{\n"
    " .reg .b64 %address;\n .reg .b32 %value;\n"
    " ld.param.u64 %address, [out];\n"
    " cvta.to.global.u64 %address, %address;\n"
    " mov.u32 %value, 42;\n"
    " st.global.u32 [%address], %value;\n"
    " ret;\n}\n";

/* nothing(): no parameters, no effect. */
PTX_TEXT PTX_NOTHING[] = PTX_HEAD ".visible .entry nothing()\n{\n ret;\n}\n";

/* The head of kernels that use clusters or grid dependencies, which need sm_90, and the body of one
 * that does nothing. */
#define PTX_HEAD_90 ".version 8.0\n.target sm_90\n.address_size 64\n"
#define PTX_EMPTY_BODY "{\n ret;\n}\n"

/* fill(out, value, n): out[i] = value + i. */
#define PTX_FILL_BODY                        \
    ".visible .entry fill(.param .u64 out, .param .u32 value, .param .u32 n)\n{\n" \
    " .reg .b64 %base, %address;\n .reg .b32 %start, %count, %result;\n .reg .pred %done;\n" \
    PTX_GRID_STRIDE                          \
    " ld.param.u64 %base, [out];\n"          \
    " cvta.to.global.u64 %base, %base;\n"    \
    " ld.param.u32 %start, [value];\n"       \
    " ld.param.u32 %count, [n];\n"           \
    "again:\n"                               \
    " setp.ge.u32 %done, %index, %count;\n"  \
    " @%done bra finished;\n"                \
    " mad.wide.u32 %address, %index, 4, %base;\n" \
    " add.u32 %result, %start, %index;\n"    \
    " st.global.u32 [%address], %result;\n"  \
    " add.u32 %index, %index, %stride;\n"    \
    " bra again;\n"                          \
    "finished:\n"                            \
    " ret;\n}\n"
PTX_TEXT PTX_FILL[] = PTX_HEAD PTX_FILL_BODY;

/* vector_add(a, b, c, n): c[i] = a[i] + b[i] on u32. */
#define PTX_VECTOR_ADD_BODY                  \
    ".visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n{\n" \
    " .reg .b64 %pa, %pb, %pc, %address, %offset;\n .reg .b32 %count, %x, %y;\n" \
    " .reg .pred %done;\n" \
    PTX_GRID_STRIDE                          \
    " ld.param.u64 %pa, [a];\n ld.param.u64 %pb, [b];\n ld.param.u64 %pc, [c];\n" \
    " cvta.to.global.u64 %pa, %pa;\n cvta.to.global.u64 %pb, %pb;\n" \
    " cvta.to.global.u64 %pc, %pc;\n" \
    " ld.param.u32 %count, [n];\n"           \
    "again:\n"                               \
    " setp.ge.u32 %done, %index, %count;\n"  \
    " @%done bra finished;\n"                \
    " mul.wide.u32 %offset, %index, 4;\n"    \
    " add.u64 %address, %pa, %offset;\n ld.global.u32 %x, [%address];\n" \
    " add.u64 %address, %pb, %offset;\n ld.global.u32 %y, [%address];\n" \
    " add.u32 %x, %x, %y;\n"                 \
    " add.u64 %address, %pc, %offset;\n st.global.u32 [%address], %x;\n" \
    " add.u32 %index, %index, %stride;\n"    \
    " bra again;\n"                          \
    "finished:\n"                            \
    " ret;\n}\n"
PTX_TEXT PTX_VECTOR_ADD[] = PTX_HEAD PTX_VECTOR_ADD_BODY;

/* saxpy(n, a, x, y): y[i] = a * x[i] + y[i] on f32. */
#define PTX_SAXPY_BODY                       \
    ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)\n{\n" \
    " .reg .b64 %px, %py, %ax, %ay;\n .reg .b32 %count;\n .reg .f32 %factor, %vx, %vy;\n" \
    " .reg .pred %done;\n" \
    PTX_GRID_STRIDE                          \
    " ld.param.u32 %count, [n];\n ld.param.f32 %factor, [a];\n" \
    " ld.param.u64 %px, [x];\n ld.param.u64 %py, [y];\n" \
    " cvta.to.global.u64 %px, %px;\n cvta.to.global.u64 %py, %py;\n" \
    "again:\n"                               \
    " setp.ge.u32 %done, %index, %count;\n"  \
    " @%done bra finished;\n"                \
    " mad.wide.u32 %ax, %index, 4, %px;\n mad.wide.u32 %ay, %index, 4, %py;\n" \
    " ld.global.f32 %vx, [%ax];\n ld.global.f32 %vy, [%ay];\n" \
    " fma.rn.f32 %vy, %factor, %vx, %vy;\n"  \
    " st.global.f32 [%ay], %vy;\n"           \
    " add.u32 %index, %index, %stride;\n"    \
    " bra again;\n"                          \
    "finished:\n"                            \
    " ret;\n}\n"
PTX_TEXT PTX_SAXPY[] = PTX_HEAD PTX_SAXPY_BODY;

/* Three entries in one module: fill, vector_add, saxpy. */
PTX_TEXT PTX_THREE[] = PTX_HEAD PTX_FILL_BODY PTX_VECTOR_ADD_BODY PTX_SAXPY_BODY;

/* The body of both reductions: each block of 128 threads sums 128 values in shared memory, thread 0
 * adds it to *out. */
#define PTX_REDUCE_BODY(cells)               \
    " .reg .b64 %pin, %pout, %address;\n"    \
    " .reg .b32 %count, %value, %other, %cell, %partner, %step, %base;\n .reg .pred %p;\n" \
    PTX_GRID_STRIDE                          \
    " ld.param.u64 %pin, [in];\n ld.param.u64 %pout, [out];\n ld.param.u32 %count, [n];\n" \
    " cvta.to.global.u64 %pin, %pin;\n cvta.to.global.u64 %pout, %pout;\n" \
    " mov.u32 %base, " cells ";\n"           \
    " mad.lo.u32 %cell, %thread, 4, %base;\n"   \
    " mov.u32 %value, 0;\n"                  \
    " setp.ge.u32 %p, %index, %count;\n"     \
    " @%p bra loaded;\n"                     \
    " mad.wide.u32 %address, %index, 4, %pin;\n" \
    " ld.global.u32 %value, [%address];\n"   \
    "loaded:\n"                              \
    " st.shared.u32 [%cell], %value;\n"      \
    " bar.sync 0;\n"                         \
    " mov.u32 %step, 64;\n"                  \
    "halve:\n"                               \
    " setp.ge.u32 %p, %thread, %step;\n"        \
    " @%p bra added;\n"                      \
    " mad.lo.u32 %partner, %step, 4, %cell;\n" \
    " ld.shared.u32 %other, [%partner];\n"   \
    " ld.shared.u32 %value, [%cell];\n"      \
    " add.u32 %value, %value, %other;\n"     \
    " st.shared.u32 [%cell], %value;\n"      \
    "added:\n"                               \
    " bar.sync 0;\n"                         \
    " shr.u32 %step, %step, 1;\n"            \
    " setp.ne.u32 %p, %step, 0;\n"           \
    " @%p bra halve;\n"                      \
    " setp.ne.u32 %p, %thread, 0;\n"            \
    " @%p bra finished;\n"                   \
    " ld.shared.u32 %value, [%base];\n"      \
    " red.global.add.u32 [%pout], %value;\n" \
    "finished:\n"                            \
    " ret;\n}\n"

/* reduce(in, out, n): *out += sum of in[0..n), static shared memory, 128 threads a block. */
PTX_TEXT PTX_REDUCE[] = PTX_HEAD
    ".visible .entry reduce(.param .u64 in, .param .u64 out, .param .u32 n)\n{\n"
    " .shared .align 4 .b8 cells[512];\n" PTX_REDUCE_BODY("cells");

/* reduce_dynamic(in, out, n): the same with dynamic shared memory of 512 bytes or more. */
PTX_TEXT PTX_REDUCE_DYNAMIC[] = PTX_HEAD
    ".extern .shared .align 4 .b8 dynamic_cells[];\n"
    ".visible .entry reduce_dynamic(.param .u64 in, .param .u64 out, .param .u32 n)\n{\n"
    PTX_REDUCE_BODY("dynamic_cells");

/* by_struct(s): s is { u32 *out; u32 a; u16 b; u8 c; i64 d; f32 e; }, 32 bytes aligned to 8;
 * out[0..5) = a, b, c, low d, bits of e. */
PTX_TEXT PTX_BY_STRUCT[] = PTX_HEAD
    ".visible .entry by_struct(.param .align 8 .b8 s[32])\n{\n"
    " .reg .b64 %out, %d;\n .reg .b32 %a, %b, %c, %low, %e;\n"
    " ld.param.u64 %out, [s];\n"
    " cvta.to.global.u64 %out, %out;\n"
    " ld.param.u32 %a, [s+8];\n"
    " ld.param.u16 %b, [s+12];\n"
    " ld.param.u8 %c, [s+14];\n"
    " ld.param.u64 %d, [s+16];\n"
    " ld.param.u32 %e, [s+24];\n"
    " cvt.u32.u64 %low, %d;\n"
    " st.global.u32 [%out], %a;\n"
    " st.global.u32 [%out+4], %b;\n"
    " st.global.u32 [%out+8], %c;\n"
    " st.global.u32 [%out+12], %low;\n"
    " st.global.u32 [%out+16], %e;\n"
    " ret;\n}\n";

/* many(out, p8, p16, p32, p64, pf, pd, q8, q32, q64): stores every value as u64, floats as their
 * bits. */
PTX_TEXT PTX_MANY[] = PTX_HEAD
    ".visible .entry many(.param .u64 out, .param .u8 p8, .param .u16 p16, .param .u32 p32, "
    ".param .u64 p64,\n"
    " .param .f32 pf, .param .f64 pd, .param .u8 q8, .param .u32 q32, .param .u64 q64)\n{\n"
    " .reg .b64 %out, %v;\n .reg .b32 %w;\n"
    " ld.param.u64 %out, [out];\n"
    " cvta.to.global.u64 %out, %out;\n"
    " ld.param.u8 %w, [p8];\n cvt.u64.u32 %v, %w;\n st.global.u64 [%out], %v;\n"
    " ld.param.u16 %w, [p16];\n cvt.u64.u32 %v, %w;\n st.global.u64 [%out+8], %v;\n"
    " ld.param.u32 %w, [p32];\n cvt.u64.u32 %v, %w;\n st.global.u64 [%out+16], %v;\n"
    " ld.param.u64 %v, [p64];\n st.global.u64 [%out+24], %v;\n"
    " ld.param.b32 %w, [pf];\n cvt.u64.u32 %v, %w;\n st.global.u64 [%out+32], %v;\n"
    " ld.param.b64 %v, [pd];\n st.global.u64 [%out+40], %v;\n"
    " ld.param.u8 %w, [q8];\n cvt.u64.u32 %v, %w;\n st.global.u64 [%out+48], %v;\n"
    " ld.param.u32 %w, [q32];\n cvt.u64.u32 %v, %w;\n st.global.u64 [%out+56], %v;\n"
    " ld.param.u64 %v, [q64];\n st.global.u64 [%out+64], %v;\n"
    " ret;\n}\n";

/* A global (counter = 5), an array (table, 4 values), a constant (scale = 3);
 * use_globals(out): counter += 1; out[i] = table[i] * scale + counter for i in 0..4, one thread. */
PTX_TEXT PTX_GLOBALS[] = PTX_HEAD
    ".visible .global .align 4 .u32 counter = 5;\n"
    ".visible .global .align 4 .u32 table[4] = {10, 20, 30, 40};\n"
    ".visible .const .align 4 .u32 scale = 3;\n"
    ".visible .entry use_globals(.param .u64 out)\n{\n"
    " .reg .b64 %out, %from;\n .reg .b32 %count, %factor, %value, %i;\n .reg .pred %more;\n"
    " ld.param.u64 %out, [out];\n"
    " cvta.to.global.u64 %out, %out;\n"
    " ld.global.u32 %count, [counter];\n"
    " add.u32 %count, %count, 1;\n"
    " st.global.u32 [counter], %count;\n"
    " ld.const.u32 %factor, [scale];\n"
    " mov.u64 %from, table;\n"
    " mov.u32 %i, 0;\n"
    "again:\n"
    " ld.global.u32 %value, [%from];\n"
    " mad.lo.u32 %value, %value, %factor, %count;\n"
    " st.global.u32 [%out], %value;\n"
    " add.u64 %from, %from, 4;\n"
    " add.u64 %out, %out, 4;\n"
    " add.u32 %i, %i, 1;\n"
    " setp.lt.u32 %more, %i, 4;\n"
    " @%more bra again;\n"
    " ret;\n}\n";

/* A managed variable; double_it() doubles it. */
PTX_TEXT PTX_MANAGED[] = PTX_HEAD
    ".visible .global .attribute(.managed) .align 4 .u32 both_sides = 1;\n"
    ".visible .entry double_it()\n{\n"
    " .reg .b32 %v;\n"
    " ld.global.u32 %v, [both_sides];\n"
    " add.u32 %v, %v, %v;\n"
    " st.global.u32 [both_sides], %v;\n"
    " ret;\n}\n";

/* Two inputs for the linker: `scaled` calls `scale_value`, which the other input defines.
 * scaled(out, n): out[i] = 3 * i + 1. */
PTX_TEXT PTX_LINK_CALLER[] = PTX_HEAD
    ".extern .func (.param .b32 result) scale_value(.param .b32 value);\n"
    ".visible .entry scaled(.param .u64 out, .param .u32 n)\n{\n"
    " .reg .b64 %base, %address;\n .reg .b32 %count, %value;\n .reg .pred %done;\n"
    PTX_GRID_STRIDE
    " ld.param.u64 %base, [out];\n"
    " cvta.to.global.u64 %base, %base;\n"
    " ld.param.u32 %count, [n];\n"
    "again:\n"
    " setp.ge.u32 %done, %index, %count;\n"
    " @%done bra finished;\n"
    " {\n"
    " .param .b32 argument;\n"
    " .param .b32 answer;\n"
    " st.param.b32 [argument], %index;\n"
    " call.uni (answer), scale_value, (argument);\n"
    " ld.param.b32 %value, [answer];\n"
    " }\n"
    " mad.wide.u32 %address, %index, 4, %base;\n"
    " st.global.u32 [%address], %value;\n"
    " add.u32 %index, %index, %stride;\n"
    " bra again;\n"
    "finished:\n"
    " ret;\n}\n";
PTX_TEXT PTX_LINK_CALLEE[] = PTX_HEAD
    ".visible .func (.param .b32 result) scale_value(.param .b32 value)\n{\n"
    " .reg .b32 %v;\n"
    " ld.param.b32 %v, [value];\n"
    " mad.lo.u32 %v, %v, 3, 1;\n"
    " st.param.b32 [result], %v;\n"
    " ret;\n}\n";

/* A kernel that uses a variable which another input has to define, and that input. */
PTX_TEXT PTX_EXTERN_USER[] = PTX_HEAD
    ".extern .global .align 4 .u32 shared_value;\n"
    ".visible .entry bump()\n{\n"
    " .reg .b32 %v;\n"
    " ld.global.u32 %v, [shared_value];\n"
    " add.u32 %v, %v, 1;\n"
    " st.global.u32 [shared_value], %v;\n"
    " ret;\n}\n";
PTX_TEXT PTX_EXTERN_OWNER[] = PTX_HEAD ".visible .global .align 4 .u32 shared_value = 7;\n";

/* A kernel with a grid barrier, as cooperative groups make one, behind a branch never taken. */
PTX_TEXT PTX_GRID_BARRIER[] = PTX_HEAD
    ".visible .entry synced(.param .u64 out)\n{\n"
    " .reg .b64 %out, %workspace;\n .reg .b32 %low, %high, %old;\n .reg .pred %never;\n"
    " ld.param.u64 %out, [out];\n"
    " mov.u32 %high, %envreg1;\n mov.u32 %low, %envreg2;\n"
    " mov.b64 %workspace, {%low, %high};\n"
    " setp.eq.u64 %never, %out, 0;\n"
    " @!%never bra done;\n"
    " bar.sync 0;\n"
    " atom.global.add.u32 %old, [%workspace], 1;\n"
    "done:\n ret;\n}\n";

#endif
