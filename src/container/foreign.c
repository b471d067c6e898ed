/* SPDX-License-Identifier: Apache-2.0 */
/* Files and directories of other programs that are known, but not read: what they are, and what to do. */
#include "container/containers.h"

#include "base/fail.h"
#include "io/dir.h"

#define DECOMPRESS "; decompress it first, for example into this command's standard input"
#define SAVE_ARRAYS "; load it in Python and save its arrays with safetensors.numpy.save_file"

#define MAGIC(text, says) \
	{ \
		text, sizeof(text) - 1, says \
	}

/* By the first bytes. */
static const struct {
	const char *magic;
	size_t n;
	const char *says;
} kinds[] = {
	MAGIC("GGUF", "a GGUF model of llama.cpp; give the checkpoint that it was converted from"),
	MAGIC("tjgg", "a GGML model; give the checkpoint that it was converted from"),
	MAGIC("lmgg", "a GGML model; give the checkpoint that it was converted from"),
	MAGIC("\x89HDF\r\n\x1a\n", "an HDF5 file, such as Keras writes" SAVE_ARRAYS),
	MAGIC("\xc6\xd7\x34\x01",
	      "a model of llm.c; give the checkpoint that dev/eval/export_hf.py "
	      "makes of it"),
	MAGIC("\x8f\xd8\x34\x01", "an optimizer state of llm.c, whose layout only llm.c knows"),
	MAGIC("\x1f\x8b\x08", "data compressed by gzip" DECOMPRESS),
	MAGIC("\x28\xb5\x2f\xfd", "data compressed by zstd" DECOMPRESS),
	MAGIC("\xfd\x37zXZ", "data compressed by xz" DECOMPRESS),
	MAGIC("BZh", "data compressed by bzip2" DECOMPRESS),
	MAGIC("model_checkpoint_path:", "the list of a TensorFlow checkpoint; load it with "
					"tf.train.load_checkpoint and save its arrays with "
					"safetensors.numpy.save_file"),
};

/* A map whose first key is text, as flax.serialization and msgpack write: 81 a6 "params". */
static bool is_msgpack(const struct tsr_file_head *head)
{
	const unsigned char *b = head->bytes;
	size_t at, len;

	if (head->n < 16)
		return false;
	if (b[0] > 0x80 && b[0] <= 0x8f)
		at = 1;
	else if (b[0] == 0xde)
		at = 3;
	else
		return false;
	len = b[at] == 0xd9 ? b[at + 1] : b[at] >= 0xa1 && b[at] <= 0xbf ? b[at] & 0x1f : 0;
	at += b[at] == 0xd9 ? 2 : 1;
	if (!len || at + len > head->n)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (b[at + i] < ' ' || b[at + i] > '~')
			return false;
	}
	return true;
}

/* The last bytes of a table of LevelDB. */
static enum tsr_status check_table(const struct tsr_file *f, bool *ret, struct tsr_err *err)
{
	static const unsigned char magic[8] = { 0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb };
	const uint64_t nbytes = tsr_file_size(f);
	unsigned char tail[8];

	*ret = false;
	if (nbytes < 48)
		return TSR_OK;
	TSR_TRY(tsr_file_read(f, tail, sizeof(tail), nbytes - sizeof(tail), err));
	*ret = memcmp(tail, magic, sizeof(magic)) == 0;
	return TSR_OK;
}

static enum tsr_status refuse(const char *path, const char *says, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: found %s", path, says);
}

/* A file that is missing, in truth: never one to be left as it is. */
static enum tsr_status refuse_pointer(const struct tsr_file *f, const struct tsr_file_head *head,
				      struct tsr_err *err)
{
	static const char pointer[] = "version https://git-lfs";

	if (head->n < strlen(pointer) || memcmp(head->bytes, pointer, strlen(pointer)) != 0)
		return TSR_OK;
	return tsr_fail(
		err, TSR_E_FORMAT,
		"%s: found a pointer of Git LFS, not the file itself; git lfs pull fetches it",
		tsr_file_path(f));
}

enum tsr_status tsr_foreign_refuse(const struct tsr_file *f, const struct tsr_file_head *head,
				   struct tsr_err *err)
{
	const char *path = tsr_file_path(f);
	bool table;

	TSR_TRY(refuse_pointer(f, head, err));

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (head->n >= kinds[i].n && memcmp(head->bytes, kinds[i].magic, kinds[i].n) == 0)
			return refuse(path, kinds[i].says, err);
	}
	if (is_msgpack(head))
		return refuse(path,
			      "a MessagePack file, such as Flax writes" SAVE_ARRAYS
			      ", named like params.dense.kernel",
			      err);
	TSR_TRY(check_table(f, &table, err));
	return table ? refuse(path, "the index of a TensorFlow checkpoint" SAVE_ARRAYS, err)
		     : TSR_OK;
}

/* --- Directories -------------------------------------------------------------------------------- */

static bool has(const char *directory, const char *name)
{
	TSR_OWNED(free) char *path = tsr_path_join(directory, name);

	return path && tsr_dir_has(path);
}

enum tsr_status tsr_foreign_refuse_directory(const char *directory, struct tsr_err *err)
{
	if (has(directory, "_CHECKPOINT_METADATA") || has(directory, "manifest.ocdbt") ||
	    (has(directory, "_METADATA") && has(directory, "_sharding")))
		return refuse(
			directory,
			"a checkpoint of Orbax; restore it in Python and flatten it to safetensors "
			"(safetensors.numpy.save_file), with names like params.dense.kernel",
			err);
	if (has(directory, "saved_model.pb"))
		return refuse(directory,
			      "a SavedModel of TensorFlow, which is a program" SAVE_ARRAYS, err);
	return TSR_OK;
}
