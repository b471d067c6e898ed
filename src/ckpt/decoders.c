/* SPDX-License-Identifier: Apache-2.0 */
/* What coded planes are decoded with: decoders that threads take, and that keep the pieces they read last. */
#include "ckpt/decoders.h"

#include <pthread.h>

#include "base/fail.h"

/* Decoders that hold pieces of which parts may be read next, before one of them is taken for another. */
#define HOLDING_MAX 12u

struct tsr_decoding {
	pthread_mutex_t lock;
	struct tsr_decoder *idle; /* the one that was used last comes first */
	unsigned n; /* of all */
	struct tsr_gpu *const *gpus; /* where they decode, in turn */
	unsigned ngpus; /* 0: on the CPU */
};

struct tsr_decoding *tsr_decoding_new(void)
{
	struct tsr_decoding *d = calloc(1, sizeof(*d));

	if (d)
		pthread_mutex_init(&d->lock, NULL);
	return d;
}

static void free_decoder(struct tsr_decoder *d)
{
	if (!d)
		return;
	tsr_piece_coder_free(d->coder);
	free(d->coded);
	free(d->old);
	free(d->both);
	free(d);
}

static void free_decoders(struct tsr_decoding *d)
{
	while (d->idle) {
		struct tsr_decoder *next = d->idle->next;

		free_decoder(d->idle);
		d->idle = next;
	}
	d->n = 0;
}

void tsr_decoding_free(struct tsr_decoding *d)
{
	if (!d)
		return;
	free_decoders(d);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

/* A checkpoint and what it differs from; decoders of the device before are of no use any more. */
void tsr_coded_decode_on(const struct tsr_checkpoint *c, const struct tsr_run *run)
{
	const unsigned ngpus = run ? run->ngpus : 0;

	for (; c; c = c->base) {
		if (!c->decoding || c->decoding->ngpus + ngpus == 0)
			continue;
		free_decoders(c->decoding);
		c->decoding->ngpus = ngpus;
		c->decoding->gpus = ngpus ? run->gpus : NULL;
	}
}

/* @number: of all decoders there are, from 0 on. */
static enum tsr_status new_decoder(const struct tsr_checkpoint *c, unsigned number,
				   struct tsr_decoder **ret, struct tsr_err *err)
{
	const struct tsr_decoding *all = c->decoding;
	struct tsr_gpu *gpu = all->ngpus ? all->gpus[number % all->ngpus] : NULL;
	struct tsr_decoder *d = malloc(sizeof(*d));
	enum tsr_status status;

	if (!d)
		return tsr_fail_nomem(err, c->path);
	d->next = NULL;
	d->held = NULL;
	d->piece = 0;
	d->holds_both = false;
	d->old = d->both = NULL;
	d->coded = malloc(tsr_coded_piece_max());
	status = tsr_piece_coder_new(gpu, 0, &d->coder, err);
	if (status == TSR_OK && !d->coded)
		status = tsr_fail_nomem(err, c->path);
	return TSR_MADE(status, ret, d, free_decoder);
}

/* The place in the list of one that holds this piece, or else nothing, or else was not used for longest. */
static struct tsr_decoder **find_decoder(struct tsr_decoding *all, const struct tsr_coded *coded,
					 uint64_t piece)
{
	struct tsr_decoder **at, **found = NULL;

	for (at = &all->idle; *at; at = &(*at)->next) {
		if ((*at)->held == coded && (*at)->piece == piece)
			return at;
		if (!(*at)->held || (!(*at)->next && !found && all->n >= HOLDING_MAX))
			found = at;
	}
	return found;
}

enum tsr_status tsr_decoder_take(const struct tsr_checkpoint *c, const struct tsr_coded *coded,
				 uint64_t piece, struct tsr_decoder **ret, struct tsr_err *err)
{
	struct tsr_decoding *all = c->decoding;
	struct tsr_decoder **at, *d = NULL;
	enum tsr_status status;
	unsigned number;

	pthread_mutex_lock(&all->lock);
	number = all->n;
	at = find_decoder(all, coded, piece);
	if (at) {
		d = *at;
		*at = d->next;
	}
	all->n += !d;
	pthread_mutex_unlock(&all->lock);
	*ret = d;
	if (d)
		return TSR_OK;
	status = new_decoder(c, number, ret, err);
	if (status != TSR_OK) {
		pthread_mutex_lock(&all->lock);
		all->n--;
		pthread_mutex_unlock(&all->lock);
	}
	return status;
}

void tsr_decoder_return(struct tsr_decoding *all, struct tsr_decoder *d)
{
	pthread_mutex_lock(&all->lock);
	d->next = all->idle;
	all->idle = d;
	pthread_mutex_unlock(&all->lock);
}
