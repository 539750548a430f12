// SPDX-License-Identifier: Apache-2.0
// How fast the kernels of a backend are, one JSON line each: bytes that must move at least once (or
// floating-point operations) and the median time of a call. Many calls are queued and the stream is
// waited for once, so that what is timed is the device and not the host. Matrices hold random
// numbers: zeros let a chip run faster. Asserts nothing.
//   bench_kernels cpu|cuda f32|bf16|f16 [tiny]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/rng.h"
#include "engine/base/thread.h"
#include "tests/gpu/bench_device.h"

namespace gpu_bench {
namespace {

struct Sizes {
    int64_t rows, channels;                   // N, C of activations
    int64_t loss_rows, vocabulary;            // of logits
    int64_t parameters;                       // of the update
    int64_t square;                           // of the matrix rate
    int64_t samples, t, heads, head_channels; // of attention
};
constexpr Sizes kFull = {32768, 1600, 8192, 50257, 1 << 27, 8192, 16, 1024, 25, 64};
constexpr Sizes kTiny = {16, 32, 8, 50, 1000, 24, 2, 8, 2, 8};

using Run = std::function<crl_status()>;

class Bench {
  public:
    Bench(const Device &on, crl_dtype dtype, bool tiny)
        : on_(on), size(tiny ? kTiny : kFull), k(*crl_backend_kernels(on.backend(), dtype)),
          element((int64_t)crl_dtype_bytes(dtype)), tiny_(tiny) {}

    // Prints the line of `run`, which queues one call.
    void time(const char *name, double bytes, double flops, const Run &run) {
        const double once = batch(run, tiny_ ? 1 : 2);
        const int calls = tiny_ ? 1 : (int)std::clamp(0.02 / std::max(once, 1e-7), 2.0, 2000.0);
        std::vector<double> seconds;
        for (int i = 0; i < (tiny_ ? 1 : 7); i++)
            seconds.push_back(batch(run, calls));
        std::sort(seconds.begin(), seconds.end());
        std::printf("{\"kernel\":\"%s\",\"dtype\":\"%s\",\"bytes\":%.0f,\"flops\":%.0f,"
                    "\"us\":%.3f}\n",
                    name, crl_dtype_name(k.dtype), bytes, flops, seconds[seconds.size() / 2] * 1e6);
        std::fflush(stdout);
    }
    crl_stream *stream() const { return on_.stream(); }
    const Device &on() const { return on_; }

  private:
    // Seconds per call.
    double batch(const Run &run, int calls) {
        const int64_t begin = crl_clock_ns();
        for (int i = 0; i < calls; i++)
            must(run());
        must(crl_device_stream_wait(on_.device(), on_.stream()));
        return (double)(crl_clock_ns() - begin) * 1e-9 / calls;
    }

    const Device &on_;

  public:
    const Sizes size;
    const crl_kernels &k;
    const int64_t element; // bytes of one

  private:
    const bool tiny_;
};

void eltwise(Bench &b) {
    const int64_t n = b.size.rows * b.size.channels, w = b.element;
    const crl_eltwise_ops &op = *b.k.eltwise;
    Array x(b.on(), b.k, n), y(b.on(), b.k, n), z(b.on(), b.k, 2 * n), z2(b.on(), b.k, 2 * n);
    const crl_rng rng = {};
    const double pass = (double)(n * w);
    b.time("copy (device's)", 2 * pass, 0, [&] {
        return crl_device_copy(b.on().device(), b.stream(), y.data(), x.data(), (size_t)(n * w));
    });
    b.time("copy", 2 * pass, 0, [&] { return op.copy(b.stream(), x.data(), y.data(), n, false); });
    b.time("add", 3 * pass, 0, [&] { return op.add(b.stream(), x.data(), z.data(), y.data(), n); });
    b.time("gelu", 2 * pass, 0, [&] {
        return op.activation(b.stream(), CRL_ACTIVATION_GELU_TANH, x.data(), y.data(), n);
    });
    b.time("gelu backward", 3 * pass, 0, [&] {
        return op.activation_backward(b.stream(), CRL_ACTIVATION_GELU_TANH, x.data(), z.data(),
                                      y.data(), n, false);
    });
    b.time("dropout", 2 * pass, 0, [&] {
        return op.dropout(b.stream(), &rng, 0.1, x.data(), y.data(), b.size.samples,
                          n / b.size.samples, false);
    });
    b.time("swiglu", 3 * pass, 0,
           [&] { return op.swiglu(b.stream(), z.data(), y.data(), b.size.rows, b.size.channels); });
    b.time("swiglu backward", 5 * pass, 0, [&] {
        return op.swiglu_backward(b.stream(), z.data(), x.data(), z2.data(), b.size.rows,
                                  b.size.channels, false);
    });
}

void layernorm(Bench &b) {
    const int64_t n = b.size.rows, c = b.size.channels;
    const crl_layernorm_ops &op = *b.k.layernorm;
    const crl_kernels &f32 = *b.on().backend()->f32;
    Array x(b.on(), b.k, n * c), dy(b.on(), b.k, n * c), y(b.on(), b.k, n * c),
        sum(b.on(), b.k, n * c), w(b.on(), f32, c), bias(b.on(), f32, c), dw(b.on(), f32, c),
        db(b.on(), f32, c), mean(b.on(), f32, n), rstd(b.on(), f32, n);
    Memory scratch(b.on(), op.scratch_bytes(n, c));
    const double pass = (double)(n * c * b.element);
    b.time("layernorm", 2 * pass, 0, [&] {
        return op.forward(b.stream(), x.data(), w.floats(), bias.floats(), 1e-5, y.data(),
                          mean.floats(), rstd.floats(), n, c);
    });
    b.time("residual + layernorm", 4 * pass, 0, [&] {
        return op.add_forward(b.stream(), x.data(), dy.data(), sum.data(), w.floats(),
                              bias.floats(), 1e-5, y.data(), mean.floats(), rstd.floats(), n, c);
    });
    b.time("layernorm dx", 3 * pass, 0, [&] {
        return op.backward_input(b.stream(), x.data(), dy.data(), w.floats(), mean.floats(),
                                 rstd.floats(), y.data(), n, c, false);
    });
    b.time("layernorm dw", 2 * pass, 0, [&] {
        return op.backward_weight(b.stream(), x.data(), dy.data(), mean.floats(), rstd.floats(),
                                  dw.floats(), db.floats(), n, c, true, scratch.data());
    });
    b.time("rmsnorm", 2 * pass, 0, [&] {
        return op.rms_forward(b.stream(), x.data(), w.floats(), 1e-5, y.data(), rstd.floats(), n,
                              c);
    });
    b.time("rmsnorm dx", 3 * pass, 0, [&] {
        return op.rms_backward_input(b.stream(), x.data(), dy.data(), w.floats(), rstd.floats(),
                                     y.data(), n, c, false);
    });
}

void losses(Bench &b) {
    const int64_t n = b.size.loss_rows, v = b.size.vocabulary;
    const crl_cross_entropy_ops &op = *b.k.cross_entropy;
    const crl_cross_entropy_config config = {n, v, -1, nullptr};
    Array logits(b.on(), b.k, n * v), dlogits(b.on(), b.k, n * v),
        lse(b.on(), *b.on().backend()->f32, n);
    Indices targets(b.on(), n, v);
    Memory loss(b.on(), sizeof(crl_loss));
    const double pass = (double)(n * v * b.element);
    b.time("cross-entropy", pass, 0, [&] {
        return op.forward(b.stream(), &config, logits.data(), targets.data(), nullptr, n,
                          lse.floats(), (crl_loss *)loss.data());
    });
    b.time("cross-entropy backward", 2 * pass, 0, [&] {
        return op.backward(b.stream(), &config, logits.data(), targets.data(), nullptr, n,
                           lse.floats(), 1, dlogits.data(), false);
    });
}

void embedding(Bench &b) {
    const int64_t t = b.size.t, c = b.size.channels, v = b.size.vocabulary,
                  samples = b.size.rows / t;
    const crl_embedding_ops &op = *b.k.embedding;
    const crl_kernels &f32 = *b.on().backend()->f32;
    Array table(b.on(), b.k, v * c), position(b.on(), b.k, t * c), y(b.on(), b.k, samples * t * c),
        dtable(b.on(), f32, v * c), dposition(b.on(), f32, t * c);
    Indices tokens(b.on(), samples * t, v);
    const double rows = (double)(samples * t * c), touched = std::min(rows, (double)(v * c));
    b.time("embedding", 2 * rows * (double)b.element, 0, [&] {
        return op.forward(b.stream(), tokens.data(), table.data(), position.data(), y.data(),
                          samples, t, v, c);
    });
    b.time("embedding backward", rows * (double)b.element + 8 * touched, 0, [&] {
        return op.backward(b.stream(), tokens.data(), y.data(), dtable.floats(), dposition.floats(),
                           samples, t, v, c, t, true);
    });
}

void update(Bench &b) {
    const int64_t n = b.size.parameters;
    const crl_kernels &f32 = *b.on().backend()->f32;
    const bool narrow = b.k.dtype != CRL_DTYPE_F32;
    Array w(b.on(), f32, n), dw(b.on(), f32, n), m(b.on(), f32, n), v(b.on(), f32, n),
        copy(b.on(), b.k, narrow ? n : 1);
    Memory zero(b.on(), 8);
    const crl_adamw_config config = {1e-4, 0.9, 0.999, 1e-8, 0.1, 10, 1};
    // The random numbers of v may be negative: roots of them cost the same.
    b.time("adamw", (double)n * (narrow ? 30 : 28), 0, [&] {
        return b.k.optimizer->adamw(b.stream(), &config, w.floats(), dw.floats(), m.floats(),
                                    v.floats(), narrow ? copy.data() : nullptr, n);
    });
    b.time("sum of squares", 4.0 * (double)n, 0, [&] {
        return b.k.reduce->sum_squares(b.stream(), dw.floats(), n, (double *)zero.data());
    });
}

struct Product {
    const char *name;
    crl_matmul_config config;
};

void product(Bench &b, const Product &p) {
    const crl_matmul_config &c = p.config;
    crl_matmul *matmul = nullptr;
    must(b.k.matmul->create(&matmul, &c, b.stream()));
    const crl_kernels &out = c.y_is_f32 ? *b.on().backend()->f32 : b.k;
    const bool slope = c.epilogue != CRL_EPILOGUE_NONE;
    Array x(b.on(), b.k, c.m * c.k), w(b.on(), b.k, c.k * c.n), y(b.on(), out, c.m * c.n),
        bias(b.on(), b.k, c.n), aux(b.on(), b.k, slope ? c.m * c.n : 1);
    Memory scratch(b.on(), b.k.matmul->scratch_bytes(matmul));
    crl_matmul_call call = {};
    call.a = x.data();
    call.b = w.data();
    call.bias = c.bias ? bias.data() : nullptr;
    call.y = y.data();
    call.aux = slope ? aux.data() : nullptr;
    call.accumulate = c.may_accumulate;
    call.scratch = scratch.data();
    b.time(p.name, 0, 2.0 * (double)c.m * (double)c.n * (double)c.k,
           [&] { return b.k.matmul->run(matmul, b.stream(), &call); });
    must(crl_device_stream_wait(b.on().device(), b.stream()));
    b.k.matmul->destroy(matmul);
}

void products(Bench &b) {
    const int64_t s = b.size.square, n = b.size.rows / 2, c = b.size.channels;
    Product square = {"matmul square", {}}, qkv = {"matmul qkv", {}}, fc = {"matmul + gelu", {}},
            dw = {"matmul dw", {}}, head = {"matmul head", {}};
    square.config.m = square.config.n = square.config.k = s;
    qkv.config.m = n, qkv.config.n = 3 * c, qkv.config.k = c, qkv.config.bias = true;
    fc.config.m = n, fc.config.n = 4 * c, fc.config.k = c, fc.config.bias = true;
    fc.config.epilogue = CRL_EPILOGUE_ACTIVATION;
    fc.config.activation = CRL_ACTIVATION_GELU_TANH;
    dw.config.m = c, dw.config.n = 3 * c, dw.config.k = n, dw.config.a_transposed = true;
    dw.config.y_is_f32 = dw.config.may_accumulate = true;
    head.config.m = b.size.loss_rows, head.config.n = b.size.vocabulary, head.config.k = c;
    head.config.b_transposed = true;
    for (const Product *p : {&square, &qkv, &fc, &dw, &head})
        product(b, *p);
}

void attention(Bench &b) {
    const int64_t s = b.size.samples, t = b.size.t, c = b.size.heads * b.size.head_channels;
    const crl_attention_config config = {s, t, b.size.heads, b.size.head_channels, 0, true};
    const crl_attention_ops &op = *b.k.attention;
    crl_attention *attention = nullptr;
    must(op.create(&attention, &config, b.stream()));
    Array qkv(b.on(), b.k, s * t * 3 * c), y(b.on(), b.k, s * t * c), dy(b.on(), b.k, s * t * c),
        dqkv(b.on(), b.k, s * t * 3 * c), lse(b.on(), *b.on().backend()->f32, s * b.size.heads * t);
    Memory scratch(b.on(), std::max(op.forward_scratch_bytes(attention),
                                    op.backward_scratch_bytes(attention)));
    const double flops = 2.0 * (double)(s * t * t * c); // of two products, half of them masked
    b.time("attention", 0, flops, [&] {
        return op.forward(attention, b.stream(), qkv.data(), y.data(), lse.floats(),
                          scratch.data());
    });
    b.time("attention backward", 0, 2.5 * flops, [&] {
        return op.backward(attention, b.stream(), qkv.data(), y.data(), lse.floats(), dy.data(),
                           dqkv.data(), false, scratch.data());
    });
    must(crl_device_stream_wait(b.on().device(), b.stream()));
    op.destroy(attention);
}

} // namespace
} // namespace gpu_bench

int main(int argc, char **argv) {
    using namespace gpu_bench;
    const std::string type = argc > 2 ? argv[2] : "bf16";
    const bool tiny = argc > 3 && std::strcmp(argv[3], "tiny") == 0;
    const crl_dtype dtype = type == "f32"   ? CRL_DTYPE_F32
                            : type == "f16" ? CRL_DTYPE_F16
                                            : CRL_DTYPE_BF16;
    Device on(argc > 1 ? argv[1] : "cuda");
    Bench bench(on, dtype, tiny);
    eltwise(bench);
    layernorm(bench);
    losses(bench);
    embedding(bench);
    update(bench);
    if (bench.k.matmul != nullptr)
        products(bench);
    if (bench.k.attention != nullptr)
        attention(bench);
    return 0;
}
