// SPDX-License-Identifier: Apache-2.0
// Copies of the dataset's fields to a device that does everything late: every step reads its own.
#include <gtest/gtest.h>

#include <vector>

#include "tests/comm/wire_device.h"

extern "C" {
#include "engine/run/executor_internal.h"
}

namespace {

using comm_test::late;
using comm_test::late_device;

enum { kFields = 2, kOwn = 3, kSteps = 12 };

// As much of an executor as its fields need: two inputs of 8 and 100 bytes per micro-batch.
class RunExecutorFields : public testing::Test {
  protected:
    void Plan(const crl_device *device) {
        backend_.device = device;
        value_[0].bytes = 8;
        value_[1].bytes = 100;
        graph_.value = value_;
        plan_.graph = &graph_;
        x_.config.plan = &plan_;
        x_.config.backend = &backend_;
        x_.config.own = kOwn;
        x_.fields = kFields;
        x_.field_value = field_value_;
        ASSERT_EQ(crl_fields_plan(&x_), CRL_STATUS_OK);
    }
    crl_executor_step Step(const void *const *field) const {
        crl_executor_step step = {};
        step.field = field;
        return step;
    }

    crl_value value_[kFields] = {};
    int field_value_[kFields] = {0, 1};
    crl_graph graph_ = {};
    crl_plan plan_ = {};
    crl_backend backend_ = {};
    crl_executor x_ = {};
};

TEST_F(RunExecutorFields, OfTheHostAreReadWhereTheyLie) {
    Plan(&crl_device_cpu);
    EXPECT_EQ(x_.copy.set_bytes, 0u);
    const char a = 1, b = 2;
    const void *const field[] = {&a, &b};
    const crl_executor_step step = Step(field);
    EXPECT_EQ(crl_fields_at(&x_, &step, 0), &a);
    EXPECT_EQ(crl_fields_at(&x_, &step, 1), &b);
}

// The loader lends a step's buffers until the next but one: so does this.
class Late : public RunExecutorFields, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(RunExecutorFields, Late, testing::Bool(), [](const auto &info) {
    return std::string(info.param ? "Replayed" : "Queued");
});

TEST_P(Late, EveryStepReadsItsOwn) {
    const int64_t before = late_device::get().live();
    late_device::get().seed(7);
    Plan(late());
    EXPECT_EQ(x_.copy.set_bytes, 64u + 320u);
    x_.records = GetParam();
    crl_stream *stream = nullptr;
    ASSERT_EQ(crl_device_stream_create(late(), &stream), CRL_STATUS_OK);
    x_.config.stream = stream;
    std::vector<char> memory(2 * x_.copy.set_bytes);
    ASSERT_EQ(crl_fields_bind(&x_, memory.data()), CRL_STATUS_OK);
    std::vector<char> host[kSteps][kFields];
    std::vector<char> seen[kSteps][kFields];
    for (int s = 0; s < kSteps; s++) {
        const void *field[kFields];
        for (int f = 0; f < kFields; f++) {
            host[s][f].assign(value_[f].bytes * kOwn, char(10 * s + f));
            field[f] = host[s][f].data();
        }
        const crl_executor_step step = Step(field);
        ASSERT_EQ(crl_fields_begin(&x_, &step), CRL_STATUS_OK);
        for (int f = 0; f < kFields; f++) {
            const char *at = crl_fields_at(&x_, &step, f);
            const size_t bytes = host[s][f].size();
            late_device::get().push(
                stream, [&seen, s, f, at, bytes] { seen[s][f].assign(at, at + bytes); });
        }
        ASSERT_EQ(crl_fields_end(&x_), CRL_STATUS_OK);
        EXPECT_EQ(x_.copy.set, GetParam() ? 0 : (s + 1) % 2);
    }
    crl_device_stream_destroy(late(), stream);
    for (int s = 0; s < kSteps; s++) {
        for (int f = 0; f < kFields; f++) {
            EXPECT_EQ(seen[s][f], host[s][f]) << "step " << s << " field " << f;
        }
    }
    crl_fields_fini(&x_);
    EXPECT_EQ(late_device::get().live(), before);
}

TEST_F(RunExecutorFields, SizesThatOverflow) {
    backend_.device = late();
    value_[0].bytes = SIZE_MAX / 2;
    graph_.value = value_;
    plan_.graph = &graph_;
    x_.config.plan = &plan_;
    x_.config.backend = &backend_;
    x_.config.own = kOwn;
    x_.fields = 1;
    x_.field_value = field_value_;
    EXPECT_EQ(crl_fields_plan(&x_), CRL_STATUS_INVALID);
}

} // namespace
