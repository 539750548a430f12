// SPDX-License-Identifier: Apache-2.0
// Attention of CUDA against the CPU's in f32, whose inputs are those that the type can hold.
#include "tests/cuda_on_cpu/support.h"

#include <string>

#include "engine/kernels/cuda/attention_internal.h"
#include "engine/kernels/cuda/tables_internal.h"
#ifdef CUDA_ON_CPU
#include "tests/cuda_on_cpu/cudnn.h"
#endif

namespace {

using namespace cuda_test;
const crl_attention_ops &kCpu = *crl_kernels_cpu.attention;

const crl_attention_ops &ops_of(const Type &type) {
    return type.cuda->dtype == CRL_DTYPE_F32    ? crl_attention_cuda_f32
           : type.cuda->dtype == CRL_DTYPE_BF16 ? crl_attention_cuda_bf16
                                                : crl_attention_cuda_f16;
}

// How far a result may be off, relative to the largest: half a last place of its own, and as much
// again (twice, for gradients) where cuDNN rounds weights before it multiplies with them.
double close_to(const Type &type) {
    return 5e-6 + 1.5 * type.unit;
}

struct Case {
    crl_attention_config config;
    Floats qkv, dy, before;    // as the type has them
    Floats y, lse, dqkv, more; // dqkv, and added to what was before
    int64_t n() const { return (int64_t)dy.size(); }
    int64_t rows() const { return config.b * config.heads * config.t; }
};

Floats draw(Random &random, const Type &type, int64_t n, float limit) {
    return widened(type, narrowed(type, random_floats(random, n, -limit, limit)));
}

// With what the CPU makes of it, y rounded to the type before it is used again.
Case make_case(Random &random, const Type &type, const crl_attention_config &config) {
    const int64_t n = config.b * config.t * config.heads * config.head_channels;
    Case c = {config,
              draw(random, type, 3 * n, 2),
              draw(random, type, n, 1),
              draw(random, type, 3 * n, 1),
              {},
              {},
              {},
              {}};
    c.y.resize((size_t)n);
    c.lse.resize((size_t)c.rows());
    c.dqkv.resize((size_t)(3 * n));
    crl_attention *attention = nullptr;
    EXPECT_OK(kCpu.create(&attention, &config, nullptr));
    Floats forward(kCpu.forward_scratch_bytes(attention)), // more than enough, aligned below
        backward(kCpu.backward_scratch_bytes(attention));
    const auto aligned = [](Floats &x) { return (void *)(((uintptr_t)x.data() + 63) / 64 * 64); };
    EXPECT_OK(
        kCpu.forward(attention, nullptr, c.qkv.data(), c.y.data(), c.lse.data(), aligned(forward)));
    const Floats y = widened(type, narrowed(type, c.y));
    EXPECT_OK(kCpu.backward(attention, nullptr, c.qkv.data(), y.data(), c.lse.data(), c.dy.data(),
                            c.dqkv.data(), false, aligned(backward)));
    kCpu.destroy(attention);
    c.more = c.dqkv;
    for (size_t i = 0; i < c.more.size(); i++)
        c.more[i] += c.before[i];
    return c;
}

class CudaAttention : public Cuda {
  protected:
    // y, lse and dqkv one behind the other; arrays begin `shift` elements behind aligned addresses.
    Floats run(const Type &type, const Case &c, bool accumulate, int shift, std::string *path) {
        const crl_attention_ops &ops = ops_of(type);
        crl_attention *attention = nullptr;
        EXPECT_OK(ops.create(&attention, &c.config, stream));
        *path = crl_attention_cuda_path(attention);
        OnDevice<char> forward((int64_t)ops.forward_scratch_bytes(attention));
        OnDevice<char> backward((int64_t)ops.backward_scratch_bytes(attention));
        OnDeviceAs qkv(type, c.qkv, shift), dy(type, c.dy, shift), y(type, c.n(), shift);
        OnDeviceAs dqkv(type, accumulate ? c.before : Floats(c.before.size(), NAN), shift);
        OnDevice<float> lse(c.rows());
        EXPECT_OK(ops.forward(attention, stream, qkv.data(), y.data(), lse.data(), forward.data()));
        EXPECT_OK(ops.backward(attention, stream, qkv.data(), y.data(), lse.data(), dy.data(),
                               dqkv.data(), accumulate, backward.data()));
        ops.destroy(attention);
        wait();
        return joined(y.get(), lse.get(), dqkv.get());
    }

    // Is the result the CPU's? The last of `paths` that was taken is left there.
    void expect_the_cpus(const Type &type, const Case &c, bool accumulate, std::string *path) {
        const Floats got = same_in_any_order([&] { return run(type, c, accumulate, 0, path); });
        const auto part = [&](int64_t first, int64_t count) {
            return Floats(got.begin() + first, got.begin() + first + count);
        };
        const Floats &dqkv = accumulate ? c.more : c.dqkv;
        EXPECT_LT(error(part(0, c.n()), c.y), close_to(type));
        EXPECT_LT(error(part(c.n(), c.rows()), c.lse, 1), 5e-6);
        EXPECT_LT(error(part(c.n() + c.rows(), 3 * c.n()), dqkv), 2 * close_to(type));
    }

    void TearDown() override {
        refuse_cudnn(false);
        Cuda::TearDown();
#ifdef CUDA_ON_CPU
        EXPECT_EQ(cuda_on_cpu::cudnn_live(), 0);
#endif
    }

    static void refuse_cudnn(bool refuse) {
#ifdef CUDA_ON_CPU
        cuda_on_cpu::cudnn_refuse(refuse);
#else
        (void)refuse; /* on a GPU the library decides */
#endif
    }
};

// Sequences of less than a tile, of one, and of some and a rest.
const int64_t kLengths[] = {1, 5, 64, 133};

TEST_F(CudaAttention, OwnKernelsAreTheCpusForAllTypes) {
    Random random(1);
    refuse_cudnn(true);
    for (const Type &type : kTypes) {
        for (int64_t t : kLengths) {
            for (bool causal : {false, true}) {
                const Case c = make_case(random, type, {t > 64 ? 1 : 2, t, 1, 16, 0.3, causal});
                std::string path;
                SCOPED_TRACE(testing::Message() << type.name << " T " << t << " " << causal);
                expect_the_cpus(type, c, t == 5 || !causal, &path);
                EXPECT_TRUE(path == "own" || type.bytes == 2);
            }
        }
    }
}

TEST_F(CudaAttention, OwnKernelsTakeEveryHeadSize) {
    Random random(2);
    refuse_cudnn(true);
    for (int64_t d : {1, 33, 64, 80, 130}) {
        const Case c = make_case(random, kTypes[0], {1, 70, 2, d, 0, d != 80});
        std::string path;
        SCOPED_TRACE(testing::Message() << "D " << d);
        expect_the_cpus(kTypes[0], c, d == 64, &path);
        EXPECT_EQ(path, "own");
    }
}

TEST_F(CudaAttention, AlignmentDoesNotChangeBits) {
    Random random(3);
    refuse_cudnn(true);
    for (const Type &type : kTypes) {
        const Case c = make_case(random, type, {1, 67, 2, 36, 0, true});
        std::string path;
        EXPECT_TRUE(same_bits(run(type, c, true, 0, &path), run(type, c, true, 1, &path)));
    }
}

TEST_F(CudaAttention, LaterTokensDoNotReachEarlierOutputs) {
    Random random(4);
    Case c = make_case(random, kTypes[0], {1, 130, 1, 8, 0, true});
    std::string path;
    const Floats before = run(kTypes[0], c, false, 0, &path);
    std::fill(c.qkv.begin() + 100 * 24, c.qkv.end(), 1e6f);
    const Floats after = run(kTypes[0], c, false, 0, &path);
    EXPECT_TRUE(same_bits(Floats(before.begin(), before.begin() + 800),
                          Floats(after.begin(), after.begin() + 800)));
}

TEST_F(CudaAttention, CudnnsPlansAreTheCpus) {
    Random random(5);
    for (const Type &type : kTypes) {
        if (type.bytes != 2)
            continue;
        for (int64_t d : {8, 64, 128}) {
            for (bool causal : {false, true}) {
                const Case c = make_case(random, type, {2, d == 8 ? 133 : 40, 2, d, 0, causal});
                std::string path;
                SCOPED_TRACE(testing::Message() << type.name << " D " << d << " " << causal);
                expect_the_cpus(type, c, false, &path);
                if (d == 64) // by own kernels, with what cuDNN left
                    expect_the_cpus(type, c, true, &path);
#ifdef CUDA_ON_CPU
                EXPECT_EQ(path, "cuDNN");
#endif
            }
        }
    }
}

TEST_F(CudaAttention, ScratchIsKnownWithoutADevice) {
    for (const Type &type : kTypes) {
        const crl_attention_config config = {2, 40, 2, 64, 0, true};
        const crl_attention_ops &ops = ops_of(type);
        crl_attention *planned = nullptr, *real = nullptr;
        EXPECT_OK(ops.create(&planned, &config, nullptr));
        EXPECT_OK(ops.create(&real, &config, stream));
        EXPECT_EQ(ops.forward_scratch_bytes(planned), ops.forward_scratch_bytes(real));
        EXPECT_EQ(ops.backward_scratch_bytes(planned), ops.backward_scratch_bytes(real));
        EXPECT_EQ(std::string(crl_attention_cuda_path(planned)), "own");
        ops.destroy(planned);
        ops.destroy(real);
    }
}

#ifdef CUDA_ON_CPU
TEST_F(CudaAttention, CudnnIsLeftAloneWhereItHasNoPlan) {
    const struct {
        const Type &type;
        crl_attention_config config;
        bool refused;
        const char *path;
    } cases[] = {{kTypes[0], {1, 8, 1, 64, 0, true}, false, "own"},
                 {kTypes[1], {1, 8, 1, 64, 0, true}, false, "cuDNN"},
                 {kTypes[1], {1, 9, 1, 64, 0, true}, true, "own"},
                 {kTypes[1], {1, 1, 1, 64, 0, true}, false, "own"},
                 {kTypes[1], {1, 8, 1, 60, 0, true}, false, "own"},
                 {kTypes[2], {1, 8, 1, 264, 0, true}, false, "own"}};
    for (const auto &c : cases) {
        crl_attention *attention = nullptr;
        refuse_cudnn(c.refused);
        EXPECT_OK(ops_of(c.type).create(&attention, &c.config, stream));
        EXPECT_EQ(std::string(crl_attention_cuda_path(attention)), c.path);
        ops_of(c.type).destroy(attention);
    }
}

TEST_F(CudaAttention, LayersOfOneSizeShareTheirPlans) {
    const crl_attention_config config = {1, 8, 1, 64, 0, true}, other = {1, 9, 1, 64, 0, true};
    crl_attention *first = nullptr, *again = nullptr, *third = nullptr;
    EXPECT_OK(crl_attention_cuda_bf16.create(&first, &config, stream));
    const int live = cuda_on_cpu::cudnn_live();
    EXPECT_OK(crl_attention_cuda_bf16.create(&again, &config, stream));
    EXPECT_EQ(cuda_on_cpu::cudnn_live(), live);
    EXPECT_OK(crl_attention_cuda_bf16.create(&third, &other, stream));
    EXPECT_GT(cuda_on_cpu::cudnn_live(), live);
    for (crl_attention *attention : {first, again, third})
        crl_attention_cuda_bf16.destroy(attention);
}

// 2 · 8 heads · 4096^2 bytes are the most that one run takes: samples go one by one.
TEST_F(CudaAttention, LargeBatchesGoInParts) {
    const crl_attention_config config = {3, 4096, 8, 8, 0, true};
    crl_attention *attention = nullptr;
    EXPECT_OK(crl_attention_cuda_bf16.create(&attention, &config, nullptr));
    EXPECT_LT(crl_attention_cuda_bf16.backward_scratch_bytes(attention), (size_t)260 << 20);
    crl_attention_cuda_bf16.destroy(attention);
}
#endif

TEST_F(CudaAttention, RejectsImpossibleSizes) {
    crl_attention *attention = nullptr;
    const crl_attention_config empty = {1, 0, 1, 1, 0, true};
    EXPECT_EQ(crl_attention_cuda_f32.create(&attention, &empty, stream), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "attention: batch 1, sequence 0, heads 1, head channels 1, "
                                      "expected 1 or more each");
    const crl_attention_config huge = {1 << 20, 1 << 20, 1, 1, 0, true};
    EXPECT_EQ(crl_attention_cuda_f32.create(&attention, &huge, stream), CRL_STATUS_UNSUPPORTED);
    EXPECT_EQ(attention, nullptr);
}

} // namespace
