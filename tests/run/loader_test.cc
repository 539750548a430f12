// SPDX-License-Identifier: Apache-2.0
#include "engine/run/loader.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "engine/base/alloc.h"
#include "tests/run/data_files.h"

// A data set of numbers whose reads can be watched, held up, and made to fail.
struct crl_dataset {
    int64_t samples = 0;
    crl_field field[2] = {{"values", {CRL_DTYPE_I32, {1, {3}}}}, {"ids", {CRL_DTYPE_I64, {}}}};
    std::mutex lock;
    std::condition_variable changed;
    int64_t reads = 0;    // begun
    int64_t allowed = -1; // reads that may finish; -1: all
    int64_t failing = -1; // this read fails
};

namespace {

crl_status NumbersRead(const crl_dataset *dataset, int field, const int64_t *sample, int64_t n,
                       void *out) {
    auto *numbers = const_cast<crl_dataset *>(dataset);
    {
        std::unique_lock<std::mutex> hold(numbers->lock);
        const int64_t number = numbers->reads++;
        numbers->changed.notify_all();
        numbers->changed.wait(hold,
                              [&] { return numbers->allowed < 0 || number < numbers->allowed; });
        if (number == numbers->failing) {
            return CRL_FAIL(IO, "numbers: read %d fails", static_cast<int>(number));
        }
    }
    for (int64_t i = 0; i < n; ++i) {
        if (field == 1) {
            static_cast<int64_t *>(out)[i] = sample[i];
        }
        for (int64_t j = 0; field == 0 && j < 3; ++j) {
            static_cast<int32_t *>(out)[3 * i + j] = static_cast<int32_t>(10 * sample[i] + j + 1);
        }
    }
    return CRL_STATUS_OK;
}

const crl_dataset_format numbers = {
    "numbers",
    "for tests",
    nullptr,
    nullptr,
    nullptr,
    [](const crl_dataset *dataset) { return dataset->samples; },
    [](const crl_dataset *dataset, const crl_field **out) {
        *out = dataset->field;
        return 2;
    },
    NumbersRead,
    nullptr,
};

void WaitForReads(crl_dataset *dataset, int64_t reads) {
    std::unique_lock<std::mutex> hold(dataset->lock);
    dataset->changed.wait(hold, [&] { return dataset->reads >= reads; });
}

void Allow(crl_dataset *dataset, int64_t reads) {
    std::lock_guard<std::mutex> hold(dataset->lock);
    dataset->allowed = reads;
    dataset->changed.notify_all();
}

int64_t Reads(crl_dataset *dataset) {
    std::lock_guard<std::mutex> hold(dataset->lock);
    return dataset->reads;
}

crl_loader_config Basic(crl_dataset *dataset, int64_t samples = 22) {
    dataset->samples = samples;
    crl_loader_config config{};
    config.format = &numbers;
    config.dataset = dataset;
    config.sampler = {samples, 8, 3, true};
    config.micro_batch = 2;
    config.last_micro_batch = 4;
    config.fields = 2;
    config.field[1] = 1;
    config.last_step = 9;
    return config;
}

crl_loader *Create(const crl_loader_config &config) {
    crl_loader *loader = nullptr;
    EXPECT_EQ(crl_loader_create(&loader, &config), CRL_STATUS_OK) << crl_error_message();
    return loader;
}

// All steps of a loader against the sampler and the format directly.
void ExpectSameAsDirect(const crl_loader_config &config) {
    crl_loader *loader = Create(config);
    crl_sampler *sampler = nullptr;
    ASSERT_EQ(crl_sampler_create(&sampler, &config.sampler), CRL_STATUS_OK);
    const int64_t first = config.first_micro_batch * config.micro_batch;
    const int64_t capacity = config.last_micro_batch * config.micro_batch - first;
    for (int64_t step = config.first_step; step < config.last_step; ++step) {
        crl_loader_step data{};
        ASSERT_EQ(crl_loader_next(loader, &data), CRL_STATUS_OK) << crl_error_message();
        const int64_t *ids;
        int64_t count;
        crl_sampler_get(sampler, step, &ids, &count);
        ASSERT_EQ(data.samples, count);
        for (int f = 0; f < config.fields; ++f) {
            const crl_field *field;
            config.format->fields(config.dataset, &field);
            size_t bytes;
            ASSERT_EQ(crl_tensor_bytes(&bytes, &field[config.field[f]].spec, "x"), CRL_STATUS_OK);
            std::vector<char> expected(static_cast<size_t>(capacity) * bytes, 0);
            for (int64_t i = 0; i < capacity && first + i < count; ++i) {
                ASSERT_EQ(config.format->read(config.dataset, config.field[f], ids + first + i, 1,
                                              expected.data() + static_cast<size_t>(i) * bytes),
                          CRL_STATUS_OK);
            }
            const auto *found = static_cast<const char *>(data.data[f]);
            ASSERT_EQ(std::vector<char>(found, found + expected.size()), expected)
                << "step " << step << " field " << f;
        }
    }
    crl_loader_destroy(loader);
    crl_sampler_destroy(sampler);
}

TEST(RunLoader, EqualsDirectReadingForEveryRangeOfMicroBatches) {
    for (int first = 0; first <= 4; ++first) {
        for (int last = first; last <= 4; ++last) {
            crl_dataset dataset;
            crl_loader_config config = Basic(&dataset);
            config.first_micro_batch = first;
            config.last_micro_batch = last;
            ExpectSameAsDirect(config);
        }
    }
}

TEST(RunLoader, EqualsDirectReadingOfRandomShapes) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    for (int i = 0; i < 50; ++i) {
        crl_dataset dataset;
        crl_loader_config config = Basic(&dataset, pick(1, 60));
        config.sampler.global_batch = pick(1, 20);
        config.sampler.shuffle = pick(0, 1) == 1;
        config.micro_batch = pick(1, 5);
        config.first_micro_batch = pick(0, 4);
        config.last_micro_batch = config.first_micro_batch + pick(0, 4);
        config.first_step = pick(0, 50);
        config.last_step = config.first_step + pick(0, 12);
        config.fields = pick(0, 2);
        config.field[0] = pick(0, 1);
        ExpectSameAsDirect(config);
    }
}

TEST(RunLoader, EqualsDirectReadingOfAFile) {
    data_files::Directory dir;
    data_files::Config paths({dir.Write("a.bin", data_files::Llmc(data_files::Counting(500)))}, 8);
    data_files::Open data(crl_dataset_llmc, paths.get());
    crl_loader_config config{};
    config.format = &crl_dataset_llmc;
    config.dataset = data.get();
    config.sampler = {data.Count(), 12, 3, true};
    config.micro_batch = 3;
    config.first_micro_batch = 1;
    config.last_micro_batch = 4;
    config.fields = 2;
    config.field[1] = 1;
    config.first_step = 3;
    config.last_step = 15;
    ExpectSameAsDirect(config);
}

TEST(RunLoader, PartialBatchesArePaddedWithZeroes) {
    crl_dataset dataset;
    crl_loader_config config = Basic(&dataset, 11); // 8, then 3
    config.first_micro_batch = 1;
    crl_loader *loader = Create(config);
    crl_loader_step data{};
    for (int step = 0; step < 4; ++step) { // both buffers have been full before
        ASSERT_EQ(crl_loader_next(loader, &data), CRL_STATUS_OK);
        ASSERT_EQ(data.samples, step % 2 == 0 ? 8 : 3);
        const auto *values = static_cast<const int32_t *>(data.data[0]);
        for (int i = 0; i < 18; ++i) {
            const bool valid = step % 2 == 0 || i < 3; // sample 2 is the only one of this rank
            EXPECT_EQ(values[i] != 0, valid) << i;
        }
    }
    crl_loader_destroy(loader);
    EXPECT_EQ(crl_loader_valid_samples(11, 4, 0), 4);
    EXPECT_EQ(crl_loader_valid_samples(11, 4, 2), 3);
    EXPECT_EQ(crl_loader_valid_samples(11, 4, 3), 0);
    EXPECT_EQ(crl_loader_valid_samples(8, 4, 2), 0);
}

TEST(RunLoader, ReadsOneStepAheadAndNoFurther) {
    crl_dataset dataset;
    crl_loader_config config = Basic(&dataset, 100);
    config.fields = 1; // one read per step
    crl_loader *loader = Create(config);
    crl_loader_step data{};
    for (int64_t step = 0; step < config.last_step; ++step) {
        ASSERT_EQ(crl_loader_next(loader, &data), CRL_STATUS_OK);
        // The next step's read begins while this one is lent ...
        WaitForReads(&dataset, std::min(step + 2, config.last_step));
        // ... and the one after it cannot.
        EXPECT_LE(Reads(&dataset), step + 2);
    }
    crl_loader_destroy(loader);
}

TEST(RunLoader, LentDataStaysWhileTheNextStepIsRead) {
    crl_dataset dataset;
    crl_loader_config config = Basic(&dataset, 100);
    config.fields = 1;
    config.field[0] = 1;
    crl_loader *loader = Create(config);
    crl_loader_step data{};
    ASSERT_EQ(crl_loader_next(loader, &data), CRL_STATUS_OK);
    const auto *ids = static_cast<const int64_t *>(data.data[0]);
    const std::vector<int64_t> before(ids, ids + 8);
    WaitForReads(&dataset, 2);
    EXPECT_EQ(std::vector<int64_t>(ids, ids + 8), before);
    crl_loader_step next{};
    ASSERT_EQ(crl_loader_next(loader, &next), CRL_STATUS_OK);
    EXPECT_NE(next.data[0], data.data[0]);
    crl_loader_destroy(loader);
}

TEST(RunLoader, NextWaitsForTheRead) {
    crl_dataset dataset;
    crl_loader_config config = Basic(&dataset, 100);
    dataset.allowed = 0;
    crl_loader *loader = Create(config);
    std::thread release([&] {
        WaitForReads(&dataset, 1);
        Allow(&dataset, -1);
    });
    crl_loader_step data{};
    EXPECT_EQ(crl_loader_next(loader, &data), CRL_STATUS_OK);
    EXPECT_EQ(data.samples, 8);
    release.join();
    crl_loader_destroy(loader);
}

TEST(RunLoader, CanBeDestroyedAtAnyTime) {
    for (int64_t asked = 0; asked <= 9; ++asked) {
        for (int repeat = 0; repeat < 20; ++repeat) {
            crl_dataset dataset;
            crl_loader *loader = Create(Basic(&dataset));
            crl_loader_step data{};
            for (int64_t i = 0; i < asked; ++i) {
                ASSERT_EQ(crl_loader_next(loader, &data), CRL_STATUS_OK);
            }
            crl_loader_destroy(loader);
        }
    }
    crl_loader_destroy(nullptr);
}

TEST(RunLoader, DestroyWaitsForAReadThatRuns) {
    crl_dataset dataset;
    dataset.allowed = 0;
    crl_loader *loader = Create(Basic(&dataset));
    WaitForReads(&dataset, 1);
    std::thread destroy([&] { crl_loader_destroy(loader); });
    Allow(&dataset, -1);
    destroy.join();
    EXPECT_LE(Reads(&dataset), 4); // of the first two steps at most
}

TEST(RunLoader, AReadErrorAppearsAtItsStep) {
    crl_dataset dataset;
    dataset.failing = 3; // two reads per step: step 1, field 1
    crl_loader *loader = Create(Basic(&dataset));
    crl_loader_step data{};
    WaitForReads(&dataset, 4);
    EXPECT_EQ(crl_loader_next(loader, &data), CRL_STATUS_OK);
    EXPECT_EQ(data.samples, 8);
    for (int i = 0; i < 2; ++i) { // and stays
        crl_error_clear();
        data.samples = -5;
        EXPECT_EQ(crl_loader_next(loader, &data), CRL_STATUS_IO);
        EXPECT_STREQ(crl_error_message(), "numbers: read 3 fails");
        EXPECT_EQ(data.samples, -5);
    }
    crl_loader_destroy(loader);
}

TEST(RunLoader, RefusesStepsBeyondTheLast) {
    crl_dataset dataset;
    crl_loader_config config = Basic(&dataset);
    config.first_step = 5;
    config.last_step = 6;
    crl_loader *loader = Create(config);
    crl_loader_step data{};
    EXPECT_EQ(crl_loader_next(loader, &data), CRL_STATUS_OK);
    EXPECT_EQ(crl_loader_next(loader, &data), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "loader: step 6 asked for, expected below 6");
    crl_loader_destroy(loader);
}

TEST(RunLoader, RefusesBadConfigs) {
    crl_dataset dataset;
    const struct {
        void (*change)(crl_loader_config *);
        const char *message;
    } cases[] = {
        {[](crl_loader_config *c) { c->sampler.samples = 23; },
         "loader: sampler has 23 samples, data set 22"},
        {[](crl_loader_config *c) { c->sampler.samples = 0; },
         "sampler: 0 samples, expected at least 1"},
        {[](crl_loader_config *c) { c->micro_batch = 0; },
         "loader: micro-batch is 0, expected 1 to 2147483647"},
        {[](crl_loader_config *c) { c->first_micro_batch = 5; },
         "loader: micro-batches [5, 4), expected an ascending range"},
        {[](crl_loader_config *c) { c->first_step = -1; },
         "loader: steps [-1, 9), expected an ascending range"},
        {[](crl_loader_config *c) { c->fields = 5; }, "loader: 5 fields, expected 0 to 4"},
        {[](crl_loader_config *c) { c->field[0] = 2; },
         "loader: field 2 asked for, data set numbers has 2"},
    };
    for (const auto &bad : cases) {
        crl_loader_config config = Basic(&dataset);
        bad.change(&config);
        crl_loader *loader = nullptr;
        EXPECT_EQ(crl_loader_create(&loader, &config), CRL_STATUS_INVALID);
        EXPECT_STREQ(crl_error_message(), bad.message);
        EXPECT_EQ(loader, nullptr);
    }
}

TEST(RunLoader, CreateSurvivesEveryAllocationFailureAndNothingAllocatesLater) {
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    crl_loader *loader = nullptr;
    crl_dataset dataset;
    const crl_loader_config config = Basic(&dataset);
    int64_t n = 0;
    while (!loader) {
        watch.fail_at = ++n;
        const crl_status status = crl_loader_create(&loader, &config);
        ASSERT_TRUE(status == CRL_STATUS_OK || status == CRL_STATUS_NOMEM);
        ASSERT_TRUE(loader || watch.live_bytes == 0) << n;
    }
    watch.fail_at = 0;
    EXPECT_EQ(n, 9); // loader, sampler, its ids, four buffers, thread: then none fails
    const int64_t allocations = watch.allocations;
    crl_loader_step data{};
    for (int64_t step = 0; step < config.last_step; ++step) {
        EXPECT_EQ(crl_loader_next(loader, &data), CRL_STATUS_OK);
    }
    EXPECT_EQ(watch.allocations, allocations);
    crl_loader_destroy(loader);
    EXPECT_EQ(watch.live_bytes, 0);
    crl_alloc_attach(nullptr);
}

} // namespace
