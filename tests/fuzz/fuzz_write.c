/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: each line of the input is the name of a tensor, or KEY=VALUE of the metadata.  A checkpoint with them
 * is written as one container, as one file or in shards, or packed: the hash of the input says which, so that
 * every mutation has another.  What a writer accepts its reader accepts, and other than by the container's own
 * rules nothing is refused.
 */
#include "fuzz.h"
#include "io/hash.h"
#include "memory_files.h"
#include "outputs.h"
#include "text/json.h"
#include "text/text.h"

#define IN MEMORY "/in.safetensors"

/* A line in quotes; what JSON cannot have as it is, it has escaped. */
static void put_string(struct tsr_text *json, const uint8_t *line, size_t n)
{
	tsr_text_puts(json, "\"");
	for (size_t i = 0; i < n; i++) {
		if (line[i] < ' ' || line[i] == '"' || line[i] == '\\' || line[i] == 0x7f)
			tsr_text_printf(json, "\\u%04x", line[i]);
		else
			tsr_text_put(json, (const char *)line + i, 1);
	}
	tsr_text_puts(json, "\"");
}

/* Tensors of 0 to 3 elements of F32, and lines with "=" into the metadata. */
static size_t put_lines(struct tsr_text *json, const uint8_t *data, size_t nbytes, bool metadata)
{
	size_t offset = 0, number = 0;

	for (size_t at = 0, n; at < nbytes; at += n + 1) {
		const uint8_t *line = data + at, *end = memchr(line, '\n', nbytes - at), *equals;

		n = end ? (size_t)(end - line) : nbytes - at;
		equals = memchr(line, '=', n);
		if ((equals != NULL) != metadata)
			continue;
		if (number++ || !metadata)
			tsr_text_puts(json, ",");
		put_string(json, line, equals ? (size_t)(equals - line) : n);
		tsr_text_puts(json, ":");
		if (metadata) {
			put_string(json, equals + 1, (size_t)(line + n - equals - 1));
			continue;
		}
		tsr_text_printf(json,
				"{\"dtype\":\"F32\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}",
				number % 4, offset, offset + 4 * (number % 4));
		offset += 4 * (number % 4);
	}
	return offset;
}

static void put_checkpoint(const uint8_t *data, size_t nbytes)
{
	struct tsr_text header = { 0 }, file = { 0 };
	size_t ndata;

	tsr_text_puts(&header, "{\"__metadata__\":{");
	put_lines(&header, data, nbytes, true);
	tsr_text_puts(&header, "}");
	ndata = put_lines(&header, data, nbytes, false);
	tsr_text_puts(&header, "}");
	for (unsigned i = 0; i < 8; i++) {
		const char byte = (char)(header.nbytes >> 8 * i & 0xff);

		tsr_text_put(&file, &byte, 1);
	}
	tsr_text_put(&file, header.bytes, header.nbytes);
	for (size_t i = 0; i < ndata; i++)
		tsr_text_put(&file, i % 4 == 3 ? "\x3f" : "\x11", 1);
	REQUIRE(!file.failed && memory_put(IN, file.bytes, file.nbytes));
	tsr_text_free(&header);
	tsr_text_free(&file);
}

const struct cost_bounds fuzz_cost = { 6000000, 250, 48 << 20, 3000 };

void fuzz_input(const uint8_t *data, size_t nbytes)
{
	static const char *const paths[] = { IN };
	const unsigned output = (unsigned)(tsr_hash(data, nbytes, 0) % (TSR_CONTAINER_COUNT + 2u));
	const struct tsr_open_options options = tsr_open_defaults();
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err;
	enum tsr_status status;
	size_t ntensors;

	if (nbytes > 4096)
		return;
	put_checkpoint(data, nbytes);
	status = tsr_checkpoint_open(paths, 1, &options, &c, &err);
	if (status != TSR_OK) {
		check_refusal(status, &err);
		return;
	}
	ntensors = tsr_checkpoint_ntensors(c);
	tsr_checkpoint_close(c);
	if (output < TSR_CONTAINER_COUNT)
		convert_to((enum tsr_container)output, 0, IN, ntensors, &options);
	else if (output == TSR_CONTAINER_COUNT)
		convert_to(TSR_CONTAINER_SAFETENSORS, 8, IN, ntensors, &options);
	else
		pack_and_unpack(IN, ntensors, &options);
}
