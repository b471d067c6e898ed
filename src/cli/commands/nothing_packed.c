/* SPDX-License-Identifier: Apache-2.0 */
/* What pack says when it packed nothing: why, and what to do. */
#include "cli/operations.h"

#include "container/foreign.h"

/* Whether the directory, or one in it, is a checkpoint of a program that is known, but not read. */
static bool is_foreign(const struct tsr_directory *d, struct tsr_err *err)
{
	const char *root = tsr_directory_path(d);
	const struct tsr_directory_entry *e;
	bool found = tsr_foreign_refuse_directory(root, err) != TSR_OK;

	for (size_t i = 0; !found && (e = tsr_directory_entry(d, i)); i++) {
		char *path = e->as == TSR_STORED_DIRECTORY ? tsr_path_join(root, e->path) : NULL;

		found = path && tsr_foreign_refuse_directory(path, err) != TSR_OK;
		free(path);
	}
	return found;
}

/* The largest file that has a reason for being copied, or NULL. */
static const struct tsr_directory_entry *largest_copy(const struct tsr_directory *d)
{
	const struct tsr_directory_entry *e, *largest = NULL;

	for (size_t i = 0; (e = tsr_directory_entry(d, i)); i++) {
		if (e->reason && (!largest || e->nbytes > largest->nbytes))
			largest = e;
	}
	return largest;
}

static void put_why(struct tsr_text *out, const struct tsr_kept_raw *kept,
		    const struct tsr_directory *d)
{
	const struct tsr_directory_entry *e = d ? largest_copy(d) : NULL;
	struct tsr_err err = { 0 };

	if (d && is_foreign(d, &err))
		tsr_text_puts(out, err.msg);
	else if (!d || (kept->nbytes && !kept->packed_nbytes && e->nbytes / 2 <= kept->nbytes))
		tsr_kept_raw_put_why(kept, out);
	else if (e)
		tsr_text_printf(out, "%s: %s%s", e->path, e->reason,
				kept->packed_nbytes ? "; --entropy makes more files smaller" : "");
	else
		tsr_text_puts(out, "no file in it holds tensors that tersor reads");
}

int cli_nothing_packed(const struct cli_common *common, bool strict,
		       const struct tsr_kept_raw *kept, const struct tsr_directory *d)
{
	const char *path = common->operands.items[0];
	struct tsr_text why = { 0 };
	int status = CLI_OK;

	put_why(&why, kept, d);
	if (strict)
		status = cli_fail(CLI_DIFFERS, "%s: nothing was packed: %s", path,
				  why.bytes ? why.bytes : "?");
	else
		cli_warn(common, "%s: nothing was packed: %s", path, why.bytes ? why.bytes : "?");
	tsr_text_free(&why);
	return status;
}

int cli_check_packed(const struct cli_common *common, const struct tsr_pack_options *o,
		     const struct tsr_packing *p, const struct tsr_kept_raw *kept)
{
	const bool coded = o->coded != TSR_CODED_NONE &&
			   (o->dry_run || tsr_packing_nbytes(p) < tsr_packing_plain_nbytes(p));

	if (kept->packed_nbytes || coded)
		return CLI_OK;
	return cli_nothing_packed(common, o->strict, kept, NULL);
}
