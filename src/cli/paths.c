/* SPDX-License-Identifier: Apache-2.0 */
/* Names of outputs, and whether a report would replace another file that the command line names. */
#include "cli/cli.h"

#include <sys/stat.h>

#include "container/containers.h"
#include "io/dir.h"
#include "io/file.h"
#include "io/temporary.h"

static bool same_inode(const char *a, const char *b)
{
	struct stat sa, sb;

	return a && b && stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

/* Whether two paths name the same file, or would once created. */
static bool same_file(const char *a, const char *b)
{
	TSR_OWNED(free) char *da = tsr_path_directory(a);
	TSR_OWNED(free) char *db = tsr_path_directory(b);

	return same_inode(a, b) ||
	       (strcmp(tsr_path_name(a), tsr_path_name(b)) == 0 && same_inode(da, db));
}

/* --- Bases of deltas ------------------------------------------------------------------------------ */

void cli_warn_not_beside(const struct cli_common *common, const char *base)
{
	TSR_OWNED(free) char *trimmed = tsr_path_trim(base);
	TSR_OWNED(free) char *directory = tsr_path_directory(common->output);
	TSR_OWNED(free)
	char *path = directory && trimmed ? tsr_path_join(directory, tsr_path_name(trimmed)) : NULL;

	if (trimmed && strcmp(common->output, TSR_STANDARD_OUTPUT) != 0 &&
	    !(path && same_file(path, trimmed)))
		cli_warn(common,
			 "%s: its base is not beside it: move it to where %s is, or read it with "
			 "--base",
			 common->output, base);
}

/* --- Outputs without -o --------------------------------------------------------------------------- */

/* Whether @text, of @len bytes, ends so; *len_ref becomes what is before. */
static bool take_end(const char *text, size_t *len_ref, const char *end)
{
	const size_t n = strlen(end);

	if (*len_ref <= n || memcmp(text + *len_ref - n, end, n) != 0)
		return false;
	*len_ref -= n;
	return true;
}

/* The length of a name without slashes at its end; 0: it ends in none, such as "..". */
static size_t name_length(const char *in)
{
	size_t len = strlen(in);

	while (len > 1 && in[len - 1] == '/')
		len--;
	return len && in[len - 1] != '/' && in[len - 1] != '.' && strcmp(in, "-") != 0 ? len : 0;
}

bool cli_name_packed(const char *in, char *out, size_t room)
{
	size_t len = name_length(in);
	const bool directory = tsr_dir_is(in);
	enum tsr_container container;
	const size_t stem = directory ? 0 : tsr_container_stem(in, &container);

	if (len && stem && container != TSR_CONTAINER_NPY)
		len = stem;
	return len && !take_end(in, &len, ".packed") &&
	       (size_t)snprintf(out, room, "%.*s%s", (int)len, in,
				directory ? ".packed" : ".packed.safetensors") < room;
}

bool cli_name_unpacked(const char *in, char *out, size_t room)
{
	size_t len = name_length(in);
	const bool file = take_end(in, &len, ".safetensors");

	return take_end(in, &len, ".packed") && (size_t)snprintf(out, room, "%.*s%s", (int)len, in,
								 file ? ".safetensors" : "") < room;
}

/* --- Files of a command line ----------------------------------------------------------------------- */

/* The files that an option names, if it names any: "@file" and "@report". */
static struct cli_list paths_of(const struct cli_opt *o, void *args)
{
	void *at = (char *)args + o->at;
	const char **path = o->type == CLI_OPTIONAL ? &((struct cli_optional *)at)->value : at;

	if (!cli_is_path(o))
		return (struct cli_list){ 0 };
	return o->type == CLI_LIST ? *(struct cli_list *)at
				   : (struct cli_list){ path, *path != NULL };
}

static int check_not(const struct cli_opt *report, const char *path, struct cli_list others)
{
	for (unsigned i = 0; i < others.n; i++) {
		if (same_file(others.items[i], path))
			return cli_fail(CLI_IO,
					"%s: --%s would replace %s, another file of this command",
					path, report->name, others.items[i]);
	}
	return CLI_OK;
}

/* The library checks the output against what it reads. */
static bool is_output(const struct cli_opt *o)
{
	return strcmp(o->name, "output") == 0;
}

/* A report must not land on any other file that the command line names, nor the output. */
int cli_check_paths(const struct cli_opts *all, void *args)
{
	const struct cli_common *common = args;

	for (unsigned i = 0; i < all->n; i++) {
		const struct cli_opt *o = all->opt[i];
		const struct cli_list path = paths_of(o, args);

		if (!path.n || (!cli_is_report(o) && !is_output(o)))
			continue;
		if (!is_output(o))
			CLI_TRY(check_not(o, path.items[0], common->operands));
		for (unsigned j = 0; j < all->n; j++) {
			if (j != i)
				CLI_TRY(check_not(o, path.items[0], paths_of(all->opt[j], args)));
		}
	}
	return CLI_OK;
}

/* --- Standard streams --------------------------------------------------------------------------- */

static bool is_stdout(const char *path)
{
	return path && strcmp(path, TSR_STANDARD_OUTPUT) == 0;
}

/* The output, or the first, second ... of the reports. */
static bool fills(const struct cli_common *common, unsigned which)
{
	const struct cli_optional *report = &common->report[which - (which > 0)];

	if (which == 0)
		return is_stdout(common->output) && !common->dry_run;
	return (report->given && !report->value) || is_stdout(report->value);
}

bool cli_fills_stdout(const struct cli_common *common)
{
	unsigned i = 0;

	while (i <= CLI_NREPORTS && !fills(common, i))
		i++;
	return i <= CLI_NREPORTS;
}

bool cli_is_other_json(const char *path)
{
	static const char ours[] = "{\"schema\":\"tersor.";
	char head[sizeof(ours)] = "";
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	if (tsr_file_open(path, &f, NULL) != TSR_OK)
		return false;
	return tsr_file_size(f) >= strlen(ours) &&
	       (tsr_file_read(f, head, strlen(ours), 0, NULL) != TSR_OK ||
		strcmp(head, ours) != 0) &&
	       strcmp(path + strlen(path) - 5, ".json") == 0;
}

int cli_take_streams(const struct cli_cmd *cmd, const struct cli_opts *all, void *args)
{
	static const char *const names[] = { "the output", "--json", "--csv", "--html", "--svg" };
	struct cli_common *common = args;
	const char *first = NULL;
	unsigned n = 0;

	for (unsigned i = 0; i <= all->n && cmd->takes & CLI_READS; i++) {
		const struct cli_opt *o = i < all->n ? all->opt[i] : NULL;
		const struct cli_list in = o ? paths_of(o, args) : common->operands;

		for (unsigned k = 0; k < in.n; k++) {
			if (o && (cli_is_report(o) || is_output(o)))
				continue;
			if (strcmp(in.items[k], "-") == 0)
				in.items[k] = TSR_STANDARD_INPUT;
			n += strcmp(in.items[k], TSR_STANDARD_INPUT) == 0;
		}
	}
	if (n > 1)
		return cli_usage(cmd, "standard input can be read once; found it %u times", n);
	if (common->output && strcmp(common->output, "-") == 0)
		common->output = TSR_STANDARD_OUTPUT;
	if (is_stdout(common->output) && common->max_shard)
		return cli_usage(cmd, "--max-shard-size needs a file as output");
	/* Standard output takes one thing. */
	for (unsigned i = 0; i <= CLI_NREPORTS; i++) {
		if (fills(common, i) && first)
			return cli_usage(cmd, "%s and %s both on the standard output", first,
					 names[i]);
		first = fills(common, i) ? names[i] : first;
	}
	return CLI_OK;
}
