// SPDX-License-Identifier: Apache-2.0
// Asks the real cuDNN, where it is installed, whether it has plans for the graphs that
// engine/kernels/cuda builds, for GPUs that are not there: their properties come from *.json (facts
// from NVIDIA's architecture whitepapers and tuning guides). The very functions that run on a GPU
// build the graphs; cuDNN compiles its kernels for them, with a driver that only says yes
// (driver_stand_in.c). Skipped without the library.
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/kernels/cuda/attention_graph.h"

namespace {

// The library's own parts look for each other, and for the compiler, in these folders.
void *open_cudnn() {
    if (!dlopen(CRL_DRIVER_STAND_IN, RTLD_NOW | RTLD_GLOBAL))
        return nullptr;
    for (const std::string &file :
         {std::string("libcudnn.so.9"), std::string(CRL_CUDA_LIBRARY_FOLDER "/libcudnn.so.9")})
        if (void *handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL))
            return handle;
    return nullptr;
}

std::string contents(const std::string &file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
}

class CudnnSupport : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        void *handle = open_cudnn();
        if (!handle)
            GTEST_SKIP() << "no cuDNN: " << dlerror();
        crl_cuda_symbol symbols[CRL_CUDNN_SYMBOLS];
        crl_cudnn_symbols(&cudnn_, symbols);
        for (const crl_cuda_symbol &symbol : symbols) {
            void *function = dlsym(handle, symbol.name);
            ASSERT_NE(function, nullptr) << symbol.name;
            memcpy(symbol.function, &function, sizeof function);
        }
        const std::string json = contents(CRL_SOURCE_DIR "/tests/cudnn_support/" + GetParam());
        ASSERT_EQ(crl_cudnn_target_from_json(&target_, &cudnn_, json.c_str()), CRL_STATUS_OK)
            << crl_error_message();
    }
    void TearDown() override {
        if (target_.cudnn)
            crl_cudnn_target_fini(&target_);
    }

    crl_status plan(const crl_attention_shape &shape, bool backward, size_t *workspace_bytes) {
        crl_cudnn_plan *plan = nullptr;
        const crl_status status = backward ? crl_attention_graph_backward(&plan, &shape, &target_)
                                           : crl_attention_graph_forward(&plan, &shape, &target_);
        if (status == CRL_STATUS_OK)
            *workspace_bytes = crl_cudnn_plan_workspace_bytes(plan);
        crl_cudnn_plan_destroy(plan);
        return status;
    }

    // Both plans, printed.
    void expect_plans(const crl_attention_shape &shape) {
        for (bool backward : {false, true}) {
            size_t bytes = 0;
            const crl_status status = plan(shape, backward, &bytes);
            EXPECT_EQ(status, CRL_STATUS_OK)
                << crl_dtype_name(shape.dtype) << " T " << shape.t << " D " << shape.d << " causal "
                << shape.causal << (backward ? " backward: " : " forward: ") << crl_error_message();
            std::printf("%s %s T %lld D %lld%s%s: workspace %zu of %zu bytes\n", GetParam().c_str(),
                        crl_dtype_name(shape.dtype), (long long)shape.t, (long long)shape.d,
                        shape.causal ? " causal" : "", backward ? " backward" : " forward", bytes,
                        crl_attention_graph_workspace_bytes(&shape, backward));
        }
    }

    crl_cudnn cudnn_ = {};
    crl_cudnn_target target_ = {};
};

TEST_P(CudnnSupport, HasPlansForAttention) {
    for (crl_dtype dtype : {CRL_DTYPE_BF16, CRL_DTYPE_F16})
        for (int64_t d : {64, 80, 128})
            for (bool causal : {false, true})
                expect_plans({2, 1024, 3, d, 0.125f, causal, dtype});
}

TEST_P(CudnnSupport, HasPlansForOddLengths) {
    for (int64_t t : {2, 65, 200})
        expect_plans({2, t, 3, 8, 0.125f, true, CRL_DTYPE_BF16});
}

// What it does not take is said, and own kernels do it.
TEST_P(CudnnSupport, SaysWhatItDoesNotTake) {
    const crl_attention_shape odd = {2, 64, 3, 60, 0.125f, true, CRL_DTYPE_BF16};
    const crl_attention_shape wide = {2, 64, 3, 264, 0.125f, true, CRL_DTYPE_BF16};
    const crl_attention_shape fits = {2, 8192, 32, 64, 0.125f, true, CRL_DTYPE_BF16};
    const crl_attention_shape lengthy = {2, 32768, 32, 64, 0.125f, true, CRL_DTYPE_BF16};
    size_t bytes = 0;
    EXPECT_FALSE(crl_attention_graph_takes(&odd));
    EXPECT_FALSE(crl_attention_graph_takes(&wide));
    EXPECT_TRUE(crl_attention_graph_takes(&fits));
    EXPECT_FALSE(crl_attention_graph_takes(&lengthy));
    EXPECT_EQ(plan(odd, false, &bytes), CRL_STATUS_UNSUPPORTED);
    EXPECT_EQ(plan(wide, true, &bytes), CRL_STATUS_UNSUPPORTED);
}

INSTANTIATE_TEST_SUITE_P(Devices, CudnnSupport, ::testing::Values("sm_80.json", "sm_90.json"),
                         [](const auto &info) { return info.param.substr(0, 5); });

} // namespace
