/* SPDX-License-Identifier: Apache-2.0 */
/* Packed directories converted to one checkpoint. */
#include "tersor/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "io/dir.h"
#include "io/atomic_dir.h"
#include "io/temporary.h"
#include "pack/packing.h"

/* A message about the temporary directory @made is one about the packed directory; else NULL. */
static char *renamed(const char *message, const char *made, const char *packed)
{
	size_t n = 0;
	char *text;

	/* The directory may be cut in it. */
	while (made[n] && made[n] == message[n])
		n++;
	if (made[n] && n < 100)
		return NULL;
	return asprintf(&text, "%s%s", packed, message + n) < 0 ? NULL : text;
}

/* The directory is unpacked next to the output, converted, and removed again. */
enum tsr_status tsr_convert_directory(const char *packed, const char *out,
				      const struct tsr_write_options *options,
				      const struct tsr_run *run, struct tsr_unpacking **ret,
				      struct tsr_err *err)
{
	struct tsr_write_options how = tsr_write_defaults();
	struct tsr_directory *unpacked = NULL;
	struct tsr_outdir *made = NULL;
	struct tsr_checkpoint *c;
	enum tsr_status status;
	char *path, *in = NULL, *text;

	*ret = NULL;
	if (asprintf(&path, "%s.unpacked", out) < 0)
		return tsr_fail_nomem(err, out);
	status = tsr_outdir_create(path, &(struct tsr_outdir_rule){ false }, &made, err);
	if (status == TSR_OK)
		in = tsr_path_join(tsr_outdir_path(made), "checkpoint");
	if (status == TSR_OK && !in)
		status = tsr_fail_nomem(err, out);
	if (options) {
		how.open = options->open;
		how.strict = options->strict;
	}
	if (status == TSR_OK)
		status = tsr_unpack_directory(packed, in, &how, NULL, run, &unpacked, err);
	tsr_directory_close(unpacked);
	if (status == TSR_OK)
		status = tsr_convert((const char *const *)&in, 1, out, options, run, ret, err);
	text = in && status != TSR_OK && err ? renamed(err->msg, in, packed) : NULL;
	if (text)
		snprintf(err->msg, sizeof(err->msg), "%s", text);
	free(text);
	c = *ret ? (*ret)->source : NULL;
	for (size_t i = 0; c && i < c->nnotes; i++) {
		text = renamed(c->notes[i], in, packed);
		if (text)
			c->notes[i] = tsr_arena_string(c->arena, text);
		free(text);
	}
	tsr_outdir_discard(made);
	free(in);
	free(path);
	return status;
}
