/* SPDX-License-Identifier: Apache-2.0 */
/* Momenta of Muon, judged by the update that is made orthogonal from them. */
#ifndef TSR_AUDIT_AUDIT_MUON_H
#define TSR_AUDIT_AUDIT_MUON_H

#include "audit/audit_work.h"

/*
 * Fill in the updates of pairs that are a momentum of Muon and itself: of as many matrices as take some 10^12
 * multiplications, spread over all of them.  The others are dropped, which a note says.
 */
enum tsr_status tsr_audit_muon(struct tsr_auditing *a, const struct tsr_run *run,
			       struct tsr_err *err);

#endif
