/* SPDX-License-Identifier: Apache-2.0 */
/* What pack says when it packed nothing: why, and what to do. */
#include "cli/operations.h"

#include "container/foreign.h"

static void put_why(struct tsr_text *out, const struct tsr_kept_raw *kept,
		    const struct tsr_directory *d)
{
	const char *root = d ? tsr_directory_path(d) : NULL;
	const struct tsr_directory_entry *e, *largest = NULL; /* of the files with a reason */
	struct tsr_err err = { 0 };
	/* The directory, or one in it, may be a checkpoint of a program that is known, but not read. */
	bool foreign = d && tsr_foreign_refuse_directory(root, &err) != TSR_OK;

	for (size_t i = 0; d && (e = tsr_directory_entry(d, i)); i++) {
		char *path = foreign || e->as != TSR_STORED_DIRECTORY
				     ? NULL
				     : tsr_path_join(root, e->path);

		foreign = foreign || (path && tsr_foreign_refuse_directory(path, &err) != TSR_OK);
		free(path);
		if (e->reason && (!largest || e->nbytes > largest->nbytes))
			largest = e;
	}
	if (foreign)
		tsr_text_puts(out, err.msg);
	else if (!d ||
		 (kept->nbytes && !kept->packed_nbytes && largest->nbytes / 2 <= kept->nbytes))
		tsr_kept_raw_put_why(kept, out);
	else if (largest)
		tsr_text_printf(out, "%s: %s%s", largest->path, largest->reason,
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
