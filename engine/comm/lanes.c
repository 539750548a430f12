/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical tree over lanes, and the stack that one rank needs to walk it.
 *
 *        0..3              lanes 0 1 2 finished: stack [0..1] [2]
 *       /    \             lane 3: [0..1] [2] [3] -> [0..1] [2..3] -> [0..3]
 *    0..1    2..3
 *    /  \    /  \          A node is a left child when first % (2 count) == 0; it is combined with
 *   0    1  2    3         its right sibling as soon as that is complete, always as left + right.
 *
 * From lane 0 on the stack never holds more than log2(lanes) + 1 nodes, from any other one about
 * 2 log2(lanes). Refuses to know gaps: a lane nobody has can only be at the end.
 */
#include "engine/comm/collective_internal.h"

crl_status crl_lane_push_node(crl_lane_node *node, int *nodes, crl_lane_node added, int64_t count,
                              const crl_reduce_ops *reduce, crl_stream *stream) {
    int top = *nodes;
    node[top++] = added;
    while (top >= 2) {
        crl_lane_node *left = &node[top - 2];
        const crl_lane_node *right = &node[top - 1];
        if (left->count != right->count || left->first % (2 * left->count) != 0) {
            break;
        }
        CRL_TRY(reduce->add(stream, left->data, right->data, count));
        left->count *= 2;
        top--;
    }
    *nodes = top;
    return CRL_STATUS_OK;
}

int crl_lane_split(int first, int last, crl_lane_node *node) {
    int nodes = 0;
    while (first < last) {
        int count = 1;
        while (first % (2 * count) == 0 && first + 2 * count <= last) {
            count *= 2;
        }
        node[nodes].first = first;
        node[nodes].count = count;
        nodes++;
        first += count;
    }
    return nodes;
}

typedef struct folding {
    const crl_lane_node *node; /* what is left, in lane order */
    int nodes;
    int64_t count;
    const crl_reduce_ops *reduce;
    crl_stream *stream;
} folding;

/* The sum below the tree's node (first, count), NULL when absent. */
static crl_status fold(folding *f, int first, int count, float **out) {
    *out = NULL;
    if (f->nodes == 0 || f->node->first >= first + count) {
        return CRL_STATUS_OK;
    }
    if (f->node->count == count) {
        *out = f->node->data;
        f->node++;
        f->nodes--;
        return CRL_STATUS_OK;
    }
    float *left, *right;
    CRL_TRY(fold(f, first, count / 2, &left));
    CRL_TRY(fold(f, first + count / 2, count / 2, &right));
    if (left != NULL && right != NULL) {
        CRL_TRY(f->reduce->add(f->stream, left, right, f->count));
    }
    *out = left != NULL ? left : right;
    return CRL_STATUS_OK;
}

crl_status crl_lane_fold(float **out, const crl_lane_node *node, int nodes, int64_t count,
                         const crl_allreduce_config *config, crl_stream *stream) {
    folding f = {node, nodes, count, config->reduce, stream};
    return fold(&f, 0, config->lanes, out);
}
