/* SPDX-License-Identifier: Apache-2.0 */
/* One call of the optimizer per parameter; a copy is made right before, while it is in the cache.
 */
#include "engine/run/update.h"

crl_status crl_update_run(const crl_rank *r, const crl_update *update) {
    const crl_graph *graph = r->layout->graph;
    crl_optimizer_call call = {.options = r->layout->settings->optimizer_options,
                               .kernels = crl_backend_kernels(r->backend, r->params->compute),
                               .stream = r->stream,
                               .step = update->step,
                               .learning_rate = update->learning_rate,
                               .gradient_scale = update->gradient_scale};
    for (int p = 0; p < graph->params; p++) {
        call.w = crl_params_weight(r->params, p);
        if (!call.w) {
            continue;
        }
        if (update->keep) {
            CRL_TRY(crl_params_keep(r->params, p));
        }
        call.copy = crl_params_rounded(r->params, p);
        call.decay = graph->param[p].spec.decay;
        call.dw = crl_grad_sync_gradient(r->sync, p);
        call.n = graph->param[p].elements;
        for (int k = 0; k < r->params->states; k++) {
            call.state[k] = crl_params_state(r->params, k, p);
        }
        CRL_TRY(r->layout->optimizer->update(&call));
    }
    return CRL_STATUS_OK;
}
