/* SPDX-License-Identifier: Apache-2.0 */
/* Integers of 128 bits, for sums and products that are exact. */
#ifndef TSR_LEARN_WIDE_H
#define TSR_LEARN_WIDE_H

__extension__ typedef __int128 tsr_i128;
__extension__ typedef unsigned __int128 tsr_u128;

#endif
