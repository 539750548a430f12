/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a transformer takes on a machine: products by their flops, everything else by the bytes it
 * moves, sums over the tensor group by the links. No kernel is counted faster than its launch.
 *
 * of a layer, in elements of B T C (x), 4 B T C / t (the MLP's inner ones) and scores:
 *   products   QKV 3, projection 1, MLP 4 + 4, each 2 B T C² / t flops; scores and context
 *              2 B T² C / t each
 *   forward    norm: read, write (twice) · dropout and residual: 2 reads, mask, write (twice) ·
 *              GELU: read, write · scores: written, softmax read and write, dropout read, write and
 *              mask, read
 *   backward   twice the products, and adding the gradients to those of earlier micro-batches
 *   group      2 sums of x each way, none with t = 1
 */
#include "partition/group_sum.h"
#include "partition/transformer_internal.h"

static double product_s(const crl_machine *machine, double flops) {
    return crl_machine_product_s(machine, flops);
}

static double traffic_s(const crl_machine *machine, double bytes) {
    return crl_machine_traffic_s(machine, bytes);
}

/* The four products with weights, once. */
static double weights_s(const transformer_sizes *z, const crl_machine *m) {
    const double unit = 2 * z->rows * z->hidden / z->tensor;
    return product_s(m, unit * 3 * z->hidden) + product_s(m, unit * z->hidden) +
           2 * product_s(m, unit * z->feed_forward);
}

/* Scores, softmax, dropout, context: what selective recomputation repeats. */
static double core_forward_s(const transformer_sizes *z, const crl_machine *m, bool fused) {
    const double flops = 2 * z->rows * z->sequence * z->hidden / z->tensor;
    const double e = z->element_bytes;
    if (fused) {
        return product_s(m, 2 * flops);
    }
    return 2 * product_s(m, flops) + traffic_s(m, z->scores * 2 * e) +
           traffic_s(m, z->scores * (2 * e + 1)) + traffic_s(m, z->scores * 2 * e);
}

static double core_backward_s(const transformer_sizes *z, const crl_machine *m, bool fused) {
    const double flops = 2 * z->rows * z->sequence * z->hidden / z->tensor;
    const double e = z->element_bytes;
    if (fused) {
        return product_s(m, 5 * flops);
    }
    return 4 * product_s(m, flops) + traffic_s(m, z->scores * 3 * e) +
           traffic_s(m, z->scores * (2 * e + 1)) + traffic_s(m, z->scores * 4 * e);
}

static double rest_forward_s(const transformer_sizes *z, const crl_machine *m) {
    const double e = z->element_bytes, x = z->activity / z->norm;
    return 2 * traffic_s(m, x * 2 * e) + 2 * traffic_s(m, x * (3 * e + 1)) +
           traffic_s(m, z->rows * z->feed_forward / z->tensor * 2 * e);
}

static double rest_backward_s(const transformer_sizes *z, const crl_machine *m) {
    const double e = z->element_bytes, x = z->activity / z->norm;
    return 2 * traffic_s(m, x * 4 * e) + 2 * traffic_s(m, x * (2 * e + 1)) +
           traffic_s(m, z->rows * z->feed_forward / z->tensor * 3 * e);
}

/* One sum of x over the tensor group. */
static double group_s(const transformer_sizes *z, const crl_machine *m) {
    const int tensor = (int)z->tensor;
    const int nodes = (tensor + m->devices_per_node - 1) / m->devices_per_node;
    return crl_group_sum_s(m, (crl_sum_group){tensor, nodes}, z->activity * z->element_bytes);
}

/* Adding the gradients of `parameters` to what earlier micro-batches left: it is read, written. */
static double accumulate_s(const transformer_sizes *z, const crl_machine *m, double parameters) {
    return traffic_s(m, 2 * z->gradient_bytes * parameters / z->tensor);
}

crl_transformer_times crl_transformer_layer_times(const crl_transformer *model,
                                                  const crl_machine *machine) {
    const transformer_sizes z = crl_transformer_sizes(model);
    const double core = core_forward_s(&z, machine, model->fused_attention);
    const double sums = 2 * group_s(&z, machine);
    /* Split sequences are gathered once more in backward: half of a sum each. */
    const double gather = model->sequence_parallel ? sums / 2 : 0;
    crl_transformer_times times = {0};
    times.forward_s = weights_s(&z, machine) + core + rest_forward_s(&z, machine) +
                      (1 - machine->forward_overlap) * sums;
    times.input_s = weights_s(&z, machine) + core_backward_s(&z, machine, model->fused_attention) +
                    rest_backward_s(&z, machine) +
                    (1 - machine->backward_overlap) * (sums + gather);
    times.weight_s =
        weights_s(&z, machine) + accumulate_s(&z, machine, crl_transformer_layer_parameters(model));
    times.recompute_s[CRL_RECOMPUTE_SELECTIVE] = model->fused_attention ? 0 : core;
    times.recompute_s[CRL_RECOMPUTE_FULL] = times.forward_s;
    return times;
}

crl_transformer_times crl_transformer_head_times(const crl_transformer *model,
                                                 const crl_machine *machine) {
    const transformer_sizes z = crl_transformer_sizes(model);
    const double logits = z.rows * z.vocabulary / z.tensor;
    const double product = product_s(machine, 2 * logits * z.hidden);
    crl_transformer_times times = {0};
    /* Logits are written, then read and written in float: converted, maximum, exponentials, sum. */
    times.forward_s = product + traffic_s(machine, z.activity / z.norm * 2 * z.element_bytes) +
                      traffic_s(machine, logits * (z.element_bytes + 16));
    times.input_s = product + traffic_s(machine, logits * (2 * z.element_bytes + 8));
    times.weight_s = product + accumulate_s(&z, machine, z.vocabulary * z.hidden);
    return times;
}
