/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recordings.  The input is a manifest, a schedule of learning rates, and, cut at its first line
 * feed, the offsets of what two ranks have.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint_model.h"
#include "recording/schedule.h"
#include "text/json.h"
#include "checked_checkpoint.h"
#include "recording/recording_data.h"
#include "fuzz.h"
#include "memory_files.h"

static const char manifest_folder[] = MEMORY "/manifest";
static const char ranks_folder[] = MEMORY "/ranks";

static void write_file(const char *folder, const char *name, const void *bytes, size_t n)
{
	char path[80];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	REQUIRE(memory_put(path, bytes, n));
}

/* --- Manifests -------------------------------------------------------------------------------- */

static void check_group(const struct tsr_recording *r, size_t number)
{
	const struct tsr_recording_group *g = &r->groups[number];

	REQUIRE(g->params ? g->nparams > 0 || r->ngroups > 1 : r->ngroups == 1 && !g->nparams);
	for (size_t i = 0; i < g->nparams; i++) {
		REQUIRE(g->params[i][0] && strlen(g->params[i]) <= TSR_NAME_MAX);
		REQUIRE(tsr_recording_group_of(r, g->params[i]) == g);
	}
	for (unsigned i = 0; i < TSR_HYPER_COUNT; i++)
		REQUIRE(!tsr_hyper_is_set(&g->hyper, (enum tsr_hyper_name)i) ||
			isfinite(g->hyper.value[i]));
}

static void check_step(const struct tsr_recording *r, size_t number)
{
	const struct tsr_recording_step *s = &r->steps[number];

	REQUIRE(s->step > 0 && s->step <= TSR_STEP_MAX);
	REQUIRE(!number || s->step == s[-1].step + 1);
	REQUIRE(s->nfiles > 0);
	for (size_t i = 0; i < s->nfiles; i++)
		REQUIRE(s->files[i][0] && strlen(s->files[i]) <= 255 && !strchr(s->files[i], '/') &&
			strcmp(s->files[i], ".") != 0 && strcmp(s->files[i], "..") != 0);
	for (size_t g = 0; s->lr && g < r->ngroups; g++)
		REQUIRE(isfinite(s->lr[g]) && s->lr[g] >= 0);
	REQUIRE(!s->has_loss || isfinite(s->loss));
}

static void try_manifest(const uint8_t *data, size_t size)
{
	struct tsr_recording *r = NULL;
	struct tsr_err err;
	enum tsr_status status;

	write_file(manifest_folder, "manifest.json", data, size);
	status = tsr_recording_open(manifest_folder, NULL, &r, &err);
	if (status != TSR_OK) {
		check_refusal(status, &err);
		REQUIRE(!r && !strchr(err.msg, '\n'));
		return;
	}
	REQUIRE(r->ngroups > 0 && r->nsteps > 0);
	for (size_t i = 0; i < r->ngroups; i++)
		check_group(r, i);
	for (size_t i = 0; i < r->nsteps; i++)
		check_step(r, i);
	tsr_recording_close(r);
}

/* --- Schedules -------------------------------------------------------------------------------- */

static void try_schedule(const uint8_t *data, size_t size)
{
	static const char path[] = MEMORY "/schedule";
	struct tsr_err err;
	enum tsr_status status;
	double *lr = NULL;

	REQUIRE(memory_put(path, data, size));
	status = tsr_schedule_load(path, 3, 2, 2, &lr, &err);
	if (status != TSR_OK) {
		check_refusal(status, &err);
		REQUIRE(!lr && !strchr(err.msg, '\n'));
		return;
	}
	for (size_t i = 0; i < 4; i++)
		REQUIRE(isfinite(lr[i]) && lr[i] >= 0);
	free(lr);
}

/* --- Ranks ------------------------------------------------------------------------------------ */

/*
 * A file with tensors of 2 x 3, 2 and 0 x 3 elements and one of its own without dimensions, and
 * this text about where they begin.
 */
static void write_rank(const char *name, const uint8_t *text, size_t n)
{
	static const char data[36];
	struct tsr_text header = { 0 }, file = { 0 };
	char *said = calloc(1, n + 1);

	REQUIRE(said);
	memcpy(said, text, n);
	tsr_json_open(&header, NULL, '{');
	tsr_json_open(&header, "__metadata__", '{');
	tsr_json_put_string(&header, "DCP_SHARDING_INFO", said);
	tsr_json_close(&header, '}');
	tsr_text_puts(&header, ",\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
			       "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]},"
			       "\"e\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[32,32]},"
			       "\"");
	tsr_text_puts(&header, name);
	tsr_text_puts(&header, "\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[32,36]}}");
	REQUIRE(!header.failed);
	for (unsigned i = 0; i < 8; i++) {
		const char byte = (char)(header.nbytes >> 8 * i & 0xff);

		tsr_text_put(&file, &byte, 1);
	}
	tsr_text_put(&file, header.bytes, header.nbytes);
	tsr_text_put(&file, data, sizeof(data));
	REQUIRE(!file.failed);
	write_file(ranks_folder, name, file.bytes, file.nbytes);
	tsr_text_free(&header);
	tsr_text_free(&file);
	free(said);
}

static void try_ranks(const uint8_t *data, size_t size)
{
	static const char manifest[] =
		"{\"format\":\"tersor-recording\",\"version\":1,\"steps\":[{\"step\":1,\"files\":["
		"\"r0\",\"r1\"]}]}";
	const uint8_t *cut = size ? memchr(data, '\n', size) : NULL;
	const size_t n = cut ? (size_t)(cut - data) : size;
	struct tsr_recording *r = NULL;
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err;
	enum tsr_status status;

	write_file(ranks_folder, "manifest.json", manifest, sizeof(manifest) - 1);
	write_rank("r0", data, n);
	write_rank("r1", cut ? cut + 1 : data, cut ? size - n - 1 : n);
	REQUIRE(tsr_recording_open(ranks_folder, NULL, &r, NULL) == TSR_OK);
	status = tsr_recording_open_step(r, 0, &c, &err);
	tsr_recording_close(r);
	if (status != TSR_OK) {
		check_refusal(status, &err);
		REQUIRE(!c && !strchr(err.msg, '\n'));
		return;
	}
	for (size_t i = 0; i < c->ntensors; i++)
		REQUIRE(tsr_checkpoint_find(c, c->tensors[i].name) == &c->tensors[i]);
	for (size_t i = 0; i < c->narrays; i++)
		check_array(c, &c->arrays[i]);
	tsr_checkpoint_close(c);
}

const struct cost_bounds fuzz_cost = { 1000000, 100, 4 << 20, 1500 };

void fuzz_input(const uint8_t *data, size_t size)
{
	try_manifest(data, size);
	try_schedule(data, size);
	try_ranks(data, size);
}
