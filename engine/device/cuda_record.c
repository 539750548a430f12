/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recorded work as CUDA graphs. The capture is relaxed: while one rank's stream records, the thread
 * may still ask after events of earlier work, and other ranks of the process go on.
 */
#include "engine/base/alloc.h"
#include "engine/device/cuda_internal.h"

struct crl_recording {
    cudaGraphExec_t work;
};

crl_status crl_cuda_record_begin(crl_stream *stream) {
    CRL_CUDA_TRY("recording", cudaStreamBeginCapture(stream->handle, cudaStreamCaptureModeRelaxed));
    return CRL_STATUS_OK;
}

crl_status crl_cuda_record_end(crl_stream *stream, crl_recording **out) {
    crl_status status = CRL_STATUS_OK;
    cudaGraph_t graph = NULL;
    crl_recording *recording = NULL;
    CRL_CUDA_TRY("recording", cudaStreamEndCapture(stream->handle, &graph));
    CRL_TRY_OUT(crl_alloc(&recording, 1, sizeof *recording));
    const cudaError_t error = cudaGraphInstantiate(&recording->work, graph, 0);
    if (error != cudaSuccess) {
        status = crl_cuda_failed("recording", error, __FILE__, __LINE__);
        recording->work = NULL;
        goto out;
    }
    *out = recording;
    recording = NULL;
out:
    cudaGraphDestroy(graph);
    crl_cuda_recording_destroy(recording);
    return status;
}

crl_status crl_cuda_replay(crl_stream *stream, crl_recording *recording) {
    CRL_CUDA_TRY("replay", cudaGraphLaunch(recording->work, stream->handle));
    return CRL_STATUS_OK;
}

void crl_cuda_recording_destroy(crl_recording *recording) {
    if (recording) {
        if (recording->work) {
            cudaGraphExecDestroy(recording->work);
        }
        crl_free(recording);
    }
}
