/* SPDX-License-Identifier: Apache-2.0 */
/* A save is killed before each of its system calls that change files: whatever the place, a
 * complete checkpoint must be found and load. The child is traced, so the product needs no hook. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "engine/run/checkpoint.h"
#include "tests/run/scratch.h"

namespace {

/* Every place; with a sanitizer, where a fork takes long, a sample. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const int kStride = 7;
#else
const int kStride = 1;
#endif

bool changes_files(uint64_t call) {
    static const std::set<uint64_t> calls = {
        SYS_write, SYS_fsync, SYS_openat, SYS_mkdirat, SYS_renameat2, SYS_unlinkat,
#ifdef SYS_rename
        SYS_open,  SYS_mkdir, SYS_rename, SYS_unlink,  SYS_rmdir,
#endif
    };
    return calls.count(call) > 0;
}

crl_status save(const std::string &run, int64_t step, int keep, float value) {
    float w[3] = {value, value, value};
    crl_checkpoint_tensor param = {};
    param.name = "w";
    param.shape = CRL_SHAPE(3);
    param.data = w;
    crl_checkpoint_content content = {};
    content.param = &param;
    content.params = 1;
    crl_comm comm = {};
    comm.ranks = 1;
    char path[4096];
    return crl_checkpoint_save(&comm, run.c_str(), step, keep, &content, path, sizeof path);
}

/* w[0] of the checkpoint that is found, or -1. */
float load(const std::string &run) {
    char path[4096];
    float w[3] = {-1, -1, -1};
    crl_checkpoint_tensor param = {};
    param.name = "w";
    param.shape = CRL_SHAPE(3);
    param.data = w;
    crl_checkpoint_content content = {};
    content.param = &param;
    content.params = 1;
    return crl_checkpoint_find(path, sizeof path, run.c_str()) == CRL_STATUS_OK &&
                   crl_checkpoint_load(path, &content, true) == CRL_STATUS_OK
               ? w[0]
               : -1;
}

enum class End { kKilled, kSaved, kNotTraceable };

void kill_and_wait(pid_t child) {
    int state = 0;
    kill(child, SIGKILL);
    waitpid(child, &state, 0);
}

/* Saves in a child that dies before its n-th (from 1) call that changes files. */
End save_and_die(const std::string &run, int64_t step, int keep, float value, int n) {
    const pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) {
            _exit(77);
        }
        raise(SIGSTOP);
        _exit(save(run, step, keep, value) == CRL_STATUS_OK ? 0 : 1);
    }
    int state = 0;
    waitpid(child, &state, 0);
    if (!WIFSTOPPED(state) ||
        ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD) != 0) {
        return End::kNotTraceable;
    }
    int seen = 0;
    for (;;) {
        if (ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) {
            kill_and_wait(child);
            return End::kNotTraceable;
        }
        waitpid(child, &state, 0);
        if (WIFEXITED(state)) {
            EXPECT_EQ(WEXITSTATUS(state), 0);
            return End::kSaved;
        }
        if (!WIFSTOPPED(state) || WSTOPSIG(state) != (SIGTRAP | 0x80)) {
            continue;
        }
        struct __ptrace_syscall_info info = {};
        if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) <= 0) {
            kill_and_wait(child);
            return End::kNotTraceable;
        }
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY && changes_files(info.entry.nr) && ++seen == n) {
            kill_and_wait(child);
            return End::kKilled;
        }
    }
}

/* Kills at every place; `accept` says which values may be found then. */
template <typename Accept> void kill_everywhere(const char *what, int64_t step, Accept accept) {
    for (int n = 1;; n += kStride) {
        ASSERT_LT(n, 500);
        Scratch run;
        ASSERT_EQ(save(run.path(), 1, 0, 1), CRL_STATUS_OK);
        ASSERT_EQ(save(run.path(), 2, 0, 2), CRL_STATUS_OK);
        const End end = save_and_die(run.path(), step, 1, 3, n);
        if (end == End::kNotTraceable) {
            GTEST_SKIP() << "this system lets no process trace its child";
        }
        EXPECT_TRUE(accept(load(run.path()))) << what << ", killed at call " << n;
        ASSERT_EQ(save(run.path(), 4, 1, 4), CRL_STATUS_OK) << "the next save, " << n;
        EXPECT_EQ(load(run.path()), 4);
        EXPECT_EQ(std::distance(std::filesystem::directory_iterator(run / "checkpoints"), {}), 2)
            << "left over after call " << n;
        if (end == End::kSaved) {
            EXPECT_GT(n, 15);
            return;
        }
    }
}

TEST(RunCheckpointCrash, ANewStep) {
    kill_everywhere("new step", 3, [](float w) { return w == 2 || w == 3; });
}

TEST(RunCheckpointCrash, TheSameStepAgain) {
    kill_everywhere("same step", 2, [](float w) { return w == 2 || w == 3; });
}

} // namespace
