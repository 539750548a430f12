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
 * A stack of n nodes never needs more than log2(lanes) + 1 (from lane 0), at most 2 log2(lanes) in
 * general. Refuses gaps: a lane nobody has can only be at the end.
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

crl_status crl_lane_push(crl_lane_node *node, int *nodes, int lane, float *data, int64_t count,
                         const crl_reduce_ops *reduce, crl_stream *stream) {
    if (*nodes >= CRL_MAX_LANE_NODES) {
        return CRL_FAIL(INVALID, "lane %d: the stack holds %d nodes, at most %d fit", lane, *nodes,
                        CRL_MAX_LANE_NODES);
    }
    if (*nodes > 0) {
        const crl_lane_node *top = &node[*nodes - 1];
        if (lane != top->first + top->count) {
            return CRL_FAIL(INVALID, "lane %d: follows lane %d, expected %d", lane,
                            top->first + top->count - 1, top->first + top->count);
        }
    }
    const crl_lane_node added = {.first = lane, .count = 1, .data = data};
    CRL_TRY(crl_lane_push_node(node, nodes, added, count, reduce, stream));
    return CRL_STATUS_OK;
}

int crl_lane_stack_depth(int first, int last) {
    int end[CRL_MAX_LANE_NODES * 2]; /* where the nodes of the stack end */
    int nodes = 0, deepest = 0;
    for (int lane = first; lane < last; lane++) {
        end[nodes++] = lane + 1;
        deepest = nodes > deepest ? nodes : deepest;
        while (nodes >= 2) {
            const int middle = end[nodes - 2];
            const int begin = nodes >= 3 ? end[nodes - 3] : first;
            const int count = middle - begin;
            if (end[nodes - 1] - middle != count || begin % (2 * count) != 0) {
                break;
            }
            end[nodes - 2] = end[nodes - 1];
            nodes--;
        }
    }
    return deepest;
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
