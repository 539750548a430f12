// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/support.h"

namespace {

using namespace kernels_test;
const crl_layernorm_ops &kOps = *crl_kernels_cpu.layernorm;
constexpr double kEpsilon = 1e-5;

struct Case {
    int64_t n, c;
    Floats x, dy, w, b, mean, rstd;
    std::vector<double> y, dx, dw, db; // references
};

// The reference of one row: y, dx and what it adds to dw and db.
void add_row(Case &s, int64_t i) {
    const int64_t c = s.c;
    const float *x = s.x.data() + i * c, *dy = s.dy.data() + i * c;
    double mean = 0, variance = 0, g = 0, gx = 0;
    for (int64_t j = 0; j < c; j++)
        mean += (double)x[j] / (double)c;
    for (int64_t j = 0; j < c; j++)
        variance += (x[j] - mean) * (x[j] - mean) / (double)c;
    const double rstd = 1 / std::sqrt(variance + kEpsilon);
    for (int64_t j = 0; j < c; j++) {
        const double hat = (x[j] - mean) * rstd;
        s.y.push_back(hat * s.w[j] + s.b[j]);
        s.dw[(size_t)j] += dy[j] * hat;
        s.db[(size_t)j] += dy[j];
        g += (double)dy[j] * s.w[j] / (double)c;
        gx += (double)dy[j] * s.w[j] * hat / (double)c;
    }
    for (int64_t j = 0; j < c; j++)
        s.dx.push_back(rstd * ((double)dy[j] * s.w[j] - g - (x[j] - mean) * rstd * gx));
}

Case make_case(Random &random, int64_t n, int64_t c) {
    Case s = {n,
              c,
              random_floats(random, n * c, -2, 3),
              random_floats(random, n * c),
              random_floats(random, c),
              random_floats(random, c),
              Floats(n),
              Floats(n),
              {},
              {},
              std::vector<double>((size_t)c),
              std::vector<double>((size_t)c)};
    for (int64_t i = 0; i < n; i++)
        add_row(s, i);
    return s;
}

std::vector<double> plus(std::vector<double> x, const Floats &before, bool accumulate) {
    for (size_t i = 0; i < x.size(); i++)
        x[i] += accumulate ? before[(int64_t)i] : 0;
    return x;
}

TEST(KernelsLayernorm, MatchesDouble) {
    Random random(1);
    const int64_t sizes[][2] = {{1, 1}, {3, 7}, {5, 33}, {65, 130}, {200, 768}, {700, 64}};
    for (const auto &size : sizes) {
        Case s = make_case(random, size[0], size[1]);
        SCOPED_TRACE(testing::Message() << s.n << "x" << s.c);
        const Floats y = same_for_all_threads([&] {
            Floats out(s.n * s.c);
            EXPECT_OK(kOps.forward(nullptr, s.x.data(), s.w.data(), s.b.data(), kEpsilon,
                                   out.data(), s.mean.data(), s.rstd.data(), s.n, s.c));
            return out;
        });
        EXPECT_LT(error(y, s.y), 1e-6);
        Floats scratch((int64_t)kOps.scratch_bytes(s.n, s.c));
        for (bool accumulate : {false, true}) {
            const Floats dx = same_for_all_threads([&] {
                Floats out = accumulate ? s.dy : Floats(s.n * s.c);
                EXPECT_OK(kOps.backward_input(nullptr, s.x.data(), s.dy.data(), s.w.data(),
                                              s.mean.data(), s.rstd.data(), out.data(), s.n, s.c,
                                              accumulate));
                return out;
            });
            Floats db;
            const Floats dw = same_for_all_threads([&] {
                Floats out = accumulate ? s.w : Floats(s.c), other = out;
                EXPECT_OK(kOps.backward_weight(nullptr, s.x.data(), s.dy.data(), s.mean.data(),
                                               s.rstd.data(), out.data(), other.data(), s.n, s.c,
                                               accumulate, scratch.data()));
                db = other;
                return out;
            });
            // A single channel has variance 0: its rstd magnifies every rounding error.
            EXPECT_LT(error(dx, plus(s.dx, s.dy, accumulate)), s.c == 1 ? 1e-4 : 2e-6);
            EXPECT_LT(error(dw, plus(s.dw, s.w, accumulate)), 3e-6);
            EXPECT_LT(error(db, plus(s.db, s.w, accumulate)), 3e-6);
        }
    }
}

TEST(KernelsLayernorm, RmsMatchesDouble) {
    Random random(2);
    const int64_t sizes[][2] = {{3, 7}, {65, 130}, {9, 4500}};
    for (const auto &size : sizes) {
        const int64_t n = size[0], c = size[1];
        SCOPED_TRACE(testing::Message() << n << "x" << c);
        const Floats x = random_floats(random, n * c, -2, 3), dy = random_floats(random, n * c),
                     w = random_floats(random, c);
        Floats y(n * c), rstd(n), dx(n * c), dw = w;
        EXPECT_OK(
            kOps.rms_forward(nullptr, x.data(), w.data(), kEpsilon, y.data(), rstd.data(), n, c));
        EXPECT_OK(kOps.rms_backward_input(nullptr, x.data(), dy.data(), w.data(), rstd.data(),
                                          dx.data(), n, c, false));
        EXPECT_OK(kOps.rms_backward_weight(nullptr, x.data(), dy.data(), rstd.data(), dw.data(), n,
                                           c, true, nullptr));
        std::vector<double> want_y, want_dx, want_dw = doubles(w);
        for (int64_t i = 0; i < n; i++) {
            double squares = 0, product = 0;
            for (int64_t j = i * c; j < i * c + c; j++) {
                squares += (double)x[j] * x[j] / (double)c;
                product += (double)x[j] * dy[j] * w[j - i * c] / (double)c;
            }
            const double r = 1 / std::sqrt(squares + kEpsilon);
            EXPECT_NEAR(rstd[i], r, 1e-6 * r);
            for (int64_t j = 0; j < c; j++) {
                const int64_t at = i * c + j;
                want_y.push_back(x[at] * r * w[j]);
                want_dx.push_back(r * (dy[at] * (double)w[j] - x[at] * r * r * product));
                want_dw[(size_t)j] += dy[at] * x[at] * r;
            }
        }
        EXPECT_LT(error(y, want_y), 1e-6);
        EXPECT_LT(error(dx, want_dx), 2e-6);
        EXPECT_LT(error(dw, want_dw), 3e-6);
    }
}

} // namespace
