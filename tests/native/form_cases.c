/* Cases of the forms: for each, SIMD decoding equals its specification to the
 * bit, and its matrix product stays within a derived bound of the exact one,
 * for all tails, ranges of rows and numbers of tokens. The same for its packed
 * rows, where it has a packing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_cases.h"
#include "src/forms/half.h"

/* --- random numbers ------------------------------------------------------------- */
static uint32_t random_state = 1;
void case_seed(uint32_t seed) { random_state = seed * 2654435761u | 1; }
uint32_t case_random(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state * 2654435761u;
}
float case_uniform(float low, float high) {
  return low + (high - low) * (float)(case_random() >> 8) * 0x1p-24f;
}

/* --- weights -------------------------------------------------------------------- */
/* What a block is filled with. */
typedef enum fill_style {
  FILL_RANDOM,
  FILL_ONES,      /* every code byte 0xff, large scales */
  FILL_ZERO,      /* every byte 0 */
  FILL_LOWEST,    /* every code byte 0x80, negative scales */
  FILL_SUBNORMAL, /* random codes, subnormal scales */
  FILL_COUNT
} fill_style;

static void put_half(uint8_t *at, float value) {
  const uint16_t half = float_to_half(value);
  memcpy(at, &half, 2);
}
static void fill_bytes(uint8_t *at, size_t count, fill_style style) {
  for (size_t i = 0; i < count; i++)
    at[i] = style == FILL_ONES     ? 0xff
            : style == FILL_ZERO   ? 0
            : style == FILL_LOWEST ? 0x80
                                   : (uint8_t)(case_random() >> 24);
}
static float fill_scale(fill_style style) {
  switch (style) {
  case FILL_ONES:
    return 60000.0f;
  case FILL_ZERO:
    return 0;
  case FILL_LOWEST:
    return -3.0f;
  case FILL_SUBNORMAL:
    return (float)(1 + case_random() % 1023) * 0x1p-24f;
  default:
    return case_uniform(-0.02f, 0.05f);
  }
}
static float fill_value(fill_style style) {
  return style == FILL_RANDOM ? case_uniform(-1, 1) : fill_scale(style);
}

/* fill_<form>: one block. magnitude_<form>: for each value of the block the
 * largest that a correct kernel may add up on its way to it, zero points and
 * minima apart from codes: what rounding errors are relative to. */
static void fill_f32(uint8_t *block, fill_style style) {
  const float value = fill_value(style);
  memcpy(block, &value, 4);
}
static void fill_f16(uint8_t *block, fill_style style) { put_half(block, fill_value(style)); }
static void fill_bf16(uint8_t *block, fill_style style) {
  const uint16_t upper = (uint16_t)(float_bits(fill_value(style)) >> 16);
  memcpy(block, &upper, 2);
}
static void fill_q8_0(uint8_t *block, fill_style style) {
  fill_bytes(block + 2, 32, style);
  put_half(block, fill_scale(style));
  if (style == FILL_RANDOM) block[2 + case_random() % 32] = 0x80; /* -128, which no quantiser writes */
}
static void fill_q4_0(uint8_t *block, fill_style style) {
  fill_bytes(block + 2, 16, style);
  put_half(block, fill_scale(style));
}
static void fill_q4_k(uint8_t *block, fill_style style) {
  fill_bytes(block + 4, 140, style);
  put_half(block, fill_scale(style));
  put_half(block + 2, fill_scale(style));
}
static void fill_q6_k(uint8_t *block, fill_style style) {
  fill_bytes(block, 208, style);
  put_half(block + 208, fill_scale(style));
}

static void fill_q4_1(uint8_t *block, fill_style style) {
  fill_bytes(block + 4, 16, style);
  put_half(block, fill_scale(style));
  put_half(block + 2, fill_scale(style));
}
static void fill_q5_0(uint8_t *block, fill_style style) {
  fill_bytes(block + 2, 20, style);
  put_half(block, fill_scale(style));
}
static void fill_q5_1(uint8_t *block, fill_style style) {
  fill_bytes(block + 4, 20, style);
  put_half(block, fill_scale(style));
  put_half(block + 2, fill_scale(style));
}
static void fill_q2_k(uint8_t *block, fill_style style) {
  fill_bytes(block, 80, style);
  put_half(block + 80, fill_scale(style));
  put_half(block + 82, fill_scale(style));
}
static void fill_q3_k(uint8_t *block, fill_style style) {
  fill_bytes(block, 108, style);
  put_half(block + 108, fill_scale(style));
}
static void fill_q5_k(uint8_t *block, fill_style style) {
  fill_bytes(block + 4, 172, style);
  put_half(block, fill_scale(style));
  put_half(block + 2, fill_scale(style));
}
static void fill_iq4_nl(uint8_t *block, fill_style style) { fill_q4_0(block, style); }
static void fill_iq4_xs(uint8_t *block, fill_style style) {
  fill_bytes(block + 2, 134, style);
  put_half(block, fill_scale(style));
}

#define FILL_BY_HALF(name, bytes, at)                                                                        \
  static void fill_##name(uint8_t *block, fill_style style) {                                                \
    fill_bytes(block, bytes, style);                                                                         \
    put_half(block + (at), fill_scale(style));                                                               \
  }
FILL_BY_HALF(iq2_xxs, 66, 0)
FILL_BY_HALF(iq2_xs, 74, 0)
FILL_BY_HALF(iq2_s, 82, 0)
FILL_BY_HALF(iq3_xxs, 98, 0)
FILL_BY_HALF(iq3_s, 110, 0)
FILL_BY_HALF(iq1_s, 50, 0)
FILL_BY_HALF(tq1_0, 54, 52)
FILL_BY_HALF(tq2_0, 66, 64)
FILL_BY_HALF(q1_0, 18, 0)
FILL_BY_HALF(q2_0, 18, 0)
static void fill_iq1_m(uint8_t *block, fill_style style) {
  const uint16_t half = float_to_half(fill_scale(style)); /* in the upper nibbles of 4 fields */
  fill_bytes(block, 56, style);
  for (int i = 0; i < 4; i++) {
    uint8_t *byte = block + 48 + 2 * i + 1;
    *byte = (uint8_t)((*byte & 15) | (half >> (4 * i) & 15) << 4);
  }
}
static void fill_mxfp4(uint8_t *block, fill_style style) {
  static const uint8_t exponent[FILL_COUNT] = {0, 140, 0, 128, 88};
  fill_bytes(block, 17, style);
  block[0] = style == FILL_RANDOM ? (uint8_t)(115 + case_random() % 16) : exponent[style];
}
static void fill_nvfp4(uint8_t *block, fill_style style) { fill_bytes(block, 36, style); }

static void magnitude_value(const lnl_form *form, const uint8_t *block, double *out) {
  float value;
  form_decode_scalar(form, block, &value, 1);
  *out = fabs((double)value);
}
static void magnitude_f32(const uint8_t *block, double *out) {
  magnitude_value(form_find(TYPE_F32), block, out);
}
static void magnitude_f16(const uint8_t *block, double *out) {
  magnitude_value(form_find(TYPE_F16), block, out);
}
static void magnitude_bf16(const uint8_t *block, double *out) {
  magnitude_value(form_find(TYPE_BF16), block, out);
}
static void magnitude_q8_0(const uint8_t *block, double *out) {
  for (int i = 0; i < 32; i++) out[i] = fabs((double)load_half(block) * (int8_t)block[2 + i]);
}
static void magnitude_q4_0(const uint8_t *block, double *out) {
  const double d = fabs((double)load_half(block));
  for (int i = 0; i < 16; i++) {
    out[i] = d * ((block[2 + i] & 15) + 8);
    out[i + 16] = d * ((block[2 + i] >> 4) + 8);
  }
}
static void magnitude_q4_k(const uint8_t *block, double *out) {
  const double d = fabs((double)load_half(block)), dmin = fabs((double)load_half(block + 2));
  for (int i = 0; i < 256; i++) {
    const int j = i / 32, byte = block[16 + j / 2 * 32 + i % 32];
    const uint8_t *s = block + 4;
    const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    const int min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
    out[i] = d * scale * (j % 2 ? byte >> 4 : byte & 15) + dmin * min;
  }
}
static void magnitude_q6_k(const uint8_t *block, double *out) {
  float value[256];
  form_decode_scalar(form_find(TYPE_Q6_K), block, value, 256);
  const double d = fabs((double)load_half(block + 208));
  for (int i = 0; i < 256; i++) /* code <= |code - 32| + 32 */
    out[i] = fabs((double)value[i]) + 64 * d * abs((int8_t)block[192 + i / 16]);
}

/* |value| + 2 part[i / sub]: what is subtracted apart from codes, twice, since
 * |code term| <= |value| + part. */
static void magnitude_parts(uint32_t type, const uint8_t *block, const double *part, int sub, double *out) {
  const lnl_form *form = form_find(type);
  float value[256];
  form_decode_scalar(form, block, value, form->block_len);
  for (int i = 0; i < (int)form->block_len; i++) out[i] = fabs((double)value[i]) + 2 * fabs(part[i / sub]);
}
static void magnitude_q4_1(const uint8_t *block, double *out) {
  const double min = (double)load_half(block + 2);
  magnitude_parts(TYPE_Q4_1, block, &min, 32, out);
}
static void magnitude_q5_0(const uint8_t *block, double *out) {
  const double zero = 16 * (double)load_half(block);
  magnitude_parts(TYPE_Q5_0, block, &zero, 32, out);
}
static void magnitude_q5_1(const uint8_t *block, double *out) {
  const double min = (double)load_half(block + 2);
  magnitude_parts(TYPE_Q5_1, block, &min, 32, out);
}
static void magnitude_q2_k(const uint8_t *block, double *out) {
  double part[16];
  for (int j = 0; j < 16; j++) part[j] = (double)load_half(block + 82) * (block[j] >> 4);
  magnitude_parts(TYPE_Q2_K, block, part, 16, out);
}
static void magnitude_q3_k(const uint8_t *block, double *out) {
  double part[16];
  for (int j = 0; j < 16; j++) {
    const uint8_t *s = block + 96;
    const int scale = ((j < 8 ? s[j] & 15 : s[j - 8] >> 4) | (s[8 + j % 4] >> (2 * (j / 4)) & 3) << 4) - 32;
    part[j] = 4 * (double)load_half(block + 108) * scale;
  }
  magnitude_parts(TYPE_Q3_K, block, part, 16, out);
}
static void magnitude_q5_k(const uint8_t *block, double *out) {
  double part[8];
  for (int j = 0; j < 8; j++) {
    const uint8_t *s = block + 4;
    const int min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
    part[j] = (double)load_half(block + 2) * min;
  }
  magnitude_parts(TYPE_Q5_K, block, part, 32, out);
}
static void magnitude_iq4_nl(const uint8_t *block, double *out) {
  const double none = 0;
  magnitude_parts(TYPE_IQ4_NL, block, &none, 32, out);
}
static void magnitude_iq4_xs(const uint8_t *block, double *out) {
  const double none[8] = {0};
  magnitude_parts(TYPE_IQ4_XS, block, none, 32, out);
}

/* Values of which a zero point of `zero` scales is subtracted, one scale a block. */
#define MAGNITUDE_ZERO(name, NAME, at, zero)                                                                 \
  static void magnitude_##name(const uint8_t *block, double *out) {                                          \
    const double part = (zero) * (double)load_half(block + (at));                                            \
    magnitude_parts(TYPE_##NAME, block, &part, 256, out);                                                    \
  }
MAGNITUDE_ZERO(iq2_xxs, IQ2_XXS, 0, 0)
MAGNITUDE_ZERO(iq2_xs, IQ2_XS, 0, 0)
MAGNITUDE_ZERO(iq2_s, IQ2_S, 0, 0)
MAGNITUDE_ZERO(iq3_xxs, IQ3_XXS, 0, 0)
MAGNITUDE_ZERO(iq3_s, IQ3_S, 0, 0)
MAGNITUDE_ZERO(iq1_s, IQ1_S, 0, 0)
MAGNITUDE_ZERO(tq1_0, TQ1_0, 52, 1)
MAGNITUDE_ZERO(tq2_0, TQ2_0, 64, 1)
MAGNITUDE_ZERO(q1_0, Q1_0, 0, 1)
MAGNITUDE_ZERO(q2_0, Q2_0, 0, 1)
static void magnitude_without_parts(uint32_t type, const uint8_t *block, double *out) {
  const double none = 0;
  magnitude_parts(type, block, &none, 256, out);
}
static void magnitude_iq1_m(const uint8_t *block, double *out) {
  magnitude_without_parts(TYPE_IQ1_M, block, out);
}
static void magnitude_mxfp4(const uint8_t *block, double *out) {
  magnitude_without_parts(TYPE_MXFP4, block, out);
}
static void magnitude_nvfp4(const uint8_t *block, double *out) {
  magnitude_without_parts(TYPE_NVFP4, block, out);
}

typedef struct form_fixture {
  uint32_t type;
  void (*fill)(uint8_t *block, fill_style style);
  void (*magnitude)(const uint8_t *block, double *out);
} form_fixture;
static const form_fixture fixtures[] = {
#define LNL_FORM(NAME, name, id, block_len, block_bytes, activation) {id, fill_##name, magnitude_##name},
#include "src/forms/list.inc"
#undef LNL_FORM
};
enum { FORM_COUNT = sizeof fixtures / sizeof fixtures[0] };

static void fill_blocks(const form_fixture *fixture, uint8_t *at, size_t blocks, uint32_t block_bytes,
                        fill_style style) {
  for (size_t b = 0; b < blocks; b++) fixture->fill(at + b * block_bytes, style);
}

/* --- decoding -------------------------------------------------------------------- */
static bool same_bits(const void *a, const void *b, size_t bytes) { return memcmp(a, b, bytes) == 0; }

static lnl_status check_decode(const lnl_form *form, const form_fixture *fixture, lnl_error *error) {
  const uint32_t most = form->block_len == 1 ? 70 : 5;
  case_seed(form->type + 1);
  for (uint32_t blocks = 0; blocks <= most; blocks++)
    for (int style = 0; style < FILL_COUNT; style++) {
      const uint32_t n = blocks * form->block_len;
      const size_t bytes = (size_t)form_row_bytes(form, n);
      CHECK(bytes == (size_t)blocks * form->block_bytes, "row bytes");
      float *expected = case_alloc(n * sizeof(float), 0, false);
      float *got = case_alloc((n + 1) * sizeof(float), 4, false);
      uint8_t *src = case_alloc(bytes, 3, true);
      fill_blocks(fixture, src, blocks, form->block_bytes, (fill_style)style);
      memset(got, 0x55, (n + 1) * sizeof(float));
      form_decode_scalar(form, src, expected, n);
      form->decode(src, got, n);
      CHECK(same_bits(expected, got, n * sizeof(float)),
            "%s: decoding %u values differs from its specification", form->name, n);
      CHECK(float_bits(got[n]) == 0x55555555, "%s: decoding %u values writes beyond them", form->name, n);
      case_free_all();
    }
  /* Any bytes at all: infinite and NaN scales, too. */
  const uint32_t n = 64 * form->block_len;
  const size_t bytes = (size_t)form_row_bytes(form, n);
  float *expected = case_alloc(n * sizeof(float), 0, false);
  float *got = case_alloc(n * sizeof(float), 4, false);
  uint8_t *src = case_alloc(bytes, 1, true);
  for (int round = 0; round < 20; round++) {
    fill_bytes(src, bytes, FILL_RANDOM);
    if (round == 0) memset(src, 0x7c, bytes); /* an infinity or NaN in every half */
    form_decode_scalar(form, src, expected, n);
    form->decode(src, got, n);
    for (uint32_t i = 0; i < n; i++)
      CHECK(float_bits(expected[i]) == float_bits(got[i]) || (isnan(expected[i]) && isnan(got[i])),
            "%s: value %u of random bytes decodes differently", form->name, i);
  }
  case_free_all();
  return LNL_OK;
}

/* --- matrix product ----------------------------------------------------------------- */
typedef enum x_style {
  X_RANDOM,
  X_HUGE,
  X_TINY,
  X_ZERO,
  X_EXTREME,
  X_LARGEST,
  X_PAIRS,
  X_PEAKS,
  X_COUNT
} x_style;

/* Operands of a product whose memory is exactly what the kernel may read. */
typedef struct operands {
  lnl_matmul m;
  uint32_t n_row;
  uint8_t *w;
  float *x;         /* [n_tok, k]: what the activations stand for */
  double *expected; /* [n_tok, n_row] */
  double *size;     /* [n_tok, n_row]: sum_i |t_i|, see expect_products */
} operands;

static void fill_activations(float *x, uint32_t n, x_style style) {
  for (uint32_t i = 0; i < n; i++) {
    x[i] = case_uniform(-1, 1);
    if (style == X_HUGE) x[i] *= 0x1p40f;
    if (style == X_TINY) x[i] *= 0x1p-40f;
    if (style == X_ZERO) x[i] = 0;
    if (style == X_EXTREME) x[i] = case_random() & 0x10000 ? 1.0f : -1.0f; /* +-127 in int8 */
    if (style == X_LARGEST) x[i] = 1;
    if (style == X_PEAKS && i / 32 % 3 == 0) x[i] *= 0x1p24f;
    if (style == X_PAIRS) x[i] = i & 2 ? 1.0f : -1.0f; /* the two halves of a lane against each other */
  }
}

/* The exact product in double, and how far a float kernel may be from it.
 *
 * A kernel adds up terms t_i = w_i x_i (or exact integer sums of them times
 * scales). Each term is rounded at most 8 times on its way (the scales, their
 * products, the conversion, the decoded weight of the reference itself), then
 * takes part in at most `additions` additions, in whatever order. So
 *   |y - exact| <= gamma(additions + 8) sum_i |t_i|,
 * where the |t_i| are magnitudes before zero points and minima are subtracted.
 * additions: k for floats and for the specifications (a term each); for int8
 * activations at most one float term for each 16 values and one more for each
 * 32 (minima and zero points), 6 for the tail, plus 3 to join the lanes. */
static double additions_of(const lnl_form *form, uint32_t k) {
  return form->activation == ACT_F32 ? k : k / 16 + k / 32 + 9;
}
static void expect_products(operands *o, const lnl_form *form, const form_fixture *fixture) {
  const uint32_t k = o->m.k, blocks = k / form->block_len;
  float *value = case_alloc(k * sizeof(float), 0, false);
  double *size = case_alloc(k * sizeof(double), 0, false);
  for (uint32_t r = 0; r < o->n_row; r++) {
    const uint8_t *row = o->w + r * o->m.row_bytes;
    form_decode_scalar(form, row, value, k);
    for (uint32_t b = 0; b < blocks; b++)
      fixture->magnitude(row + (size_t)b * form->block_bytes, size + (size_t)b * form->block_len);
    for (uint32_t t = 0; t < o->m.n_tok; t++) {
      double sum = 0, sizes = 0;
      for (uint32_t i = 0; i < k; i++) {
        const double x = (double)o->x[(size_t)t * k + i];
        sum += (double)value[i] * x;
        sizes += size[i] * fabs(x);
      }
      o->expected[t * o->n_row + r] = sum;
      o->size[t * o->n_row + r] = sizes;
    }
  }
}

static void make_operands(operands *o, const lnl_form *form, const form_fixture *fixture, uint32_t k,
                          uint32_t n_row, uint32_t n_tok, fill_style fill, x_style style) {
  memset(o, 0, sizeof *o);
  const size_t n = (size_t)n_tok * k;
  o->n_row = n_row;
  o->m.k = k;
  o->m.n_tok = n_tok;
  o->m.row_begin = 0;
  o->m.row_end = n_row;
  o->m.row_bytes = form_row_bytes(form, k);
  o->expected = case_alloc((size_t)n_tok * n_row * sizeof(double), 0, false);
  o->size = case_alloc((size_t)n_tok * n_row * sizeof(double), 0, false);
  o->x = case_alloc(n * sizeof(float), 4, false);
  fill_activations(o->x, (uint32_t)n, style);
  o->m.x_f32 = o->x;
  if (form->activation == ACT_Q8) {
    o->m.x_q8.q = case_alloc(n, 1, false);
    o->m.x_q8.d = case_alloc(n / 32 * sizeof(float), 4, false);
    o->m.x_q8.sums = case_alloc(n / 16 * sizeof(int16_t), 2, false);
    for (uint32_t t = 0; t < n_tok; t++) {
      const size_t at = (size_t)t * k;
      quant_q8_scalar(o->m.x_q8.q + at, o->m.x_q8.d + at / 32, o->m.x_q8.sums + at / 16, o->x + at, k);
      for (size_t i = at; i < at + k; i++) o->x[i] = (float)o->m.x_q8.q[i] * o->m.x_q8.d[i / 32];
    }
    o->m.x_f32 = NULL;
  }
  const size_t bytes = (size_t)(n_row * o->m.row_bytes);
  o->w = case_alloc(bytes, 1, true);
  fill_blocks(fixture, o->w, bytes / form->block_bytes, form->block_bytes, fill);
  o->m.w = o->w;
  expect_products(o, form, fixture);
}

static lnl_status check_near(const operands *o, const lnl_form *form, double additions, const char *which,
                             lnl_error *error) {
  for (uint32_t t = 0; t < o->m.n_tok; t++)
    for (uint32_t r = 0; r < o->n_row; r++) {
      const double y = (double)o->m.y[(size_t)t * o->m.y_stride + r];
      const double expected = o->expected[t * o->n_row + r];
      const double bound = case_gamma(additions + 8) * o->size[t * o->n_row + r];
      CHECK(fabs(y - expected) <= bound, "%s %s: k %u token %u of %u row %u: %g, expected %g within %g",
            form->name, which, o->m.k, t, o->m.n_tok, r, y, expected, bound);
    }
  return LNL_OK;
}

/* Every other way to compute the same values gives the same bits, and writes
 * nothing else. `all` holds the product of all rows and tokens. */
static lnl_status check_parts(const operands *o, const lnl_form *form, void (*matmul)(const lnl_matmul *),
                              uint32_t row_unit, const float *all, lnl_error *error) {
  lnl_matmul part = o->m;
  float *const y = o->m.y;
  const uint32_t stride = o->m.y_stride;
  for (uint32_t n_tok = 1; n_tok <= o->m.n_tok; n_tok++)
    for (uint32_t begin = 0; begin < o->n_row; begin += row_unit) {
      const uint32_t end = n_tok % 2 ? o->n_row : u32_min(o->n_row, begin + 1 + n_tok);
      part.n_tok = n_tok;
      part.row_begin = begin;
      part.row_end = end;
      memset(y, 0x55, (size_t)o->m.n_tok * stride * sizeof(float));
      matmul(&part);
      for (uint32_t t = 0; t < o->m.n_tok; t++)
        for (uint32_t r = 0; r < stride; r++) {
          const bool written = t < n_tok && r >= begin && r < end;
          const uint32_t expected = written ? float_bits(all[(size_t)t * stride + r]) : 0x55555555;
          CHECK(float_bits(y[(size_t)t * stride + r]) == expected,
                "%s: token %u row %u changes with %u tokens, rows %u to %u (k %u)", form->name, t, r, n_tok,
                begin, end, o->m.k);
        }
    }
  return LNL_OK;
}

static lnl_status check_product(const lnl_form *form, const form_fixture *fixture, uint32_t k, uint32_t n_row,
                                uint32_t n_tok, fill_style fill, x_style style, bool parts,
                                lnl_error *error) {
  operands o;
  make_operands(&o, form, fixture, k, n_row, n_tok, fill, style);
  o.m.y_stride = n_row + 3;
  const size_t y_bytes = (size_t)n_tok * o.m.y_stride * sizeof(float);
  o.m.y = case_alloc(y_bytes, 4, false);
  form_matmul_scalar(form, &o.m);
  LNL_TRY(check_near(&o, form, k, "specification", error));
  memset(o.m.y, 0x55, y_bytes);
  form->matmul(&o.m);
  LNL_TRY(check_near(&o, form, additions_of(form, k), form->kernel, error));
  if (parts) {
    float *all = case_alloc(y_bytes, 0, false);
    memcpy(all, o.m.y, y_bytes);
    LNL_TRY(check_parts(&o, form, form->matmul, 2, all, error));
  }
  case_free_all();
  return LNL_OK;
}

/* A broken file must show: where a scale or weight is infinite or NaN, no
 * finite number may come out of its row, and no other row may notice. */
static lnl_status check_special(const lnl_form *form, const form_fixture *fixture, lnl_error *error) {
  uint8_t ones[256];
  float value[256];
  memset(ones, 0xff, sizeof ones);
  form_decode_scalar(form, ones, value, form->block_len);
  if (isfinite(value[0])) { /* MXFP4, NVFP4: no scale is anything but finite */
    CHECK(form->type == TYPE_MXFP4 || form->type == TYPE_NVFP4, "%s: no NaN", form->name);
    return LNL_OK;
  }
  const uint32_t blocks = form->block_len == 1 ? 37 : 5; /* groups of blocks, and tails */
  for (uint32_t broken = 0; broken < blocks; broken++) {
    operands o;
    make_operands(&o, form, fixture, blocks * form->block_len, 3, 5, FILL_RANDOM, X_RANDOM);
    o.m.y_stride = 3;
    o.m.y = case_alloc(15 * sizeof(float), 0, false);
    /* NaN in every float and half of the block */
    memset(o.w + o.m.row_bytes + (size_t)broken * form->block_bytes, 0xff, form->block_bytes);
    form->matmul(&o.m);
    for (uint32_t t = 0; t < 5; t++) {
      CHECK(!isfinite(o.m.y[t * 3 + 1]), "%s: a NaN in block %u is lost", form->name, broken);
      CHECK(isfinite(o.m.y[t * 3]) && isfinite(o.m.y[t * 3 + 2]), "%s: a NaN in block %u spreads", form->name,
            broken);
    }
    case_free_all();
  }
  return LNL_OK;
}

static lnl_status check_matmul(const lnl_form *form, const form_fixture *fixture, lnl_error *error) {
  case_seed(form->type + 100);
  const uint32_t most = form->block_len == 1 ? 70 : form->block_len == 32 ? 9 : 5;
  for (uint32_t blocks = 1; blocks <= most; blocks++)
    LNL_TRY(check_product(form, fixture, blocks * form->block_len, 5, 9, FILL_RANDOM, X_RANDOM,
                          form->block_len > 1 || blocks % 3 == 1, error));
  const uint32_t k = form->block_len == 1 ? 45 : 3 * form->block_len;
  for (int fill = 0; fill < FILL_COUNT; fill++)
    for (int style = 0; style < X_COUNT; style++)
      LNL_TRY(check_product(form, fixture, k, 3, 6, (fill_style)fill, (x_style)style, false, error));
  LNL_TRY(check_product(form, fixture, k, 37, 9, FILL_RANDOM, X_RANDOM, true, error)); /* tiles of 16 rows */
  LNL_TRY(check_product(form, fixture, 2048, 3, 4, FILL_RANDOM, X_RANDOM, false, error));
  /* rows that are unpacked in pieces of 1024 values, with a tail, for tiles of 16 tokens */
  const uint32_t pieces = 1024 + 5 * form->block_len;
  LNL_TRY(check_product(form, fixture, pieces, 9, 21, FILL_RANDOM, X_RANDOM, false, error));
  LNL_TRY(
      check_product(form, fixture, u32_max(form->block_len, 32), 9, 21, FILL_RANDOM, X_RANDOM, true, error));
  return check_special(form, fixture, error);
}

/* --- packed rows ---------------------------------------------------------------------- */
/* Packs all rows of o, checks what decode_row makes of them, and leaves the
 * packed matrix as the operand. */
static lnl_status pack_operands(operands *o, const lnl_form *form, lnl_error *error) {
  const uint32_t k = o->m.k, groups = form_group_count(o->n_row);
  const size_t group_bytes = (size_t)form_group_bytes(form, k), stored_bytes = (size_t)o->m.row_bytes;
  uint8_t *packed = case_alloc(groups * group_bytes, 1, false);
  memset(packed, 0x55, groups * group_bytes);
  for (uint32_t g = 0; g < groups; g++)
    form_pack(form, o->w + g * FORM_GROUP * stored_bytes, stored_bytes,
              u32_min(FORM_GROUP, o->n_row - g * FORM_GROUP), packed, o->n_row, k, g);
  float *expected = case_alloc(k * sizeof(float), 0, false), *got = case_alloc(k * sizeof(float), 4, false);
  for (uint32_t r = 0; r < groups * FORM_GROUP; r++) {
    memset(expected, 0, k * sizeof(float));
    memset(got, 0x55, k * sizeof(float));
    if (r < o->n_row) form_decode_scalar(form, o->w + r * stored_bytes, expected, k);
    form_unpack_row(form, packed, o->n_row, k, r, got);
    for (uint32_t i = 0; i < k; i++)
      CHECK(float_bits(expected[i]) == float_bits(got[i]) || (isnan(expected[i]) && isnan(got[i])) ||
                (r >= o->n_row && got[i] == 0),
            "%s packed: value %u of row %u of %u: %g, expected %g", form->name, i, r, o->n_row,
            (double)got[i], (double)expected[i]);
  }
  uint8_t *w = case_alloc(groups * group_bytes, 1, true); /* in wasm the stored rows were there */
  memcpy(w, packed, groups * group_bytes);
  o->m.w = w;
  o->m.row_bytes = 0;
  o->m.w_n_row = o->n_row;
  return LNL_OK;
}

/* Rows from `begin` on as a matrix product of their own (one of several that are
 * held as one): y as in `all`. */
static lnl_status check_packed_tail(const operands *o, const lnl_form *form, const float *all,
                                    lnl_error *error) {
  const size_t y_bytes = (size_t)o->m.n_tok * o->m.y_stride * sizeof(float);
  for (uint32_t begin = FORM_GROUP; begin < o->n_row; begin += 3 * FORM_GROUP) {
    lnl_matmul part = o->m;
    part.w_row_begin = begin;
    part.row_end = o->n_row - begin;
    memset(o->m.y, 0x55, y_bytes);
    form->packing->matmul(&part);
    for (uint32_t t = 0; t < part.n_tok; t++)
      for (uint32_t r = 0; r < part.row_end; r++) {
        const size_t at = (size_t)t * part.y_stride + r;
        CHECK(float_bits(o->m.y[at]) == float_bits(all[at + begin]),
              "%s packed: rows from %u of %u: token %u row %u (k %u)", form->name, begin, o->n_row, t, r,
              part.k);
      }
  }
  return LNL_OK;
}

static lnl_status check_packed_product(const lnl_form *form, const form_fixture *fixture, uint32_t k,
                                       uint32_t n_row, uint32_t n_tok, fill_style fill, x_style style,
                                       bool parts, lnl_error *error) {
  operands o;
  make_operands(&o, form, fixture, k, n_row, n_tok, fill, style);
  LNL_TRY(pack_operands(&o, form, error));
  o.m.y_stride = n_row + 3;
  const size_t y_bytes = (size_t)n_tok * o.m.y_stride * sizeof(float);
  o.m.y = case_alloc(y_bytes, 4, false);
  form->packing->matmul(&o.m);
  LNL_TRY(check_near(&o, form, additions_of(form, k), form->packing->kernel, error));
  if (parts) {
    float *all = case_alloc(y_bytes, 0, false);
    memcpy(all, o.m.y, y_bytes);
    LNL_TRY(check_packed_tail(&o, form, all, error));
    LNL_TRY(check_parts(&o, form, form->packing->matmul, FORM_GROUP, all, error));
  }
  case_free_all();
  return LNL_OK;
}

/* As check_special, and any bytes at all packed and decoded. */
static lnl_status check_packed_special(const lnl_form *form, const form_fixture *fixture, lnl_error *error) {
  enum { ROWS = 10, TOKENS = 5, BLOCKS = 5 };
  for (uint32_t broken = 0; broken < BLOCKS; broken++)
    for (uint32_t bad = 0; bad < ROWS; bad += 3) {
      operands o;
      make_operands(&o, form, fixture, BLOCKS * form->block_len, ROWS, TOKENS, FILL_RANDOM, X_RANDOM);
      memset(o.w + bad * o.m.row_bytes + (size_t)broken * form->block_bytes, broken % 2 ? 0x7c : 0xff,
             form->block_bytes);
      LNL_TRY(pack_operands(&o, form, error));
      o.m.y_stride = ROWS;
      o.m.y = case_alloc(ROWS * TOKENS * sizeof(float), 0, false);
      form->packing->matmul(&o.m);
      for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t r = 0; r < ROWS; r++)
          CHECK(!isfinite(o.m.y[t * ROWS + r]) == (r == bad),
                "%s packed: NaN in block %u of row %u, y of row %u: %g", form->name, broken, bad, r,
                (double)o.m.y[t * ROWS + r]);
      case_free_all();
    }
  for (int round = 0; round < 20; round++) {
    operands o;
    make_operands(&o, form, fixture, 2 * form->block_len, 9, 1, FILL_RANDOM, X_ZERO);
    fill_bytes(o.w, (size_t)(9 * o.m.row_bytes), FILL_RANDOM);
    LNL_TRY(pack_operands(&o, form, error));
    case_free_all();
  }
  return LNL_OK;
}

static lnl_status check_packing(const lnl_form *form, const form_fixture *fixture, lnl_error *error) {
  if (!form->packing) return LNL_OK;
  case_seed(form->type + 200);
  CHECK(strstr(form->packing->kernel, "x8.q8."), "kernel %s", form->packing->kernel);
  const uint32_t most = form->block_len == 32 ? 9 : 5, k = 3 * form->block_len;
  for (uint32_t blocks = 1; blocks <= most; blocks++)
    LNL_TRY(check_packed_product(form, fixture, blocks * form->block_len, 5 + blocks, 9, FILL_RANDOM,
                                 X_RANDOM, true, error));
  for (uint32_t n_row = 1; n_row <= 17; n_row++)
    LNL_TRY(
        check_packed_product(form, fixture, k, n_row, 1 + n_row % 5, FILL_RANDOM, X_RANDOM, false, error));
  for (int fill = 0; fill < FILL_COUNT; fill++)
    for (int style = 0; style < X_COUNT; style++)
      LNL_TRY(check_packed_product(form, fixture, k, 11, 6, (fill_style)fill, (x_style)style, false, error));
  /* more rows than a tile has, and rows that are cut into panels */
  LNL_TRY(check_packed_product(form, fixture, k, 270, 5, FILL_RANDOM, X_RANDOM, false, error));
  LNL_TRY(check_packed_product(form, fixture, k, 77, 9, FILL_RANDOM, X_RANDOM, true, error));
  LNL_TRY(check_packed_product(form, fixture, 16384, 9, 1, FILL_RANDOM, X_RANDOM, false, error));
  LNL_TRY(check_packed_product(form, fixture, 5120, 9, 4, FILL_RANDOM, X_RANDOM, true, error));
  LNL_TRY(check_packed_product(form, fixture, FORM_PANEL + 256, 299, 1, FILL_RANDOM, X_RANDOM, true, error));
  return check_packed_special(form, fixture, error);
}

/* --- the table, and the list of cases -------------------------------------------------- */
static lnl_status check_table(lnl_error *error) {
  uint32_t count;
  const lnl_form *list = form_list(&count);
  CHECK(count == FORM_COUNT, "%u forms", count);
  for (uint32_t i = 0; i < count; i++) {
    CHECK(form_find(list[i].type) == &list[i], "%s is not found by its type", list[i].name);
    CHECK(strstr(list[i].kernel, list[i].activation == ACT_Q8 ? ".q8." : ".f32."), "kernel %s",
          list[i].kernel);
  }
  CHECK(!form_find(0xffffffff), "a form of no type");
  for (uint32_t k = 32; k <= 320; k += 32)
    for (uint32_t n_tok = 1; n_tok <= 5; n_tok++) {
      const uint64_t bytes = q8_bytes(k, n_tok);
      uint8_t *block = case_alloc((size_t)bytes, 0, true);
      const lnl_q8 view = q8_view(block, k, n_tok);
      const size_t n = (size_t)k * n_tok;
      CHECK((uint8_t *)view.q == block && (uint8_t *)view.d >= block + n &&
                (uint8_t *)view.sums >= (uint8_t *)(view.d + n / 32) &&
                (uint8_t *)(view.sums + n / 16) <= block + bytes,
            "q8 parts overlap for k %u n_tok %u", k, n_tok);
      CHECK(((uint8_t *)view.d - block) % 16 == 0 && ((uint8_t *)view.sums - block) % 16 == 0,
            "q8 alignment");
      case_free_all();
    }
  return LNL_OK;
}

#define LNL_FORM(NAME, name, id, block_len, block_bytes, activation)                                         \
  static lnl_status run_decode_##name(lnl_error *error) {                                                    \
    for (uint32_t i = 0; i < FORM_COUNT; i++)                                                                \
      if (fixtures[i].type == (id)) return check_decode(form_find(id), &fixtures[i], error);                 \
    return error_set(error, LNL_INTERNAL, "no fixture");                                                     \
  }                                                                                                          \
  static lnl_status run_packing_##name(lnl_error *error) {                                                   \
    for (uint32_t i = 0; i < FORM_COUNT; i++)                                                                \
      if (fixtures[i].type == (id)) return check_packing(form_find(id), &fixtures[i], error);                \
    return error_set(error, LNL_INTERNAL, "no fixture");                                                     \
  }                                                                                                          \
  static lnl_status run_matmul_##name(lnl_error *error) {                                                    \
    for (uint32_t i = 0; i < FORM_COUNT; i++)                                                                \
      if (fixtures[i].type == (id)) return check_matmul(form_find(id), &fixtures[i], error);                 \
    return error_set(error, LNL_INTERNAL, "no fixture");                                                     \
  }
#include "src/forms/list.inc"
#undef LNL_FORM

const kernel_case *form_cases(uint32_t *count) {
  static const kernel_case cases[] = {
      {"form table and q8 layout", check_table},
#define LNL_FORM(NAME, name, id, block_len, block_bytes, activation)                                         \
  {"decode " #NAME, run_decode_##name}, {"matmul " #NAME, run_matmul_##name},                                \
      {"packing " #NAME, run_packing_##name},
#include "src/forms/list.inc"
#undef LNL_FORM
  };
  *count = sizeof cases / sizeof cases[0];
  return cases;
}
