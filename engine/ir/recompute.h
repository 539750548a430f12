/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What backward makes again instead of keeping. Pure: graph, stage and modes in, marks out. The
 * bits are those of keeping everything.
 *
 * A *block* is a run of consecutive nodes of one stage whose names begin alike up to the first '.'
 * (h0.ln1 ... h0.res2); a name without one is a block of its own. Just before a block's backward
 * its lost results are made again from what it kept:
 *
 *     forward    h0 ──> h1 ──> h2               kept: the blocks' inputs, and what is not marked
 *     backward   again h2, back h2, again h1, back h1, again h0, back h0
 *
 * A result that is read later by another block is kept, so an inner result is never needed twice.
 * The loss is never made again: its forward adds to the step's loss.
 */
#pragma once

#include "engine/ir/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CRL_RECOMPUTE_NONE = 0,
    CRL_RECOMPUTE_SELECTIVE, /* results that are cheap to make and large to keep [korthikanti22] */
    CRL_RECOMPUTE_FULL,      /* everything inside a block: its inputs are kept [chen16] */
    CRL_RECOMPUTES
};

/* "none", "selective", "full"; lends a constant. */
const char *crl_recompute_name(int mode);

/*
 * The modes that a user's list gives the nodes: one mode for all, or one per stage, then any number
 * of "name=mode" for single nodes or blocks, later ones replacing earlier ones. `first_node` (S)
 * begins the stages. INVALID names the item: unknown mode or name (with the nearest known one), as
 * many modes as there are neither 1 nor S.
 */
CRL_NODISCARD crl_status crl_recompute_modes(unsigned char *out_mode, /* (nodes) */
                                             const crl_graph *graph, int stages,
                                             const int *first_node, const crl_text_list *list);

/* Who reads a value later than forward. */
enum { CRL_READ_BY_INPUT = 1, CRL_READ_BY_WEIGHT = 2 }; /* the first includes making again */

/* What the backward of a stage reads and what it makes again for that. */
typedef struct crl_recompute {
    const crl_graph *graph; /* lent */
    int first, last;        /* nodes [first, last) */
    unsigned char *reads;   /* (values) CRL_READ_*; 0: forward is its last use in this stage */
    unsigned char *again;   /* (nodes) 1: forward runs again, and its results are not kept */
    int *block;             /* (nodes) the first node of its block, of this stage's nodes */
} crl_recompute;

/* `mode` (nodes) as above; NULL: none. NOMEM. */
CRL_NODISCARD crl_status crl_recompute_create(crl_recompute **out, const crl_graph *graph,
                                              int first, int last, const unsigned char *mode);
/* NULL is fine. */
void crl_recompute_destroy(crl_recompute *recompute);
/* Is the value kept from forward until backward? (Values of the dataset are not: they stay.) */
bool crl_recompute_keeps(const crl_recompute *recompute, int value);
/* What a micro-batch keeps of the results (outputs and saves) of nodes [first, last); those before
 * the stage are values that it receives. */
double crl_recompute_kept_bytes(const crl_recompute *recompute, int first, int last);
/* What it holds of them from I until W: results that W still reads, and the gradients of the
 * outputs of nodes with parameters. */
double crl_recompute_held_bytes(const crl_recompute *recompute, int first, int last);

#ifdef __cplusplus
}
#endif
