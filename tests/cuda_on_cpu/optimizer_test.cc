// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

namespace {

using namespace cuda_test;
const crl_optimizer_ops &kCpu = *crl_kernels_cpu.optimizer, &kCuda = *crl_kernels_cuda.optimizer;
const int64_t kSize = 1031;

// A parameter and its optimizer's state, one after the other.
struct State {
    Floats w, m, v;
    explicit State(Random &random)
        : w(random_floats(random, kSize)), m(random_floats(random, kSize, -0.1f, 0.1f)),
          v(random_floats(random, kSize, 0, 0.01f)) {}
};

class CudaOptimizer : public Cuda {};

TEST_F(CudaOptimizer, AdamwIsTheCpus) {
    Random random(1);
    for (int64_t step : {1, 2, 1000}) {
        const State before(random);
        const Floats dw = random_floats(random, kSize, -10, 10);
        const crl_adamw_config config = {3e-3, 0.9, 0.999, 1e-8, 0.1, step, 0.125};
        State after = before;
        EXPECT_OK(kCpu.adamw(nullptr, &config, after.w.data(), dw.data(), after.m.data(),
                             after.v.data(), nullptr, kSize));
        const auto update = [&](int64_t split) {
            OnDevice<float> w(before.w), m(before.m), v(before.v), g(dw);
            for (int64_t i = 0; i < kSize; i += split)
                EXPECT_OK(kCuda.adamw(stream, &config, w.data() + i, g.data() + i, m.data() + i,
                                      v.data() + i, nullptr, std::min(split, kSize - i)));
            wait();
            return joined(w.get(), m.get(), v.get());
        };
        const Floats got = same_in_any_order([&] { return update(kSize); });
        EXPECT_LT(error(got, joined(after.w, after.m, after.v)), 3e-7) << "step " << step;
        EXPECT_TRUE(same_bits(got, update(101))) << "any split of a range gives the same bits";
    }
}

TEST_F(CudaOptimizer, SgdIsTheCpus) {
    Random random(2);
    const crl_sgd_config configs[] = {{0.1, 0, 0, 0.01, false, 3, 0.5},
                                      {0.1, 0.9, 0.2, 0.01, false, 1, 0.5},
                                      {0.1, 0.9, 0.2, 0.01, false, 2, 0.5},
                                      {0.1, 0.9, 0, 0, true, 2, 0.5}};
    for (const crl_sgd_config &config : configs) {
        const State before(random);
        const bool has = config.momentum != 0;
        const Floats dw = random_floats(random, kSize, -1, 1);
        State after = before;
        EXPECT_OK(kCpu.sgd(nullptr, &config, after.w.data(), dw.data(),
                           has ? after.m.data() : nullptr, nullptr, kSize));
        const Floats got = same_in_any_order([&] {
            OnDevice<float> w(before.w), m(before.m), g(dw);
            EXPECT_OK(kCuda.sgd(stream, &config, w.data(), g.data(), has ? m.data() : nullptr,
                                nullptr, kSize));
            wait();
            return joined(w.get(), m.get(), {});
        });
        EXPECT_LT(error(got, joined(after.w, after.m, {})), 2e-7) << "momentum " << config.momentum;
    }
}

// Master weights do not feel that a copy is made, which is they, rounded.
TEST_F(CudaOptimizer, CopyIsTheNewWeightsRounded) {
    Random random(3);
    const crl_adamw_config adamw = {3e-3, 0.9, 0.999, 1e-8, 0.1, 2, 0.125};
    const crl_sgd_config sgd[] = {{0.1, 0, 0, 0.01, false, 3, 0.5},
                                  {0.1, 0.9, 0.2, 0.01, false, 2, 0.5}};
    const State before(random);
    const Floats dw = random_floats(random, kSize, -1, 1);
    for (const Type &type : kTypes) {
        const crl_optimizer_ops &ops = *type.cuda->optimizer;
        for (int which = 0; which < 3; which++) {
            const auto update = [&](bool copies) {
                OnDevice<float> w(before.w), m(before.m), v(before.v), g(dw);
                OnDeviceAs copy(type, kSize, which); // aligned and not
                void *const to = copies ? copy.data() : nullptr;
                if (which == 0)
                    EXPECT_OK(ops.adamw(stream, &adamw, w.data(), g.data(), m.data(), v.data(), to,
                                        kSize));
                else
                    EXPECT_OK(ops.sgd(stream, &sgd[which - 1], w.data(), g.data(),
                                      which == 1 ? nullptr : m.data(), to, kSize));
                wait();
                const Floats master = w.get();
                EXPECT_TRUE(!copies || same_bits(copy.get(), OnHost(type, master).get()))
                    << type.name;
                return joined(master, m.get(), v.get());
            };
            EXPECT_TRUE(same_bits(same_in_any_order([&] { return update(true); }), update(false)))
                << type.name << which;
        }
    }
}

} // namespace
