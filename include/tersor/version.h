/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TERSOR_VERSION_H
#define TERSOR_VERSION_H

#define TSR_VERSION "0.1.0"

#endif
