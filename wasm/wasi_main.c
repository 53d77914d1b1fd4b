/* lineal as a WASI command: explain and generate over the same core, the model
 * given as a file in a preopened folder. The only file here that does I/O. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "../src/kv.h"
#include "../src/lineal.h"
#include "../src/mem.h"
#include "../src/sample.h"
#include "../src/tok.h"

enum { EXIT_ERROR = 1, EXIT_DOES_NOT_FIT = 2, HEADER_PIECE = 256 << 10 };

static const char usage[] =
    "lineal (WASI)\n"
    "  explain FILE [--context N|max] [--memory BYTES|512MiB|2GiB] [--kv TYPE] [--json]\n"
    "  generate FILE --prompt TEXT [--max-tokens N] [--temperature T] [--top-k K] [--top-p P]\n"
    "           [--min-p P] [--seed S] [--context N] [--memory SIZE] [--kv TYPE] [--stats] [--json]\n"
    "The file lies in a preopened folder; of a split model give the first part.\n"
    "TYPE: auto, f32, f16, q8_0, q4_0. Exit codes: 0 done, 1 error, 2 the model does not fit.\n";

typedef struct arguments {
  const char *command, *file, *prompt;
  lnl_plan_options plan;
  sample_params sample;
  uint32_t max_tokens;
  bool json, stats, help;
} arguments;

/* --- failures ------------------------------------------------------------------ */

static void json_key(lnl_text *text, const char *key, const char *value) {
  text_addf(text, "\"%s\":", key);
  text_json_string(text, (lnl_span){(const uint8_t *)value, strlen(value)});
}

/* e may be NULL; where the model does not fit its numbers and suggestions are the detail. */
static int fail_with(bool json, lnl_status status, const char *message, const lnl_engine *e) {
  int code = status == LNL_DOES_NOT_FIT ? EXIT_DOES_NOT_FIT : EXIT_ERROR;
  if (!json) {
    fprintf(stderr, "error: %s: %s\n  %s\n", lnl_status_name(status), message, lnl_status_remedy(status));
    return code;
  }
  lnl_text text = {0};
  text_addf(&text, "{\"error\":{");
  json_key(&text, "code", lnl_status_name(status));
  text_addf(&text, ",");
  json_key(&text, "message", message);
  text_addf(&text, ",");
  json_key(&text, "remedy", lnl_status_remedy(status));
  text_addf(&text, ",\"detail\":{\"status\":%d", (int)status);
  if (e && status == LNL_DOES_NOT_FIT) {
    text_addf(&text, ",\"explanation\":");
    lnl_explain_json(e, &text);
  }
  text_addf(&text, "}}}");
  puts(text.failed ? "{\"error\":{\"code\":\"OUT_OF_MEMORY\"}}" : text.data);
  text_free(&text);
  return code;
}

static int fail(bool json, lnl_status status, const char *message) {
  return fail_with(json, status, message, NULL);
}

static int fail_engine(const arguments *a, lnl_engine *e) {
  const lnl_error *error = lnl_get_error(e);
  return fail_with(a->json, error->status, error->message, e);
}

/* --- arguments ------------------------------------------------------------------ */

/* "2GiB", "512MiB", "1000000": bytes, or 0 when it is not a size. */
static uint64_t parse_size(const char *s) {
  char *end;
  double n = strtod(s, &end);
  double unit = !*end || !strcmp(end, "B") ? 1
                : !strcmp(end, "KiB")      ? 0x1p10
                : !strcmp(end, "MiB")      ? 0x1p20
                : !strcmp(end, "GiB")      ? 0x1p30
                : !strcmp(end, "KB")       ? 1e3
                : !strcmp(end, "MB")       ? 1e6
                : !strcmp(end, "GB")       ? 1e9
                                           : 0;
  return end != s && n > 0 && n * unit < 0x1p53 ? (uint64_t)(n * unit) : 0;
}

static bool parse_count(const char *s, uint64_t max, uint64_t *out) {
  char *end;
  *out = strtoull(s, &end, 10);
  return *s >= '0' && *s <= '9' && !*end && *out <= max;
}

static bool parse_real(const char *s, float *out) {
  char *end;
  *out = strtof(s, &end);
  return end != s && !*end && isfinite(*out);
}

static bool parse_option(arguments *a, const char *name, const char *value) {
  uint64_t n = 0;
  if (!strcmp(name, "--prompt")) return (a->prompt = value);
  if (!strcmp(name, "--memory")) return (a->plan.budget_bytes = parse_size(value));
  if (!strcmp(name, "--temperature")) return parse_real(value, &a->sample.temperature);
  if (!strcmp(name, "--top-p")) return parse_real(value, &a->sample.top_p);
  if (!strcmp(name, "--min-p")) return parse_real(value, &a->sample.min_p);
  if (!strcmp(name, "--kv")) {
    static const char *const types[] = {"auto", "f32", "f16", "q8_0", "q4_0"};
    for (uint32_t i = 0; i < sizeof types / sizeof *types; i++) {
      if (!strcmp(value, types[i])) return (a->plan.kv = i, true);
    }
    return false;
  }
  if (!strcmp(name, "--context") && !strcmp(value, "max")) return (a->plan.n_ctx = LNL_LARGEST_CONTEXT);
  if (!strcmp(name, "--context")) return parse_count(value, UINT32_MAX, &n) && (a->plan.n_ctx = (uint32_t)n);
  if (!strcmp(name, "--top-k"))
    return parse_count(value, UINT32_MAX, &n) && (a->sample.top_k = (uint32_t)n, true);
  if (!strcmp(name, "--max-tokens"))
    return parse_count(value, UINT32_MAX, &n) && (a->max_tokens = (uint32_t)n, true);
  if (!strcmp(name, "--seed")) return parse_count(value, UINT64_MAX, &n) && (a->sample.seed = n, true);
  return false;
}

static bool is_option_with_value(const char *name) {
  static const char *const names[] = {"--prompt", "--memory",  "--temperature", "--top-p",      "--min-p",
                                      "--kv",     "--context", "--top-k",       "--max-tokens", "--seed"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!strcmp(name, names[i])) return true;
  }
  return false;
}

/* "--name value" and "--name=value"; *at moves past what was read. */
static bool parse_one(arguments *a, int argc, char **argv, int *at, lnl_error *error) {
  char name[24] = "";
  char *word = argv[(*at)++], *equals = strchr(word, '=');
  size_t length = equals ? (size_t)(equals - word) : strlen(word);
  if (length < sizeof name) memcpy(name, word, length);
  if (!strcmp(word, "--json")) return a->json = true;
  if (!strcmp(word, "--stats")) return a->stats = true;
  if (!strcmp(word, "--help")) return a->help = true;
  if (!is_option_with_value(name))
    return error_set(error, LNL_BAD_ARGUMENT, "there is no option '%s'", word), false;
  const char *value = equals ? equals + 1 : *at < argc ? argv[(*at)++] : NULL;
  if (!value) return error_set(error, LNL_BAD_ARGUMENT, "%s needs a value", name), false;
  if (parse_option(a, name, value)) return true;
  return error_set(error, LNL_BAD_ARGUMENT, "'%s' is no value for %s", value, name), false;
}

static bool parse(arguments *a, int argc, char **argv, lnl_error *error) {
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--json")) a->json = true; /* also for errors in what follows */
  }
  for (int i = 1; i < argc;) {
    if (strncmp(argv[i], "--", 2) == 0) {
      if (!parse_one(a, argc, argv, &i, error)) return false;
      continue;
    }
    const char **slot = !a->command ? &a->command : !a->file ? &a->file : NULL;
    if (!slot) return error_set(error, LNL_BAD_ARGUMENT, "unexpected argument '%s'", argv[i]), false;
    *slot = argv[i++];
  }
  if (a->help) return true;
  if (!a->command || (strcmp(a->command, "explain") && strcmp(a->command, "generate"))) {
    return error_set(error, LNL_BAD_ARGUMENT, "the commands are explain and generate"), false;
  }
  if (!a->file) return error_set(error, LNL_BAD_ARGUMENT, "no model was given"), false;
  if (!strcmp(a->command, "generate") && !a->prompt) {
    return error_set(error, LNL_BAD_ARGUMENT, "generate needs --prompt"), false;
  }
  return true;
}

/* --- the model ------------------------------------------------------------------- */

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* "x-00001-of-00003.gguf" to the name of another part; false when it is none. */
static bool shard_path(const char *path, uint32_t shard, char *out, size_t cap) {
  static const char tail[] = "-00001-of-";
  const char *at = strstr(path, tail);
  if (!at) return false;
  return (size_t)snprintf(out, cap, "%.*s-%05u%s", (int)(at - path), path, shard + 1, at + 6) < cap;
}

static lnl_status read_header(lnl_engine *e, FILE *file, uint32_t shard) {
  fseeko(file, 0, SEEK_END);
  off_t size = ftello(file);
  fseeko(file, 0, SEEK_SET);
  LNL_TRY(lnl_header_begin(e, shard, size >= 0 ? (uint64_t)size : UINT64_MAX));
  for (;;) {
    uint8_t *at = lnl_header_reserve(e, HEADER_PIECE);
    if (!at) return lnl_get_error(e)->status;
    size_t got = fread(at, 1, HEADER_PIECE, file);
    if (got == 0) return lnl_header_finish(e);
    lnl_status status = lnl_header_push(e, got);
    if (status != LNL_NEED_BYTES) return status;
  }
}

/* The open files of a model; [shard], up to lnl_shard_count of them. */
typedef struct model_files {
  FILE **files;
  uint32_t count;
} model_files;

static lnl_status open_files(lnl_engine *e, const char *path, model_files *m) {
  uint32_t count = 1;
  for (uint32_t shard = 0; shard < count; shard++) {
    char name[1024];
    const char *open_path = path;
    if (shard > 0) {
      if (!shard_path(path, shard, name, sizeof name)) {
        return lnl_set_error(e, LNL_SPLIT_MISMATCH,
                             "the model is split, but the file name has no -00001-of-0000N");
      }
      open_path = name;
    }
    struct stat info;
    if (stat(open_path, &info) == 0 && S_ISDIR(info.st_mode)) {
      char message[256];
      snprintf(message, sizeof message, "'%.200s' is a folder", open_path);
      return lnl_set_error(e, LNL_BAD_ARGUMENT, message);
    }
    FILE *file = fopen(open_path, "rb");
    FILE **all = file ? realloc(m->files, (shard + 1) * sizeof(FILE *)) : NULL;
    if (!all) {
      if (file) fclose(file);
      char message[256];
      snprintf(message, sizeof message, "cannot open '%.200s' (is its folder preopened?)", open_path);
      return lnl_set_error(e, LNL_BAD_ARGUMENT, message);
    }
    m->files = all;
    m->files[m->count++] = file;
    LNL_TRY(read_header(e, file, shard));
    if (shard == 0) count = lnl_shard_count(e);
  }
  return LNL_OK;
}

static void close_files(model_files *m) {
  for (uint32_t i = 0; i < m->count; i++) fclose(m->files[i]);
  free(m->files);
}

static lnl_status load_weights(lnl_engine *e, const model_files *m) {
  for (;;) {
    lnl_status status = lnl_load_next(e);
    if (status != LNL_NEED_BYTES) return status;
    const lnl_need *need = lnl_get_need(e);
    FILE *file = m->files[need->shard];
    if (fseeko(file, (off_t)need->offset, SEEK_SET) != 0) return lnl_load_ended(e);
    size_t got = fread(need->pointer, 1, need->bytes, file);
    if (got == 0) return lnl_load_ended(e);
    LNL_TRY(lnl_load_fed(e, (uint32_t)got));
  }
}

/* --- generate --------------------------------------------------------------------- */

typedef struct generation {
  int32_t *prompt, *tokens;
  size_t prompt_count;
  uint32_t count;
  lnl_text text;
  const char *finish_reason;
  double load_ms, prefill_ms, first_token_ms, decode_ms;
  uint64_t decode_allocations, memory_grows;
} generation;

static lnl_status evaluate(lnl_engine *e) {
  lnl_status status;
  do status = lnl_eval(e);
  while (status == LNL_MORE);
  return status;
}

/* Writes the bytes of one token to the text, and at once to stdout. */
static void emit(const arguments *a, const struct tok *t, int32_t id, generation *g, uint8_t *piece,
                 size_t cap) {
  size_t bytes = tok_piece(t, id, false, piece, cap);
  text_add(&g->text, (const char *)piece, bytes);
  if (a->json) return;
  fwrite(piece, 1, bytes, stdout);
  fflush(stdout);
}

static lnl_status decode(const arguments *a, lnl_engine *e, generation *g, uint8_t *piece, size_t cap) {
  const struct tok *t = lnl_get_tokenizer(e);
  double start = now_ms();
  LNL_TRY(lnl_prompt(e, g->prompt, (uint32_t)g->prompt_count, false));
  LNL_TRY(evaluate(e));
  g->prefill_ms = now_ms() - start;
  double first = now_ms();
  g->finish_reason = "length";
  while (g->count < a->max_tokens) {
    int32_t id = lnl_sample(e);
    if (id < 0) return (lnl_status)id;
    if (g->count == 0) g->first_token_ms = now_ms() - start;
    if (tok_is_end(t, id)) {
      g->finish_reason = "eos";
      break;
    }
    g->tokens[g->count++] = id;
    emit(a, t, id, g, piece, cap);
    if (g->count == a->max_tokens) break;
    /* counted around the engine alone: the text here is the command's own */
    mem_stats before = mem_get_stats();
    lnl_status status = evaluate(e);
    mem_stats after = mem_get_stats();
    g->decode_allocations += after.alloc_calls - before.alloc_calls;
    g->memory_grows += after.grow_calls - before.grow_calls;
    if (status == LNL_CONTEXT_FULL) {
      g->finish_reason = "context_full";
      break;
    }
    LNL_TRY(status);
  }
  g->decode_ms = now_ms() - first;
  return LNL_OK;
}

static void print_generation(lnl_engine *e, const generation *g) {
  lnl_text out = {0};
  text_addf(&out, "{\"prompt_tokens\":[");
  for (size_t i = 0; i < g->prompt_count; i++) text_addf(&out, i ? ",%d" : "%d", g->prompt[i]);
  text_addf(&out, "],\"tokens\":[");
  for (uint32_t i = 0; i < g->count; i++) text_addf(&out, i ? ",%d" : "%d", g->tokens[i]);
  text_addf(&out, "],\"text\":");
  text_json_string(&out, (lnl_span){(const uint8_t *)g->text.data, g->text.bytes});
  double decoded = g->count > 1 ? g->count - 1 : 0;
  text_addf(&out,
            ",\"finish_reason\":\"%s\",\"timings\":{\"load_ms\":%g,\"prefill_ms\":%g,\"first_token_ms\":%g,",
            g->finish_reason, g->load_ms, g->prefill_ms, g->first_token_ms);
  text_addf(&out, "\"decode_ms\":%g,\"prefill_tps\":%g,\"decode_tps\":%g},\"memory\":", g->decode_ms,
            g->prefill_ms > 0 ? (double)g->prompt_count * 1e3 / g->prefill_ms : 0.0,
            g->decode_ms > 0 ? decoded * 1e3 / g->decode_ms : 0.0);
  lnl_memory_json(e, &out);
  text_addf(&out, ",\"decode_allocations\":%llu,\"memory_grows\":%llu}",
            (unsigned long long)g->decode_allocations, (unsigned long long)g->memory_grows);
  if (!out.failed) puts(out.data);
  text_free(&out);
}

static int generate(const arguments *a, lnl_engine *e, const model_files *m, double start) {
  generation g = {0};
  if (!*a->prompt) return fail(a->json, LNL_EMPTY_PROMPT, "the prompt is empty");
  if (lnl_bind(e) < 0 || load_weights(e, m) < 0 || lnl_set_sampler(e, &a->sample) < 0 ||
      lnl_tokenize(e, a->prompt, strlen(a->prompt), TOK_ADD_SPECIAL, &g.prompt, &g.prompt_count) < 0) {
    return fail_engine(a, e);
  }
  g.load_ms = now_ms() - start;
  size_t cap = tok_max_piece_bytes(lnl_get_tokenizer(e));
  uint8_t *piece = malloc(cap + 1);
  /* One token more than the context holds can be sampled. */
  size_t most = (size_t)u64_min(a->max_tokens, (uint64_t)lnl_get_info(e).n_ctx + 1);
  g.tokens = malloc(most * sizeof *g.tokens + 1);
  int code = 0;
  if (!piece || !g.tokens) {
    code = fail(a->json, LNL_OUT_OF_MEMORY, "no memory for the list of tokens");
  } else if (decode(a, e, &g, piece, cap) < 0) {
    code = fail_engine(a, e);
  } else if (a->json) {
    print_generation(e, &g);
  } else {
    puts("");
  }
  if (code == 0 && a->stats) {
    fprintf(stderr, "load %.0f ms, prefill %zu tokens in %.0f ms, %u tokens in %.0f ms, memory %llu bytes\n",
            g.load_ms, g.prompt_count, g.prefill_ms, g.count, g.decode_ms,
            (unsigned long long)lnl_measure(e).total);
  }
  free(piece);
  free(g.tokens);
  mem_free(g.prompt);
  text_free(&g.text);
  return code;
}

static int explain(const arguments *a, lnl_engine *e) {
  lnl_text text = {0};
  (a->json ? lnl_explain_json : lnl_explain_text)(e, &text);
  int code = lnl_get_budget(e)->fits ? 0 : EXIT_DOES_NOT_FIT;
  if (text.failed) {
    code = fail(a->json, LNL_OUT_OF_MEMORY, "no memory for the explanation");
  } else {
    puts(text.data);
  }
  text_free(&text);
  return code;
}

int main(int argc, char **argv) {
  /* The same defaults as the package's, so that the same seed gives the same text. */
  arguments a = {
      .max_tokens = 128,
      .sample = {.top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1, .repeat_last_n = 64}};
  lnl_error error;
  if (!parse(&a, argc, argv, &error)) {
    int code = fail(a.json, error.status, error.message);
    if (!a.json) fputs(usage, stderr);
    return code;
  }
  if (a.help) {
    fputs(usage, stdout);
    return 0;
  }
  double start = now_ms();
  lnl_host host = {.kind = HOST_WASI, .can_grow = true, .sync_read = true, .range_read = true, .threads = 1};
  lnl_engine *e = lnl_open(&host);
  if (!e) return fail(a.json, LNL_OUT_OF_MEMORY, "no memory for the engine");
  model_files m = {0};
  int code;
  if (open_files(e, a.file, &m) < 0 || lnl_plan_for(e, &a.plan) < 0) {
    code = fail_engine(&a, e);
  } else {
    code = !strcmp(a.command, "explain") ? explain(&a, e) : generate(&a, e, &m, start);
  }
  close_files(&m);
  lnl_close(e);
  return code;
}
