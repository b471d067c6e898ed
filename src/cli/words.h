/* SPDX-License-Identifier: Apache-2.0 */
/* What the words of options mean. */
#ifndef TSR_CLI_WORDS_H
#define TSR_CLI_WORDS_H

#include "cli/cli.h"
#include "codec/state_forms.h"
#include "tersor/compare.h"
#include "tersor/replay.h"

/* Words of the command line that name codecs, bounds and rules, and what is learned for a codec. */

/* Each returns CLI_OK, or CLI_USAGE after a message. */

/* The codecs of a state: a form, which the option's values have, or a pair such as ratio8/sqrt8. */
int cli_parse_state(const struct cli_cmd *cmd, const char *name, struct tsr_coding *momentum,
		    struct tsr_coding *variance);

/* The codec with this name, which must be for one of @kinds. */
int cli_parse_codec(const struct cli_cmd *cmd, const char *name, unsigned kinds,
		    const struct tsr_codec **ret);

/* The most bounds of --max-error, and --keep and --map options. */
#define CLI_BOUNDS_MAX 32
#define CLI_RULES_MAX 256

/*
 * The bounds of --max-error, of which an item may hold several: "nmse=1e-4,ulp=2".  What follows a comma
 * without '=' belongs to the value before it.
 */
int cli_split_bounds(const struct cli_cmd *cmd, const struct cli_list *list,
		     char ret[CLI_BOUNDS_MAX][CLI_WORD_NBYTES], unsigned *n_ret);

/* METRIC=VALUE each; @updates: metrics of updates are among them.  @ret has room for CLI_BOUNDS_MAX. */
int cli_parse_bounds(const struct cli_cmd *cmd, const struct cli_list *list, bool updates,
		     struct tsr_bound *ret, unsigned *n_ret);

/*
 * Regular expressions of --keep (NULL: none), then items REGEX=KIND of --map, whose strings are
 * split in place.  @ret has room for CLI_RULES_MAX.
 */
int cli_parse_rules(const struct cli_cmd *cmd, const struct cli_list *keep,
		    const struct cli_list *map, struct tsr_name_rule *ret, unsigned *n_ret);

/* Split KEY=NUMBER: whether the item is one.  @key is cut off at its end. */
bool cli_split_setting(const char *item, char key[32], double *ret);

/* --- Learning blocks and a codebook, as codebook and pack do ------------------------------------ */

#define CLI_PARTITION_RULES "adjacent variance"

/* What the options say. */
struct cli_learning {
	const char *partition, *compat;
	bool few;
};

/* The same for the library. */
struct tsr_learn_options cli_learn_options(const struct cli_learning *learning);

/*
 * Learn from the first step of a recording, if the one input is @recorded, or from files opened as one
 * checkpoint; @gradients: these hold gradients.  CLI_OK, or the exit status after a message.
 */
int cli_learn(const struct cli_learning *learning, const struct cli_common *common,
	      const struct cli_list *in, bool recorded, bool gradients, struct tsr_learned **ret);

/* --- The options of pack that choose codecs by their errors ---------------------------------- */

struct cli_choosing {
	double bound; /* --auto */
	uint64_t max_bytes; /* --max-bytes; 0: not given */
	const char *codecs; /* --auto-codecs; NULL: the usual ones */
};

/*
 * The options for the library, with scales and groups as given (tsr_coding_with()).  @weights: their codec is
 * given, and so no candidate has one.  CLI_OK, or CLI_USAGE after a message.
 */
int cli_parse_choosing(const struct cli_cmd *cmd, const struct cli_choosing *choosing,
		       enum tsr_scale scale, uint32_t group, bool weights,
		       struct tsr_choice_options *ret);

/* --- What the options of `tersor replay` mean ------------------------------------------------ */

/* The arguments of `tersor replay`. */
struct cli_replay_args {
	struct cli_common common;
	const char *to;
	const char *optimizer, *schedule, *betas;
	double lr, eps, weight_decay;
	bool nesterov, decouple_lr;
	struct cli_list hyper;
	const char *state, *codec[TSR_SLOTS], *scale, *order;
	uint64_t group, seed;
	uint64_t count;
	const char *steps, *on_nonfinite, *on_missing, *compare;
	bool zero_state, check_numerics, audit;
	struct cli_learning learning; /* without `compat` */
	const char *state_on_disk, *signatures;
	struct cli_list max_error, map, vary;
};

/* Room for the name of a variant. */
#define CLI_VARIANT_NBYTES 128

/* What they mean; strings are the arguments'. */
struct cli_replay_parsed {
	struct tsr_replay_options options; /* `reports` is not set */
	struct tsr_gate gates[CLI_BOUNDS_MAX];
	struct tsr_name_rule rules[CLI_RULES_MAX];
	struct tsr_learn_options learn;
	/* With several states, else 0 of them; their names are in `words`. */
	unsigned nforms;
	struct tsr_replay_form forms[TSR_REPLAY_FORMS_MAX];
	char words[200];
	char names[TSR_REPLAY_FORMS_MAX][CLI_VARIANT_NBYTES]; /* with --vary */
};

/* CLI_OK, or the exit status after a message.  Splits the strings of --map in place. */
int cli_replay_parse(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		     struct cli_replay_parsed *ret);

#endif
