/* SHA-256 of whole blocks, FIPS 180-4, as a module of its own: js-glue/sha256.js
 * writes the data, keeps the count and pads. Everything lies in one record,
 * whose address it asks for; no allocation, no imports. */
#include <stdint.h>

enum { BLOCK_BYTES = 64, DATA_BYTES = 65536 };

/* The host writes `constants` once, and `state` at the beginning. */
static struct {
  uint32_t state[8];
  uint32_t constants[64];
  uint8_t data[DATA_BYTES];
} record;

void *lnl_sha256_record(void);
void lnl_sha256_blocks(uint32_t count);

/* The address of the record; the same in the life of the instance. */
void *lnl_sha256_record(void) { return &record; }

static uint32_t turned(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void block(const uint8_t *at) {
  uint32_t w[64];
  for (int i = 0; i < 16; i++) {
    uint32_t word;
    __builtin_memcpy(&word, at + 4 * i, 4);
    w[i] = __builtin_bswap32(word);
  }
  for (int i = 16; i < 64; i++) {
    uint32_t x = w[i - 15], y = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (turned(x, 7) ^ turned(x, 18) ^ x >> 3) +
           (turned(y, 17) ^ turned(y, 19) ^ y >> 10);
  }
  uint32_t s[8];
  for (int i = 0; i < 8; i++) s[i] = record.state[i];
  /* Round i calls the words by names that turn, so that none moves. */
#pragma clang loop unroll(full)
  for (int i = 0; i < 64; i++) {
    uint32_t a = s[(64 - i) & 7], b = s[(65 - i) & 7], c = s[(66 - i) & 7];
    uint32_t e = s[(68 - i) & 7], f = s[(69 - i) & 7], g = s[(70 - i) & 7];
    uint32_t t = s[(71 - i) & 7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + (g ^ (e & (f ^ g))) +
                 record.constants[i] + w[i];
    s[(67 - i) & 7] += t;
    s[(71 - i) & 7] = t + (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) | (c & (a | b)));
  }
  for (int i = 0; i < 8; i++) record.state[i] += s[i];
}

/* Takes so many blocks from the beginning of `data` into the state; at most those that it holds. */
void lnl_sha256_blocks(uint32_t count) {
  for (uint32_t i = 0; i < count && i < DATA_BYTES / BLOCK_BYTES; i++) block(record.data + i * BLOCK_BYTES);
}
