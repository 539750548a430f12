// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

#include <memory>

#include "engine/kernels/cuda/matmul_internal.h"
#ifdef CUDA_ON_CPU
#include "tests/cuda_on_cpu/cublaslt.h"
#endif

namespace {

using namespace cuda_test;
using Doubles = std::vector<double>;

const crl_matmul_ops &ops_of(const Type &type) {
    return *type.cuda->matmul;
}

const crl_matmul_ops &kF32 = *crl_kernels_cuda.matmul, &kBf16 = *crl_kernels_cuda_bf16.matmul;

double f(crl_activation kind, double x) {
    const double c = std::sqrt(2 / M_PI);
    return kind == CRL_ACTIVATION_RELU ? (x > 0 ? x : 0)
           : kind == CRL_ACTIVATION_GELU_ERF
               ? x / 2 * std::erfc(-x / std::sqrt(2))
               : x / 2 * (1 + std::tanh(c * (x + 0.044715 * x * x * x)));
}

double slope(crl_activation kind, double x) {
    const double h = 1e-5;
    return kind == CRL_ACTIVATION_RELU ? (x > 0) : (f(kind, x + h) - f(kind, x - h)) / (2 * h);
}

Floats as_floats(const Doubles &x) {
    return Floats(x.begin(), x.end());
}

struct Case {
    crl_matmul_config config;
    const Type *type;
    Floats a, b, bias, before, aux, sums; // as the type has them
};

struct Result {
    Floats y, aux, sums;
};

Floats draw(Random &random, const Type &type, int64_t n) {
    return widened(type, narrowed(type, random_floats(random, n)));
}

Case make_case(Random &random, const Type &type, const crl_matmul_config &config) {
    const Type &y = config.y_is_f32 ? kTypes[0] : type;
    const int64_t m = config.m, n = config.n, k = config.k;
    return {config,
            &type,
            draw(random, type, m * k),
            draw(random, type, k * n),
            draw(random, type, n),
            draw(random, y, m * n),
            draw(random, type, m * n),
            random_floats(random, m)};
}

// What it should be, in double.
struct Expected {
    Doubles y, aux, sums;
};

Expected reference(const Case &c, bool accumulate) {
    const crl_matmul_config &g = c.config;
    Expected e = {Doubles((size_t)(g.m * g.n)), {}, Doubles((size_t)g.m)};
    e.aux = e.y;
    for (int64_t i = 0; i < g.m; i++) {
        const auto a = [&](int64_t l) {
            return (double)c.a[(size_t)(g.a_transposed ? l * g.m + i : i * g.k + l)];
        };
        double total = accumulate ? c.sums[(size_t)i] : 0;
        for (int64_t l = 0; l < g.k; l++)
            total += a(l);
        e.sums[(size_t)i] = total;
        for (int64_t j = 0; j < g.n; j++) {
            const size_t at = (size_t)(i * g.n + j);
            double sum = g.bias ? c.bias[(size_t)j] : 0;
            for (int64_t l = 0; l < g.k; l++)
                sum += a(l) * (double)c.b[(size_t)(g.b_transposed ? j * g.k + l : l * g.n + j)];
            e.aux[at] = sum;
            e.y[at] = g.epilogue == CRL_EPILOGUE_ACTIVATION ? f(g.activation, sum)
                      : g.epilogue == CRL_EPILOGUE_SLOPE    ? sum * slope(g.activation, c.aux[at])
                                                            : sum + (accumulate ? c.before[at] : 0);
        }
    }
    return e;
}

class CudaMatmul : public Cuda {
  protected:
    Result run(const Case &c, bool accumulate) {
        const crl_matmul_ops &ops = ops_of(*c.type);
        const crl_matmul_config &g = c.config;
        crl_matmul *matmul = nullptr;
        EXPECT_OK(ops.create(&matmul, &g, stream));
        if (matmul == nullptr)
            return {};
        const size_t bytes = ops.scratch_bytes(matmul);
        if (bytes > scratch_bytes_) {
            scratch_ = std::make_unique<OnDevice<uint8_t>>((int64_t)bytes, 64); // no more aligned
            scratch_bytes_ = bytes;
        }
        const Type &y_type = g.y_is_f32 ? kTypes[0] : *c.type;
        const Floats nothing((size_t)(g.m * g.n), NAN), nothing_either((size_t)g.m, NAN);
        OnDeviceAs a(*c.type, c.a), b(*c.type, c.b), bias(*c.type, c.bias);
        OnDeviceAs y(y_type, accumulate ? c.before : nothing);
        OnDeviceAs aux(*c.type, g.epilogue == CRL_EPILOGUE_SLOPE ? c.aux : nothing);
        OnDevice<float> sums(accumulate ? c.sums : nothing_either);
        crl_matmul_call call = {};
        call.a = a.data();
        call.b = b.data();
        call.bias = g.bias ? bias.data() : nullptr;
        call.y = y.data();
        call.aux = g.epilogue == CRL_EPILOGUE_NONE ? nullptr : aux.data();
        call.sums = g.row_sums ? sums.data() : nullptr;
        call.accumulate = accumulate;
        call.scratch = scratch_->data();
        EXPECT_OK(ops.run(matmul, stream, &call));
        wait();
        expect_no_problems();
        ops.destroy(matmul);
        return {y.get(), aux.get(), sums.get()};
    }

    // Not the slow way, unless the bias has another type than y.
    void expect_library(const Case &c) {
#ifdef CUDA_ON_CPU
        const bool own = c.config.bias && c.config.y_is_f32 && c.type->bytes != 4;
        EXPECT_EQ(cuda_on_cpu::cublaslt_take_products().empty(), own || own_);
#else
        (void)c;
#endif
    }

    void expect_right(const Case &c, bool accumulate) {
        const crl_matmul_config &g = c.config;
        SCOPED_TRACE(testing::Message()
                     << c.type->name << " " << g.m << "x" << g.n << "x" << g.k << " a^T "
                     << g.a_transposed << " b^T " << g.b_transposed << " bias " << g.bias << " f32 "
                     << g.y_is_f32 << " accumulate " << accumulate << " epilogue " << g.epilogue
                     << " activation " << g.activation << " sums " << g.row_sums);
        const Expected e = reference(c, accumulate);
        const Result r = run(c, accumulate);
        expect_library(c);
        const Type &y_type = g.y_is_f32 ? kTypes[0] : *c.type;
        const double bound = 1e-6 + 2e-7 * std::sqrt((double)g.k);
        // Where the product is rounded before it goes on, there are two roundings.
        const bool twice = g.epilogue != CRL_EPILOGUE_NONE;
        EXPECT_LT(error_as(y_type, r.y, as_floats(e.y)), bound + (twice ? c.type->unit / 2 : 0));
        if (g.epilogue == CRL_EPILOGUE_ACTIVATION) {
            EXPECT_LT(error_as(*c.type, r.aux, as_floats(e.aux)), bound);
        }
        if (g.row_sums) {
            EXPECT_LT(error(r.sums, as_floats(e.sums), std::sqrt((double)g.k)), bound);
        }
        expect_no_problems();
    }

    void expect_right_twice(const Case &c) {
        expect_right(c, false);
        expect_right(c, true);
    }

    bool own_ = false; // the library refuses everything

  private:
    std::unique_ptr<OnDevice<uint8_t>> scratch_;
    size_t scratch_bytes_ = 0;
};

const int64_t kSizes[][3] = {{1, 1, 1},   {7, 33, 5},  {24, 64, 96}, {1, 40, 70},
                             {40, 1, 70}, {40, 70, 1}, {65, 130, 7}, {64, 8, 200}};

TEST_F(CudaMatmul, MatchesDouble) {
    Random random(1);
    for (const Type &type : kTypes) {
        for (const auto &size : kSizes) {
            for (int bits = 0; bits < 16; bits++) {
                crl_matmul_config config = {size[0], size[1], size[2]};
                config.a_transposed = bits & 1;
                config.b_transposed = bits & 2;
                config.bias = bits & 4;
                config.y_is_f32 = bits & 8;
                config.may_accumulate = true;
                expect_right_twice(make_case(random, type, config));
            }
        }
    }
}

TEST_F(CudaMatmul, ActivationsAndSlopesMatchDouble) {
    Random random(2);
    for (const Type &type : kTypes) {
        for (const auto &size : kSizes) {
            for (int kind = 0; kind < CRL_ACTIVATION_COUNT; kind++) {
                for (int bits = 0; bits < 4; bits++) {
                    crl_matmul_config config = {size[0], size[1], size[2]};
                    config.b_transposed = true;
                    config.bias = bits & 1;
                    config.epilogue = bits & 2 ? CRL_EPILOGUE_SLOPE : CRL_EPILOGUE_ACTIVATION;
                    config.activation = (crl_activation)kind;
                    expect_right(make_case(random, type, config), false);
                }
            }
        }
    }
}

TEST_F(CudaMatmul, RowSumsMatchDouble) {
    Random random(3);
    for (const Type &type : kTypes) {
        for (const auto &size : kSizes) {
            for (int bits = 0; bits < 8; bits++) {
                crl_matmul_config config = {size[0], size[1], size[2]};
                config.a_transposed = bits & 1;
                config.y_is_f32 = bits & 2;
                config.bias = bits & 4;
                config.may_accumulate = true;
                config.row_sums = true;
                expect_right_twice(make_case(random, type, config));
            }
        }
    }
}

// What is added to zero has the bits of what is written: `accumulate` chooses nothing.
TEST_F(CudaMatmul, AccumulatingIsTheSameSum) {
    Random random(4);
    for (const Type &type : kTypes) {
        crl_matmul_config config = {24, 40, 96};
        config.a_transposed = true;
        config.may_accumulate = config.y_is_f32 = config.row_sums = true;
        Case c = make_case(random, type, config);
        c.before.assign(c.before.size(), 0);
        c.sums.assign(c.sums.size(), 0);
        const Result written = run(c, false), added = run(c, true);
        EXPECT_TRUE(same_bits(written.y, added.y)) << type.name;
        EXPECT_TRUE(same_bits(written.sums, added.sums)) << type.name;
    }
}

TEST_F(CudaMatmul, SameBitsInAnyOrder) {
    Random random(5);
    for (const Type &type : kTypes) {
        crl_matmul_config config = {40, 48, 70};
        config.a_transposed = config.row_sums = true;
        const Case c = make_case(random, type, config);
        (void)same_in_any_order([&] {
            const Result r = run(c, false);
            return joined(r.y, r.sums);
        });
    }
}

TEST_F(CudaMatmul, ScratchIsKnownWithoutADevice) {
    crl_matmul_config config = {24, 40, 96};
    config.a_transposed = config.row_sums = true;
    for (const Type &type : kTypes) {
        const crl_matmul_ops &ops = ops_of(type);
        crl_matmul *planned = nullptr, *made = nullptr;
        EXPECT_OK(ops.create(&planned, &config, nullptr));
        EXPECT_OK(ops.create(&made, &config, stream));
        EXPECT_EQ(ops.scratch_bytes(planned), ops.scratch_bytes(made));
        EXPECT_GE(ops.scratch_bytes(made), (size_t)CRL_CUDA_LT_WORKSPACE_BYTES);
        ops.destroy(planned);
        ops.destroy(made);
    }
}

TEST_F(CudaMatmul, RefusesWhatItCannotDo) {
    crl_matmul *matmul = nullptr;
    crl_matmul_config config = {4, 0, 8};
    EXPECT_EQ(kF32.create(&matmul, &config, stream), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "matmul: size is 4 x 0 x 8, expected 1 to 2147483647 each");
    config.n = 8;
    config.y_is_f32 = true;
    config.epilogue = CRL_EPILOGUE_ACTIVATION;
    EXPECT_EQ(kBf16.create(&matmul, &config, stream), CRL_STATUS_UNSUPPORTED);
    EXPECT_EQ(matmul, nullptr);
}

TEST_F(CudaMatmul, RefusesArraysThatAreNotAligned) {
    crl_matmul_config config = {4, 8, 8};
    crl_matmul *matmul = nullptr;
    ASSERT_EQ(kF32.create(&matmul, &config, stream), CRL_STATUS_OK);
    OnDevice<float> a(32), b(64, 1), y(32);
    OnDevice<uint8_t> scratch((int64_t)kF32.scratch_bytes(matmul));
    crl_matmul_call call = {};
    call.a = a.data();
    call.b = b.data();
    call.y = y.data();
    call.scratch = scratch.data();
    EXPECT_EQ(kF32.run(matmul, stream, &call), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "matmul: b is at an address that is no multiple of 16");
    kF32.destroy(matmul);
}

#ifdef CUDA_ON_CPU

// Everything again without the library: it has an algorithm for nothing.
class CudaMatmulOwn : public CudaMatmul {
  protected:
    void SetUp() override {
        CudaMatmul::SetUp();
        own_ = true;
        cuda_on_cpu::cublaslt_refuse(INT32_MAX);
        (void)cuda_on_cpu::cublaslt_take_products();
    }
    void TearDown() override {
        EXPECT_EQ(cuda_on_cpu::cublaslt_take_products(), "");
        cuda_on_cpu::cublaslt_refuse(0);
        CudaMatmul::TearDown();
    }
};

TEST_F(CudaMatmulOwn, ProductsMatchDouble) {
    Random random(6);
    const int64_t sizes[][3] = {{1, 1, 1}, {7, 33, 5}, {1, 40, 70}, {40, 1, 33}, {33, 34, 40}};
    for (const Type &type : kTypes) {
        for (const auto &size : sizes) {
            for (int bits = 0; bits < 16; bits++) {
                crl_matmul_config config = {size[0], size[1], size[2]};
                config.a_transposed = bits & 1;
                config.b_transposed = bits & 2;
                config.bias = bits & 4;
                config.y_is_f32 = bits & 8;
                config.may_accumulate = config.row_sums = true;
                expect_right(make_case(random, type, config), size[0] % 2);
            }
        }
    }
}

TEST_F(CudaMatmulOwn, EpiloguesMatchDouble) {
    Random random(7);
    for (const Type &type : kTypes) {
        for (int kind = 0; kind < CRL_ACTIVATION_COUNT; kind++) {
            for (crl_epilogue epilogue : {CRL_EPILOGUE_ACTIVATION, CRL_EPILOGUE_SLOPE}) {
                crl_matmul_config config = {24, 40, 33};
                config.bias = true;
                config.epilogue = epilogue;
                config.activation = (crl_activation)kind;
                expect_right(make_case(random, type, config), false);
            }
        }
    }
}

TEST_F(CudaMatmulOwn, SameBitsInAnyOrder) {
    Random random(8);
    for (const Type &type : kTypes) {
        crl_matmul_config config = {40, 48, 70};
        config.row_sums = true;
        const Case c = make_case(random, type, config);
        (void)same_in_any_order([&] {
            const Result r = run(c, false);
            return joined(r.y, r.sums);
        });
    }
}

// One pass where the library has it, and only there.
TEST_F(CudaMatmul, TheLibraryDoesWhatItCan) {
    Random random(9);
    const auto products = [&](const Type &type, const crl_matmul_config &config) {
        (void)cuda_on_cpu::cublaslt_take_products();
        (void)run(make_case(random, type, config), false);
        return cuda_on_cpu::cublaslt_take_products();
    };
    for (const Type &type : kTypes) {
        crl_matmul_config config = {24, 40, 16};
        EXPECT_EQ(products(type, config), "product");
        config.bias = true;
        EXPECT_EQ(products(type, config), "bias");
        config.epilogue = CRL_EPILOGUE_ACTIVATION;
        config.activation = CRL_ACTIVATION_GELU_TANH;
        EXPECT_EQ(products(type, config), "gelu-bias");
        config.bias = false;
        EXPECT_EQ(products(type, config), "gelu");
        config.epilogue = CRL_EPILOGUE_SLOPE;
        EXPECT_EQ(products(type, config), "dgelu");
        config.n = 41; // no multiple of 8
        EXPECT_EQ(products(type, config), "product");
        config.n = 40;
        config.activation = CRL_ACTIVATION_RELU;
        EXPECT_EQ(products(type, config), "product");
        config.epilogue = CRL_EPILOGUE_NONE;
        config.y_is_f32 = config.row_sums = true;
        EXPECT_EQ(products(type, config), "sums");
        cuda_on_cpu::cublaslt_refuse(1); // the sums, but not the product
        EXPECT_EQ(products(type, config), "product");
    }
}

TEST_F(CudaMatmul, Tf32IsTheStreamsChoice) {
    Random random(10);
    const crl_matmul_config config = {8, 8, 8};
    for (bool allow : {true, false}) {
        crl_device_cuda.allow_tf32(stream, allow);
        for (const Type &type : kTypes) {
            (void)cuda_on_cpu::cublaslt_take_products();
            (void)run(make_case(random, type, config), false);
            EXPECT_EQ(cuda_on_cpu::cublaslt_take_products(),
                      allow && type.bytes == 4 ? "product-tf32" : "product");
        }
    }
}

TEST_F(CudaMatmul, NothingIsLeftBehind) {
    Random random(11);
    const int before = cuda_on_cpu::cublaslt_live();
    crl_stream *other = nullptr;
    ASSERT_EQ(crl_device_cuda.stream_create(&other), CRL_STATUS_OK);
    crl_matmul_config config = {8, 8, 8};
    crl_matmul *one = nullptr, *two = nullptr;
    EXPECT_OK(kF32.create(&one, &config, other));
    const int with_one = cuda_on_cpu::cublaslt_live();
    EXPECT_OK(kBf16.create(&two, &config, other));
    EXPECT_EQ(with_one - before, 5) << "a handle, an operation, three layouts";
    EXPECT_EQ(cuda_on_cpu::cublaslt_live() - with_one, 4) << "the handle is the stream's";
    kF32.destroy(one);
    crl_device_cuda.stream_destroy(other);
    kBf16.destroy(two); // after the stream: its descriptors are its own
    EXPECT_EQ(cuda_on_cpu::cublaslt_live(), before);
}

#endif

} // namespace
