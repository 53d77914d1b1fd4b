/* The cases of tests/native/kernel_cases.h as a module, so that they run in a
 * real engine: dist/test/kernels-base.wasm, and with -mrelaxed-simd
 * dist/test/kernels-relaxed.wasm. Driven by tests/node/kernels.test.mjs and
 * tests/bench/kernels.mjs. Built by hand:
 *
 *   clang-22 --target=wasm32-wasi -Wno-deprecated --no-wasm-opt -std=c11 -O3 -msimd128 [-mrelaxed-simd]
 *     -mllvm -disable-lsr -ffp-contract=off -fno-math-errno -I. -Isrc -Itests/native
 *     wasm/kernel_test.c tests/native/form_cases.c tests/native/kernel_cases.c
 *     src/forms/[a-z]*.c src/kernels/[a-z]*.c src/status.c src/fmt.c src/mem.c
 *     -nostartfiles -Wl,--no-entry -Wl,--stack-first -Wl,-z,stack-size=262144 -Wl,--gc-sections
 *     -Wl,--strip-debug -o dist/test/kernels-base.wasm
 */
#include "kernel_cases.h"
#include "src/vec.h"

#define EXPORT(name) __attribute__((export_name(#name))) name

/* --- memory of the cases ---------------------------------------------------------
 * A region of its own at the end of memory: blocks from its start on, and the
 * guarded one so that it ends where memory ends and an access beyond it traps. */
enum { PAGE_BYTES = 65536, REGION_PAGES = 128 };
static uint8_t *region, *region_next;

void *case_alloc(size_t bytes, size_t offset, bool guard) {
  if (!region) {
    const size_t page = __builtin_wasm_memory_grow(0, REGION_PAGES);
    LNL_ASSERT(page != SIZE_MAX);
    region = region_next = (uint8_t *)(page * PAGE_BYTES);
  }
  uint8_t *const end = (uint8_t *)(__builtin_wasm_memory_size(0) * PAGE_BYTES);
  if (guard) {
    LNL_ASSERT(bytes < (size_t)(end - region_next) / 2);
    return end - bytes;
  }
  uint8_t *const block = (uint8_t *)align_up((uintptr_t)region_next, 16) + offset;
  region_next = block + bytes;
  LNL_ASSERT(region_next < region + (size_t)REGION_PAGES * PAGE_BYTES / 2);
  return block;
}
void case_free_all(void) { region_next = region; }

/* --- the cases --------------------------------------------------------------------- */
static lnl_error error;

static const kernel_case *case_at(uint32_t index) {
  uint32_t forms, kernels;
  const kernel_case *form = form_cases(&forms), *kernel = kernel_cases(&kernels);
  return index < forms ? &form[index] : index - forms < kernels ? &kernel[index - forms] : NULL;
}

uint32_t EXPORT(case_count)(void) {
  uint32_t forms, kernels;
  form_cases(&forms);
  kernel_cases(&kernels);
  return forms + kernels;
}
const char *EXPORT(case_name)(uint32_t index) { return case_at(index)->name; }
/* 0, or not: then case_message says why. */
int32_t EXPORT(case_run)(uint32_t index) {
  const int32_t status = case_at(index)->run(&error);
  case_free_all();
  return status;
}
const char *EXPORT(case_message)(void) { return error.message; }

/* --- single calls, on memory that the caller took by growing it --------------------- */
static const lnl_form *form_at(uint32_t index) {
  uint32_t count;
  const lnl_form *list = form_list(&count);
  return index < count ? &list[index] : NULL;
}
uint32_t EXPORT(form_count)(void) {
  uint32_t count;
  form_list(&count);
  return count;
}
const char *EXPORT(form_name)(uint32_t index) { return form_at(index)->name; }
const char *EXPORT(form_kernel)(uint32_t index) { return form_at(index)->kernel; }
uint32_t EXPORT(form_bytes)(uint32_t index, uint32_t n) {
  return (uint32_t)form_row_bytes(form_at(index), n);
}
void EXPORT(form_decode)(uint32_t index, const uint8_t *src, float *dst, uint32_t n, uint32_t scalar) {
  const lnl_form *form = form_at(index);
  if (scalar)
    form_decode_scalar(form, src, dst, n);
  else
    form->decode(src, dst, n);
}
/* Quantises x (or not, as the form needs) into `scratch` and leaves it there. */
uint32_t EXPORT(form_activation_bytes)(uint32_t index, uint32_t k, uint32_t n_tok) {
  return form_at(index)->activation == ACT_Q8 ? (uint32_t)q8_bytes(k, n_tok)
                                              : k * n_tok * (uint32_t)sizeof(float);
}
void EXPORT(form_activate)(uint32_t index, void *scratch, const float *x, uint32_t k, uint32_t n_tok) {
  if (form_at(index)->activation == ACT_F32) {
    __builtin_memcpy(scratch, x, (size_t)k * n_tok * sizeof(float));
    return;
  }
  const lnl_q8 view = q8_view(scratch, k, n_tok);
  for (size_t t = 0; t < n_tok; t++)
    quant_q8(view.q + t * k, view.d + t * (k / 32), view.sums + t * (k / 16), x + t * k, k);
}
static void run_matmul(const lnl_form *form, void (*matmul)(const lnl_matmul *), const uint8_t *w,
                       uint64_t row_bytes, void *scratch, float *y, uint32_t k, uint32_t n_row,
                       uint32_t n_tok, uint32_t row_begin, uint32_t row_end) {
  lnl_matmul m = {0};
  m.w = w;
  m.row_bytes = row_bytes;
  m.w_n_row = n_row;
  m.k = k;
  m.row_begin = row_begin;
  m.row_end = row_end;
  m.n_tok = n_tok;
  m.y = y;
  m.y_stride = n_row;
  if (form->activation == ACT_Q8)
    m.x_q8 = q8_view(scratch, k, n_tok);
  else
    m.x_f32 = scratch;
  matmul(&m);
}
/* Rows row_begin..row_end-1 of y = x W^T; scratch as form_activate left it. */
void EXPORT(form_matmul)(uint32_t index, const uint8_t *w, void *scratch, float *y, uint32_t k,
                         uint32_t n_row, uint32_t n_tok, uint32_t row_begin, uint32_t row_end) {
  const lnl_form *form = form_at(index);
  run_matmul(form, form->matmul, w, form_row_bytes(form, k), scratch, y, k, n_row, n_tok, row_begin, row_end);
}
/* Bytes of a packed group of k values a row; 0 where the form has no packing,
 * and then none of the functions below may be called. */
uint32_t EXPORT(packing_bytes)(uint32_t index, uint32_t k) {
  return form_at(index)->packing ? (uint32_t)form_group_bytes(form_at(index), k) : 0;
}
const char *EXPORT(packing_kernel)(uint32_t index) { return form_at(index)->packing->kernel; }
/* Packs row_count stored rows, group after group. */
void EXPORT(packing_pack)(uint32_t index, const uint8_t *src, uint32_t row_count, uint8_t *dst, uint32_t k) {
  const lnl_form *form = form_at(index);
  const uint64_t row_bytes = form_row_bytes(form, k);
  for (uint32_t row = 0; row < row_count; row += FORM_GROUP)
    form_pack(form, src + row * row_bytes, row_bytes, u32_min(FORM_GROUP, row_count - row), dst, row_count, k,
              row / FORM_GROUP);
}
void EXPORT(packing_matmul)(uint32_t index, const uint8_t *w, void *scratch, float *y, uint32_t k,
                            uint32_t n_row, uint32_t n_tok, uint32_t row_begin, uint32_t row_end) {
  const lnl_form *form = form_at(index);
  run_matmul(form, form->packing->matmul, w, form_group_bytes(form, k), scratch, y, k, n_row, n_tok,
             row_begin, row_end);
}
#if LNL_VEC
/* Reads `bytes` (a multiple of 128), as fast as one can: what a kernel that
 * streams weights is measured against. */
uint32_t EXPORT(read_loop)(const uint8_t *src, uint32_t bytes) {
  v128_t sum[4] = {vec_zero(), vec_zero(), vec_zero(), vec_zero()};
  for (const uint8_t *end = src + bytes; src < end; src += 128)
    VEC_UNROLL for (int i = 0; i < 8; i++) sum[i % 4] =
        wasm_i32x4_add(sum[i % 4], wasm_v128_load(src + 16 * i));
  const v128_t all = wasm_i32x4_add(wasm_i32x4_add(sum[0], sum[1]), wasm_i32x4_add(sum[2], sum[3]));
  return (uint32_t)wasm_i32x4_extract_lane(all, 0) ^ (uint32_t)wasm_i32x4_extract_lane(all, 1) ^
         (uint32_t)wasm_i32x4_extract_lane(all, 2) ^ (uint32_t)wasm_i32x4_extract_lane(all, 3);
}
#endif
/* Attention of n_tok tokens, the last of which sees n_key keys; k, v and kv as in kernels.h. */
void EXPORT(kernel_attn)(const float *q, const void *k, const void *v, float *out, void *scratch,
                         uint32_t n_head, uint32_t n_kv_head, uint32_t d_head, uint32_t n_key, uint32_t n_ctx,
                         uint32_t kv, uint32_t n_tok) {
  lnl_attn a = {0};
  a.q = q, a.k = k, a.v = v, a.out = out, a.scratch = scratch;
  a.n_head = a.head_end = n_head, a.n_kv_head = n_kv_head;
  a.d_head = a.d_value = d_head, a.n_ctx = n_ctx, a.kv[ATTN_K] = a.kv[ATTN_V] = (attn_kv)kv;
  a.causal = a.finite = true, a.n_tok = n_tok, a.position = n_key - n_tok;
  a.q_stride = a.out_stride = n_head * d_head;
  a.scale = 0.125f;
  attn(&a);
}
uint32_t EXPORT(attn_kv_size)(uint32_t kv, uint32_t n_ctx, uint32_t n_kv_head, uint32_t d) {
  return (uint32_t)attn_kv_bytes((attn_kv)kv, n_ctx, n_kv_head, d);
}
void EXPORT(attn_kv_put)(void *data, uint32_t kv, uint32_t part, uint32_t n_ctx, uint32_t n_kv_head,
                         uint32_t d, uint32_t position, const float *row) {
  attn_kv_store(data, (attn_kv)kv, (attn_part)part, n_ctx, n_kv_head, d, position, row);
}
uint32_t EXPORT(attn_scratch)(uint32_t d_head, uint32_t d_value) {
  return (uint32_t)attn_scratch_bytes(d_head, d_value);
}
void EXPORT(kernel_silu_mul)(float *y, const float *gate, const float *up, uint32_t n) {
  silu_mul(y, gate, up, n);
}
void EXPORT(kernel_rms_norm)(float *y, const float *x, const float *w, uint32_t n) {
  rms_norm(y, x, w, n, 1e-5f);
}
uint32_t EXPORT(kernel_argmax)(const float *x, uint32_t n) { return argmax(x, n); }
double EXPORT(kernel_log_sum_exp)(const float *x, uint32_t n) { return log_sum_exp(x, n); }
