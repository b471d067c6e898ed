/* SPDX-License-Identifier: Apache-2.0 */
/* What SOAP keeps besides momenta and variances: factors of the sides of a matrix, and their eigenbases. */
#ifndef TSR_REPLAY_SOAP_STATE_H
#define TSR_REPLAY_SOAP_STATE_H

#include "ckpt/read.h"
#include "replay/replaying.h"

/*
 * Find those of all parameters, before anything is planned of the state; TSR_E_UNSUPPORTED for a state that
 * is not one of the two programs whose steps are known.
 */
enum tsr_status tsr_replay_find_bases(struct tsr_replaying *r);

/* Once it is known how many steps a parameter has seen: whether its program counts steps so. */
enum tsr_status tsr_replay_check_bases(const struct tsr_replaying *r,
				       const struct tsr_replay_param *p);

/* Read those of a parameter; their values that are not finite. */
enum tsr_status tsr_replay_load_bases(const struct tsr_replaying *r,
				      const struct tsr_replay_param *p,
				      struct tsr_read_scratch *scratch, struct tsr_err *err);
uint64_t tsr_replay_count_nonfinite_bases(const struct tsr_replay_param *p);

#endif
