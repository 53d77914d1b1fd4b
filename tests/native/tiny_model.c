#include "tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/forms/form.h"
#include "../../src/gguf.h"
#include "../../src/mem.h"

typedef struct writer {
  uint8_t *data;
  size_t bytes, cap;
} writer;

static void put(writer *w, const void *bytes, size_t count) {
  if (w->bytes + count > w->cap) {
    w->cap = (w->bytes + count) * 2;
    w->data = realloc(w->data, w->cap);
  }
  memcpy(w->data + w->bytes, bytes, count);
  w->bytes += count;
}
static void put_u32(writer *w, uint32_t v) { put(w, &v, sizeof v); }
static void put_u64(writer *w, uint64_t v) { put(w, &v, sizeof v); }
static void put_string(writer *w, const char *s) {
  put_u64(w, strlen(s));
  put(w, s, strlen(s));
}
static void pad_to(writer *w, size_t align) {
  while (w->bytes % align) put(w, "", 1);
}

/* --- metadata ---- */

typedef struct metadata {
  writer out;
  uint64_t count;
  const tiny_config *config;
} metadata;

static bool begin_key(metadata *m, const char *key, uint32_t type) {
  if (m->config->drop_key && !strcmp(key, m->config->drop_key)) return false;
  put_string(&m->out, key);
  put_u32(&m->out, type);
  m->count++;
  return true;
}
static void key_u32(metadata *m, const char *key, uint32_t v) {
  if (begin_key(m, key, GGUF_U32)) put_u32(&m->out, v);
}
static void key_f32(metadata *m, const char *key, float v) {
  if (begin_key(m, key, GGUF_F32)) put(&m->out, &v, sizeof v);
}
static void key_string(metadata *m, const char *key, const char *v) {
  if (begin_key(m, key, GGUF_STRING)) put_string(&m->out, v);
}

/* SPM: <unk>, <s>, </s>, then 256 byte tokens, then one-letter words. */
static void add_vocabulary(metadata *m, uint32_t n_vocab) {
  key_string(m, "tokenizer.ggml.model", "llama");
  begin_key(m, "tokenizer.ggml.tokens", GGUF_ARRAY);
  put_u32(&m->out, GGUF_STRING);
  put_u64(&m->out, n_vocab);
  for (uint32_t i = 0; i < n_vocab; i++) {
    char text[16];
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    if (i < 3) {
      snprintf(text, sizeof text, "%s", first[i]);
    } else if (i < 259) {
      snprintf(text, sizeof text, "<0x%02X>", i - 3);
    } else {
      snprintf(text, sizeof text, "\xe2\x96\x81%c%u", 'a' + (int)(i % 26), i);
    }
    put_string(&m->out, text);
  }
  begin_key(m, "tokenizer.ggml.scores", GGUF_ARRAY);
  put_u32(&m->out, GGUF_F32);
  put_u64(&m->out, n_vocab);
  for (uint32_t i = 0; i < n_vocab; i++) {
    float score = -(float)i;
    put(&m->out, &score, sizeof score);
  }
  begin_key(m, "tokenizer.ggml.token_type", GGUF_ARRAY);
  put_u32(&m->out, GGUF_I32);
  put_u64(&m->out, n_vocab);
  for (uint32_t i = 0; i < n_vocab; i++) put_u32(&m->out, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
  key_u32(m, "tokenizer.ggml.bos_token_id", 1);
  key_u32(m, "tokenizer.ggml.eos_token_id", 2);
}

/* --- tensors ---- */

typedef struct tensors {
  writer info, data;
  uint64_t count;
  const tiny_config *config;
  uint32_t random;
} tensors;

static float next_random(tensors *t) {
  t->random = t->random * 1664525u + 1013904223u;
  return ((float)(t->random >> 8) / 16777216.0f - 0.5f) * 0.6f;
}

/* Where a form has its halves: the first one, and how many. */
static void scales_of(uint32_t type, uint32_t block_bytes, uint32_t *at, uint32_t *count) {
  bool two =
      type == TYPE_Q4_1 || type == TYPE_Q5_1 || type == TYPE_Q2_K || type == TYPE_Q4_K || type == TYPE_Q5_K;
  bool at_end =
      type == TYPE_Q2_K || type == TYPE_Q3_K || type == TYPE_Q6_K || type == TYPE_TQ1_0 || type == TYPE_TQ2_0;
  *count = two ? 2 : 1;
  *at = at_end ? block_bytes - 2 * *count : 0;
}

/* Scales that are no half of their own; false for other types. */
static bool put_odd_scales(uint32_t type, uint8_t *block) {
  if (type == TYPE_MXFP4) {
    block[0] = 121; /* 2^-6, the block's exponent */
  } else if (type == TYPE_NVFP4) {
    memset(block, 0x18, 4); /* 2^-4 each */
  } else if (type == TYPE_IQ1_M) {
    const uint16_t half = 0x2400; /* 2^-6, a nibble at the top of each of four fields */
    for (int i = 0; i < 4; i++)
      block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (half >> (4 * i) & 15) << 4);
  } else {
    return false;
  }
  return true;
}

/* Random codes, small scales. */
static void add_blocks(tensors *t, const lnl_form *form, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    uint8_t block[256];
    for (uint32_t j = 0; j < form->block_bytes; j++) {
      next_random(t);
      block[j] = (uint8_t)(t->random >> 24);
    }
    bool wide = form->type == TYPE_Q8_0 || form->type == TYPE_IQ4_NL;
    _Float16 scale = (_Float16)(wide ? 0.003f : form->block_len > 32 ? 0.0005f : 0.03f);
    uint32_t at, scales;
    scales_of(form->type, form->block_bytes, &at, &scales);
    if (put_odd_scales(form->type, block)) scales = 0;
    for (uint32_t j = 0; j < scales; j++) memcpy(block + at + 2 * j, &scale, 2);
    put(&t->data, block, form->block_bytes);
  }
}

static void add_tensor(tensors *t, uint32_t type, uint32_t n0, uint32_t n1, const char *format, ...) {
  char name[64];
  va_list args;
  va_start(args, format);
  vsnprintf(name, sizeof name, format, args);
  va_end(args);
  if (t->config->drop_tensor && !strcmp(name, t->config->drop_tensor)) return;
  if (t->config->wrong_shape && !strcmp(name, t->config->wrong_shape)) n1++;
  pad_to(&t->data, 32);
  put_string(&t->info, name);
  put_u32(&t->info, n1 > 1 ? 2 : 1);
  put_u64(&t->info, n0);
  if (n1 > 1) put_u64(&t->info, n1);
  put_u32(&t->info, type);
  put_u64(&t->info, t->data.bytes);
  t->count++;
  const lnl_form *form = form_find(type);
  if (form->block_len > 1) {
    add_blocks(t, form, (uint64_t)n0 * n1 / form->block_len);
    return;
  }
  bool norm = strstr(name, "norm") || strstr(name, "freqs");
  for (uint64_t i = 0; i < (uint64_t)n0 * n1; i++) {
    float v = norm ? 1.0f + next_random(t) : next_random(t);
    _Float16 half = (_Float16)v;
    put(&t->data, type == 1 ? (void *)&half : (void *)&v, type == 1 ? 2 : 4);
  }
}

tiny_config tiny_default(void) {
  return (tiny_config){.n_layer = 2,
                       .d_model = 48,
                       .n_head = 6,
                       .n_kv_head = 2,
                       .d_head = 10,
                       .d_ff = 70,
                       .n_vocab = 300,
                       .n_ctx = 96,
                       .biases = true,
                       .seed = 1};
}

tiny_file tiny_write(const tiny_config *c) {
  metadata m = {.config = c};
  key_string(&m, "general.architecture", c->arch ? c->arch : "llama");
  key_u32(&m, "llama.block_count", c->n_layer);
  key_u32(&m, "llama.embedding_length", c->d_model);
  key_u32(&m, "llama.feed_forward_length", c->d_ff);
  key_u32(&m, "llama.context_length", c->n_ctx);
  key_u32(&m, "llama.attention.head_count", c->n_head);
  key_u32(&m, "llama.attention.head_count_kv", c->n_kv_head);
  key_u32(&m, "llama.attention.key_length", c->d_head);
  key_u32(&m, "llama.attention.value_length", c->d_head);
  key_f32(&m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  add_vocabulary(&m, c->n_vocab);

  tensors t = {.config = c, .random = c->seed};
  uint32_t q = c->n_head * c->d_head, kv = c->n_kv_head * c->d_head;
  add_tensor(&t, c->matrix_type, c->d_model, c->n_vocab, "token_embd.weight");
  add_tensor(&t, c->vector_type, c->d_model, 1, "output_norm.weight");
  if (!c->tied) add_tensor(&t, c->matrix_type, c->d_model, c->n_vocab, "output.weight");
  if (c->rope_freqs) add_tensor(&t, 0, c->d_head / 2, 1, "rope_freqs.weight");
  for (uint32_t i = 0; i < c->n_layer; i++) {
    add_tensor(&t, c->vector_type, c->d_model, 1, "blk.%u.attn_norm.weight", i);
    add_tensor(&t, c->matrix_type, c->d_model, q, "blk.%u.attn_q.weight", i);
    add_tensor(&t, c->matrix_type, c->d_model, kv, "blk.%u.attn_k.weight", i);
    add_tensor(&t, c->matrix_type, c->d_model, kv, "blk.%u.attn_v.weight", i);
    add_tensor(&t, c->matrix_type, q, c->d_model, "blk.%u.attn_output.weight", i);
    if (c->biases) add_tensor(&t, c->vector_type, q, 1, "blk.%u.attn_q.bias", i);
    add_tensor(&t, c->vector_type, c->d_model, 1, "blk.%u.ffn_norm.weight", i);
    add_tensor(&t, c->matrix_type, c->d_model, c->d_ff, "blk.%u.ffn_gate.weight", i);
    add_tensor(&t, c->matrix_type, c->d_model, c->d_ff, "blk.%u.ffn_up.weight", i);
    add_tensor(&t, c->matrix_type, c->d_ff, c->d_model, "blk.%u.ffn_down.weight", i);
  }

  writer out = {0};
  put(&out, "GGUF", 4);
  put_u32(&out, 3);
  put_u64(&out, t.count);
  put_u64(&out, m.count);
  put(&out, m.out.data, m.out.bytes);
  put(&out, t.info.data, t.info.bytes);
  pad_to(&out, 32);
  put(&out, t.data.data, t.data.bytes);
  pad_to(&out, 32);
  free(m.out.data);
  free(t.info.data);
  free(t.data.data);
  return (tiny_file){out.data, out.bytes};
}

/* --- the host's loops ---- */

lnl_host tiny_host(void) {
  return (lnl_host){.kind = HOST_NODE, .can_grow = true, .range_read = true, .threads = 1};
}

lnl_status tiny_header(lnl_engine *e, const tiny_file *file, size_t piece) {
  LNL_TRY(lnl_header_begin(e, 0, file->bytes));
  if (piece == 0) piece = file->bytes;
  for (size_t at = 0; at < file->bytes;) {
    size_t bytes = piece < file->bytes - at ? piece : file->bytes - at;
    uint8_t *to = lnl_header_reserve(e, bytes);
    if (!to) return lnl_get_error(e)->status;
    memcpy(to, file->data + at, bytes);
    at += bytes;
    lnl_status status = lnl_header_push(e, bytes);
    if (status != LNL_NEED_BYTES) return status;
  }
  return lnl_header_finish(e);
}

lnl_status tiny_feed(lnl_engine *e, const tiny_file *file, uint32_t most) {
  const lnl_need *need = lnl_get_need(e);
  uint32_t bytes = most && most < need->bytes ? most : need->bytes;
  if (need->offset + bytes > file->bytes) return lnl_load_ended(e);
  memcpy(need->pointer, file->data + need->offset, bytes);
  return lnl_load_fed(e, bytes);
}

lnl_status tiny_load(lnl_engine *e, const tiny_file *file, uint32_t most) {
  lnl_status status;
  while ((status = lnl_load_next(e)) == LNL_NEED_BYTES) LNL_TRY(tiny_feed(e, file, most));
  return status;
}

lnl_status tiny_open(lnl_engine *e, const tiny_file *file, const lnl_plan_options *options, bool load) {
  LNL_TRY(tiny_header(e, file, 0));
  LNL_TRY(lnl_plan_for(e, options));
  LNL_TRY(lnl_bind(e));
  return load ? tiny_load(e, file, 0) : LNL_OK;
}

lnl_status tiny_eval(lnl_engine *e, const tiny_file *file) {
  for (;;) {
    lnl_status status = lnl_eval(e);
    if (status == LNL_NEED_BYTES) {
      LNL_TRY(tiny_feed(e, file, 0));
    } else if (status != LNL_MORE) {
      return status;
    }
  }
}

uint32_t tiny_fail_each_allocation(tiny_life life, const tiny_file *file, uint64_t budget) {
  enum { MOST = 10000 };
  uint32_t failures = 0;
  for (uint64_t nth = 1;; nth++) {
    const uint64_t before = mem_get_stats().alloc_calls;
    mem_fail_at(nth);
    const lnl_status status = life(file, budget);
    mem_fail_at(0);
    assert_int_equal(mem_get_stats().live_blocks, 0);
    if (mem_get_stats().alloc_calls - before < nth) return failures; /* none failed: all have been tried */
    /* a question of the budget may go without its plan, and errs on the safe side */
    assert_true(status == LNL_OUT_OF_MEMORY || status == LNL_OK);
    failures += status == LNL_OUT_OF_MEMORY;
    assert_true(nth < MOST);
  }
}
