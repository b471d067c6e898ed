/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that the GNU libc of 2012 does not know.  The static binary is linked for that one
 * (packaging/static), so that it runs on every later one; Linux itself has the calls since 3.17.
 */
#ifndef TSR_BASE_OLD_LIBC_H
#define TSR_BASE_OLD_LIBC_H

#include <features.h>

#if __GLIBC_PREREQ(2, 25)
#include <sys/random.h>
#else
#include <sys/syscall.h>
#include <unistd.h>
#define getrandom(buf, nbytes, flags) ((ssize_t)syscall(SYS_getrandom, buf, nbytes, flags))
#endif

#if !__GLIBC_PREREQ(2, 28)
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifndef RENAME_EXCHANGE
#define RENAME_NOREPLACE (1u << 0)
#define RENAME_EXCHANGE (1u << 1)
#endif
#define renameat2(from_fd, from, to_fd, to, flags) \
	((int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags))
#endif

#if !__GLIBC_PREREQ(2, 30)
#include <sys/syscall.h>
#include <unistd.h>
#define getdents64(fd, buf, nbytes) ((ssize_t)syscall(SYS_getdents64, fd, buf, nbytes))
#endif

#endif
