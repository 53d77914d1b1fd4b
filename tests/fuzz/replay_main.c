/* Runs a fuzz target over the files named as arguments, without libFuzzer. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s FILE...\n", argv[0]);
    return 2;
  }
  for (int i = 1; i < argc; i++) {
    FILE *stream = fopen(argv[i], "rb");
    if (!stream || fseek(stream, 0, SEEK_END) != 0) {
      perror(argv[i]);
      return 1;
    }
    long size = ftell(stream);
    rewind(stream);
    /* exactly as long as the input: a sanitizer sees the first byte beyond */
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    if (!data || fread(data, 1, (size_t)size, stream) != (size_t)size) {
      perror(argv[i]);
      return 1;
    }
    fclose(stream);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
  }
  printf("%d inputs replayed\n", argc - 1);
  return 0;
}
