/* The 16 values that a code of MXFP4 and NVFP4 (e2m1) stands for, doubled. */
#ifndef LNL_FP4_VALUES_H
#define LNL_FP4_VALUES_H

#include "../vec.h"

static const int8_t fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

#endif
