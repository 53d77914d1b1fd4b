/* Cases of the kernels: each against exact arithmetic in double, within a
 * derived bound or to the bit, for all tails, aliases and special values. */
#include <math.h>
#include <string.h>

#include "kernel_cases.h"
#include "src/fmt.h"
#include "src/forms/half.h"
#include "src/vec.h"

static bool same_float(float a, float b) { return float_bits(a) == float_bits(b) || (isnan(a) && isnan(b)); }

/* n floats at an address that is a multiple of 4 only, memory ending with them. */
static float *floats(uint32_t n, bool guard) { return case_alloc(n * sizeof(float), 4, guard); }
static float *random_floats(uint32_t n, float low, float high, bool guard) {
  float *x = floats(n, guard);
  for (uint32_t i = 0; i < n; i++) x[i] = case_uniform(low, high);
  return x;
}

/* The SIMD kernel and its specification. */
#define VARIANTS(name) {name##_scalar, name}
enum { VARIANT_COUNT = 2 };
static const char *const variant_names[VARIANT_COUNT] = {"specification", "best"};

/* Lengths with every tail: 1..70, then some of real models. */
static uint32_t next_length(uint32_t n) { return n < 70 ? n + 1 : n < 576 ? 576 : n < 2049 ? 2049 : 0; }

/* --- rms_norm ----------------------------------------------------------------------
 * The sum of squares has n/8 + 8 roundings a term, all terms positive, so that
 * it is off by gamma(n/8 + 8) relatively, and its root by half of that; then
 * the division by n, + eps, root, reciprocal and two products: 6 more. */
static lnl_status case_rms_norm(lnl_error *error) {
  static void (*const variants[])(float *, const float *, const float *, uint32_t, float) =
      VARIANTS(rms_norm);
  for (uint32_t n = 1; n; n = next_length(n))
    for (int v = 0; v < VARIANT_COUNT; v++)
      for (int alias = 0; alias < 2; alias++) {
        const float eps = n % 2 ? 1e-5f : 1e-6f;
        const float size = n % 3 == 0 ? 1e-4f : n % 3 == 1 ? 1.0f : 3e4f;
        float *w = random_floats(n, 0.1f, 2, false);
        float *given = random_floats(n, -size, size, false);
        float *x = floats(n, true);
        memcpy(x, given, n * sizeof(float));
        float *y = alias ? x : floats(n + 1, false);
        if (!alias) y[n] = 42;
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
        const double scale = 1 / sqrt(sum / n + (double)eps);
        variants[v](y, x, w, n, eps);
        for (uint32_t i = 0; i < n; i++) {
          const double expected = (double)given[i] * scale * (double)w[i];
          CHECK(fabs((double)y[i] - expected) <= case_gamma(n / 16 + 10) * fabs(expected),
                "%s n %u i %u: %g, expected %g", variant_names[v], n, i, (double)y[i], expected);
        }
        CHECK(alias || y[n] == 42, "%s n %u: writes beyond", variant_names[v], n);
        case_free_all();
      }
  return LNL_OK;
}

/* --- layer_norm: as rms_norm about the mean, whose own rounding (n/4 + 8 terms of
 * at most `size`) moves every value by as much. */
static lnl_status case_layer_norm(lnl_error *error) {
  static void (*const variants[])(float *, const float *, const float *, uint32_t, float) =
      VARIANTS(layer_norm);
  for (uint32_t n = 2; n; n = next_length(n))
    for (int v = 0; v < VARIANT_COUNT; v++)
      for (int alias = 0; alias < 2; alias++) {
        const float eps = 1e-5f, size = n % 2 ? 1.0f : 30.0f, offset = n % 3 == 0 ? 0 : 3.0f;
        float *w = random_floats(n, 0.1f, 2, false);
        float *given = random_floats(n, offset - size, offset + size, false);
        float *x = floats(n, true);
        memcpy(x, given, n * sizeof(float));
        float *y = alias ? x : floats(n + 1, false);
        if (!alias) y[n] = 42;
        double mean = 0, squares = 0;
        for (uint32_t i = 0; i < n; i++) mean += (double)given[i] / n;
        for (uint32_t i = 0; i < n; i++) squares += ((double)given[i] - mean) * ((double)given[i] - mean);
        const double scale = 1 / sqrt(squares / n + (double)eps);
        variants[v](y, x, w, n, eps);
        const double shift = case_gamma(n / 4 + 10) * (double)(size + offset);
        for (uint32_t i = 0; i < n; i++) {
          const double expected = ((double)given[i] - mean) * scale * (double)w[i];
          const double bound =
              (2 * case_gamma(n / 8 + 12) * fabs((double)given[i] - mean) + 2 * shift) * scale * (double)w[i];
          CHECK(fabs((double)y[i] - expected) <= bound, "%s n %u i %u: %g, expected %g", variant_names[v], n,
                i, (double)y[i], expected);
        }
        CHECK(alias || y[n] == 42, "%s n %u: writes beyond", variant_names[v], n);
        case_free_all();
      }
  return LNL_OK;
}

/* --- gelu_mul, swiglu_oai ------------------------------------------------------------
 * x / (1 + exp(-u)) times up: u has four roundings, which exp turns into as many
 * u relatively (|u| < 88 where it matters), and the rest is as in silu. */
typedef double (*act_reference)(double gate, double up);
static double gelu_reference(double gate, double up) {
  return gate / (1 + exp(-1.5957691216057307 * (gate + 0.044715 * gate * gate * gate))) * up;
}
static double oai_reference(double gate, double up) {
  const double x = fmin(gate, 7), y = fmax(-7, fmin(7, up));
  return x / (1 + exp(-1.702 * x)) * (y + 1);
}
static lnl_status check_act(void (*act)(float *, const float *, const float *, uint32_t),
                            act_reference reference, const char *which, lnl_error *error) {
  for (uint32_t n = 1; n; n = next_length(n))
    for (int plain = 0; plain < 2; plain++) {
      float *gate = random_floats(n, -12, 12, false), *up = random_floats(n, -9, 9, true),
            *y = floats(n + 1, false);
      y[n] = 42;
      act(y, gate, plain ? NULL : up, n);
      CHECK(y[n] == 42, "%s n %u: writes beyond", which, n);
      for (uint32_t i = 0; i < n; i++) {
        const float up_i = plain ? 1 : up[i];
        const double expected = reference((double)gate[i], (double)up_i);
        const double exponent = fabs((double)gate[i]) * (1.6 + 0.0714 * (double)gate[i] * (double)gate[i]);
        const double bound = (6e-7 + 5 * 0x1p-24 * fmin(exponent, 90)) * fabs(expected) +
                             4 * 0x1p-24 * fabs(expected / fmax(fabs((double)up_i + 1), 1e-3)) + 1e-30;
        CHECK(fabs((double)y[i] - expected) <= bound, "%s(%g, %g) = %g, expected %g", which, (double)gate[i],
              (double)up_i, (double)y[i], expected);
        float alone;
        act(&alone, gate + i, plain ? NULL : up + i, 1);
        CHECK(same_float(alone, y[i]), "%s(%g) depends on its place %u of %u", which, (double)gate[i], i, n);
      }
      case_free_all();
    }
  return LNL_OK;
}
static lnl_status case_gelu_mul(lnl_error *error) {
  LNL_TRY(check_act(gelu_mul_scalar, gelu_reference, "gelu_mul_scalar", error));
  return check_act(gelu_mul, gelu_reference, "gelu_mul", error);
}
static lnl_status case_swiglu_oai(lnl_error *error) {
  LNL_TRY(check_act(swiglu_oai_scalar, oai_reference, "swiglu_oai_scalar", error));
  return check_act(swiglu_oai, oai_reference, "swiglu_oai", error);
}

/* --- softcap: tanh within 3.5e-7 (vec.h), its argument and the product rounded,
 * and 1 / cap: 1 u each. */
static lnl_status case_softcap(lnl_error *error) {
  static void (*const variants[])(float *, const float *, uint32_t, float) = VARIANTS(softcap);
  for (uint32_t n = 1; n; n = next_length(n))
    for (int v = 0; v < VARIANT_COUNT; v++) {
      const float cap = n % 2 ? 30 : 50;
      float *given = random_floats(n, -400, 400, false), *x = floats(n, true);
      for (uint32_t i = 0; i < n; i++) x[i] = given[i] = n % 3 ? given[i] : given[i] * 1e-2f;
      variants[v](x, x, n, cap);
      for (uint32_t i = 0; i < n; i++) {
        const double expected = (double)cap * tanh((double)given[i] / (double)cap);
        CHECK(fabs((double)x[i] - expected) <= 8e-7 * fabs(expected) + 1e-30,
              "%s softcap(%g) = %g, expected %g", variant_names[v], (double)given[i], (double)x[i], expected);
      }
      case_free_all();
    }
  return LNL_OK;
}

/* --- vec_add: one rounding, so the same bits ------------------------------------------ */
static lnl_status case_vec_add(lnl_error *error) {
  static void (*const variants[])(float *, const float *, uint32_t) = VARIANTS(vec_add);
  for (uint32_t n = 1; n; n = next_length(n))
    for (int v = 0; v < VARIANT_COUNT; v++) {
      float *x = random_floats(n, -1e3f, 1e3f, false), *start = random_floats(n, -1, 1, false),
            *y = floats(n, true);
      memcpy(y, start, n * sizeof(float));
      variants[v](y, x, n);
      for (uint32_t i = 0; i < n; i++) {
        const float expected = start[i] + x[i];
        CHECK(same_float(y[i], expected), "%s n %u i %u", variant_names[v], n, i);
      }
      case_free_all();
    }
  return LNL_OK;
}

/* --- silu_mul -----------------------------------------------------------------------
 * exp within 1.5e-7 (vec.h: 3e-9 of the polynomial, the rest is rounding of r
 * and of the last steps; measured here through silu), then three roundings:
 * 1.5e-7 + 3 u < 3.5e-7. Absolutely 1e-36 |up|: exp ends at 2.4e38. */
static lnl_status check_silu(float got, float gate, float up, const char *which, lnl_error *error) {
  const double expected = (double)gate / (1 + exp(-(double)gate)) * (double)up;
  const double bound = 3.5e-7 * fabs(expected) + 1e-36 * fabs((double)up) + 0x1p-149;
  CHECK(fabs((double)got - expected) <= bound, "%s silu(%g) * %g = %g, expected %g", which, (double)gate,
        (double)up, (double)got, expected);
  return LNL_OK;
}
static lnl_status case_silu_mul(lnl_error *error) {
  static void (*const variants[])(float *, const float *, const float *, uint32_t) = VARIANTS(silu_mul);
  for (uint32_t n = 1; n; n = next_length(n))
    for (int v = 0; v < VARIANT_COUNT; v++)
      for (int alias = 0; alias < 3; alias++) {
        float *given = random_floats(n, -20, 20, false), *up_given = random_floats(n, -3, 3, false);
        float *gate = floats(n, alias == 1), *up = floats(n, alias == 2);
        memcpy(gate, given, n * sizeof(float));
        memcpy(up, up_given, n * sizeof(float));
        float *y = alias == 1 ? gate : alias == 2 ? up : floats(n, true);
        variants[v](y, gate, up, n);
        for (uint32_t i = 0; i < n; i++) {
          LNL_TRY(check_silu(y[i], given[i], up_given[i], variant_names[v], error));
          float alone;
          variants[v](&alone, given + i, up_given + i, 1);
          CHECK(same_float(alone, y[i]), "%s silu(%g) depends on its place %u of %u", variant_names[v],
                (double)given[i], i, n);
        }
        case_free_all();
      }
  /* Every binade and sign, and dense around the limits of exp. */
  for (int v = 0; v < VARIANT_COUNT; v++) {
    for (int step = -120000; step <= 120000; step += 7) {
      const float gate = (float)step * 1e-3f, up = 1;
      float y;
      variants[v](&y, &gate, &up, 1);
      LNL_TRY(check_silu(y, gate, up, variant_names[v], error));
    }
    for (int e = -126; e < 128; e++)
      for (int sign = -1; sign <= 1; sign += 2) {
        const float gate = (float)sign * ldexpf(1.37f, e - 1), up = 0.5f;
        float y;
        variants[v](&y, &gate, &up, 1);
        LNL_TRY(check_silu(y, gate, up, variant_names[v], error));
      }
    const float nan = NAN, one = 1;
    float y;
    variants[v](&y, &nan, &one, 1);
    CHECK(isnan(y), "%s: silu(NaN) = %g", variant_names[v], (double)y);
    variants[v](&y, &one, &nan, 1);
    CHECK(isnan(y), "%s: silu(1) * NaN = %g", variant_names[v], (double)y);
  }
  return LNL_OK;
}

/* --- quant_q8 ------------------------------------------------------------------------
 * Bit-exact between variants; and what the contract says, checked directly:
 * |x - d q| <= d (1/2 + 127 * 3 u): half a step and the roundings of d, 1/d and
 * the product. */
static lnl_status check_quantised(const float *x, const int8_t *q, const float *d, const int16_t *sums,
                                  uint32_t n, lnl_error *error) {
  for (uint32_t b = 0; b < n / 32; b++) {
    float largest = 0;
    bool finite = true;
    int sum[2] = {0, 0};
    for (uint32_t i = 0; i < 32; i++) {
      largest = fmaxf(largest, fabsf(x[b * 32 + i]));
      finite = finite && isfinite(x[b * 32 + i]);
      sum[i / 16] += q[b * 32 + i];
      CHECK(q[b * 32 + i] != -128, "-128 must not occur");
    }
    CHECK(sums[2 * b] == sum[0] && sums[2 * b + 1] == sum[1], "block %u: wrong sums", b);
    if (!finite) {
      CHECK(isnan(d[b]), "block %u: d = %g for a block that is not finite", b, (double)d[b]);
      continue;
    }
    CHECK(d[b] == (largest < 0x1p-100f ? 0 : largest / 127.0f), "block %u: d = %g for %g", b, (double)d[b],
          (double)largest);
    for (uint32_t i = 0; i < 32 && d[b] > 0; i++) {
      const double off = fabs((double)x[b * 32 + i] - (double)d[b] * q[b * 32 + i]);
      CHECK(off <= (double)d[b] * (0.5 + 127 * 3 * CASE_U), "block %u value %u: %g from %g", b, i, off,
            (double)x[b * 32 + i]);
    }
  }
  return LNL_OK;
}

static lnl_status compare_quant(const float *x, uint32_t n, lnl_error *error) {
  int8_t *q = case_alloc(n, 1, false), *q2 = case_alloc(n, 3, false);
  float *d = floats(n / 32, false), *d2 = floats(n / 32, false);
  int16_t *sums = case_alloc(n / 16 * 2, 2, false), *sums2 = case_alloc(n / 16 * 2, 2, false);
  quant_q8_scalar(q, d, sums, x, n);
  LNL_TRY(check_quantised(x, q, d, sums, n, error));
  quant_q8(q2, d2, sums2, x, n);
  LNL_TRY(check_quantised(x, q2, d2, sums2, n, error));
  CHECK(memcmp(q, q2, n) == 0 && memcmp(sums, sums2, n / 16 * 2) == 0, "n %u: codes or sums differ", n);
  for (uint32_t b = 0; b < n / 32; b++)
    CHECK(same_float(d[b], d2[b]), "n %u: scale of block %u differs", n, b);
  return LNL_OK;
}

static lnl_status case_quant_q8(lnl_error *error) {
  static const float sizes[] = {1, 1e-6f, 3e20f, 0x1p-99f, 0x1p-101f, 1e-44f, 3.4e38f};
  for (uint32_t n = 32; n <= 320; n += 32)
    for (uint32_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
      LNL_TRY(compare_quant(random_floats(n, -sizes[s], sizes[s], true), n, error));
      case_free_all();
    }
  /* Ties go to even: 127 sets d = 1. */
  float *x = floats(32, true);
  for (int i = 0; i < 32; i++) x[i] = (float)(i - 16) + 0.5f;
  x[31] = -127;
  int8_t q[32];
  float d;
  int16_t sums[2];
  quant_q8(q, &d, sums, x, 32);
  CHECK(d == 1, "d = %g", (double)d);
  for (int i = 0; i < 31; i++) {
    const int below = i - 16, even = below % 2 ? below + 1 : below;
    CHECK(q[i] == even, "%g becomes %d", (double)x[i], q[i]);
  }
  LNL_TRY(compare_quant(x, 32, error));
  /* Zero, and one special value in each place. */
  memset(x, 0, 32 * sizeof(float));
  quant_q8(q, &d, sums, x, 32);
  CHECK(d == 0 && sums[0] == 0 && sums[1] == 0, "a zero block");
  static const float specials[] = {INFINITY, -INFINITY, NAN};
  for (uint32_t i = 0; i < 32; i++)
    for (int s = 0; s < 3; s++) {
      for (int j = 0; j < 32; j++) x[j] = case_uniform(-2, 2);
      x[i] = specials[s];
      LNL_TRY(compare_quant(x, 32, error));
    }
  case_free_all();
  return LNL_OK;
}

/* --- rope ----------------------------------------------------------------------------
 * Bit-exact between variants; each result is two products and a sum: 2 u of
 * the sizes of both products, and u^2. */
static lnl_status check_rope(bool neox, lnl_error *error) {
  static const uint32_t shapes[][3] = {/* n_head, d_head, n_rot */
                                       {1, 2, 2},   {3, 4, 4},     {2, 6, 6},   {2, 8, 8},   {1, 10, 6},
                                       {5, 12, 10}, {2, 16, 16},   {3, 22, 22}, {2, 64, 64}, {1, 80, 32},
                                       {2, 96, 50}, {1, 128, 128}, {1, 36, 34}, {1, 18, 18}, {2, 20, 0}};
  for (uint32_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    const uint32_t n_head = shapes[s][0], d_head = shapes[s][1], n_rot = shapes[s][2], n = n_head * d_head;
    float *c = random_floats(n_rot / 2, -1, 1, false), *sn = random_floats(n_rot / 2, -1, 1, false);
    float *x = random_floats(n, -4, 4, false), *expected = floats(n, false), *got = floats(n, true);
    memcpy(expected, x, n * sizeof(float));
    memcpy(got, x, n * sizeof(float));
    (neox ? rope_neox_scalar : rope_norm_scalar)(expected, n_head, d_head, n_rot, c, sn);
    (neox ? rope_neox : rope_norm)(got, n_head, d_head, n_rot, c, sn);
    CHECK(memcmp(expected, got, n * sizeof(float)) == 0, "n_head %u d_head %u n_rot %u: bits differ", n_head,
          d_head, n_rot);
    for (uint32_t h = 0; h < n_head; h++)
      for (uint32_t j = 0; j < d_head; j++) {
        const float *head = x + h * d_head;
        double exact = (double)head[j], size = 0;
        if (j < n_rot) {
          const uint32_t i = neox ? j % (n_rot / 2) : j / 2;
          const bool second = neox ? j >= n_rot / 2 : j % 2;
          const double a = (double)head[neox ? i : 2 * i], b = (double)head[neox ? i + n_rot / 2 : 2 * i + 1];
          const double ca = (double)c[i], sa = (double)sn[i];
          exact = second ? a * sa + b * ca : a * ca - b * sa;
          size = second ? fabs(a * sa) + fabs(b * ca) : fabs(a * ca) + fabs(b * sa);
        }
        CHECK(fabs((double)expected[h * d_head + j] - exact) <= case_gamma(2) * size,
              "n_head %u d_head %u n_rot %u head %u value %u", n_head, d_head, n_rot, h, j);
      }
    case_free_all();
  }
  return LNL_OK;
}
/* Small angles, those about multiples of pi / 4, and those of late positions, of both signs. */
static lnl_status check_sin_cos(lnl_error *error) {
  for (int kind = 0; kind < 3; kind++)
    for (int i = 0; i < 20000; i++) {
      const double by[] = {(double)i * i * 1e-9, (double)i * 0.78539816339744831, (double)i * 65.536 + 0.001};
      const double angle = (i % 2 ? -1 : 1) * (by[kind] + (kind == 1 ? (double)(i % 7 - 3) * 1e-9 : 0));
      double s, c;
      rope_sin_cos(angle, &s, &c);
      CHECK(fabs(s - sin(angle)) <= 0x1p-50 && fabs(c - cos(angle)) <= 0x1p-50, "the angle %.17g", angle);
    }
  static const double beyond[] = {(double)INFINITY, -(double)INFINITY, (double)NAN, 1e300, -0x1p31};
  for (uint32_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
    double s, c;
    rope_sin_cos(beyond[i], &s, &c);
    CHECK(isnan(s) && isnan(c), "angle %u beyond all", i);
  }
  return LNL_OK;
}

static lnl_status case_rope_norm(lnl_error *error) {
  LNL_TRY(check_sin_cos(error));
  return check_rope(false, error);
}
static lnl_status case_rope_neox(lnl_error *error) { return check_rope(true, error); }

/* --- f32_to_f16 ------------------------------------------------------------------------
 * Independent of the conversion under test: a finite half is (-1)^s m 2^e by
 * definition; between each pair of neighbours lies an exact midpoint. */
static double half_value(uint32_t half) {
  const int exponent = (int)(half >> 10 & 31), mantissa = (int)(half & 1023);
  const double size = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
  return half & 0x8000 ? -size : size;
}
static lnl_status check_to_half(const float *src, const uint16_t *expected, uint32_t n, lnl_error *error) {
  uint16_t *got = case_alloc((n + 1) * 2, 2, false);
  for (int v = 0; v < VARIANT_COUNT; v++) {
    got[n] = 0x5555;
    (v ? f32_to_f16 : f32_to_f16_scalar)(got, src, n);
    for (uint32_t i = 0; i < n; i++)
      CHECK(got[i] == expected[i], "%s: %g becomes %u, expected %u", variant_names[v], (double)src[i], got[i],
            expected[i]);
    CHECK(got[n] == 0x5555, "%s n %u: writes beyond", variant_names[v], n);
  }
  return LNL_OK;
}
static lnl_status case_f32_to_f16(lnl_error *error) {
  enum { INFINITE = 0x7c00 };
  for (uint32_t low = 0; low < INFINITE; low++) {
    const double here = half_value(low), next = low + 1 == INFINITE ? 65536 : half_value(low + 1);
    const float exact = (float)here, middle = (float)((here + next) / 2);
    CHECK((double)half_to_float((uint16_t)low) == here, "half %u widens to %g", low,
          (double)half_to_float((uint16_t)low));
    const float src[8] = {exact,  nextafterf(middle, 0),  middle,  nextafterf(middle, INFINITY),
                          -exact, -nextafterf(middle, 0), -middle, -nextafterf(middle, INFINITY)};
    const uint16_t even = (uint16_t)(low + (low & 1));
    uint16_t expected[8] = {(uint16_t)low, (uint16_t)low, even, (uint16_t)(low + 1)};
    for (int i = 0; i < 4; i++) expected[i + 4] = expected[i] | 0x8000;
    LNL_TRY(check_to_half(src, expected, 8, error));
    case_free_all();
  }
  const float specials[] = {INFINITY, -INFINITY, 65520, -1e30f, 65519.996f, 0.0f, -0.0f, 1e-45f, 3e38f};
  const uint16_t expected[] = {0x7c00, 0xfc00, 0x7c00, 0xfc00, 0x7bff, 0, 0x8000, 0, 0x7c00};
  LNL_TRY(check_to_half(specials, expected, 9, error));
  for (uint32_t n = 1; n <= 20; n++) { /* NaN in each place of each tail stays NaN */
    float *src = floats(n, true);
    uint16_t *dst = case_alloc(n * 2, 0, false);
    for (uint32_t i = 0; i < n; i++) {
      for (uint32_t j = 0; j < n; j++) src[j] = j == i ? float_from_bits(0x7f800001) : 1.0f;
      for (int v = 0; v < VARIANT_COUNT; v++) {
        (v ? f32_to_f16 : f32_to_f16_scalar)(dst, src, n);
        for (uint32_t j = 0; j < n; j++)
          CHECK(j == i ? (dst[j] & 0x7fff) > INFINITE : dst[j] == 0x3c00, "NaN at %u of %u becomes %u", i, n,
                dst[j]);
      }
    }
    case_free_all();
  }
  return LNL_OK;
}

/* --- argmax ------------------------------------------------------------------------------ */
static lnl_status check_argmax(const float *x, uint32_t n, uint32_t expected, lnl_error *error) {
  CHECK(argmax_scalar(x, n) == expected, "specification, n %u: %u, expected %u", n, argmax_scalar(x, n),
        expected);
  CHECK(argmax(x, n) == expected, "n %u: %u, expected %u", n, argmax(x, n), expected);
  return LNL_OK;
}
static lnl_status case_argmax(lnl_error *error) {
  for (uint32_t n = 1; n <= 70; n++) {
    float *x = random_floats(n, -5, 5, true);
    for (uint32_t i = 0; i < n; i++) {
      const float kept = x[i];
      x[i] = 6;
      LNL_TRY(check_argmax(x, n, i, error));
      const float last = x[n - 1];
      x[n - 1] = 6; /* the first of equals */
      LNL_TRY(check_argmax(x, n, i, error));
      if (i > 0) {
        x[0] = NAN;
        LNL_TRY(check_argmax(x, n, i, error));
        x[0] = 1;
      }
      x[n - 1] = last;
      x[i] = kept;
    }
    for (uint32_t i = 0; i < n; i++) x[i] = NAN;
    LNL_TRY(check_argmax(x, n, 0, error));
    x[n - 1] = -INFINITY;
    LNL_TRY(check_argmax(x, n, n - 1, error));
    for (uint32_t i = 0; i < n; i++) x[i] = i % 2 ? 0.0f : -0.0f; /* equal */
    LNL_TRY(check_argmax(x, n, 0, error));
    for (uint32_t i = 0; i < n; i++) x[i] = -INFINITY;
    LNL_TRY(check_argmax(x, n, 0, error));
    x[n / 2] = INFINITY;
    LNL_TRY(check_argmax(x, n, n / 2, error));
    case_free_all();
  }
  return LNL_OK;
}

/* --- log_sum_exp -----------------------------------------------------------------------------
 * Terms within 1.5e-7 (vec_exp) and the rounding of x - max (u times up to 88,
 * but then the term is e^-88; the product peaks at u / e), added in blocks of
 * 64 a lane: gamma(70). The logarithm turns a relative error into an absolute. */
static lnl_status case_log_sum_exp(lnl_error *error) {
  static double (*const variants[])(const float *, uint32_t) = VARIANTS(log_sum_exp);
  const double bound = 1.5e-7 + CASE_U + case_gamma(70);
  for (uint32_t n = 1; n; n = next_length(n))
    for (int style = 0; style < 4; style++) {
      const float middle = style == 1 ? 1e4f : style == 2 ? -1e4f : 0, width = style == 3 ? 200 : 8;
      float *x = random_floats(n, middle - width, middle + width, true);
      if (style == 3) x[n / 2] = -INFINITY;
      double largest = -INFINITY, sum = 0;
      for (uint32_t i = 0; i < n; i++) largest = fmax(largest, (double)x[i]);
      for (uint32_t i = 0; i < n; i++) sum += exp((double)x[i] - largest);
      const double expected = n == 1 && style == 3 ? (double)-INFINITY : largest + log(sum);
      for (int v = 0; v < VARIANT_COUNT; v++) {
        const double got = variants[v](x, n);
        CHECK(got == expected || fabs(got - expected) <= bound + 1e-12, "%s n %u style %d: %g, expected %g",
              variant_names[v], n, style, got, expected);
      }
      x[n / 3] = NAN;
      for (int v = 0; v < VARIANT_COUNT; v++)
        CHECK(isnan(variants[v](x, n)), "%s n %u: NaN is lost", variant_names[v], n);
      for (uint32_t i = 0; i < n; i++) x[i] = -INFINITY;
      for (int v = 0; v < VARIANT_COUNT; v++)
        CHECK(variants[v](x, n) == (double)-INFINITY, "%s n %u of -infinity", variant_names[v], n);
      x[n - 1] = INFINITY;
      for (int v = 0; v < VARIANT_COUNT; v++)
        CHECK(variants[v](x, n) == (double)INFINITY, "%s n %u with infinity", variant_names[v], n);
      case_free_all();
    }
  return LNL_OK;
}

/* --- quant_kv -------------------------------------------------------------------------------
 * Bit-exact between variants; d as the contract says, from its own arithmetic,
 * and |x - d code| <= d / 2 and the roundings of 1/d and the product, but for
 * what a code of 4 bits cannot reach. */
static lnl_status check_quant_kv(const float *x, uint32_t n, int bits, lnl_error *error) {
  int8_t *q = case_alloc(n, 1, false), *q2 = case_alloc(n, 3, false);
  uint16_t *d = case_alloc(n / 16, 2, false), *d2 = case_alloc(n / 16, 0, false);
  (bits == 8 ? quant_kv_q8_0_scalar : quant_kv_q4_0_scalar)(q, d, x, n);
  (bits == 8 ? quant_kv_q8_0 : quant_kv_q4_0)(q2, d2, x, n);
  CHECK(memcmp(q, q2, n) == 0 && memcmp(d, d2, n / 16) == 0, "%d bits, n %u: variants differ", bits, n);
  for (uint32_t b = 0; b < n / 32; b++, x += 32, q += 32) {
    double most = 0, least = 0;
    bool finite = true;
    for (uint32_t i = 0; i < 32; i++) {
      finite = finite && isfinite(x[i]);
      most = fmax(most, (double)x[i]);
      least = fmin(least, (double)x[i]);
    }
    const double wanted = bits == 8 ? fmax(most, -least) / 127 : (most >= -least ? most : least) / -8;
    const double got = (double)half_to_float(d[b]);
    if (!finite || fabs(wanted) > 65504) {
      CHECK(isnan(got) && q[0] == 0 && q[31] == 0, "%d bits, block %u: d = %g", bits, b, got);
      continue;
    }
    const double unit = fmax(fabs(wanted) * 0x1p-10, 0x1p-24) * 1.001; /* distance of halves */
    CHECK(bits == 8 ? got >= wanted * (1 - CASE_U) && got <= wanted + unit : fabs(got - wanted) <= unit / 2,
          "%d bits, block %u: d = %g, expected %g", bits, b, got, wanted);
    for (uint32_t i = 0; i < 32; i++) {
      const double value = (double)x[i], off = fabs(value - got * q[i]);
      const double bound = fabs(got) * (0.5 + 128 * 3 * CASE_U);
      const bool clamped = bits == 4 && ((q[i] == 7 && value / got > 7) || (q[i] == -8 && value / got < -8));
      CHECK(bits == 8 ? q[i] != -128 : q[i] >= -8 && q[i] <= 7, "%d bits: code %d", bits, q[i]);
      CHECK(clamped || off <= bound || got == 0, "%d bits, block %u value %u: %g becomes %g x %d", bits, b, i,
            value, got, q[i]);
    }
  }
  return LNL_OK;
}

static lnl_status check_quant_kvs(int bits, lnl_error *error) {
  static const float sizes[] = {1, 1e-6f, 3e-4f, 100, 6e4f, 8e6f, 9e6f, 3e38f, 0x1p-101f, 0};
  for (uint32_t n = 32; n <= 160; n += 32)
    for (uint32_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
      LNL_TRY(check_quant_kv(random_floats(n, -sizes[s], sizes[s], true), n, bits, error));
      case_free_all();
    }
  static const float specials[] = {INFINITY, -INFINITY, NAN, 0, -2, 2};
  for (uint32_t i = 0; i < 32; i++)
    for (int s = 0; s < 6; s++) {
      float *x = random_floats(32, -2, 2, true);
      x[i] = specials[s];
      x[(i + 7) % 32] = s == 4 ? 2 : x[(i + 7) % 32]; /* equals of both signs */
      LNL_TRY(check_quant_kv(x, 32, bits, error));
      case_free_all();
    }
  return LNL_OK;
}
static lnl_status case_quant_kv_q8_0(lnl_error *error) { return check_quant_kvs(8, error); }
static lnl_status case_quant_kv_q4_0(lnl_error *error) { return check_quant_kvs(4, error); }

/* --- attn -----------------------------------------------------------------------------------
 * A score is a dot product of d_head terms, scaled: off by
 *   e = (gamma(d_head + 2) |scale| max_p sum |q||k|) + u |score range|.
 * A cap has a slope of at most 1, so that it leaves e as it is, and adds
 * 3.5e-7 of tanh and 4 u of a division, which is a product, and of a product.
 * A weight exp(score - largest) is off by the factor exp(2 e) and 1.5e-7, and
 * passes one rescaling a tile (each 1.5e-7 + 2 u); numerator and denominator
 * add up n_key terms. So the mean is within
 *   (2 (2 e + (1 + tiles) 3e-7) + gamma(2 n_key + 4)) (sum w |v|) / (sum w).
 * A cache of blocks is exact where floats round, but rounds queries and weights
 * to codes, each by 1/2 and 32767 x 4 u < 0.51 of a step: a query by
 * 0.51 max|q| / 32767, which adds |scale| sum |k| of that to e; a weight times
 * the scale of its value by 0.51 x the largest scale of the tile's block / 32767
 * in units of exp(the tile's largest score - largest), times the value's code. */
typedef struct attn_shape {
  uint32_t n_head, n_kv_head, d_head, d_value, n_key;
} attn_shape;
typedef struct attn_features {
  uint32_t n_tok, window;
  float softcap;
  bool sinks, all_keys;
} attn_features;
enum { KV_KINDS = ATTN_Q4_0 + 1 };
static const char *const kv_names[KV_KINDS] = {"f32", "f16", "q8_0", "q4_0"};

static const char *attn_text(const lnl_attn *a) {
  static char text[160];
  fmt_print(text, sizeof text, "%s/%s, %u/%u heads, d %u/%u, %u keys, %u tokens, window %u, cap %u%s%s",
            kv_names[a->kv[ATTN_K]], kv_names[a->kv[ATTN_V]], a->n_head, a->n_kv_head, a->d_head, a->d_value,
            a->n_key, a->n_tok, a->window, (uint32_t)a->softcap, a->sinks ? ", sinks" : "",
            a->causal ? "" : ", all keys");
  return text;
}

static bool sees(const lnl_attn *a, uint32_t token, uint32_t key) {
  if (!a->causal) return key < a->n_key;
  const uint32_t p = a->position + token;
  return key <= p && (a->window == 0 || p - key < a->window);
}

/* The scale of a block of values. */
static double value_scale(const lnl_attn *a, uint32_t p, uint32_t head, uint32_t block) {
  const uint32_t blocks = (a->d_value + 31) / 32, bytes = a->kv[ATTN_V] == ATTN_Q8_0 ? 272 : 144;
  const size_t at = ((size_t)head * ((a->n_ctx + 7) / 8) + p / 8) * blocks + block;
  return (double)load_half((const uint8_t *)a->v + at * bytes + 2 * (p % 8));
}

/* A cache whose positions 0..n_key-1 were stored, the rest being 0xff. Returns
 * what it holds of them, [n_kv_head, n_key, d]. */
static lnl_status make_cache(const lnl_attn *a, attn_part part, void *cache, float **values,
                             lnl_error *error) {
  const attn_kv kv = a->kv[part];
  const uint32_t d = part == ATTN_K ? a->d_head : a->d_value, n = a->n_kv_head * d;
  memset(cache, 0xff, (size_t)attn_kv_bytes(kv, a->n_ctx, a->n_kv_head, d));
  float *rows = random_floats(n * a->n_key, -1, 1, false);
  for (uint32_t p = a->n_key; p-- > 0;)
    attn_kv_store(cache, kv, part, a->n_ctx, a->n_kv_head, d, p, rows + (size_t)p * n);
  /* Every value is found again, so no two share a place. */
  float *to = *values = floats(n * a->n_key, false);
  for (uint32_t head = 0; head < a->n_kv_head; head++)
    for (uint32_t p = 0; p < a->n_key; p++)
      for (uint32_t i = 0; i < d; i++) {
        const float value = rows[(size_t)p * n + head * d + i];
        const float got = *to++ = attn_kv_value(cache, kv, part, a->n_ctx, d, p, head, i);
        const float bound = kv == ATTN_F32    ? 0
                            : kv == ATTN_F16  ? 0x1p-12f
                            : kv == ATTN_Q8_0 ? 0.51f / 127
                                              : 0.126f;
        CHECK(fabsf(got - value) <= bound, "%s: position %u head %u value %u: %g, stored %g", kv_names[kv], p,
              head, i, (double)got, (double)value);
      }
  return LNL_OK;
}

/* The row of one token and head; k and v: what the cache holds. */
static lnl_status check_attn_row(const lnl_attn *a, const float *k, const float *v, uint32_t t, uint32_t h,
                                 const char *which, double *weight, lnl_error *error) {
  const bool blocks = a->kv[ATTN_K] >= ATTN_Q8_0 && a->kv[ATTN_V] >= ATTN_Q8_0 && which[0] == 'b';
  const uint32_t g = h / (a->n_head / a->n_kv_head);
  const float *q = a->q + (size_t)t * a->q_stride + (size_t)h * a->d_head;
  const double sink = a->sinks ? (double)a->sinks[h] : -(double)INFINITY, cap = (double)a->softcap;
  double largest = sink, least = sink, sizes = 0, key_sums = 0, query = 0, capped = 0;
  if (!a->sinks) least = (double)INFINITY;
  for (uint32_t p = 0; p < a->n_key; p++) {
    if (!sees(a, t, p)) continue;
    double dot = 0, size = 0, key_sum = 0;
    for (uint32_t i = 0; i < a->d_head; i++) {
      const double q_i = (double)q[i], k_i = (double)k[((size_t)g * a->n_key + p) * a->d_head + i];
      dot += q_i * k_i;
      size += fabs(q_i * k_i);
      key_sum += fabs(k_i);
      query = fmax(query, fabs(q_i));
    }
    weight[p] = dot * (double)a->scale;
    if (cap > 0) weight[p] = cap * tanh(weight[p] / cap);
    if (cap > 0) capped = fmax(capped, fabs(weight[p]));
    sizes = fmax(sizes, size * fabs((double)a->scale));
    key_sums = fmax(key_sums, key_sum * fabs((double)a->scale));
    largest = fmax(largest, weight[p]);
    least = fmin(least, weight[p]);
  }
  const double step = blocks ? 0.51 / 32767 : 0;
  const double e = case_gamma(a->d_head + 8) * sizes + step * query * key_sums + CASE_U * (largest - least) +
                   (3.5e-7 + 4 * CASE_U) * capped;
  const double tiles = a->n_key / ATTN_TILE + 1;
  const double relative = 2 * (2 * e + (1 + tiles) * 3e-7) + case_gamma(2 * a->n_key + 4);
  double total = exp(sink - largest);
  for (uint32_t p = 0; p < a->n_key; p++) {
    weight[p] = sees(a, t, p) ? exp(weight[p] - largest) : 0;
    total += weight[p];
  }
  for (uint32_t i = 0; i < a->d_value; i++) {
    double mean = 0, size = 0, rounding = 0;
    for (uint32_t tile = 0; tile < a->n_key; tile += ATTN_TILE) {
      double tile_largest = 0, scale = 0, codes = 0;
      for (uint32_t p = tile; p < u32_min(tile + ATTN_TILE, a->n_key); p++) {
        if (!sees(a, t, p)) continue;
        const double v_i = (double)v[((size_t)g * a->n_key + p) * a->d_value + i];
        mean += weight[p] / total * v_i;
        size += weight[p] / total * fabs(v_i);
        tile_largest = fmax(tile_largest, weight[p]);
        if (!blocks) continue;
        const double d = fabs(value_scale(a, p, g, i / 32));
        scale = fmax(scale, d);
        codes += d > 0 ? fabs(v_i) / d : 0;
      }
      rounding += step * scale * codes * tile_largest / total;
    }
    const double got = (double)a->out[(size_t)t * a->out_stride + (size_t)h * a->d_value + i];
    /* exp gives 0 where it would be subnormal */
    CHECK(fabs(got - mean) <= relative * size + rounding * (1 + relative) + 0x1p-126,
          "%s: %s: token %u head %u value %u: %g, expected %g", which, attn_text(a), t, h, i, got, mean);
  }
  return LNL_OK;
}
static lnl_status check_attn_rows(const lnl_attn *a, const float *k, const float *v, const char *which,
                                  lnl_error *error) {
  double *weight = case_alloc(a->n_key * sizeof(double), 8, false);
  for (uint32_t t = 0; t < a->n_tok; t++)
    for (uint32_t h = 0; h < a->n_head; h++) LNL_TRY(check_attn_row(a, k, v, t, h, which, weight, error));
  return LNL_OK;
}

/* That heads of tokens have the bits that `all` has, and the rest is untouched. */
static lnl_status check_attn_bits(const lnl_attn *a, const float *all, uint32_t token_begin,
                                  uint32_t token_end, uint32_t head_begin, uint32_t head_end, const char *how,
                                  lnl_error *error) {
  for (uint32_t t = 0; t < a->n_tok; t++)
    for (uint32_t i = 0; i < a->out_stride; i++) {
      const uint32_t h = i / a->d_value;
      const bool written = t >= token_begin && t < token_end && h >= head_begin && h < head_end;
      const size_t at = (size_t)t * a->out_stride + i;
      CHECK(float_bits(a->out[at]) == (written ? float_bits(all[at]) : 0x55555555),
            "%s: token %u head %u changes with the %s: tokens %u to %u, heads %u to %u", attn_text(a), t, h,
            how, token_begin, token_end, head_begin, head_end);
    }
  return LNL_OK;
}

/* Any division into calls gives the same bits, and each writes only its own. */
static lnl_status check_attn_parts(const lnl_attn *a, lnl_error *error) {
  const size_t n_out = (size_t)a->n_tok * a->out_stride;
  float *all = floats((uint32_t)n_out, false);
  memcpy(all, a->out, n_out * sizeof(float));
  const uint32_t by = a->n_head > 8 ? 3 : 1, head_step = a->n_tok > 1 ? u32_max(1, a->n_head / 2) : by;
  for (uint32_t begin = 0; begin < a->n_head; begin += head_step)
    for (uint32_t end = begin + 1; end <= a->n_head; end += by) {
      lnl_attn part = *a;
      part.head_begin = begin, part.head_end = end;
      memset(a->out, 0x55, n_out * sizeof(float));
      attn(&part);
      LNL_TRY(check_attn_bits(a, all, 0, a->n_tok, begin, end, "range", error));
    }
  for (uint32_t threads = 2; threads <= 4; threads++) {
    memset(a->out, 0x55, n_out * sizeof(float));
    for (uint32_t thread = 0; thread < threads; thread++) attn_share(a, thread, threads);
    LNL_TRY(check_attn_bits(a, all, 0, a->n_tok, 0, a->n_head, "threads", error));
  }
  if (a->n_tok == 1) return LNL_OK;
  for (uint32_t count = 1; count <= a->n_tok; count += count == 1 ? 4 : 26)
    for (uint32_t t = 0; t < a->n_tok; t += count) {
      lnl_attn part = *a;
      part.n_tok = u32_min(count, a->n_tok - t);
      part.position += t;
      part.q += (size_t)t * a->q_stride;
      part.out += (size_t)t * a->out_stride;
      memset(a->out, 0x55, n_out * sizeof(float));
      attn(&part);
      LNL_TRY(check_attn_bits(a, all, t, t + part.n_tok, 0, a->n_head, "batch", error));
    }
  return LNL_OK;
}

/* A key, then a value, that is not finite: tokens that see it become NaN, the
 * others keep their bits. Spoils the cache. */
static lnl_status check_attn_unseen(const lnl_attn *a, void *k, void *v, uint32_t key, lnl_error *error) {
  const size_t n_out = (size_t)a->n_tok * a->out_stride;
  float *all = floats((uint32_t)n_out, false);
  memcpy(all, a->out, n_out * sizeof(float));
  for (attn_part part = ATTN_K; part <= ATTN_V; part++) {
    const uint32_t d = part == ATTN_K ? a->d_head : a->d_value, n = a->n_kv_head * d;
    float *row = floats(n, false), *kept = floats(n, false);
    for (uint32_t i = 0; i < n; i++) {
      kept[i] = attn_kv_value(part == ATTN_K ? k : v, a->kv[part], part, a->n_ctx, d, key, i / d, i % d);
      row[i] = part == ATTN_K ? NAN : INFINITY;
    }
    attn_kv_store(part == ATTN_K ? k : v, a->kv[part], part, a->n_ctx, a->n_kv_head, d, key, row);
    attn(a);
    for (uint32_t t = 0; t < a->n_tok; t++)
      for (uint32_t i = 0; i < a->n_head * a->d_value; i++) {
        const size_t at = (size_t)t * a->out_stride + i;
        CHECK(sees(a, t, key) ? !isfinite(a->out[at]) : float_bits(a->out[at]) == float_bits(all[at]),
              "%s: token %u is %g with a %s that is not finite at %u", attn_text(a), t, (double)a->out[at],
              part == ATTN_K ? "key" : "value", key);
      }
    attn_kv_store(part == ATTN_K ? k : v, a->kv[part], part, a->n_ctx, a->n_kv_head, d, key, kept);
  }
  return LNL_OK;
}

static lnl_status check_attn_pair(attn_shape s, attn_features f, attn_kv kv_k, attn_kv kv_v, float q_size,
                                  lnl_error *error) {
  lnl_attn a = {0};
  a.n_head = s.n_head, a.n_kv_head = s.n_kv_head, a.d_head = s.d_head, a.d_value = s.d_value,
  a.n_key = s.n_key;
  a.kv[ATTN_K] = kv_k, a.kv[ATTN_V] = kv_v;
  a.n_ctx = s.n_key + s.n_key % 11;
  a.head_end = s.n_head;
  a.n_tok = u32_min(f.n_tok, s.n_key);
  a.position = s.n_key - a.n_tok;
  a.window = f.window, a.softcap = f.softcap, a.causal = !f.all_keys;
  a.q_stride = s.n_head * s.d_head + 3, a.out_stride = s.n_head * s.d_value + 5;
  a.scale = 1 / sqrtf((float)s.d_head);
  const uint32_t n_out = a.n_tok * a.out_stride;
  a.q = random_floats(a.n_tok * a.q_stride, -q_size, q_size, false);
  if (f.sinks) a.sinks = random_floats(s.n_head, -2, 2 + q_size, false);
  void *k = case_alloc((size_t)attn_kv_bytes(kv_k, a.n_ctx, s.n_kv_head, s.d_head), kv_k == ATTN_F32 ? 4 : 2,
                       false);
  void *v = case_alloc((size_t)attn_kv_bytes(kv_v, a.n_ctx, s.n_kv_head, s.d_value), kv_v == ATTN_F32 ? 4 : 2,
                       true);
  a.k = k, a.v = v;
  float *keys, *values;
  LNL_TRY(make_cache(&a, ATTN_K, k, &keys, error));
  LNL_TRY(make_cache(&a, ATTN_V, v, &values, error));
  a.scratch = case_alloc((size_t)attn_scratch_bytes(s.d_head, s.d_value), 0, false);
  a.out = floats(n_out, false);
  attn_scalar(&a);
  LNL_TRY(check_attn_rows(&a, keys, values, "specification", error));
  memset(a.out, 0x55, n_out * sizeof(float));
  attn(&a);
  LNL_TRY(check_attn_rows(&a, keys, values, "best", error));
  LNL_TRY(check_attn_parts(&a, error));
  attn(&a);
  float *looked_for = floats(n_out, false);
  memcpy(looked_for, a.out, n_out * sizeof(float));
  a.finite = true;
  attn(&a);
  CHECK(!memcmp(a.out, looked_for, n_out * sizeof(float)), "%s: not the same when known to be finite",
        attn_text(&a));
  a.finite = false;
  if (a.n_tok > 1) LNL_TRY(check_attn_unseen(&a, k, v, a.position + a.n_tok / 2, error));
  if (a.n_tok > 1 && a.window && a.window < a.n_key) {
    attn(&a);
    LNL_TRY(check_attn_unseen(&a, k, v, a.n_key - 1 - u32_min(a.window, a.n_key - 1), error));
  }
  case_free_all();
  return LNL_OK;
}

static lnl_status check_attn(attn_shape s, attn_features f, attn_kv kv, float q_size, lnl_error *error) {
  return check_attn_pair(s, f, kv, kv, q_size, error);
}

/* What is not finite in the cache, in a query or in a sink, must show. */
static lnl_status check_attn_special(attn_kv kv, uint32_t d, lnl_error *error) {
  for (int where = 0; where < 6; where++)
    for (uint32_t at = 0; at < 10; at += 9) {
      lnl_attn a = {0};
      a.n_head = 2, a.n_kv_head = a.head_end = a.n_tok = 1;
      a.d_head = a.d_value = d, a.n_key = a.n_ctx = 10, a.scale = 1;
      a.kv[ATTN_K] = a.kv[ATTN_V] = kv;
      float *q = random_floats(2 * d, -1, 1, false), *row = floats(d, false), *sinks = floats(2, false);
      uint8_t *cache[2];
      for (attn_part part = ATTN_K; part <= ATTN_V; part++) {
        cache[part] = case_alloc((size_t)attn_kv_bytes(kv, a.n_ctx, 1, d), 0, false);
        for (uint32_t p = 0; p < a.n_ctx; p++) {
          for (uint32_t i = 0; i < d; i++) row[i] = case_uniform(-1, 1);
          if (p == at && where == (int)part) row[d - 1] = part == ATTN_K ? NAN : INFINITY;
          if (p == at && where == 3) row[0] = 0x1p-130f; /* nothing wrong with it */
          const bool finite = attn_kv_store(cache[part], kv, part, a.n_ctx, 1, d, p, row);
          CHECK(finite == (kv != ATTN_F16 || p != at || where != (int)part), "%s position %u: finite %d",
                kv_names[kv], p, finite);
        }
      }
      if (where == 2) q[d / 2] = NAN;
      if (where >= 3) { /* without a part, NaN, infinite */
        sinks[0] = where == 3 ? -INFINITY : where == 4 ? NAN : INFINITY;
        a.sinks = sinks;
      }
      if (at > 0) a.softcap = 20;
      a.q = q, a.k = cache[ATTN_K], a.v = cache[ATTN_V], a.out = floats(2 * d, false);
      a.scratch = case_alloc((size_t)attn_scratch_bytes(d, d), 0, false);
      attn(&a);
      CHECK(where == 3 ? isfinite(a.out[d - 1]) : !isfinite(a.out[d - 1]),
            "%s d %u: special value %d gives %g", kv_names[kv], d, where, (double)a.out[d - 1]);
      if (where == 3) {
        const float with = a.out[d - 1];
        a.sinks = NULL;
        attn(&a);
        CHECK(same_float(with, a.out[d - 1]), "%s d %u: a sink of -infinity takes part", kv_names[kv], d);
      }
      case_free_all();
    }
  return LNL_OK;
}

#if LNL_VEC
/* tanh as vec.h says: every binade, and dense around where it changes over. */
static lnl_status check_tanh(float x, lnl_error *error) {
  const float got = wasm_f32x4_extract_lane(vec_tanh(wasm_f32x4_splat(x)), 3);
  const double expected = tanh((double)x);
  CHECK(fabs((double)got - expected) <= 3.5e-7 * fabs(expected) + 0x1p-149, "tanh(%g) = %g, expected %g",
        (double)x, (double)got, expected);
  return LNL_OK;
}
static lnl_status check_tanhs(lnl_error *error) {
  for (int step = -100000; step <= 100000; step += 3) LNL_TRY(check_tanh((float)step * 1e-5f, error));
  for (int step = -3000; step <= 3000; step++) LNL_TRY(check_tanh((float)step * 1e-2f, error));
  for (int e = -148; e < 128; e++)
    for (int sign = -1; sign <= 1; sign += 2) LNL_TRY(check_tanh((float)sign * ldexpf(1.37f, e - 1), error));
  LNL_TRY(check_tanh(INFINITY, error));
  LNL_TRY(check_tanh(-INFINITY, error));
  CHECK(isnan(wasm_f32x4_extract_lane(vec_tanh(wasm_f32x4_splat(NAN)), 0)), "tanh(NaN) is a number");
  return LNL_OK;
}
#endif

/* The shares of threads in a prompt follow one another and see about as many keys each:
 * at most one token's more. */
static lnl_status check_attn_shares(uint32_t n_tok, uint32_t position, uint32_t window, lnl_error *error) {
  lnl_attn a = {0};
  a.n_tok = n_tok, a.position = position, a.window = window, a.causal = true;
  for (a.n_kv_head = 1; a.n_kv_head <= 9; a.n_kv_head++)
    for (uint32_t threads = 1; threads <= 5; threads++) {
      uint64_t total = 0, at = 0;
      const uint64_t most = window ? u32_min(window, position + n_tok) : position + n_tok;
      for (uint32_t t = 0; t < n_tok; t++)
        total += window ? u32_min(window, position + t + 1) : position + t + 1;
      total *= a.n_kv_head;
      CHECK(attn_share_begin(&a, 0, threads) == 0, "the first share begins at the start");
      for (uint32_t thread = 0; thread < threads; thread++) {
        const uint64_t end = attn_share_begin(&a, thread + 1, threads);
        uint64_t work = 0;
        for (; at < end; at++) {
          const uint32_t seen = position + (uint32_t)(at % n_tok) + 1;
          work += window ? u32_min(window, seen) : seen;
        }
        CHECK(at == end && work <= total / threads + most + 1 && work + most + 1 >= total / threads,
              "%u tokens at %u, %u kv heads: thread %u of %u has %g of %g", n_tok, position, a.n_kv_head,
              thread, threads, (double)work, (double)total);
      }
      CHECK(at == (uint64_t)n_tok * a.n_kv_head, "the last share ends at the end");
    }
  return LNL_OK;
}

static lnl_status case_attn(lnl_error *error) {
  static const attn_shape shapes[] = {
      {1, 1, 1, 1, 1},   {2, 1, 3, 5, 2},    {3, 1, 4, 4, 3},      {4, 2, 8, 8, 63},
      {7, 1, 12, 9, 64}, {8, 2, 16, 24, 65}, {9, 3, 20, 17, 66},   {4, 4, 64, 64, 130},
      {6, 1, 80, 80, 7}, {5, 5, 7, 15, 129}, {12, 1, 36, 28, 200}, {8, 2, 128, 96, 71},
  };
  static const attn_features one = {.n_tok = 1};
  /* Groups of 1, 2, 3, 4, 7, 8 and more than rows go together. */
  static const attn_shape batch_shapes[] = {
      {2, 2, 64, 64, 150},  {4, 2, 80, 80, 131}, {3, 1, 96, 96, 140},
      {4, 1, 64, 64, 192},  {7, 1, 33, 35, 97},  {8, 1, 128, 128, 70},
      {2, 1, 256, 256, 66}, {35, 1, 6, 11, 65},  {1, 1, 13, 9, 270},
  };
  static const attn_features features[] = {
      {.n_tok = 33},
      {.n_tok = 90, .window = 7},
      {.n_tok = 40, .window = 64, .softcap = 5},
      {.n_tok = 29, .window = 1, .sinks = true},
      {.n_tok = 37, .window = 100, .softcap = 50, .sinks = true},
      {.n_tok = 6, .window = 1000, .sinks = true},
      {.n_tok = 9, .all_keys = true},
      {.n_tok = 2, .all_keys = true, .softcap = 30, .sinks = true},
      {.n_tok = 1, .window = 50},
      {.n_tok = 1, .window = 130, .softcap = 8, .sinks = true},
  };
  for (attn_kv kv = ATTN_F32; kv < KV_KINDS; kv++) {
    for (uint32_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
      for (int size = 0; size < 3; size++) /* flat, usual, and one key takes it all */
        LNL_TRY(check_attn(shapes[i], one, kv, size == 0 ? 0.0f : size == 1 ? 2.0f : 60.0f, error));
    for (uint32_t n_key = 1; n_key <= 200; n_key++)
      LNL_TRY(check_attn((attn_shape){3, 1, 33 + n_key % 32, 8 + n_key % 57, n_key}, one, kv, 3.0f, error));
    const uint32_t n_features = sizeof features / sizeof features[0];
    for (uint32_t i = 0; i < sizeof batch_shapes / sizeof batch_shapes[0]; i++)
      for (uint32_t j = 0; j < n_features; j++)
        LNL_TRY(check_attn(batch_shapes[i], features[j], kv, (i + j) % 4 == 3 ? 40.0f : 3.0f, error));
    for (uint32_t n_tok = 2; n_tok <= 70; n_tok++) { /* every tail of rows, and windows of all lengths */
      const attn_features f = {.n_tok = n_tok, .window = n_tok % 3 ? 0 : n_tok};
      const uint32_t group = 1 + n_tok % 5;
      LNL_TRY(check_attn((attn_shape){group, 1, 8 + n_tok % 8, 8 + n_tok % 5, n_tok + n_tok % 64}, f, kv,
                         3.0f, error));
    }
    LNL_TRY(check_attn_special(kv, 12, error));
    LNL_TRY(check_attn_special(kv, 64, error));
    for (attn_kv v = ATTN_F32; v < KV_KINDS; v++) { /* keys held otherwise than values */
      if (v == kv) continue;
      for (uint32_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        LNL_TRY(check_attn_pair(shapes[i], one, kv, v, 3.0f, error));
      const uint32_t step = v == (attn_kv)(kv ^ 1u) ? 1 : 3; /* each shape in some pair */
      for (uint32_t i = (kv + v) % step; i < sizeof batch_shapes / sizeof batch_shapes[0]; i += step)
        LNL_TRY(check_attn_pair(batch_shapes[i], features[i], kv, v, 3.0f, error));
    }
  }
#if LNL_VEC
  LNL_TRY(check_tanhs(error));
#endif
  for (uint32_t n_tok = 1; n_tok <= 128; n_tok += n_tok < 8 ? 1 : 24)
    for (uint32_t position = 0; position <= 200; position += 100)
      for (uint32_t window = 0; window <= 150; window += 50)
        LNL_TRY(check_attn_shares(n_tok, position, window, error));
  return LNL_OK;
}

/* --- the list of cases --------------------------------------------------------------------------- */
#define LNL_KERNEL(TYPE, name)                                                                               \
  static lnl_status run_##name(lnl_error *error) {                                                           \
    case_seed((uint32_t)sizeof(#name) + (uint32_t)#name[0]);                                                 \
    return case_##name(error);                                                                               \
  }
#include "src/kernels/list.inc"
#undef LNL_KERNEL

const kernel_case *kernel_cases(uint32_t *count) {
  static const kernel_case cases[] = {
#define LNL_KERNEL(TYPE, name) {#name, run_##name},
#include "src/kernels/list.inc"
#undef LNL_KERNEL
  };
  *count = sizeof cases / sizeof cases[0];
  return cases;
}
