/* SPDX-License-Identifier: Apache-2.0 */
/* Finding all parts of a job: the names of their reports, how many there are, and which are missing. */
#include "parts/part_report.h"

#include <stdio.h>

#include "base/fail.h"
#include "io/dir.h"
#include "io/temporary.h"

enum tsr_status tsr_part_report_path(const char *path, unsigned number, unsigned count, char **ret,
				     struct tsr_err *err)
{
	if (asprintf(ret, "%s.part-%u-of-%u.bin", path, number, count) >= 0)
		return TSR_OK;
	*ret = NULL;
	return tsr_fail_nomem(err, path);
}

/* The number of parts that the name of a report has: 0 if it is not a report of @stem. */
static unsigned count_in(const char *name, const char *stem)
{
	TSR_OWNED(free) char *expected = NULL;
	unsigned number, count;

	if (strncmp(name, stem, strlen(stem)) != 0 ||
	    sscanf(name + strlen(stem), ".part-%u-of-%u.bin", &number, &count) != 2 ||
	    tsr_part_report_path(stem, number, count, &expected, NULL) != TSR_OK)
		return 0;
	return strcmp(expected, name) == 0 && number >= 1 && number <= count &&
			       count <= TSR_PARTS_MAX
		       ? count
		       : 0;
}

/* How many parts there are, as the names say. */
static enum tsr_status count_parts(const char *path, unsigned *ret, struct tsr_err *err)
{
	TSR_OWNED(free) char *dir = tsr_path_directory(path);
	TSR_SCOPED(tsr_dir_free) struct tsr_dir list = { 0 };

	*ret = 0;
	if (!dir)
		return tsr_fail_nomem(err, path);
	TSR_TRY(tsr_dir_list(dir, ".bin", &list, err));
	for (size_t i = 0; i < list.n; i++) {
		const unsigned count = count_in(list.names[i], tsr_path_name(path));

		if (count && *ret && count != *ret)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: found parts of %u and of %u; remove those that "
					"are not meant",
					path, *ret, count);
		*ret = count ? count : *ret;
	}
	if (!*ret)
		return tsr_fail(err, TSR_E_IO, "%s: found no parts: no file %s.part-*-of-*.bin",
				path, path);
	return TSR_OK;
}

/* TSR_E_IO with the parts that are not there, before anything else is said. */
static enum tsr_status read_all(const char *path, struct tsr_part_report *reports, unsigned n,
				struct tsr_err *err)
{
	enum tsr_status status = TSR_OK;
	unsigned missing = 0, first = 0;

	for (unsigned i = 0; i < n; i++) {
		TSR_OWNED(free) char *name = NULL;

		TSR_TRY(tsr_part_report_path(path, i + 1, n, &name, err));
		if (!tsr_dir_has(name) && !missing++)
			first = i + 1;
		if (!missing)
			TSR_THEN(status, tsr_part_report_take(name, NULL, 0, &reports[i], err));
	}
	if (!missing)
		return status;
	return tsr_fail(err, TSR_E_IO, "%s: found %u of %u parts: part %u%s missing", path,
			n - missing, n, first, missing > 1 ? " and others are" : " is");
}

enum tsr_status tsr_part_reports_find(const char *path, struct tsr_part_report **ret,
				      unsigned *n_ret, struct tsr_err *err)
{
	TSR_TRY(count_parts(path, n_ret, err));
	TSR_TRY(TSR_NEW(ret, *n_ret, err, path));
	return read_all(path, *ret, *n_ret, err);
}
