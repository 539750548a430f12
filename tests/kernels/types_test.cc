// SPDX-License-Identifier: Apache-2.0
// The operations in 16 bits: what the f32 table makes of the same numbers (the tests beside this
// one hold that against double), rounded once; for every number of threads and at every alignment.
#include "tests/kernels/support.h"

namespace {

using namespace kernels_test;

using Pointers = std::vector<void *>;
// Runs an operation of a table on inputs and outputs.
using Operation = std::function<void(const crl_kernels &, const Pointers &)>;

// The arrays after an operation: the first `outputs` are its outputs. They hold what `x` says
// before, or, where nothing is added to them, NaN.
std::vector<Floats> run(const crl_kernels &k, const std::vector<Floats> &x, int outputs, bool adds,
                        int64_t offset, const Operation &operation) {
    std::vector<Typed> arrays;
    for (size_t i = 0; i < x.size(); i++) {
        if ((int)i < outputs && !adds)
            arrays.emplace_back(k, x[i].size(), offset);
        else
            arrays.emplace_back(k, x[i], offset);
    }
    Pointers pointers;
    for (Typed &array : arrays)
        pointers.push_back(array.data());
    operation(k, pointers);
    std::vector<Floats> result;
    for (int i = 0; i < outputs; i++)
        result.push_back(arrays[(size_t)i].floats());
    return result;
}

// The same operations in f32 between widening and rounding, so the same bits.
void expect_rounded(const std::vector<Floats> &given, int outputs, bool adds,
                    const Operation &operation) {
    for (const crl_kernels *k : narrow_tables()) {
        std::vector<Floats> x;
        for (const Floats &array : given)
            x.push_back(rounded(*k, array));
        crl_kernels_set_threads(1);
        const std::vector<Floats> want = run(*crl_backend_cpu.f32, x, outputs, adds, 0, operation);
        for (const crl_kernels *table : {k, crl_backend_cpu.f32}) {
            for (int threads = 1; threads <= kMaxThreads; threads++) {
                crl_kernels_set_threads(threads);
                const std::vector<Floats> got = run(*table, x, outputs, adds, threads, operation);
                for (int i = 0; i < outputs; i++)
                    EXPECT_TRUE(same_bits(got[(size_t)i], rounded(*table, want[(size_t)i])))
                        << crl_dtype_name(table->dtype) << " output " << i << " adds " << adds
                        << " threads " << threads;
            }
        }
    }
    crl_kernels_set_threads(1);
}

// f32 results must be the same bits.
void expect_same(Floats &first, const Floats &x) {
    if (first.size() == 0)
        first = x;
    EXPECT_TRUE(same_bits(first, x));
}

const int64_t kSizes[] = {1, 33, 1025, 20000};

TEST(KernelsTypes, ElementWise) {
    Random random(1);
    for (int64_t n : kSizes) {
        SCOPED_TRACE(n);
        const Floats a = random_floats(random, n, -6, 6), b = random_floats(random, n, -2, 2);
        for (int kind = 0; kind < CRL_ACTIVATION_COUNT; kind++) {
            const crl_activation f = (crl_activation)kind;
            expect_rounded({b, a}, 1, false, [&](const crl_kernels &k, const Pointers &x) {
                EXPECT_OK(k.eltwise->activation(nullptr, f, x[1], x[0], n));
            });
            for (bool adds : {false, true})
                expect_rounded({b, a, b}, 1, adds, [&](const crl_kernels &k, const Pointers &x) {
                    EXPECT_OK(
                        k.eltwise->activation_backward(nullptr, f, x[1], x[2], x[0], n, adds));
                });
        }
        expect_rounded({b, a, b}, 1, false, [&](const crl_kernels &k, const Pointers &x) {
            EXPECT_OK(k.eltwise->add(nullptr, x[1], x[2], x[0], n));
        });
        for (bool adds : {false, true}) {
            expect_rounded({b, a}, 1, adds, [&](const crl_kernels &k, const Pointers &x) {
                EXPECT_OK(k.eltwise->copy(nullptr, x[1], x[0], n, adds));
            });
            expect_rounded({a}, 1, true, [&](const crl_kernels &k, const Pointers &x) {
                EXPECT_OK(k.eltwise->copy(nullptr, x[0], x[0], n, adds)); // in place
            });
            for (double p : {0.0, 0.3}) {
                const crl_rng rng = {99, CRL_RNG_DROPOUT, 5, 77, 12};
                const Floats two = random_floats(random, 2 * n);
                expect_rounded({two, two}, 1, adds, [&](const crl_kernels &k, const Pointers &x) {
                    EXPECT_OK(k.eltwise->dropout(nullptr, &rng, p, x[1], x[0], 2, n, adds));
                });
            }
        }
    }
}

TEST(KernelsTypes, Swiglu) {
    Random random(2);
    for (int64_t c : {1, 17, 1030, 5000}) {
        const int64_t n = 9;
        SCOPED_TRACE(c);
        const Floats x0 = random_floats(random, 2 * n * c, -6, 6),
                     y0 = random_floats(random, n * c);
        expect_rounded({y0, x0}, 1, false, [&](const crl_kernels &k, const Pointers &x) {
            EXPECT_OK(k.eltwise->swiglu(nullptr, x[1], x[0], n, c));
        });
        for (bool adds : {false, true})
            expect_rounded({x0, x0, y0}, 1, adds, [&](const crl_kernels &k, const Pointers &x) {
                EXPECT_OK(k.eltwise->swiglu_backward(nullptr, x[1], x[2], x[0], n, c, adds));
            });
    }
}

// Statistics and gradients of weights are f32: the same bits as from the f32 table.
struct NormResults {
    Floats mean, rstd, dw, db;
};

NormResults run_norm(const crl_kernels &k, bool rms, const Floats &w, const Pointers &x, int64_t n,
                     bool adds) {
    const crl_layernorm_ops &l = *k.layernorm;
    const int64_t c = w.size();
    NormResults r = {Floats(n), Floats(n), w, w};
    Floats scratch((int64_t)l.scratch_bytes(n, c));
    if (rms) {
        EXPECT_OK(l.rms_forward(nullptr, x[2], w.data(), 1e-5, x[0], r.rstd.data(), n, c));
        EXPECT_OK(
            l.rms_backward_input(nullptr, x[2], x[3], w.data(), r.rstd.data(), x[1], n, c, adds));
        EXPECT_OK(l.rms_backward_weight(nullptr, x[2], x[3], r.rstd.data(), r.dw.data(), n, c, adds,
                                        scratch.data()));
        return r;
    }
    EXPECT_OK(l.forward(nullptr, x[2], w.data(), w.data(), 1e-5, x[0], r.mean.data(), r.rstd.data(),
                        n, c));
    EXPECT_OK(l.backward_input(nullptr, x[2], x[3], w.data(), r.mean.data(), r.rstd.data(), x[1], n,
                               c, adds));
    EXPECT_OK(l.backward_weight(nullptr, x[2], x[3], r.mean.data(), r.rstd.data(), r.dw.data(),
                                r.db.data(), n, c, adds, scratch.data()));
    return r;
}

TEST(KernelsTypes, Layernorm) {
    Random random(3);
    for (int64_t c : {1, 100, 2100}) {
        const int64_t n = c > 1000 ? 8 : 70;
        SCOPED_TRACE(c);
        const Floats a = random_floats(random, n * c, -2, 3), b = random_floats(random, n * c);
        const Floats w = random_floats(random, c);
        for (int bits = 0; bits < 4; bits++) {
            const bool rms = (bits & 1) != 0, adds = (bits & 2) != 0;
            expect_rounded({b, b, a, b}, 2, adds, [&](const crl_kernels &k, const Pointers &x) {
                run_norm(k, rms, w, x, n, adds);
            });
            for (const crl_kernels *k : narrow_tables()) {
                Floats x = rounded(*k, a), dy = rounded(*k, b), y(n * c), dx(n * c);
                Typed tx(*k, a), tdy(*k, b), ty(*k, n * c), tdx(*k, b);
                const NormResults want =
                    run_norm(*crl_backend_cpu.f32, rms, w,
                             {y.data(), dx.data(), x.data(), dy.data()}, n, adds);
                const NormResults got =
                    run_norm(*k, rms, w, {ty.data(), tdx.data(), tx.data(), tdy.data()}, n, adds);
                EXPECT_TRUE(same_bits(got.mean, want.mean));
                EXPECT_TRUE(same_bits(got.rstd, want.rstd));
                EXPECT_TRUE(same_bits(got.dw, want.dw));
                EXPECT_TRUE(same_bits(got.db, want.db));
            }
        }
    }
}

// The sum is what the type holds of it, and the norm is of that.
TEST(KernelsTypes, AddLayernorm) {
    Random random(4);
    for (const crl_kernels *k : all_tables()) {
        for (int64_t c : {5, 768, 2100}) {
            const int64_t n = 20;
            const Floats w = random_floats(random, c), bias = random_floats(random, c);
            Typed a(*k, random_floats(random, n * c)), b(*k, random_floats(random, n * c));
            Typed sum(*k, n * c), y(*k, n * c), want_sum(*k, n * c), want(*k, n * c);
            Floats mean(n), rstd(n), want_mean(n), want_rstd(n);
            EXPECT_OK(k->layernorm->add_forward(nullptr, a.data(), b.data(), sum.data(), w.data(),
                                                bias.data(), 1e-5, y.data(), mean.data(),
                                                rstd.data(), n, c));
            EXPECT_OK(k->eltwise->add(nullptr, a.data(), b.data(), want_sum.data(), n * c));
            EXPECT_OK(k->layernorm->forward(nullptr, want_sum.data(), w.data(), bias.data(), 1e-5,
                                            want.data(), want_mean.data(), want_rstd.data(), n, c));
            EXPECT_TRUE(same_bits(sum.floats(), want_sum.floats()));
            EXPECT_TRUE(same_bits(y.floats(), want.floats()));
            EXPECT_TRUE(same_bits(mean, want_mean));
            EXPECT_TRUE(same_bits(rstd, want_rstd));
        }
    }
}

TEST(KernelsTypes, Embedding) {
    Random random(5);
    for (int64_t c : {3, 130, 2100}) {
        const int64_t b = 2, t = 9, v = 11, positions = t + 1;
        std::vector<int32_t> tokens;
        for (int64_t i = 0; i < b * t; i++)
            tokens.push_back((int32_t)(random() % (unsigned)v));
        const Floats y = random_floats(random, b * t * c), token = random_floats(random, v * c),
                     position = random_floats(random, positions * c);
        for (bool with_position : {false, true})
            expect_rounded({y, token, position}, 1, false,
                           [&](const crl_kernels &k, const Pointers &x) {
                               EXPECT_OK(k.embedding->forward(nullptr, tokens.data(), x[1],
                                                              with_position ? x[2] : nullptr, x[0],
                                                              b, t, v, c));
                           });
        for (const crl_kernels *k : narrow_tables()) {
            const Floats dy = rounded(*k, y);
            Floats want = token, want_position = position;
            EXPECT_OK(crl_backend_cpu.f32->embedding->backward(nullptr, tokens.data(), dy.data(),
                                                               want.data(), want_position.data(), b,
                                                               t, v, c, positions, true));
            const Floats got = same_for_all_threads([&] {
                Floats dtoken = token, dposition = position;
                EXPECT_OK(k->embedding->backward(nullptr, tokens.data(), Typed(*k, dy, 1).data(),
                                                 dtoken.data(), dposition.data(), b, t, v, c,
                                                 positions, true));
                EXPECT_TRUE(same_bits(dposition, want_position));
                return dtoken;
            });
            EXPECT_TRUE(same_bits(got, want));
        }
    }
}

TEST(KernelsTypes, CrossEntropy) {
    Random random(6);
    for (int64_t v : {1, 33, 2048, 5000}) {
        const int64_t n = 9;
        SCOPED_TRACE(v);
        std::vector<int32_t> targets;
        for (int64_t i = 0; i < n; i++)
            targets.push_back(i == 2 ? -1 : (int32_t)(random() % (unsigned)v));
        const Floats weight = random_floats(random, n, 0.5f, 2),
                     logits = random_floats(random, n * v, -8, 8);
        const crl_cross_entropy_config config = {n, v, -1, nullptr};
        for (const crl_kernels *narrow : narrow_tables()) {
            std::vector<crl_loss> losses;
            const Floats given = rounded(*narrow, logits);
            for (bool adds : {false, true}) {
                expect_rounded(
                    {given, given}, 1, adds, [&](const crl_kernels &k, const Pointers &x) {
                        Floats lse(n);
                        crl_loss loss = {};
                        EXPECT_OK(k.cross_entropy->forward(nullptr, &config, x[1], targets.data(),
                                                           weight.data(), n - 1, lse.data(),
                                                           &loss));
                        EXPECT_OK(k.cross_entropy->backward(nullptr, &config, x[1], targets.data(),
                                                            weight.data(), n - 1, lse.data(), 2,
                                                            x[0], adds));
                        if (k.dtype == narrow->dtype)
                            losses.push_back(loss);
                    });
            }
            expect_rounded({given}, 1, true, [&](const crl_kernels &k, const Pointers &x) {
                Floats lse(n);
                crl_loss loss = {};
                EXPECT_OK(k.cross_entropy->forward(nullptr, &config, x[0], targets.data(),
                                                   weight.data(), n, lse.data(), &loss));
                EXPECT_OK(k.cross_entropy->backward(nullptr, &config, x[0], targets.data(),
                                                    weight.data(), n, lse.data(), 1, x[0], false));
            });
            Floats lse(n);
            crl_loss want = {};
            EXPECT_OK(crl_backend_cpu.f32->cross_entropy->forward(nullptr, &config, given.data(),
                                                                  targets.data(), weight.data(),
                                                                  n - 1, lse.data(), &want));
            for (const crl_loss &loss : losses) {
                EXPECT_EQ(loss.sum, want.sum);
                EXPECT_EQ(loss.correct, want.correct);
                EXPECT_EQ(loss.rows, want.rows);
            }
        }
    }
}

TEST(KernelsTypes, Mse) {
    Random random(7);
    for (int64_t n : {1, 33, 50000}) {
        const Floats a = random_floats(random, n), target = random_floats(random, n);
        for (bool adds : {false, true})
            expect_rounded({a, a}, 1, adds, [&](const crl_kernels &k, const Pointers &x) {
                EXPECT_OK(k.cross_entropy->mse_backward(nullptr, x[1], target.data(), n - n / 3, n,
                                                        4, x[0], adds));
            });
        for (const crl_kernels *k : narrow_tables()) {
            const Floats x = rounded(*k, a);
            crl_loss want = {}, got = {};
            EXPECT_OK(crl_backend_cpu.f32->cross_entropy->mse_forward(nullptr, x.data(),
                                                                      target.data(), n, &want));
            EXPECT_OK(k->cross_entropy->mse_forward(nullptr, Typed(*k, x, 3).data(), target.data(),
                                                    n, &got));
            EXPECT_EQ(got.sum, want.sum);
            EXPECT_EQ(got.weight, want.weight);
        }
    }
}

TEST(KernelsTypes, ColumnSum) {
    Random random(8);
    for (int64_t c : {1, 33, 257, 768}) {
        const int64_t n = 150;
        for (const crl_kernels *k : narrow_tables()) {
            const Floats x = rounded(*k, random_floats(random, n * c));
            const Floats before = random_floats(random, c);
            for (bool adds : {false, true}) {
                Floats want = before;
                EXPECT_OK(crl_backend_cpu.f32->reduce->column_sum(nullptr, x.data(), want.data(), n,
                                                                  c, adds, nullptr));
                const Floats got = same_for_all_threads([&] {
                    Floats y = before;
                    EXPECT_OK(k->reduce->column_sum(nullptr, Typed(*k, x, 1).data(), y.data(), n, c,
                                                    adds, nullptr));
                    return y;
                });
                EXPECT_TRUE(same_bits(got, want));
            }
        }
    }
}

TEST(KernelsTypes, OptimizersCopyTheNewWeights) {
    Random random(9);
    const int64_t n = 9001;
    const Floats w0 = random_floats(random, n), dw = random_floats(random, n);
    for (const crl_kernels *k : all_tables()) {
        for (int which = 0; which < 3; which++) {
            Floats plain;
            for (bool copies : {false, true}) {
                const Floats w = same_for_all_threads([&] {
                    Floats x = w0, m(n), v(n);
                    Typed copy(*k, n, 1);
                    void *const out = copies ? copy.data() : nullptr;
                    const crl_adamw_config adamw = {1e-2, 0.9, 0.95, 1e-8, 0.1, 1, 0.25};
                    const crl_sgd_config sgd = {0.1, which == 1 ? 0.9 : 0, 0, 0.01, false, 1, 0.5};
                    if (which == 2) {
                        EXPECT_OK(k->optimizer->adamw(nullptr, &adamw, x.data(), dw.data(),
                                                      m.data(), v.data(), out, n));
                    } else {
                        EXPECT_OK(k->optimizer->sgd(nullptr, &sgd, x.data(), dw.data(),
                                                    which == 1 ? m.data() : nullptr, out, n));
                    }
                    if (copies) {
                        EXPECT_TRUE(same_bits(copy.floats(), rounded(*k, x)));
                    }
                    return x;
                });
                expect_same(plain, w);
            }
        }
    }
}

TEST(KernelsTypes, WhatIsTooLargeForF16IsInfinite) {
    const crl_kernels &k = *crl_backend_cpu.f16;
    Floats x(3);
    x[0] = 40000, x[1] = -40000, x[2] = 20000;
    Typed a(k, x), y(k, 3);
    EXPECT_OK(k.eltwise->add(nullptr, a.data(), a.data(), y.data(), 3));
    EXPECT_EQ(y.floats()[0], INFINITY);
    EXPECT_EQ(y.floats()[1], -INFINITY);
    EXPECT_EQ(y.floats()[2], 40000);
}

} // namespace
