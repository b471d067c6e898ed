/* SPDX-License-Identifier: Apache-2.0 */
/* Packed directories converted to one checkpoint. */
#include "tersor/directory.h"

#include <stdio.h>

#include "base/arena.h"
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "io/atomic_dir.h"
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

/* Unpack into @in, and convert what is there. */
static enum tsr_status convert(const char *packed, const char *in, const char *out,
			       const struct tsr_write_options *options, const struct tsr_run *run,
			       struct tsr_unpacking **ret, struct tsr_err *err)
{
	struct tsr_write_options how = tsr_write_defaults();
	struct tsr_directory *unpacked = NULL;

	if (options) {
		how.open = options->open;
		how.strict = options->strict;
	}
	TSR_TRY(tsr_unpack_directory(packed, in, &how, NULL, run, &unpacked, err));
	tsr_directory_close(unpacked);
	return tsr_convert(&in, 1, out, options, run, ret, err);
}

/* The directory is unpacked next to the output, converted, and removed again. */
enum tsr_status tsr_convert_directory(const char *packed, const char *out,
				      const struct tsr_write_options *options,
				      const struct tsr_run *run, struct tsr_unpacking **ret,
				      struct tsr_err *err)
{
	TSR_OWNED(tsr_outdir_discard) struct tsr_outdir *made = NULL;
	TSR_OWNED(free) char *path = NULL, *in = NULL;
	struct tsr_checkpoint *c;
	enum tsr_status status;
	char *text;

	*ret = NULL;
	if (asprintf(&path, "%s.unpacked", out) < 0) {
		path = NULL;
		return tsr_fail_nomem(err, out);
	}
	TSR_TRY(tsr_outdir_create(path, &(struct tsr_outdir_rule){ false }, &made, err));
	in = tsr_path_join(tsr_outdir_path(made), "checkpoint");
	if (!in)
		return tsr_fail_nomem(err, out);
	status = convert(packed, in, out, options, run, ret, err);
	text = status != TSR_OK && err ? renamed(err->msg, in, packed) : NULL;
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
	return status;
}
