/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of torch.distributed.checkpoint: chunks become tensors, names the tree they were. */
#include "ckpt/checkpoint_model.h"
#include "dcp_make.h"
#include "values.h"

/* Every element is its number. */
static void expect_numbers(const struct tsr_checkpoint *c, const struct tsr_array *a,
			   uint64_t piece)
{
	unsigned char *found = elements_of(c, a, piece);

	for (uint64_t i = 0; i < a->numel; i++) {
		float x;

		memcpy(&x, found + 4 * i, 4);
		assert_int_equal((uint64_t)x, i);
	}
	free(found);
}

/* --- Chunks --------------------------------------------------------------------------------- */

static void test_one_chunk_is_read_in_place_with_the_checksum_of_its_record(void **state)
{
	const int64_t shape[] = { 6, 8 };
	const struct box b = { .size = { 6, 8 } };
	struct dcp d = new_dcp();
	struct tsr_checkpoint *c;

	(void)state;
	put_vector(&d, "first", 3); /* so that the other is not at the start of the file */
	put_tensor(&d, "w", 2, shape, "float32", &b, 1);
	c = read_dcp(&d);
	assert_int_equal(c->narrays, 2);
	assert_string_equal(c->arrays[1].name, "w");
	assert_null(c->arrays[1].layout);
	assert_true(c->arrays[1].has_crc);
	expect_numbers(c, &c->arrays[1], 5);
	tsr_checkpoint_close(c);
}

/* Cut one side in random places; returns the number of parts. */
static size_t cut(int64_t n, int64_t *ends, uint64_t *seed)
{
	size_t parts = 0;

	for (int64_t at = 0; at < n; parts++) {
		at += 1 + random_u32(seed) % 5;
		ends[parts] = at < n ? at : n;
	}
	return parts;
}

/* A grid, and within each of its rows cuts of its own: bricks. */
static size_t bricks(const int64_t *shape, struct box *boxes, bool swapped, uint64_t *seed)
{
	int64_t rows[64], columns[64];
	const size_t nrows = cut(shape[0], rows, seed);
	size_t n = 0;

	for (size_t r = 0; r < nrows; r++) {
		const size_t ncolumns = cut(shape[1], columns, seed);

		for (size_t k = 0; k < ncolumns; k++) {
			struct box *b = &boxes[n++];

			*b = (struct box){ .transposed = random_u32(seed) % 2, .swapped = swapped };
			b->start[0] = r ? rows[r - 1] : 0;
			b->start[1] = k ? columns[k - 1] : 0;
			b->size[0] = rows[r] - b->start[0];
			b->size[1] = columns[k] - b->start[1];
		}
	}
	for (size_t i = n; i > 1; i--) {
		const size_t k = random_u32(seed) % i;
		const struct box b = boxes[i - 1];

		boxes[i - 1] = boxes[k];
		boxes[k] = b;
	}
	return n;
}

static void test_chunks_of_all_shapes_in_any_order_become_the_tensor(void **state)
{
	static struct box boxes[4096];
	uint64_t seed = 1;

	(void)state;
	for (unsigned i = 0; i < 40; i++) {
		const int64_t shape[] = { 1 + random_u32(&seed) % 20, 1 + random_u32(&seed) % 20 };
		const bool turned = i % 2; /* bricks that stand */
		const int64_t cut_shape[] = { shape[turned], shape[!turned] };
		const size_t n = bricks(cut_shape, boxes, i % 5 == 0, &seed);
		struct tsr_checkpoint *c;
		struct dcp d = new_dcp();

		for (size_t k = 0; turned && k < n; k++) {
			const struct box b = boxes[k];

			boxes[k].start[0] = b.start[1];
			boxes[k].start[1] = b.start[0];
			boxes[k].size[0] = b.size[1];
			boxes[k].size[1] = b.size[0];
		}
		put_tensor(&d, "w", 2, shape, "float32", boxes, n);
		c = read_dcp(&d);
		assert_int_equal(c->narrays, 1);
		expect_numbers(c, &c->arrays[0], 1 + random_u32(&seed) % 50);
		for (size_t k = 0; n > 1 && k < n; k++) {
			const struct tsr_chunk *chunk = &c->arrays[0].layout->chunks[k];

			assert_true(chunk->has_crc);
			assert_int_equal(chunk->crc_nbytes, 4 * chunk->size[0] * chunk->size[1]);
			assert_true(k == 0 || chunk->start[0] > chunk[-1].start[0] ||
				    (chunk->start[0] == chunk[-1].start[0] &&
				     chunk->start[1] > chunk[-1].start[1]));
		}
		tsr_checkpoint_close(c);
	}
}

static void test_scalars_and_empty_tensors(void **state)
{
	const int64_t shape[] = { 0, 3 }, rows[] = { 5, 1 };
	const struct box scalar = { .transposed = false };
	const struct box parts[] = { { .size = { 3, 1 } },
				     { .start = { 3 }, .size = { 2, 1 } },
				     { .start = { 5 }, .size = { 0, 1 } } };
	const struct box bare[] = {
		{ .size = { 5, 1 } },
		{ .start = { 5 }, .size = { 0, 1 }, .times = 9, .no_blob = true }
	};
	struct dcp d = new_dcp();
	struct tsr_checkpoint *c;

	(void)state;
	put_tensor(&d, "scalar", 0, NULL, "float32", &scalar, 1);
	put_tensor(&d, "no chunks", 2, shape, "float32", NULL, 0);
	put_tensor(&d, "empty chunk", 2, rows, "float32", parts, 3);
	put_tensor(&d, "empty chunk that is not stored", 2, rows, "float32", bare, 2);
	c = read_dcp(&d);
	assert_int_equal(c->narrays, 4);
	assert_int_equal(c->arrays[0].rank, 0);
	assert_int_equal(c->arrays[1].numel, 0);
	assert_int_equal(c->arrays[2].layout->nchunks, 2);
	for (size_t i = 0; i < 4; i++)
		expect_numbers(c, &c->arrays[i], 2);
	tsr_checkpoint_close(c);
}

/* Rows 3 to 5 of a tensor of 6 rows, or what is said of them. */
#define LOWER(row, rows, ...) \
	{ \
		.start = { row, 0 }, .size = { rows, 8 }, __VA_ARGS__ \
	}

static void test_chunks_that_do_not_fit_are_refused(void **state)
{
	/* clang-format off */
	static const struct {
		struct box lower;
		enum tsr_status status;
		const char *word;
		int64_t upper_longer; /* bytes of the other chunk more than there are */
	} cases[] = {
		{ LOWER(3, 2, .more = NULL), TSR_E_FORMAT, "40 elements together, expected 48", 0 },
		{ LOWER(3, 4, .more = NULL), TSR_E_FORMAT, "within 6", 0 },
		{ LOWER(-1, 3, .blob_rows = 3), TSR_E_FORMAT, "-1", 0 },
		{ LOWER(2, 3, .more = NULL), TSR_E_FORMAT, "overlap", 0 },
		{ LOWER(0, 3, .more = NULL), TSR_E_FORMAT, "more than once", 0 },
		{ LOWER(3, 3, .times = 9), TSR_E_FORMAT, "storage_data does not have", 0 },
		{ LOWER(3, 3, .times = 2), TSR_E_FORMAT, "more than once", 0 },
		{ LOWER(3, 3, .elsewhere = true), TSR_E_FORMAT, "more than once", 0 },
		{ LOWER(3, 3, .stored_start = { 1, 0 }, .elsewhere = true), TSR_E_FORMAT, "storage_data", 0 },
		{ LOWER(3, 3, .blob_rows = 2), TSR_E_FORMAT, "another shape", 0 },
		{ LOWER(3, 3, .class = "IntStorage"), TSR_E_FORMAT, "found dtype I32", 0 },
		{ LOWER(3, 3, .swapped = true), TSR_E_UNSUPPORTED, "byte order", 0 },
		{ LOWER(3, 3, .no_blob = true), TSR_E_FORMAT, DATA_FILE, 0 },
		{ LOWER(3, 3, .offset_by = 1), TSR_E_FORMAT, "mix of two saves", 0 },
		{ LOWER(3, 3, .length_by = -1), TSR_E_FORMAT, DATA_FILE, 0 },
		{ LOWER(3, 3, .length_by = 1), TSR_E_FORMAT, "mix of two saves", 0 },
		{ LOWER(3, 3, .more = NULL), TSR_E_FORMAT, "has too", 1 },
		{ LOWER(3, 3, .offset_by = INT64_MAX / 2), TSR_E_FORMAT, "mix of two saves", 0 },
		{ LOWER(3, 3, .offset_by = -(1 << 20)), TSR_E_FORMAT, "offset", 0 },
		{ LOWER(3, 3, .length_by = INT64_MAX / 2), TSR_E_FORMAT, "mix of two saves", 0 },
		{ LOWER(3, 3, .file = "../x"), TSR_E_FORMAT, "../x", 0 },
		{ LOWER(3, 3, .file = "/etc/passwd"), TSR_E_FORMAT, "/etc/passwd", 0 },
		{ LOWER(3, 3, .file = ".."), TSR_E_FORMAT, "without directories", 0 },
		{ LOWER(3, 3, .file = ""), TSR_E_FORMAT, "without directories", 0 },
		{ LOWER(3, 3, .file = "a\\b"), TSR_E_FORMAT, "without directories", 0 },
		{ LOWER(3, 3, .file = "not-there"), TSR_E_IO, "not-there", 0 },
		{ LOWER(3, 3, .file = "a.safetensors"), TSR_E_UNSUPPORTED, "safetensors", 0 },
		{ LOWER(3, 3, .more = "U\25transform_descriptors](U\4zstde"), TSR_E_UNSUPPORTED, "zstd", 0 },
	};
	/* clang-format on */
	static const int64_t shape[] = { 6, 8 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		const struct box boxes[] = {
			{ .size = { 3, 8 }, .length_by = cases[i].upper_longer }, cases[i].lower
		};
		struct dcp d = new_dcp();

		put_tensor(&d, "w", 2, shape, "float32", boxes, 2);
		expect_dcp_refused(&d, cases[i].status, cases[i].word);
	}
}

/* As many elements as the tensor has, but one box is twice in the place of another. */
static void test_a_gap_is_noticed_though_the_volume_is_right(void **state)
{
	static const int64_t shape[] = { 4, 4 };
	static const struct box boxes[] = { { .size = { 2, 4 } },
					    { .start = { 2, 0 }, .size = { 2, 2 } },
					    { .start = { 1, 0 }, .size = { 1, 4 } } };
	struct dcp d = new_dcp();

	(void)state;
	put_tensor(&d, "w", 2, shape, "float32", boxes, 3);
	expect_dcp_refused(&d, TSR_E_FORMAT, "overlap");
}

static void test_what_no_tensor_has_is_not_stored(void **state)
{
	static const int64_t start[] = { 0 };
	struct dcp d = new_dcp();

	(void)state;
	put_vector(&d, "w", 4);
	put_storage(&d, "ghost", start, 1, DATA_FILE, 0, 0, NULL);
	expect_dcp_refused(&d, TSR_E_FORMAT, "ghost");
}

/* Four bundles of @m strips around a square, which no plane parts, though none overlap. */
static struct box *pinwheel(int64_t m)
{
	struct box *boxes = calloc(4 * (size_t)m + 1, sizeof(*boxes));

	assert_non_null(boxes);
	for (int64_t i = 0; i < m; i++) {
		boxes[4 * i] = (struct box){ .start = { i, 0 }, .size = { 1, 2 * m } };
		boxes[4 * i + 1] = (struct box){ .start = { 0, 2 * m + i }, .size = { 2 * m, 1 } };
		boxes[4 * i + 2] = (struct box){ .start = { 2 * m + i, m }, .size = { 1, 2 * m } };
		boxes[4 * i + 3] = (struct box){ .start = { m, i }, .size = { 2 * m, 1 } };
	}
	boxes[4 * m] = (struct box){ .start = { m, m }, .size = { m, m } };
	return boxes;
}

static void test_comparing_chunks_has_a_limit(void **state)
{
	enum { M = 1500 };
	static const int64_t shape[] = { 3 * M, 3 * M };
	struct box *boxes = pinwheel(M);
	struct dcp d = new_dcp();

	(void)state;
	for (size_t i = 0; i <= 4 * (size_t)M; i++)
		boxes[i].no_blob = true;
	put_tensor(&d, "w", 2, shape, "float32", boxes, 4 * (size_t)M + 1);
	free(boxes);
	expect_dcp_refused(&d, TSR_E_LIMIT, "limit");
}

/* --- The tree ------------------------------------------------------------------------------- */

static void expect_tree(struct dcp *d, const char *want)
{
	struct tsr_checkpoint *c = read_dcp(d);

	assert_int_equal(c->ntrees, 1);
	expect_shown(tsr_value_mapping(c->trees[0]), want);
	tsr_checkpoint_close(c);
}

static void test_without_paths_the_tree_is_flat(void **state)
{
	struct dcp d = new_dcp();

	(void)state;
	put_vector(&d, "model.w", 1);
	put_object(&d, "step", "K\7");
	expect_tree(&d, "{'model.w': tensor 0, 'step': 7}");
}

static void test_paths_give_back_the_nesting(void **state)
{
	struct dcp d = new_dcp();

	(void)state;
	put_vector(&d, "a.b.c", 1);
	put_vector(&d, "a.b.d", 1);
	put_object(&d, "list.2.lr", "K\2");
	put_object(&d, "list.4.lr", "](K\1e");
	put_vector(&d, "a.x", 1);
	put_object(&d, "list.4.1", "N");
	put_path(&d, "a.b.c", "(U\1aU\3b.ct");
	put_path(&d, "a.b.d", "(U\1aU\1bU\1dt");
	put_path(&d, "list.2.lr", "(U\4listK\2U\2lrt");
	put_path(&d, "list.4.lr", "(U\4listK\4U\2lrt");
	put_path(&d, "a.x", "(U\1aU\1xt");
	put_path(&d, "list.4.1",
		 "(U\4listK\4U\1"
		 "1t");
	expect_tree(&d, "{'a': {'b.c': tensor 0, 'b': {'d': tensor 1}, 'x': tensor 2}, "
			"'list': [None, None, {'lr': 2}, None, {'lr': [1], '1': None}]}");
}

static void test_paths_that_cannot_be_are_refused(void **state)
{
	static const struct {
		const char *a, *b;
		enum tsr_status status;
		const char *word;
	} cases[] = {
		{ "(U\1xt", "(U\1xt", TSR_E_FORMAT, "another entry" },
		{ "(U\1xt", "(U\1xU\1yt", TSR_E_FORMAT, "as a value" },
		{ "(U\1xU\1yt", "(U\1xt", TSR_E_FORMAT, "another entry" },
		{ "(U\1xU\1yt", "(U\1xK\1t", TSR_E_FORMAT, "as a dict" },
		{ "(U\1xK\1t", "(U\1xU\1yt", TSR_E_FORMAT, "as a list" },
		{ "(K\1t", "(U\1xt", TSR_E_FORMAT, "as a dict" },
		{ "(U\1xJ\377\377\377\177t", "(U\1yt", TSR_E_LIMIT, "limit" },
		{ "(U\1xJ\377\377\377\377t", "(U\1yt", TSR_E_FORMAT, "tuple" },
		{ ")", "(U\1yt", TSR_E_FORMAT, "tuple" },
		{ "(Nt", "(U\1yt", TSR_E_FORMAT, "tuple" },
		{ "U\1x", "(U\1yt", TSR_E_FORMAT, "tuple" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct dcp d = new_dcp();

		put_vector(&d, "a", 1);
		put_vector(&d, "b", 1);
		put_path(&d, "a", cases[i].a);
		put_path(&d, "b", cases[i].b);
		expect_dcp_refused(&d, cases[i].status, cases[i].word);
	}
}

static void test_many_keys_are_told_apart(void **state)
{
	struct dcp d = new_dcp();
	struct tsr_checkpoint *c;
	char fqn[16];

	(void)state;
	for (unsigned i = 0; i < 300; i++) {
		snprintf(fqn, sizeof(fqn), "key%u", i);
		put_vector(&d, fqn, 1);
	}
	c = read_dcp(&d);
	assert_int_equal(tsr_value_mapping(c->trees[0])->list.n, 600);
	for (unsigned i = 0; i < 300; i++) {
		snprintf(fqn, sizeof(fqn), "key%u", i);
		assert_int_equal(tsr_value_at(c->trees[0], fqn)->tensor.array, i);
	}
	tsr_checkpoint_close(c);
}

/* --- Objects -------------------------------------------------------------------------------- */

static void test_an_object_that_is_not_plain_is_left_out_with_a_note(void **state)
{
	struct dcp d = new_dcp();
	struct tsr_checkpoint *c;

	(void)state;
	put_vector(&d, "w", 2);
	put_object(&d, "loader", "cmy.data\nLoader\n)\201");
	put_object(&d, "evil", "cposix\nsystem\nU\2ls\205R");
	put_object(&d, "step", "K\7");
	c = read_dcp(&d);
	expect_shown(tsr_value_mapping(c->trees[0]),
		     "{'w': tensor 0, 'loader': None, 'evil': None, 'step': 7}");
	assert_int_equal(c->nnotes, 2);
	assert_non_null(strstr(c->notes[0], "loader"));
	assert_non_null(strstr(c->notes[0], "my.data.Loader"));
	assert_non_null(strstr(c->notes[1], "posix.system"));
	assert_non_null(strstr(c->notes[1], "left out"));
	assert_int_equal(c->narrays, 1);
	tsr_checkpoint_close(c);
}

/* A pair of a tensor and another value. */
static void put_pair(struct dcp *d, const char *fqn, const char *second)
{
	static const float floats_of_pair[] = { 0, 1, 2 };
	const struct spec spec = { .numel = 3, .rank = 1, .shape = { 3 }, .stride = { 1 } };
	struct saved s = { .version = "3\n" };

	OP(&s.ops, "(");
	op_tensor(&s.ops, &spec);
	tsr_text_puts(&s.ops, second);
	OP(&s.ops, "t");
	add_storage(&s, "r/data/0", floats_of_pair, sizeof(floats_of_pair));
	put_saved(d, fqn, &s);
}

static void test_tensors_in_objects_are_arrays(void **state)
{
	struct dcp d = new_dcp();
	struct tsr_checkpoint *c;

	(void)state;
	put_pair(&d, "bad", "cposix\nsystem\n");
	put_pair(&d, "good", "N");
	c = read_dcp(&d);
	expect_shown(tsr_value_mapping(c->trees[0]),
		     "{'bad': (tensor 0, None), 'good': (tensor 1, None)}");
	assert_int_equal(c->narrays, 2);
	assert_string_equal(c->arrays[1].name, "good.0");
	expect_numbers(c, &c->arrays[1], 2);
	tsr_checkpoint_close(c);
}

static void test_a_broken_object_is_an_error(void **state)
{
	struct dcp d = new_dcp();

	(void)state;
	put_object(&d, "step", "K\7K\7");
	expect_dcp_refused(&d, TSR_E_FORMAT, "step");
}

/* --- The directory -------------------------------------------------------------------------- */

static void expect_metadata_refused(const char *bytes, size_t n, enum tsr_status want,
				    const char *word)
{
	struct dcp d = new_dcp();
	struct tsr_checkpoint *c = new_checkpoint();
	struct tsr_err err = { 0 };
	enum tsr_status status;

	put_file(&d, ".metadata", bytes, n);
	assert_true(tsr_dcp_looks_like(d.path));
	status = tsr_dcp_read_links(c, d.path, false, &err);
	if (status != want || !strstr(err.msg, word))
		fail_msg("status %d, expected %d with \"%s\": %s", (int)status, (int)want, word,
			 err.msg);
	tsr_checkpoint_close(c);
	drop_dcp(&d);
}

#define EXPECT_METADATA_REFUSED(literal, want, word) \
	expect_metadata_refused(literal, sizeof(literal) - 1, want, word)

static void test_other_pickles_are_no_metadata(void **state)
{
	(void)state;
	EXPECT_METADATA_REFUSED("", TSR_E_FORMAT, ".metadata");
	EXPECT_METADATA_REFUSED("\200\002}.", TSR_E_FORMAT, "Metadata");
	EXPECT_METADATA_REFUSED("\200\002c" META "\nMetadata\n)\201.", TSR_E_FORMAT, "Metadata");
	EXPECT_METADATA_REFUSED("\200\002c" META "\nMetadata\n)\201}b.", TSR_E_FORMAT,
				"state_dict_metadata");
	EXPECT_METADATA_REFUSED("\200\002cmy\nMetadata\n)\201}b.", TSR_E_UNSUPPORTED,
				"my.Metadata");
	EXPECT_METADATA_REFUSED("\200\002c" META
				"\nMetadata\n)\201}(U\1xcposix\nsystem\nU\2ls\205Rub.",
				TSR_E_UNSUPPORTED, "posix.system");
	EXPECT_METADATA_REFUSED("\200\002c" META
				"\nMetadata\n)\201}(U\1xcbuiltins\ngetattr\ncposix\n"
				"x\nU\6system\206Rub.",
				TSR_E_UNSUPPORTED, "posix.x");
	EXPECT_METADATA_REFUSED("\200\002c" META
				"\nMetadata\n)\201}(U\1x(cbuiltins\ngetattr\nq\0c" META
				"\n_MEM_FORMAT_ENCODING\nU\1a\206Rh\0K\1K\2\206Rtub.",
				TSR_E_UNSUPPORTED, "getattr");
	EXPECT_METADATA_REFUSED("\200\002c" META "\nMetadata\n)\201}(U\1xK\1Qub.",
				TSR_E_UNSUPPORTED, "storage");
}

static void test_a_save_that_did_not_finish_is_no_checkpoint(void **state)
{
	static const char *const names[] = { ".metadata.tmp", DATA_FILE };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		struct dcp d = new_dcp();
		struct tsr_checkpoint *c = new_checkpoint();
		struct tsr_err err = { 0 };

		assert_false(tsr_dcp_looks_like(d.path));
		put_file(&d, names[i], "x", 1);
		assert_true(tsr_dcp_looks_like(d.path));
		assert_int_equal(tsr_dcp_read_links(c, d.path, false, &err), TSR_E_FORMAT);
		assert_non_null(strstr(err.msg, "did not finish"));
		tsr_checkpoint_close(c);
		drop_dcp(&d);
	}
}

static void test_links_are_followed_only_if_asked(void **state)
{
	struct dcp d = new_dcp();
	struct tsr_checkpoint *c = new_checkpoint();
	struct tsr_err err = { 0 };
	char from[128], to[128];

	(void)state;
	put_vector(&d, "w", 2);
	finish_dcp(&d);
	snprintf(from, sizeof(from), "%s/" DATA_FILE, d.path);
	snprintf(to, sizeof(to), "%s/other", d.path);
	assert_int_equal(rename(from, to), 0);
	assert_int_equal(symlink("other", from), 0);
	assert_int_equal(tsr_dcp_read_links(c, d.path, false, &err), TSR_E_IO);
	assert_non_null(strstr(err.msg, "symbolic link"));
	tsr_checkpoint_close(c);
	c = new_checkpoint();
	assert_int_equal(tsr_dcp_read_links(c, d.path, true, &err), TSR_OK);
	expect_numbers(c, &c->arrays[0], 1);
	tsr_checkpoint_close(c);
	drop_file(&d, "other");
	drop_dcp(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_chunk_is_read_in_place_with_the_checksum_of_its_record),
		cmocka_unit_test(test_chunks_of_all_shapes_in_any_order_become_the_tensor),
		cmocka_unit_test(test_scalars_and_empty_tensors),
		cmocka_unit_test(test_chunks_that_do_not_fit_are_refused),
		cmocka_unit_test(test_a_gap_is_noticed_though_the_volume_is_right),
		cmocka_unit_test(test_what_no_tensor_has_is_not_stored),
		cmocka_unit_test(test_comparing_chunks_has_a_limit),
		cmocka_unit_test(test_without_paths_the_tree_is_flat),
		cmocka_unit_test(test_paths_give_back_the_nesting),
		cmocka_unit_test(test_paths_that_cannot_be_are_refused),
		cmocka_unit_test(test_many_keys_are_told_apart),
		cmocka_unit_test(test_an_object_that_is_not_plain_is_left_out_with_a_note),
		cmocka_unit_test(test_tensors_in_objects_are_arrays),
		cmocka_unit_test(test_a_broken_object_is_an_error),
		cmocka_unit_test(test_other_pickles_are_no_metadata),
		cmocka_unit_test(test_a_save_that_did_not_finish_is_no_checkpoint),
		cmocka_unit_test(test_links_are_followed_only_if_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
