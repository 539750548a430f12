/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: saved by any number of ranks, found when whole, loaded only when they fit, and never
 * lost to a save that ends anywhere. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/alloc.h"
#include "engine/run/checkpoint.h"
#include "engine/run/safetensors.h"
#include "tests/run/scratch.h"

namespace {

namespace fs = std::filesystem;

/* A model of three parameters; the values follow from `seed`. */
struct Model {
    std::vector<std::vector<float>> data;
    std::vector<crl_checkpoint_tensor> param, state;
    crl_checkpoint_content content = {};

    explicit Model(float seed, int ranks = 1, int64_t wide = 3) {
        const char *name[] = {"h0.fc.weight", "h0.fc.bias", "wte.weight", "h0.fc.weight.m"};
        const std::vector<int64_t> shape[] = {{4, wide}, {4}, {7, 2, 1}, {4, 3}};
        for (int i = 0; i < 4; ++i) {
            crl_checkpoint_tensor tensor = {};
            tensor.name = name[i];
            tensor.shape = crl_shape_make((int)shape[i].size(), shape[i].data());
            tensor.owner = (ranks - 1 - i % ranks + ranks) % ranks;
            data.emplace_back(crl_shape_elements(&tensor.shape));
            float *x = data.back().data();
            const int64_t n = crl_shape_elements(&tensor.shape);
            for (int64_t j = 0; j < n; ++j) {
                x[j] = seed + (float)(100 * i) + (float)j;
            }
            (i < 3 ? param : state).push_back(tensor);
        }
        attach();
        content.facts = json_pack("{s:i, s:f}", "step", 5, "seed", (double)seed);
    }
    ~Model() { json_decref(content.facts); }
    Model(const Model &) = delete;
    Model &operator=(const Model &) = delete;

    void attach() {
        for (size_t i = 0; i < data.size(); ++i) {
            (i < 3 ? param[i] : state[i - 3]).data = data[i].data();
        }
        content.param = param.data();
        content.params = (int)param.size();
        content.state = state.data();
        content.states = (int)state.size();
    }
};

crl_status save(const std::string &run, int64_t step, int keep, const Model &model,
                std::string *path = nullptr) {
    crl_comm comm = {};
    comm.ranks = 1;
    char text[4096] = "";
    const crl_status status =
        crl_checkpoint_save(&comm, run.c_str(), step, keep, &model.content, text, sizeof text);
    if (path) {
        *path = text;
    }
    return status;
}

std::string find(const std::string &run) {
    char text[4096] = "";
    return crl_checkpoint_find(text, sizeof text, run.c_str()) == CRL_STATUS_OK ? text : "";
}

std::set<std::string> names_in(const std::string &folder) {
    std::set<std::string> names;
    for (const auto &entry : fs::directory_iterator(folder)) {
        names.insert(entry.path().filename());
    }
    return names;
}

using Names = std::set<std::string>;

TEST(RunCheckpoint, LoadsTheSameBits) {
    Scratch run;
    const Model saved(0.1f);
    std::string path;
    ASSERT_EQ(save(run.path(), 100, 0, saved, &path), CRL_STATUS_OK) << crl_error_message();
    EXPECT_EQ(path, run / "checkpoints/step-00000100");
    EXPECT_EQ(names_in(path), Names({"model.safetensors", "optimizer.safetensors", "state.json"}));
    EXPECT_EQ(names_in(run / "checkpoints"), Names({"latest", "step-00000100"}));
    EXPECT_EQ(read_text(run / "checkpoints/latest"), "step-00000100\n");

    EXPECT_EQ(find(run.path()), path);
    EXPECT_EQ(find(path), path);
    json_t *facts = nullptr;
    ASSERT_EQ(crl_checkpoint_facts(&facts, path.c_str()), CRL_STATUS_OK) << crl_error_message();
    EXPECT_TRUE(json_equal(facts, saved.content.facts));
    json_decref(facts);

    Model loaded(9);
    ASSERT_EQ(crl_checkpoint_load(path.c_str(), &loaded.content, true), CRL_STATUS_OK)
        << crl_error_message();
    EXPECT_EQ(loaded.data, saved.data);
}

TEST(RunCheckpoint, LoadsOnlyWhatIsWanted) {
    Scratch run;
    const Model saved(1);
    std::string path;
    ASSERT_EQ(save(run.path(), 1, 0, saved, &path), CRL_STATUS_OK);
    Model part(9);
    const std::vector<std::vector<float>> before = part.data;
    part.param[1].data = nullptr; /* another rank's */
    ASSERT_EQ(crl_checkpoint_load(path.c_str(), &part.content, false), CRL_STATUS_OK);
    EXPECT_EQ(part.data[0], saved.data[0]);
    EXPECT_EQ(part.data[1], before[1]);
    EXPECT_EQ(part.data[3], before[3]) << "state was not asked for";
    fs::remove(path + "/optimizer.safetensors");
    EXPECT_EQ(crl_checkpoint_load(path.c_str(), &part.content, false), CRL_STATUS_OK);
    EXPECT_EQ(crl_checkpoint_load(path.c_str(), &part.content, true), CRL_STATUS_NOT_FOUND);
}

/* Saves `saved`, loads into `model`, expects the message and no change. */
void expect_refused(const Model &saved, Model *model, const std::string &message) {
    Scratch run;
    std::string path;
    ASSERT_EQ(save(run.path(), 1, 0, saved, &path), CRL_STATUS_OK) << crl_error_message();
    const std::vector<std::vector<float>> before = model->data;
    EXPECT_EQ(crl_checkpoint_load(path.c_str(), &model->content, true), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_error_message(), path + "/" + message);
    EXPECT_EQ(model->data, before) << "changed by a checkpoint that was refused";
}

TEST(RunCheckpoint, RefusesOtherShapes) {
    const Model saved(1, 1, 4);
    Model model(2);
    expect_refused(saved, &model,
                   "model.safetensors: tensor 'h0.fc.weight' has shape (4,4), expected (4,3)");
}

TEST(RunCheckpoint, RefusesMissingTensors) {
    Model saved(1);
    saved.content.params = 2;
    Model model(2);
    expect_refused(saved, &model, "model.safetensors: tensor 'wte.weight' is missing");
}

TEST(RunCheckpoint, RefusesTensorsTheModelHasNot) {
    const Model saved(1);
    Model model(2);
    model.content.params = 2;
    expect_refused(saved, &model,
                   "model.safetensors: tensor 'wte.weight' is not part of the model");
}

TEST(RunCheckpoint, RefusesValuesThatAreNotFinite) {
    Model saved(1);
    Model model(2);
    saved.data[2][5] = NAN;
    expect_refused(saved, &model, "model.safetensors: tensor 'wte.weight', element 5 is nan");
    saved.data[2][5] = -INFINITY;
    expect_refused(saved, &model, "model.safetensors: tensor 'wte.weight', element 5 is -inf");
    saved.data[2][5] = 0;
    saved.data[3][11] = INFINITY;
    expect_refused(saved, &model,
                   "optimizer.safetensors: tensor 'h0.fc.weight.m', element 11 is inf");
}

TEST(RunCheckpoint, RefusesOtherElementTypes) {
    Scratch run;
    const Model saved(1);
    Model model(2);
    std::string path;
    ASSERT_EQ(save(run.path(), 1, 0, saved, &path), CRL_STATUS_OK);
    std::string text = read_text(path + "/model.safetensors");
    for (size_t at; (at = text.find("F32")) != std::string::npos;) {
        text.replace(at, 3, "I32");
    }
    write_text(path + "/model.safetensors", text);
    EXPECT_EQ(crl_checkpoint_load(path.c_str(), &model.content, true), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_error_message(),
              path + "/model.safetensors: tensor 'h0.fc.weight' has type i32, expected f32");
}

TEST(RunCheckpoint, KeepsTheNewest) {
    Scratch run;
    for (int step = 10; step <= 50; step += 10) {
        ASSERT_EQ(save(run.path(), step, 2, Model(1)), CRL_STATUS_OK) << crl_error_message();
    }
    fs::create_directory(run / "checkpoints/step-mine");
    EXPECT_EQ(names_in(run / "checkpoints"),
              Names({"latest", "step-00000040", "step-00000050", "step-mine"}));
    ASSERT_EQ(save(run.path(), 60, 0, Model(1)), CRL_STATUS_OK);
    EXPECT_EQ(names_in(run / "checkpoints").size(), 5u);
    /* Resumed from step 40: what has a higher step is of the run's earlier life. */
    ASSERT_EQ(save(run.path(), 45, 2, Model(1)), CRL_STATUS_OK);
    EXPECT_EQ(names_in(run / "checkpoints"),
              Names({"latest", "step-00000040", "step-00000045", "step-mine"}));
}

TEST(RunCheckpoint, FindsTheLastOneWrittenAfterAnEarlierResume) {
    Scratch run;
    ASSERT_EQ(save(run.path(), 100, 0, Model(1)), CRL_STATUS_OK);
    ASSERT_EQ(save(run.path(), 200, 0, Model(1)), CRL_STATUS_OK);
    ASSERT_EQ(save(run.path(), 150, 0, Model(1)), CRL_STATUS_OK);
    /* Times as a slow run would have them: files of one save may share a clock tick. */
    const auto now = fs::last_write_time(run / "checkpoints/latest");
    const auto set_time = [&](const char *name, int seconds) {
        fs::last_write_time(run / name, now + std::chrono::seconds(seconds));
    };
    set_time("checkpoints/step-00000200/state.json", -100);
    set_time("checkpoints/step-00000150/state.json", -1);
    EXPECT_EQ(find(run.path()), run / "checkpoints/step-00000150");
    /* A later save that ended before it could write `latest`. */
    set_time("checkpoints/step-00000200/state.json", 100);
    EXPECT_EQ(find(run.path()), run / "checkpoints/step-00000200");
    set_time("checkpoints/step-00000200/state.json", -100);
    fs::remove_all(run / "checkpoints/step-00000150");
    fs::remove_all(run / "checkpoints/step-00000100");
    EXPECT_EQ(find(run.path()), run / "checkpoints/step-00000200") << "the only one";
}

TEST(RunCheckpoint, ReplacesTheSameStep) {
    Scratch run;
    std::string path;
    ASSERT_EQ(save(run.path(), 7, 0, Model(1)), CRL_STATUS_OK);
    const Model again(2);
    ASSERT_EQ(save(run.path(), 7, 0, again, &path), CRL_STATUS_OK) << crl_error_message();
    EXPECT_EQ(names_in(run / "checkpoints"), Names({"latest", "step-00000007"}));
    Model loaded(9);
    ASSERT_EQ(crl_checkpoint_load(path.c_str(), &loaded.content, true), CRL_STATUS_OK);
    EXPECT_EQ(loaded.data, again.data);
}

TEST(RunCheckpoint, PassesOverWhatIsNotComplete) {
    Scratch run;
    const std::string folder = run / "checkpoints/";
    EXPECT_EQ(find(run.path()), "");
    EXPECT_EQ(crl_error_get()->status, CRL_STATUS_NOT_FOUND);
    ASSERT_EQ(save(run.path(), 1, 0, Model(1)), CRL_STATUS_OK);
    const auto copy_as = [&](const char *name) {
        fs::copy(folder + "step-00000001", folder + name, fs::copy_options::recursive);
        return folder + name;
    };
    fs::remove(copy_as("step-00000002") + "/state.json");
    fs::remove(copy_as("step-00000003") + "/optimizer.safetensors");
    const std::string cut = copy_as("step-00000004") + "/model.safetensors";
    fs::resize_file(cut, fs::file_size(cut) - 1);
    write_text(copy_as("step-00000005") + "/state.json", "{\"step\"");
    fs::create_directory(folder + "step-00000006");
    copy_as(".tmp-step-00000007");
    copy_as("step-8");
    write_text(folder + "latest", "step-00000004\n");
    EXPECT_EQ(find(run.path()), folder + "step-00000001");

    /* The next save clears what its dead predecessor left, and only that. */
    ASSERT_EQ(save(run.path(), 9, 0, Model(1)), CRL_STATUS_OK);
    EXPECT_FALSE(fs::exists(folder + ".tmp-step-00000007"));
    EXPECT_TRUE(fs::exists(folder + "step-8"));
    EXPECT_EQ(find(run.path()), folder + "step-00000009");

    fs::remove_all(folder + "step-00000001");
    fs::remove_all(folder + "step-00000009");
    EXPECT_EQ(find(run.path()), "");
    EXPECT_NE(strstr(crl_error_message(), "no complete checkpoint, 5 broken: "), nullptr)
        << crl_error_message();
}

TEST(RunCheckpoint, FindsAndRestoresWhatWasSetAside) {
    Scratch run;
    const std::string folder = run / "checkpoints/";
    ASSERT_EQ(save(run.path(), 1, 0, Model(1)), CRL_STATUS_OK);
    ASSERT_EQ(save(run.path(), 2, 0, Model(1)), CRL_STATUS_OK);
    fs::rename(folder + "step-00000002", folder + ".old-step-00000002");
    EXPECT_EQ(find(run.path()), folder + ".old-step-00000002");
    ASSERT_EQ(save(run.path(), 3, 0, Model(1)), CRL_STATUS_OK);
    EXPECT_EQ(names_in(folder),
              Names({"latest", "step-00000001", "step-00000002", "step-00000003"}));
}

/* The soft limit on a file's size stands for a disk that is full. */
class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t bytes) {
        signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &before_);
        struct rlimit limit = before_;
        limit.rlim_cur = bytes;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileSizeLimit() {
        setrlimit(RLIMIT_FSIZE, &before_);
        signal(SIGXFSZ, SIG_DFL);
    }

  private:
    struct rlimit before_;
};

struct Job {
    std::string run;
    int64_t wide;
    std::vector<std::string> path;
    std::vector<std::string> message;
    std::vector<crl_status> status;
};

crl_status save_rank(void *argument, crl_comm *comm) {
    Job *job = static_cast<Job *>(argument);
    Model model(3, comm->ranks, job->wide);
    for (auto *tensors : {&model.param, &model.state}) {
        for (crl_checkpoint_tensor &tensor : *tensors) {
            tensor.data = tensor.owner == comm->rank ? tensor.data : nullptr;
        }
    }
    char path[4096] = "";
    const size_t rank = (size_t)comm->rank;
    job->status[rank] =
        crl_checkpoint_save(comm, job->run.c_str(), 5, 0, &model.content, path, sizeof path);
    job->path[rank] = path;
    job->message[rank] = job->status[rank] == CRL_STATUS_OK ? "" : crl_error_message();
    return CRL_STATUS_OK;
}

Job run_job(const std::string &run, int ranks, int64_t wide) {
    Job job = {run, wide, {}, {}, {}};
    job.path.resize((size_t)ranks);
    job.message.resize((size_t)ranks);
    job.status.resize((size_t)ranks);
    EXPECT_EQ(crl_comm_launch(&crl_transport_local, ranks, 20000000000, save_rank, &job),
              CRL_STATUS_OK)
        << crl_error_message();
    return job;
}

TEST(RunCheckpoint, AnyRanksWriteTheSameFiles) {
    std::string expected[3];
    for (const int ranks : {1, 2, 4}) {
        Scratch run;
        /* 4 x 270000 floats: two pieces */
        const Job job = run_job(run.path(), ranks, 270000);
        int i = 0;
        for (const char *name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
            const std::string text = read_text(run / "checkpoints/step-00000005/" + name);
            ASSERT_FALSE(text.empty()) << name;
            EXPECT_TRUE(ranks == 1 || text == expected[i]) << name << " of " << ranks << " ranks";
            expected[i++] = text;
        }
        for (int rank = 0; rank < ranks; ++rank) {
            EXPECT_EQ(job.status[(size_t)rank], CRL_STATUS_OK);
            EXPECT_EQ(job.path[(size_t)rank], run / "checkpoints/step-00000005");
        }
        Model loaded(9, 1, 270000);
        const Model saved(3, 1, 270000);
        ASSERT_EQ(
            crl_checkpoint_load((run / "checkpoints/step-00000005").c_str(), &loaded.content, true),
            CRL_STATUS_OK)
            << crl_error_message();
        EXPECT_EQ(loaded.data, saved.data);
    }
}

TEST(RunCheckpoint, WhatIsNeitherCheckpointNorRunFolderIsCalledSo) {
    const Scratch scratch;
    write_text(scratch / "weights.safetensors", "no folder at all");
    for (const std::string &path :
         {scratch.path(), scratch / "weights.safetensors", scratch / "nowhere"}) {
        EXPECT_EQ(find(path), "");
        EXPECT_EQ(crl_error_get()->status, CRL_STATUS_NOT_FOUND);
        EXPECT_STREQ(crl_error_message(),
                     (path + ": has neither state.json, as a checkpoint, nor checkpoints, as a "
                             "run folder")
                         .c_str());
    }
}

TEST(RunCheckpoint, FullDiskIsOneMessageOnAllRanks) {
    for (const int ranks : {1, 3}) {
        Scratch run;
        ASSERT_EQ(save(run.path(), 1, 0, Model(1)), CRL_STATUS_OK);
        Job job;
        {
            FileSizeLimit full(1 << 20);
            job = run_job(run.path(), ranks, 270000);
        }
        for (int rank = 0; rank < ranks; ++rank) {
            EXPECT_EQ(job.status[(size_t)rank], CRL_STATUS_IO);
            EXPECT_EQ(job.message[(size_t)rank], job.message[0]);
        }
        EXPECT_NE(job.message[0].find("model.safetensors: cannot be written"), std::string::npos)
            << job.message[0];
        EXPECT_EQ(names_in(run / "checkpoints"), Names({"latest", "step-00000001"}));
        EXPECT_EQ(find(run.path()), run / "checkpoints/step-00000001");
    }
}

TEST(RunCheckpoint, AFileInTheWayIsOneMessageOnAllRanks) {
    Scratch run;
    write_text(run / "checkpoints", "mine");
    const Job job = run_job(run.path(), 3, 3);
    for (int rank = 0; rank < 3; ++rank) {
        EXPECT_NE(job.status[(size_t)rank], CRL_STATUS_OK);
        EXPECT_EQ(job.message[(size_t)rank], job.message[0]);
    }
    EXPECT_EQ(read_text(run / "checkpoints"), "mine");
}

TEST(RunCheckpoint, EveryFailingAllocationLeavesTheEarlierOne) {
    Scratch run;
    ASSERT_EQ(save(run.path(), 1, 0, Model(1)), CRL_STATUS_OK);
    bool saved = false;
    for (int n = 1; !saved; ++n) {
        ASSERT_LT(n, 500);
        crl_alloc_watch watch = {};
        crl_alloc_attach(&watch);
        watch.fail_at = n;
        const crl_status status = save(run.path(), 2, 1, Model(2));
        watch.fail_at = 0;
        EXPECT_EQ(watch.live_bytes, 0) << n;
        crl_alloc_attach(nullptr);
        saved = status == CRL_STATUS_OK;
        EXPECT_TRUE(saved || status == CRL_STATUS_NOMEM) << crl_status_name(status);
        EXPECT_NE(find(run.path()), "") << "allocation " << n;
    }
    EXPECT_EQ(names_in(run / "checkpoints"), Names({"latest", "step-00000002"}));
}

/* The same for the places where the system says no: a limit on open files, one more each time. */
TEST(RunCheckpoint, RunningOutOfDescriptorsLeavesTheEarlierOne) {
    Scratch run;
    ASSERT_EQ(save(run.path(), 1, 0, Model(1)), CRL_STATUS_OK);
    const int free_one = dup(0);
    ASSERT_GE(free_one, 0);
    close(free_one);
    struct rlimit before, limit;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    int failures = 0;
    for (int more = 0;; ++more) {
        ASSERT_LT(more, 50);
        limit = before;
        limit.rlim_cur = (rlim_t)(free_one + more);
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
        const crl_status status = save(run.path(), 2, 1, Model(2));
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
        if (status == CRL_STATUS_OK) {
            break;
        }
        ++failures;
        EXPECT_NE(find(run.path()), "") << more;
    }
    EXPECT_GE(failures, 1);
    EXPECT_EQ(find(run.path()), run / "checkpoints/step-00000002");
}

} // namespace
