/* The packed forms. Each is an lnl_packing that its file, name_x8.c, defines;
 * PACKED_name hangs it on the form whose rows it packs. A form of list.inc
 * without such a line has no packing. */
#ifndef LNL_PACKINGS_H
#define LNL_PACKINGS_H

#include "form.h"
#include "../vec.h"

/* They need vectors: without, rows stay as they are. */
#if LNL_VEC
extern const lnl_packing q4_0_x8;
#define PACKED_q4_0 , &q4_0_x8
extern const lnl_packing q4_1_x8;
#define PACKED_q4_1 , &q4_1_x8
extern const lnl_packing q8_0_x8;
#define PACKED_q8_0 , &q8_0_x8
extern const lnl_packing q4_k_x8;
#define PACKED_q4_k , &q4_k_x8
extern const lnl_packing q5_0_x8;
#define PACKED_q5_0 , &q5_0_x8
extern const lnl_packing q5_k_x8;
#define PACKED_q5_k , &q5_k_x8
extern const lnl_packing q6_k_x8;
#define PACKED_q6_k , &q6_k_x8
#endif

/* PACKING_OF(q4_0): &q4_0_x8 if PACKED_q4_0 is defined, else NULL: the comma
 * in the definition decides what the second argument is. */
#define PACKING_OF(name)                    PACKING_SECOND(PACKED_##name, NULL, )
#define PACKING_SECOND(...)                 PACKING_SECOND_(__VA_ARGS__)
#define PACKING_SECOND_(first, second, ...) second

#endif
