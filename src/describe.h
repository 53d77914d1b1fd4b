/* How parts of a GGUF header are worded, wherever they are. In inspect.c. */
#ifndef LNL_DESCRIBE_H
#define LNL_DESCRIBE_H

#include "fmt.h"
#include "gguf.h"

/* "Q4_K" for 12; "?" for an id that is no type. Static storage. */
const char *describe_type(uint32_t type);
/* "[256,1024]", innermost dimension first. */
void describe_shape(lnl_text *text, const gguf_tensor *t);

#endif
